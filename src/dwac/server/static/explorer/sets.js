// Prediction sets, decisions or intervals under the ε slider. What is in a set is decided here, from p-values loaded once.

import { $ } from "./dom.js";

export function showSets(app) {
  const { start, epsilon, task } = app;
  $("sets").hidden = start.card.n_calibration === 0;
  $("epsilon").value = epsilon;
  $("epsilon-value").textContent = epsilon;
  $("sets-guide").textContent = start.guide.sets;
  const [sentence, found] = task.overview(epsilon);
  $("sets-now").textContent = sentence;
  Object.assign($("sets-now").dataset, found);
}
