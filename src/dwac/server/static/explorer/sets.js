// Prediction sets under the ε slider. p-values are loaded once; the labels with p > ε are selected here.

import { $, percent } from "./dom.js";
import { NONE } from "./points.js";

export const inSet = (p, epsilon) => p > epsilon;

// Sets of all examples: how many have one label, several or none, and how many contain the true one.
export function summary(points, n_classes, epsilon) {
  const found = { n: 0, single: 0, several: 0, empty: 0, known: 0, covered: 0 };
  const p = points.p_values;
  points.asked.forEach((point, row) => {
    let size = 0;
    for (let code = 0; code < n_classes; code++) if (inSet(p[row * n_classes + code], epsilon)) size++;
    found.n++;
    found[size === 0 ? "empty" : size === 1 ? "single" : "several"]++;
    if (points.label[point] === NONE) return;
    found.known++;
    if (inSet(p[row * n_classes + points.label[point]], epsilon)) found.covered++;
  });
  return found;
}

export function showSets(app) {
  const { points, start, epsilon } = app;
  $("sets").hidden = start.card.n_calibration === 0;
  $("epsilon").value = epsilon;
  $("epsilon-value").textContent = epsilon;
  $("sets-guide").textContent = start.guide.sets;
  if (!points.p_values.length) return;
  const found = summary(points, start.card.classes.length, epsilon);
  const share = (count) => percent(count / found.n);
  const held = found.known ? ` The true label is in ${percent(found.covered / found.known)} of the sets; the target is at least ${percent(1 - epsilon)}.` : "";
  const few = epsilon * (start.card.n_calibration + 1) < 1 ? " There are too few calibration examples to exclude any label at this ε." : "";
  $("sets-now").textContent = `One label ${share(found.single)}, several ${share(found.several)}, none ${share(found.empty)}.${held}${few}`;
  Object.assign($("sets-now").dataset, found);
}
