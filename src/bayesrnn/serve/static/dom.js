// Elements, made without ever parsing text as HTML.

/** An element; `on` has its listeners, `text` its text, the rest are attributes. */
export function make(name, { text, on = {}, ...attributes } = {}, ...children) {
  return filled(document.createElement(name), text, on, attributes, children);
}

/** The same of a picture. */
export function makeSvg(name, { text, on = {}, ...attributes } = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  return filled(element, text, on, attributes, children);
}

function filled(element, text, on, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null)
      element.setAttribute(key, value);
  }
  if (text !== undefined) element.textContent = text;
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

let counter = 0;

/** A name that no other element has. */
export function freshId(stem) {
  counter += 1;
  return `${stem}-${counter}`;
}

/** A labelled slider; `changed` is called with its number. */
export function slider(label, { min, max, step, value, shown = String, changed = () => {} }) {
  const id = freshId("slider");
  const output = make("output", { for: id, text: shown(value) });
  const input = make("input", {
    id,
    type: "range",
    min,
    max,
    step,
    value,
    on: {
      input: () => {
        output.textContent = shown(Number(input.value));
        changed(Number(input.value));
      },
    },
  });
  const element = make(
    "p",
    { class: "slider" },
    make("label", { for: id, text: label }),
    input,
    output,
  );
  return { element, input, value: () => Number(input.value) };
}

/** A slider for the factor on the noise of draws. */
export function noiseSlider(changed) {
  const shown = (value) => value.toFixed(1);
  return slider("noise of draws, × sigma", {
    min: 0,
    max: 10,
    step: 0.1,
    value: 1,
    shown,
    changed,
  });
}

/** A table of texts; the columns named in `left` have words, the others numbers. */
export function table(header, rows, { left = [], caption } = {}) {
  const side = (place) => (left.includes(header[place]) ? "left" : "right");
  const cells = (kind, line) =>
    line.map((cell, place) => make(kind, { text: cell, class: side(place) }));
  return make(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": caption ?? "table" },
    make(
      "table",
      {},
      caption ? make("caption", { text: caption }) : null,
      make("thead", {}, make("tr", {}, ...cells("th", header))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells("td", row)))),
    ),
  );
}

/** A place to drop a file, which is a button to choose one as well. */
export function fileDrop(label, accept, chosen) {
  const id = freshId("file");
  const input = make("input", {
    id,
    type: "file",
    accept,
    on: {
      change: () => {
        if (input.files.length) chosen(input.files[0]);
        input.value = "";
      },
    },
  });
  const over = (event) => {
    event.preventDefault();
    element.classList.toggle("over", event.type === "dragover");
    if (event.type === "drop" && event.dataTransfer.files.length)
      chosen(event.dataTransfer.files[0]);
  };
  const element = make(
    "label",
    { for: id, class: "drop", on: { dragover: over, dragleave: over, drop: over } },
    input,
    make("span", { text: label }),
  );
  return element;
}

/** What to say of a file that is larger than so many bytes; nothing of another one. */
export function tooLarge(file, most) {
  if (file.size <= most) return "";
  return `${file.name} has ${(file.size / 1e6).toFixed(1)} MB; at most ${most / 1e6} MB are taken`;
}

/** An entropy as the sum of its parts. */
export function entropyText(total, aleatoric, epistemic) {
  const parts = `${short(aleatoric)} aleatoric + ${short(epistemic)} epistemic`;
  return `entropy ${short(total)} nats = ${parts}`;
}

/** How many networks answered. */
export function drawsText(draws) {
  return draws ? `${draws} draws` : "one network";
}

/** A function that calls another one when nothing has come for some milliseconds. */
export function later(milliseconds, call) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, milliseconds);
  };
}

/** A number in a few characters. */
export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6))
    return value.toExponential(1);
  return Math.abs(value) >= 1000
    ? Math.round(value).toLocaleString("en")
    : String(Number(value.toPrecision(digits)));
}

/** A share as percent. */
export function percent(value, digits = 0) {
  return `${(100 * value).toFixed(digits)}%`;
}

/** A bar as long as a share. */
export function makeBar(name, share, shown) {
  const fill = make("span", { class: "fill" });
  fill.style.setProperty("--share", share.toFixed(4));
  return make(
    "div",
    { class: "bar" },
    make("span", { text: name }),
    make("span", { class: "track" }, fill),
    make("span", { class: "value", text: shown }),
  );
}
