// Two runs side by side on the same input: a column for each.

import { ask } from "/static/ask.js";
import { freshId, make } from "/static/dom.js";

const NONE = "none";

/**
 * Columns for the runs of a task.
 *
 * show: is called with the body of a column, an answer, and the run that gave it.
 */
export function makeColumns(runs, show) {
  const several = runs.length > 1;
  const columns = [makeColumn(runs, 0, false), ...(several ? [makeColumn(runs, 1, true)] : [])];
  const element = make("div", { class: "columns" }, ...columns.map((column) => column.element));
  let last = null;
  let controller = new AbortController();

  async function askAll(question, options, content) {
    last = [question, options, content];
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    const wanted = columns.filter((column) => column.run() !== null);
    for (const column of wanted) column.say("waiting …", "busy");
    for (const column of wanted) {
      try {
        await askOne(column, question, options, content, signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        column.say(error.message, "wrong");
      }
      if (signal.aborted) return;
    }
  }

  async function askOne(column, question, options, content, signal) {
    const run = column.run();
    const waiting = () => column.say("the server is busy, waiting for a place …", "busy");
    run.about ??= await ask(run, "about", {}, { signal, waiting });
    const found = await ask(run, question, options, { content, signal, waiting });
    if (signal.aborted) return;
    column.say(aboutText(run), "");
    show(column.body, found, run);
  }

  for (const column of columns) {
    column.changed(() => {
      if (column.run() === null) {
        column.body.replaceChildren();
        column.say("", "");
      } else if (last !== null) askAll(...last);
    });
  }
  return {
    element,
    ask: askAll,
    bodies: () => columns.map((column) => column.body),
    say: (text, kind) => columns[0].say(text, kind),
  };
}

function aboutText(run) {
  const { step, draws, noise, calibrated } = run.about;
  const parts = [run.method, `step ${step.toLocaleString("en")}`];
  if (calibrated) parts.push("calibrated");
  if (!draws) parts.push("one network, so no draws that could disagree");
  else if (!noise) parts.push("its draws have no noise that a factor could change");
  return parts.filter(Boolean).join(", ");
}

function makeColumn(runs, chosen, mayBeNone) {
  const id = freshId("run");
  const select = make(
    "select",
    { id },
    ...runs.map((run, place) =>
      make("option", { value: place, text: run.name, selected: place === chosen }),
    ),
    mayBeNone ? make("option", { value: NONE, text: "(no second run)" }) : null,
  );
  const head =
    runs.length > 1
      ? make(
          "p",
          { class: "choice" },
          make("label", { for: id, text: mayBeNone ? "beside" : "run" }),
          select,
        )
      : make("h2", { text: runs[0].name });
  const status = make("p", { class: "status", role: "status" });
  const body = make("div", { class: "body" });
  const element = make(
    "section",
    { class: "column", "aria-label": `answer ${chosen + 1}` },
    head,
    status,
    body,
  );
  return {
    element,
    body,
    run: () => (select.value === NONE ? null : runs[runs.length > 1 ? Number(select.value) : 0]),
    changed: (listener) => select.addEventListener("change", listener),
    say: (text, kind) => {
      status.textContent = text;
      status.className = `status ${kind}`;
      element.setAttribute("aria-busy", String(kind === "busy"));
    },
  };
}
