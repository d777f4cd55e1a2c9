// The votes for numbers as a histogram, with the prediction, its interval and the true number.

import { el, numeral, percent, svg } from "./dom.js";

const [WIDE, HIGH, BELOW, SIDE] = [420, 150, 20, 6];

// Of several numbers, those of the one that is shown.
export function numberOf(app, e) {
  const pick = (values) => (app.task.subjects && values ? values[app.task.subject] : values);
  return { prediction: pick(e.prediction), interval: pick(e.interval), histogram: pick(e.histogram) };
}

export const ends = (interval) => {
  const [low, high] = interval;
  if (low === null && high === null) return "any number";
  if (low === null || high === null) return low === null ? `at most ${numeral(high)}` : `at least ${numeral(low)}`;
  return `${numeral(low)} to ${numeral(high)}`;
};

export function showVotes(app, { explanation: e, true: given }) {
  const { prediction, interval, histogram } = numberOf(app, e);
  if (!histogram) return null;
  const [edges, shares] = histogram;
  const truth = Array.isArray(given) ? given[app.task.subject] : given;
  const known = typeof truth === "number";
  const seen = [edges[0], edges.at(-1), prediction, ...(known ? [truth] : [])];
  const [low, high] = [Math.min(...seen), Math.max(...seen)];
  const x = (value) => SIDE + ((WIDE - 2 * SIDE) * (value - low)) / (high - low || 1);
  const top = HIGH - BELOW;
  const most = Math.max(...shares) || 1;
  const held = interval && svg("rect", { class: "held", x: x(interval[0] ?? low), y: 0, height: top,
    width: Math.max(1, x(interval[1] ?? high) - x(interval[0] ?? low)) });
  const bars = shares.map((share, i) => {
    const tall = share ? Math.max(1, (top - 8) * (share / most)) : 0;
    const width = Math.max(0.5, x(edges[i + 1]) - x(edges[i]) - 1);
    const bar = svg("rect", { class: "vote", x: x(edges[i]) + 0.5, y: top - tall, width, height: tall });
    bar.append(svg("title", {}, `${numeral(edges[i])} to ${numeral(edges[i + 1])}: ${percent(share)}`));
    return bar;
  });
  const line = (name, value) => svg("line", { class: name, x1: x(value), x2: x(value), y1: 0, y2: top });
  const description = `Votes from ${numeral(edges[0])} to ${numeral(edges.at(-1))}; prediction ${numeral(prediction)}${interval ? `; interval ${ends(interval)}` : ""}${known ? `; true number ${numeral(truth)}` : ""}`;
  const key = (name, words) => el("span", { class: "key" }, el("i", { class: name }), words);
  return el("figure", { id: "distribution", data: { prediction: String(prediction), interval: JSON.stringify(interval ?? null) } },
    svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": description },
      held || null, ...bars, svg("line", { class: "axis", x1: 0, x2: WIDE, y1: top, y2: top }), ...ticks(low, high, x, top, HIGH),
      line("predicted", prediction), known ? line("true", truth) : null),
    el("figcaption", { class: "note" }, key("vote", "votes"), interval ? key("held", `interval at ε = ${e.epsilon}`) : null,
      key("predicted", "prediction"), known ? key("true", "true number") : null));
}

// Round numbers along an axis at height `top`, written at `bottom`; at most as many as there is room for.
export function ticks(low, high, x, top, bottom, write = (value) => numeral(Number(value.toPrecision(12)))) {
  const rough = (high - low) / 4 || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * unit).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) {
    const place = x(at * step);
    const anchor = place < 30 ? "start" : place > WIDE - 30 ? "end" : "middle";
    found.push(svg("line", { class: "axis", x1: place, x2: place, y1: top, y2: top + 4 }),
      svg("text", { x: place, y: bottom - 3, "text-anchor": anchor }, write(at * step)));
  }
  return found;
}
