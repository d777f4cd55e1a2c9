// What colours and shapes mean: classes or other names, or a scale of numbers.

import { SERIES, sign } from "./colours.js";
import { $, brief, el, fill, numeral } from "./dom.js";

const MOST = 40; // classes named

export function showLegend(app) {
  const { task } = app;
  const { paint } = app.map.options;
  const hollow = app.points.withPrediction.length > 0 && !(paint.voters && app.start.n_data) && (task.unit !== "number" || app.points.interval.length > 0);
  const note = hollow ? el("li", { class: "note" }, task.words.hollow) : null;
  if (paint.ends) fill($("legend"), scale(app, paint), note);
  else fill($("legend"), paint.names.slice(0, MOST).map((name, code) => el("li", {}, sign(code, paint), brief(name, 30))),
    paint.names.length > MOST ? el("li", { class: "note" }, `and ${paint.names.length - MOST} more`) : null, note);
  $("legend").setAttribute("aria-label", paint.ends ? "Scale of colours" : paint.task ? "Classes" : `Colours of ${paint.name}`);
}

function scale(app, paint) {
  const [low, high] = paint.ends;
  const canvas = el("canvas", { class: "ramp", width: SERIES, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  for (let step = 0; step < SERIES; step++) {
    context.fillStyle = paint.colour(step);
    context.fillRect(step, 0, 1, 1);
  }
  const name = !paint.task ? paint.name : paint.name === "error" ? `size of the error of ${app.task.name}` : app.task.name;
  const exact = paint.words || (!paint.task && low === 0 && high === 1);
  const least = exact || paint.name === "error" ? "" : "≤ ";
  return el("li", { class: "scale", data: { low: String(low), high: String(high) } }, el("span", {}, brief(name, 40)),
    el("span", { class: "number" }, paint.words?.[0] ?? `${least}${numeral(low)}`), canvas,
    el("span", { class: "number" }, paint.words?.[1] ?? `${exact ? "" : "≥ "}${numeral(high)}`));
}
