// The tab of captions: an image, captions whose words show doubt, and what single draws say.

import { makeColumns } from "/static/columns.js";
import { entropyText, fileDrop, make, percent, slider, tooLarge } from "/static/dom.js";

const LARGEST = 10e6;
// Nats at which the colours are full.
const FULL_ALEATORIC = 5;
const FULL_EPISTEMIC = 0.5;

export function makeContent(runs) {
  const columns = makeColumns(runs, show);
  const draws = slider("draws", { min: 1, max: 20, step: 1, value: 5, changed: () => again() });
  const canvas = make("canvas", { class: "shown", hidden: true, role: "img" });
  let image = null;

  async function chosen(file) {
    if (tooLarge(file, LARGEST)) {
      columns.say(tooLarge(file, LARGEST), "wrong");
      return;
    }
    image = file;
    canvas.hidden = true;
    again();
    try {
      const bitmap = await createImageBitmap(file);
      const scale = Math.min(1, 480 / Math.max(bitmap.width, bitmap.height));
      canvas.width = Math.max(1, Math.round(bitmap.width * scale));
      canvas.height = Math.max(1, Math.round(bitmap.height * scale));
      canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      bitmap.close();
      canvas.setAttribute("aria-label", file.name);
      canvas.hidden = false;
    } catch {
      // The server says what is wrong with it, or reads what this browser cannot show.
    }
  }

  const again = () => {
    if (image !== null) columns.ask("caption", { samples: draws.value() }, image);
  };
  return make(
    "div",
    {},
    fileDrop("Drop an image here, or choose one", "image/*", chosen),
    make("div", { class: "controls" }, draws.element),
    canvas,
    make("p", {
      class: "legend",
      text: "Shaded: the language leaves the word open. Underlined: draws of the network disagree.",
    }),
    columns.element,
  );
}

function show(body, found) {
  const captions = found.captions.map((caption) => {
    const line = make("p", { class: "words" });
    for (const one of caption.words.filter((word) => word.word !== "<eos>")) {
      const word = make("span", {
        class: "word",
        text: one.word,
        tabindex: 0,
        title:
          `probability ${percent(one.probability)}, ` +
          entropyText(one.entropy, one.aleatoric, one.epistemic),
      });
      word.style.setProperty("--a", Math.min(1, one.aleatoric / FULL_ALEATORIC).toFixed(3));
      word.style.setProperty(
        "--e",
        Math.min(1, Math.sqrt(Math.max(0, one.epistemic) / FULL_EPISTEMIC)).toFixed(3),
      );
      line.append(word, " ");
    }
    line.append(
      make("span", { class: "note", text: ` ${percent(caption.word_probability)} a word` }),
    );
    return line;
  });
  const said = found.draws_said.map((one) =>
    make("li", { text: `${one.text} (${one.draws} of ${found.draws} draws)` }),
  );
  body.replaceChildren(
    ...captions,
    ...(said.length
      ? [make("h2", { text: "What single draws say" }), make("ul", {}, ...said)]
      : []),
  );
}
