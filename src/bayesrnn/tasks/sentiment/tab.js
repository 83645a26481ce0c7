// The tab of ratings and labels: a text, its score with an interval, and the words that moved it.

import { makeColumns } from "/static/columns.js";
import {
  drawsText,
  freshId,
  later,
  make,
  makeBar,
  percent,
  short,
  slider,
  table,
} from "/static/dom.js";

const EXAMPLE =
  "the story is clever and the cast is wonderful, but the ending is a dull, clumsy mess.";
const SHOWN_MOVES = 8;
// Standard deviations of all scores that the bar of an interval shows on each side.
const REACH = 3;

export function makeContent(runs) {
  const id = freshId("text");
  const text = make("textarea", { id, spellcheck: "false" });
  text.value = EXAMPLE;
  const columns = makeColumns(runs, show);
  const draws = slider("draws", { min: 1, max: 50, step: 1, value: 20, changed: () => soon() });

  function rate() {
    if (!text.value.trim()) {
      for (const body of columns.bodies()) body.replaceChildren();
      columns.say("type or paste a text", "");
      return;
    }
    columns.ask("rate", { text: text.value, samples: draws.value() });
  }

  const soon = later(350, rate);
  text.addEventListener("input", soon);
  rate();
  return make(
    "div",
    {},
    make("label", { for: id, text: "A text to rate" }),
    text,
    make("div", { class: "controls" }, draws.element),
    columns.element,
  );
}

function show(body, found) {
  const answer = found.target === "number" ? number(found) : label(found);
  const unknown = found.unknown
    ? `, ${percent(found.unknown)} of them unknown to the run (italic)`
    : "";
  body.replaceChildren(
    ...answer,
    make("p", {
      class: "note",
      text: `${found.words.toLocaleString("en")} words${unknown}; ${drawsText(found.draws)}`,
    }),
    ...moved(found),
  );
}

function number(found) {
  const [mean, sd] = found.typical;
  const share = (value) => Math.min(1, Math.max(0, 0.5 + (value - mean) / (2 * REACH * sd)));
  const inside = make("span", { class: "inside" });
  const point = make("span", { class: "point" });
  const bar = make(
    "div",
    { class: "interval", role: "img", "aria-label": "the interval" },
    inside,
    point,
  );
  bar.style.setProperty("--low", share(found.low));
  bar.style.setProperty("--high", share(found.high));
  bar.style.setProperty("--at", share(found.score));
  return [
    make("p", { class: "big", text: short(found.score) }),
    make("p", {
      text:
        `${percent(found.interval)} between ${short(found.low)} and ${short(found.high)}; ` +
        `${percent(found.epistemic_share)} of the variance is the model's`,
    }),
    bar,
    make("p", {
      class: "note",
      text:
        `the bar: from ${short(mean - REACH * sd)} to ${short(mean + REACH * sd)}; ` +
        `scores are ${short(mean)} ± ${short(sd)} in the training data`,
    }),
  ];
}

function label(found) {
  return [
    make("p", { class: "big", text: found.label }),
    ...Object.entries(found.probabilities).map(([name, share]) =>
      makeBar(name, share, percent(share)),
    ),
    make("p", {
      class: "note",
      text:
        `entropy ${short(found.entropy)} nats, of which the draws disagree on ` +
        short(found.mutual_information),
    }),
  ];
}

function moved(found) {
  const most = Math.max(...found.tried.map((one) => Math.abs(one.moved)), 1e-9);
  const line = make("p", { class: "words" });
  for (const one of found.tried) {
    const strength = Math.abs(one.moved) / most;
    const direction = strength < 0.1 ? "" : one.moved > 0 ? " up" : " down";
    const word = make("span", {
      class: `moved${direction}${one.known ? "" : " unknown"}`,
      text: one.word,
    });
    word.style.setProperty("--m", strength.toFixed(3));
    line.append(word, " ");
  }
  const ranked = [...found.tried]
    .sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved))
    .slice(0, SHOWN_MOVES);
  const what = found.target === "number" ? "the score" : `the probability of ${found.label}`;
  const left = found.left
    ? `; the last ${found.left.toLocaleString("en")} words were not tried`
    : "";
  return [
    line,
    table(
      ["word", "moved it by"],
      ranked.map((one) => [one.word, `${one.moved > 0 ? "+" : ""}${short(one.moved, 2)}`]),
      {
        left: ["word"],
        caption: "The words that moved it most",
      },
    ),
    make("p", {
      class: "note",
      text:
        `by how much ${what} of the mean network is higher with the word than without it: ` +
        `solid up, dashed down${left}`,
    }),
  ];
}
