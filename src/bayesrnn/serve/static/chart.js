// Charts as pictures that the theme colours.

import { make, makeSvg, short } from "/static/dom.js";

const [WIDE, NARROW, HEIGHT] = [640, 350, 260];
const [LEFT, TOP, BOTTOM] = [58, 10, 222];

/** Whether the screen is too narrow for a wide picture, whose letters would become too small. */
export const isNarrow = () => window.innerWidth < 600;

/** Round numbers between two others, about so many. */
export function ticks(low, high, wanted = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    found.push(Number(tick.toPrecision(12)));
  }
  return found;
}

/** Where numbers are in a picture: [x of a number, y of a number], and the ranges. */
export function scales(xs, ys) {
  const range = (numbers) => {
    const low = numbers.reduce((least, one) => Math.min(least, one), Infinity);
    const high = numbers.reduce((most, one) => Math.max(most, one), -Infinity);
    if (low === Infinity) return [0, 1];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  };
  const width = isNarrow() ? NARROW : WIDE;
  const right = width - 12;
  const [x0, x1] = range(xs);
  const [y0, y1] = range(ys);
  return {
    x: (value) => LEFT + ((right - LEFT) * (value - x0)) / (x1 - x0),
    y: (value) => BOTTOM - ((BOTTOM - TOP) * (value - y0)) / (y1 - y0),
    xRange: [x0, x1],
    yRange: [y0, y1],
    width,
    right,
  };
}

/** A path through points; where one is missing, it begins anew. */
export function path(points, { x, y }) {
  let open = false;
  return points
    .map(([a, b]) => {
      if (b === null || b === undefined) {
        open = false;
        return "";
      }
      const piece = `${open ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
      open = true;
      return piece;
    })
    .join("");
}

/** The outline of a band from its low and its high ends. */
export function outline(low, high, scale) {
  return `${path(low, scale)}${path([...high].reverse(), scale).replace("M", "L")}Z`;
}

/** A picture with axes; `xLabels` are [place, text] pairs, or else there are round numbers. */
export function frame(title, scale, parts, { names = [], xTitle = "", xLabels = null } = {}) {
  const { right, width } = scale;
  const labels = xLabels ?? ticks(...scale.xRange).map((tick) => [tick, short(tick)]);
  const edge = (place) => (place < LEFT + 30 ? "start" : place > right - 30 ? "end" : "middle");
  return make(
    "figure",
    {},
    make("figcaption", {}, title, ...names.map(named)),
    makeSvg(
      "svg",
      { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": title },
      ...ticks(...scale.yRange, 4).flatMap((tick) => [
        makeSvg("line", {
          class: "grid",
          x1: LEFT,
          x2: right,
          y1: scale.y(tick),
          y2: scale.y(tick),
        }),
        makeSvg("text", {
          class: "tick",
          x: LEFT - 6,
          y: scale.y(tick) + 4,
          "text-anchor": "end",
          text: short(tick, 4),
        }),
      ]),
      ...parts,
      ...labels.map(([place, text]) =>
        makeSvg("text", {
          class: "tick",
          x: scale.x(place),
          y: BOTTOM + 18,
          "text-anchor": edge(scale.x(place)),
          text,
        }),
      ),
      makeSvg("text", {
        class: "tick",
        x: right,
        y: HEIGHT - 2,
        "text-anchor": "end",
        text: xTitle,
      }),
    ),
  );
}

/** A name of what is in a picture, after a sample of its colour. */
function named([kind, text]) {
  return make("span", { class: "named" }, make("span", { class: `key ${kind}` }), text);
}

/** Lines through points; where there are few, the points are marked. */
export function lineChart(title, xTitle, series) {
  const drawn = series.filter((one) => one.points.length);
  const points = drawn.flatMap((one) => one.points);
  const scale = scales(
    points.map(([x]) => x),
    points.map(([, y]) => y),
  );
  const parts = drawn.flatMap((one, place) => [
    makeSvg("path", { class: `line series-${place}`, d: path(one.points, scale) }),
    ...(one.points.length > 40
      ? []
      : one.points.map(([x, y]) =>
          makeSvg("circle", {
            class: `dot series-${place}`,
            cx: scale.x(x),
            cy: scale.y(y),
            r: 3,
          }),
        )),
  ]);
  const names = drawn.map((one, place) => [`series-${place}`, one.name]);
  // Epochs and steps are counted.
  const xLabels = ticks(...scale.xRange)
    .filter(Number.isInteger)
    .map((tick) => [tick, short(tick)]);
  return frame(points.length ? title : `${title}: nothing yet`, scale, parts, {
    names,
    xTitle,
    xLabels,
  });
}
