// The tab of forecasts: a series, a fan into its future, a backtest, and values that were strange.

import { frame, isNarrow, outline, path, scales } from "/static/chart.js";
import { makeColumns } from "/static/columns.js";
import { ask } from "/static/ask.js";
import {
  fileDrop,
  freshId,
  later,
  make,
  makeSvg,
  percent,
  short,
  slider,
  table,
  tooLarge,
} from "/static/dom.js";

const LARGEST = 20e6;
// Dates below a picture.
const [DATES, FEW_DATES] = [5, 3];

export function makeContent(runs) {
  const columns = makeColumns(runs, show);
  const horizon = slider("steps ahead", {
    min: 0,
    max: 120,
    step: 1,
    value: 0,
    shown: (value) => (value ? String(value) : "as trained"),
    changed: () => soon(),
  });
  const draws = slider("draws", { min: 1, max: 20, step: 1, value: 10, changed: () => soon() });
  const id = freshId("series");
  const select = make("select", { id }, make("option", { value: 0, text: "the first" }));
  const chooser = make(
    "p",
    { class: "choice", hidden: true },
    make("label", { for: id, text: "series" }),
    select,
  );
  const source = make("p", { class: "note", text: "The series that each run learnt from." });
  const own = make("button", { type: "button", text: "The run's own series again", hidden: true });
  let file = null;

  const options = () => ({
    series: Number(select.value),
    horizon: horizon.value(),
    samples: draws.value(),
  });
  const again = () => {
    if (file === null) columns.ask("fan", options());
    else columns.ask("fan-of-file", options(), file);
  };
  const soon = later(350, again);

  function use(chosen) {
    if (chosen !== null && tooLarge(chosen, LARGEST)) {
      columns.say(tooLarge(chosen, LARGEST), "wrong");
      return;
    }
    file = chosen;
    own.hidden = file === null;
    source.textContent = file === null ? "The series that each run learnt from." : file.name;
    select.value = "0";
    again();
  }

  function nameSeries(names) {
    const now = select.value;
    select.replaceChildren(
      ...names.map((name, place) => make("option", { value: place, text: name })),
    );
    select.value = Number(now) < names.length ? now : "0";
    chooser.hidden = names.length < 2;
  }

  async function look(button, body, found, run) {
    button.disabled = true;
    const said = make("p", {
      class: "status busy",
      role: "status",
      text: "reading the last values one by one …",
    });
    button.after(said);
    try {
      const [question, content] =
        file === null ? ["strange", undefined] : ["strange-in-file", file];
      const { strange, looked, chance } = await ask(
        run,
        question,
        { series: Number(select.value) },
        { content },
      );
      said.className = "status";
      said.textContent = strange.length
        ? `${strange.length} of the last ${looked} values are strange: so far out less than ` +
          `once in ${Math.round(1 / chance)}`
        : `none of the last ${looked} values is strange`;
      body.querySelector("figure").replaceWith(chart(found, strange));
      if (strange.length) said.after(strangeTable(strange));
    } catch (error) {
      said.className = "status wrong";
      said.textContent = error.message;
      button.disabled = false;
    }
  }

  function show(body, found, run) {
    nameSeries(found.names);
    const button = make("button", { type: "button", text: "Mark strange values" });
    button.addEventListener("click", () => look(button, body, found, run));
    body.replaceChildren(
      chart(found, []),
      make("ul", {}, ...found.sentences.map((text) => make("li", { text }))),
      button,
      ...(found.backtest
        ? [
            table(found.backtest.header, found.backtest.rows, {
              left: found.backtest.left,
              caption: "Backtest on the test windows",
            }),
          ]
        : [make("p", { class: "note", text: "no backtest: the run's own data are not there" })]),
      ...(found.read ? [make("p", { class: "note", text: found.read })] : []),
    );
  }

  select.addEventListener("change", again);
  own.addEventListener("click", () => use(null));
  again();
  return make(
    "div",
    {},
    fileDrop(
      "Drop a CSV file here, or choose one: later values, or other series",
      ".csv,.tsv,text/csv",
      use,
    ),
    make("div", { class: "controls" }, source, own, chooser, horizon.element, draws.element),
    columns.element,
  );
}

function chart(found, strange) {
  const start = found.history.length;
  const after = (values) => values.map((value, step) => [start + step, value]);
  const all = [found.history, found.median, found.naive, ...Object.values(found.bands).flat()]
    .flat()
    .filter((value) => value !== null);
  const marked = strange
    .map((one) => [found.labels.indexOf(one.label), one])
    .filter(([place]) => place >= 0);
  const steps = found.labels.length - 1;
  const scale = scales([0, steps], all);
  const area = (kind, [low, high]) =>
    makeSvg("path", { class: `band ${kind}`, d: outline(after(low), after(high), scale) });
  const levels = Object.keys(found.bands).sort((a, b) => b - a);
  const parts = [
    ...levels.map((level) => area(`band-${level}`, found.bands[level])),
    ...(found.model ? [area("band-model", found.model)] : []),
    makeSvg("path", {
      class: "line history",
      d: path(
        found.history.map((value, step) => [step, value]),
        scale,
      ),
    }),
    makeSvg("path", { class: "line naive", d: path(after(found.naive), scale) }),
    makeSvg("path", { class: "line median", d: path(after(found.median), scale) }),
    ...marked.map(([place, one]) =>
      makeSvg(
        "circle",
        {
          class: "anomaly",
          cx: scale.x(place),
          cy: scale.y(one.value),
          r: 6,
        },
        makeSvg("title", { text: `${one.label}: ${one.cause}` }),
      ),
    ),
  ];
  const names = [
    ["history", "values"],
    ["median", "median"],
    ...levels.map((level) => [`band-${level}`, `${level}%`]).reverse(),
    ...(found.model ? [["band-model", "the model's"]] : []),
    ["naive", "naive"],
  ];
  const count = isNarrow() ? FEW_DATES : DATES;
  const dates = Array.from({ length: count }, (_, number) =>
    Math.round((steps * number) / (count - 1)),
  );
  const xLabels = [...new Set(dates)].map((place) => [place, found.labels[place]]);
  const kind = found.calibrated ? "calibrated intervals" : "intervals as the network has them";
  return frame(`${found.name}: ${kind}`, scale, parts, { names, xLabels });
}

function strangeTable(strange) {
  const rows = strange.map((one) => [
    one.label,
    short(one.value, 4),
    `${short(one.low, 4)} to ${short(one.high, 4)}`,
    one.p.toExponential(0),
    percent(one.epistemic),
    one.cause,
  ]);
  return table(["date", "value", "expected, 95%", "chance", "model's share", "cause"], rows, {
    left: ["date", "cause"],
    caption: "Strange values",
  });
}
