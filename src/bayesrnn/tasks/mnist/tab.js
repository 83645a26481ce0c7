// The tab of digits: a drawing, and what the network takes it for.

import { makeColumns } from "/static/columns.js";
import { entropyText, later, make, makeBar, noiseSlider, percent, slider } from "/static/dom.js";

const SIDE = 280;
const STEP = 10;
const PEN = 22;

export function makeContent(runs) {
  const columns = makeColumns(runs, show);
  const draws = slider("draws", { min: 1, max: 50, step: 1, value: 20, changed: () => soon() });
  const noise = noiseSlider(() => soon());
  const canvas = make("canvas", {
    class: "pad",
    width: SIDE,
    height: SIDE,
    tabindex: 0,
    role: "application",
    "aria-label":
      "Draw a digit: with the pointer, or with the arrow keys after Space has put the pen down. " +
      "Delete clears.",
  });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const said = make("p", { class: "note", role: "status", text: "Draw a digit." });
  const pen = { x: SIDE / 2, y: SIDE / 4, down: false };
  let empty = true;

  function clear() {
    context.fillStyle = "#000";
    context.fillRect(0, 0, SIDE, SIDE);
    empty = true;
    pen.down = false;
    for (const body of columns.bodies()) body.replaceChildren();
    said.textContent = "Draw a digit.";
  }

  function drawTo(x, y) {
    context.strokeStyle = "#fff";
    context.lineWidth = PEN;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.beginPath();
    context.moveTo(pen.x, pen.y);
    context.lineTo(x, y);
    context.stroke();
    empty = false;
    soon();
  }

  function move(x, y) {
    const [nextX, nextY] = [Math.min(SIDE, Math.max(0, x)), Math.min(SIDE, Math.max(0, y))];
    if (pen.down) drawTo(nextX, nextY);
    pen.x = nextX;
    pen.y = nextY;
  }

  function look() {
    if (empty) return;
    const { data } = context.getImageData(0, 0, SIDE, SIDE);
    const grey = new Uint8Array(SIDE * SIDE);
    for (let place = 0; place < grey.length; place += 1) grey[place] = data[4 * place];
    columns.ask("look", { samples: draws.value(), noise: noise.value() }, grey);
  }

  const soon = later(250, look);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * SIDE) / box.width,
      ((event.clientY - box.top) * SIDE) / box.height,
    ];
  };
  canvas.addEventListener("pointerdown", (event) => {
    [pen.x, pen.y] = at(event);
    pen.down = true;
    canvas.setPointerCapture(event.pointerId);
    drawTo(pen.x, pen.y);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) move(...at(event));
  });
  canvas.addEventListener("pointerup", () => {
    pen.down = false;
  });
  canvas.addEventListener("keydown", (event) => {
    const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[
      event.key
    ] ?? [0, 0];
    if (event.key === " ") {
      pen.down = !pen.down;
      if (pen.down) drawTo(pen.x, pen.y);
    } else if (event.key === "Delete" || event.key === "Backspace") clear();
    else if (x || y) move(pen.x + STEP * x, pen.y + STEP * y);
    else return;
    event.preventDefault();
    said.textContent =
      `The pen is ${pen.down ? "down" : "up"}, at column ${Math.round(pen.x / STEP)}, ` +
      `row ${Math.round(pen.y / STEP)}.`;
  });
  clear();
  return make(
    "div",
    {},
    make(
      "div",
      { class: "beside" },
      make(
        "div",
        {},
        canvas,
        make("p", {}, make("button", { type: "button", text: "Clear", on: { click: clear } })),
      ),
      make(
        "div",
        { class: "grow" },
        draws.element,
        noise.element,
        said,
        make("p", {
          class: "note",
          text: "Without a pointer: Space puts the pen down or up, arrow keys move it.",
        }),
      ),
    ),
    columns.element,
  );
}

function show(body, found) {
  const { side, seen, draws } = found;
  const canvas = make("canvas", {
    class: "seen",
    width: side,
    height: side,
    role: "img",
    "aria-label": "the drawing as the network sees it",
  });
  const picture = new ImageData(side, side);
  seen.forEach((grey, place) => picture.data.set([grey, grey, grey, 255], 4 * place));
  canvas.getContext("2d").putImageData(picture, 0, 0);
  const likeliest = found.probabilities.indexOf(Math.max(...found.probabilities));
  const bars = found.probabilities.map((share, digit) => {
    const count = draws && found.answers[digit] ? ` · ${found.answers[digit]}` : "";
    return makeBar(String(digit), share, `${percent(share)}${count}`);
  });
  body.replaceChildren(
    make(
      "div",
      { class: "beside" },
      canvas,
      make(
        "div",
        {},
        make("p", {
          class: "big",
          text: `${likeliest}, with ${percent(found.probabilities[likeliest])}`,
        }),
        make("p", {
          class: "note",
          text: entropyText(found.total, found.aleatoric, found.epistemic),
        }),
      ),
    ),
    ...bars,
    make("p", {
      class: "note",
      text: draws
        ? `bars: the average of ${draws} draws; after the dot, how many of them say so`
        : "bars: one network",
    }),
  );
}
