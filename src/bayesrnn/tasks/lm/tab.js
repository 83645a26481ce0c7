// The tab of language models: a text whose words show what the network doubted.

import { ask } from "/static/ask.js";
import { makeColumns } from "/static/columns.js";
import {
  drawsText,
  entropyText,
  freshId,
  later,
  make,
  noiseSlider,
  percent,
  short,
  slider,
  table,
} from "/static/dom.js";

const EXAMPLE =
  "it is a truth universally acknowledged, that a single man in possession of a good " +
  "fortune, must be in want of a wife.";
// Nats at which the marks are full: the same for all texts and runs, which can so be compared.
const FULL_ALEATORIC = 7;
const FULL_EPISTEMIC = 0.3;

export function makeContent(runs) {
  const id = freshId("text");
  const text = make("textarea", { id, spellcheck: "false", text: EXAMPLE });
  text.value = EXAMPLE;
  const columns = makeColumns(runs, show);
  const draws = slider("draws", { min: 1, max: 20, step: 1, value: 10, changed: () => soon() });
  const noise = noiseSlider(() => soon());
  const words = slider("words to add", { min: 5, max: 100, step: 5, value: 30 });
  const temperature = slider("temperature", {
    min: 0,
    max: 2,
    step: 0.1,
    value: 0.8,
    shown: (value) => value.toFixed(1),
  });
  let seed = 0;

  function read() {
    if (!text.value.trim()) {
      for (const body of columns.bodies()) body.replaceChildren();
      columns.say("type or paste a text", "");
      return;
    }
    columns.ask("read", { text: text.value, samples: draws.value(), noise: noise.value() });
  }

  const soon = later(350, read);
  text.addEventListener("input", soon);

  function show(body, found, run) {
    const goOn = make("button", { type: "button", text: "Continue the text" });
    goOn.addEventListener("click", async () => {
      goOn.disabled = true;
      seed += 1;
      try {
        const options = {
          text: text.value,
          words: words.value(),
          temperature: temperature.value(),
          seed,
        };
        text.value = (await ask(run, "continue", options)).text;
        read();
      } catch (error) {
        columns.say(error.message, "wrong");
      } finally {
        goOn.disabled = false;
      }
    });
    body.replaceChildren(...reading(found, columns), goOn);
  }

  read();
  return make(
    "div",
    {},
    make("label", { for: id, text: "Text" }),
    text,
    make(
      "div",
      { class: "controls" },
      draws.element,
      noise.element,
      words.element,
      temperature.element,
    ),
    legend(),
    columns.element,
  );
}

function legend() {
  const sample = (a, e, said) => {
    const word = make("span", { class: "word", text: "word" });
    colour(word, a, e);
    return make("span", {}, word, ` ${said}`);
  };
  return make(
    "p",
    { class: "legend" },
    sample(0, 0, "sure"),
    sample(1, 0, "the language leaves it open (aleatoric)"),
    sample(0, 1, "draws of the network disagree (epistemic)"),
    make("span", {
      text: "Point at a word, or move with the arrow keys, for what could have stood there.",
    }),
  );
}

function colour(element, aleatoric, epistemic) {
  element.style.setProperty("--a", aleatoric.toFixed(3));
  element.style.setProperty("--e", epistemic.toFixed(3));
}

function reading(found, columns) {
  const details = make("div", { class: "candidates", "aria-live": "polite" });
  const spans = found.words.map((one, place) => {
    const span = make("span", {
      class: `word${one.known ? "" : " unknown"}`,
      tabindex: place ? -1 : 0,
      "data-place": place,
      text: one.end ? "¶" : one.word,
    });
    colour(
      span,
      Math.min(1, one.aleatoric / FULL_ALEATORIC),
      Math.min(1, Math.sqrt(one.epistemic / FULL_EPISTEMIC)),
    );
    return span;
  });
  const after = make("span", {
    class: "word after",
    tabindex: -1,
    "data-place": spans.length,
    text: "…",
  });
  const all = [...spans, after];
  const line = make("p", {
    class: "words",
    role: "group",
    "aria-label": "the words, with arrow keys",
  });
  for (const span of all) line.append(span, " ");

  line.choose = (place) => {
    for (const [number, span] of all.entries()) span.classList.toggle("chosen", number === place);
    if (place < all.length) details.replaceChildren(...candidates(found, place));
  };
  const chooseAll = (event) => {
    const place = event.target.dataset?.place;
    if (place === undefined) return;
    for (const body of columns.bodies()) body.querySelector(".words")?.choose(Number(place));
  };
  line.addEventListener("pointerover", chooseAll);
  line.addEventListener("focusin", chooseAll);
  line.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const now = all.indexOf(document.activeElement);
    const next = all[now + step];
    if (!step || now < 0 || next === undefined) return;
    event.preventDefault();
    all[now].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  line.choose(spans.length);
  const unknown = found.words.filter((one) => !one.known).length;
  const summary =
    `perplexity ${short(found.perplexity)}, ${found.words.length.toLocaleString("en")} tokens` +
    `${unknown ? `, ${unknown} unknown (italic)` : ""}, ` +
    drawsText(found.draws);
  return [line, make("p", { class: "note summary", text: summary }), details];
}

function candidates(found, place) {
  const rows = [["average", found.average[place]]];
  found.single.forEach((one, number) => rows.push([`draw ${number + 1}`, one[place]]));
  const word = found.words[place];
  const said =
    word === undefined
      ? "After the end:"
      : `“${word.end ? "¶" : word.word}” had ${percent(word.probability, 1)}; ` +
        `${entropyText(word.total, word.aleatoric, word.epistemic)}. Likeliest here:`;
  const cell = ([candidate, share]) =>
    `${candidate === "<eos>" ? "¶" : candidate} ${percent(share)}`;
  const header = ["by", ...rows[0][1].map((_, rank) => String(rank + 1))];
  return [
    make("p", { class: "note", text: said }),
    table(
      header,
      rows.map(([name, of]) => [name, ...of.map(cell)]),
      { left: header },
    ),
  ];
}
