// Runs that are being trained: their curves, and what the doctor says of the last checkpoint.

import { ask, training } from "/static/ask.js";
import { lineChart } from "/static/chart.js";
import { freshId, make, percent, short, table } from "/static/dom.js";

const REFRESH = 3000;
const LONG_QUIET = 120;

/** The tab for all runs that keep a log. */
export function makeTraining(runs) {
  const id = freshId("watched");
  const select = make(
    "select",
    { id },
    ...runs.map((run, place) => make("option", { value: place, text: run.name })),
  );
  const status = make("p", { class: "status", role: "status" });
  const curves = make("div", { class: "curves" });
  const button = make("button", { type: "button", text: "Examine the last checkpoint" });
  const always = make("input", { type: "checkbox", id: freshId("always") });
  const said = make("p", { class: "status", role: "status" });
  const doctor = make("div", { class: "doctor" });
  let examined = null;
  let checkpoint = null;

  const run = () => runs[Number(select.value)];

  async function refresh() {
    const asked = run();
    try {
      const found = await training(asked);
      if (asked !== run()) return;
      show(found);
      checkpoint = found.checkpoint;
      if (always.checked && checkpoint !== null && checkpoint !== examined && !button.disabled)
        examine();
    } catch (error) {
      status.textContent = error.message;
      status.className = "status wrong";
    }
  }

  function show(found) {
    const { epochs, steps, measure } = found;
    const share = found.planned ? found.done / found.planned : 0;
    const quiet =
      found.quiet !== null && found.quiet > LONG_QUIET ? ", nothing new for a while" : "";
    const best = found.best === null ? "" : `, best epoch ${found.best}`;
    status.className = "status";
    status.textContent =
      `${found.settings}: ${found.done} of ${found.planned} epochs (${percent(share)})` +
      `${best}${found.speed ? `, ${short(found.speed)} ${found.unit} a second` : ""}${quiet}`;
    const line = (name, key) => ({
      name,
      points: epochs.filter((one) => one[key] !== null).map((one) => [one.epoch, one[key]]),
    });
    curves.replaceChildren(
      lineChart(`${measure} after each epoch`, "epoch", [
        line("training", "train"),
        line("validation", "valid"),
      ]),
      lineChart(`${measure} while training`, "step", [{ name: "minibatches", points: steps }]),
    );
  }

  async function examine() {
    const asked = run();
    button.disabled = true;
    said.textContent = "examining …";
    said.className = "status busy";
    try {
      const found = await ask(
        asked,
        "doctor",
        {},
        {
          waiting: () => {
            said.textContent = "waiting for a place …";
          },
        },
      );
      if (asked === run()) {
        examined = found.step;
        said.textContent = `the checkpoint of step ${found.step.toLocaleString("en")}`;
        said.className = "status";
        doctor.replaceChildren(...diagnosis(found));
      }
    } catch (error) {
      examined = checkpoint;
      said.textContent = error.message;
      said.className = "status wrong";
    } finally {
      button.disabled = false;
    }
  }

  select.addEventListener("change", () => {
    examined = null;
    doctor.replaceChildren();
    said.textContent = "";
    refresh();
  });
  button.addEventListener("click", examine);
  const element = make(
    "div",
    {},
    make("p", { class: "choice" }, make("label", { for: id, text: "run" }), select),
    status,
    curves,
    make("h2", { text: "The doctor" }),
    make(
      "p",
      { class: "choice" },
      button,
      always,
      make("label", { for: always.id, text: "and each that follows" }),
    ),
    said,
    doctor,
  );
  refresh();
  setInterval(() => {
    if (!document.hidden && element.offsetParent !== null) refresh();
  }, REFRESH);
  return element;
}

function diagnosis(found) {
  const findings = found.findings.map((one) =>
    make(
      "li",
      {},
      make("strong", { text: one.title }),
      make("p", { text: one.seen }),
      make("p", { text: one.advice }),
    ),
  );
  return [
    ...(found.verdict ? [make("p", { text: found.verdict })] : []),
    findings.length
      ? make("ul", {}, ...findings)
      : make("p", { text: "Nothing is wrong that it knows of." }),
    ...found.tables.map((one) =>
      make(
        "details",
        {},
        make("summary", { text: one.title }),
        table(one.header, one.rows, { left: one.left, caption: one.title }),
        ...one.notes.map((note) => make("p", { class: "note", text: note })),
      ),
    ),
    ...found.left_out.map((line) => make("p", { class: "note", text: `not measured: ${line}` })),
  ];
}
