// What colours and shapes mean: classes, or a scale of numbers.

import { colourOf, SERIES, sign } from "./colours.js";
import { $, brief, el, fill, numeral } from "./dom.js";

const MOST = 40; // classes named

export function showLegend(app) {
  const { task } = app;
  const hollow = app.points.asked.length > 0 && (task.unit !== "number" || app.points.interval.length > 0);
  const note = hollow ? el("li", { class: "note" }, task.words.hollow) : null;
  if (task.unit === "number") fill($("legend"), scale(app), note);
  else fill($("legend"), task.names.slice(0, MOST).map((name, code) => el("li", {}, sign(code), brief(name, 30))),
    task.names.length > MOST ? el("li", { class: "note" }, `and ${task.names.length - MOST} more`) : null, note);
  $("legend").setAttribute("aria-label", task.unit === "number" ? "Scale of colours" : "Classes");
}

function scale(app) {
  const colour = $("colour").value;
  const [low, high] = app.task.ends(colour);
  const canvas = el("canvas", { class: "ramp", width: SERIES, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  for (let step = 0; step < SERIES; step++) {
    context.fillStyle = colourOf(step);
    context.fillRect(step, 0, 1, 1);
  }
  const name = colour === "error" ? `size of the error of ${app.task.name}` : brief(app.task.name, 30);
  const least = colour === "error" ? numeral(low) : `≤ ${numeral(low)}`;
  return el("li", { class: "scale", data: { low: String(low), high: String(high) } }, el("span", {}, name), el("span", { class: "number" }, least), canvas,
    el("span", { class: "number" }, `≥ ${numeral(high)}`));
}
