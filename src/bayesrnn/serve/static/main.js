// The tabs: one for each task of the runs that are served, and one for their training.

import { allRuns } from "/static/ask.js";
import { make } from "/static/dom.js";
import { makeTraining } from "/static/training.js";

const tabs = document.getElementById("tabs");
const panels = document.getElementById("panels");

async function start() {
  const { runs, version } = await allRuns();
  runs.forEach((run, number) => {
    run.number = number;
  });
  document.getElementById("about").textContent =
    `bayesrnn ${version}. All that you give stays on the ` +
    "machine of this server, and is forgotten when it is answered.";
  const wanted = [];
  for (const task of new Set(runs.filter((run) => run.script).map((run) => run.task))) {
    const own = runs.filter((run) => run.task === task);
    const { makeContent } = await import(own[0].script);
    wanted.push([own[0].title, () => makeContent(own)]);
  }
  const watched = runs.filter((run) => run.watched);
  if (watched.length) wanted.push(["Training", () => makeTraining(watched)]);
  const made = wanted.map(([title, makeContent], place) => makeTab(title, makeContent, place));
  tabs.append(...made.map((one) => one.tab));
  panels.append(...made.map((one) => one.panel));
  const named = decodeURIComponent(location.hash.slice(1));
  select(
    made,
    Math.max(
      0,
      made.findIndex((one) => one.title === named),
    ),
  );
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = made.findIndex((one) => one.tab === document.activeElement);
    const next = (now + step + made.length) % made.length;
    select(made, next);
    made[next].tab.focus();
  });
  for (const [place, one] of made.entries())
    one.tab.addEventListener("click", () => select(made, place));
}

function makeTab(title, makeContent, place) {
  const panel = make("section", {
    id: `panel-${place}`,
    role: "tabpanel",
    "aria-labelledby": `tab-${place}`,
    hidden: true,
  });
  const tab = make("button", {
    id: `tab-${place}`,
    type: "button",
    role: "tab",
    "aria-controls": `panel-${place}`,
    text: title,
  });
  return { title, tab, panel, makeContent, content: null };
}

/** Show a tab; its content is made when it is first shown. */
function select(made, chosen) {
  for (const [place, one] of made.entries()) {
    const shown = place === chosen;
    one.tab.setAttribute("aria-selected", String(shown));
    one.tab.tabIndex = shown ? 0 : -1;
    one.panel.hidden = !shown;
    if (shown && one.content === null) {
      one.content = one.makeContent();
      one.panel.append(one.content);
    }
  }
  history.replaceState(null, "", `${location.search}#${encodeURIComponent(made[chosen].title)}`);
}

start().catch((error) => {
  panels.replaceChildren(make("p", { class: "status wrong", role: "alert", text: error.message }));
});
