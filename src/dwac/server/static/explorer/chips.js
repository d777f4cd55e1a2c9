// A label with the symbol of its class, or a number with its colour.

import { sign } from "./colours.js";
import { brief, el, numeral } from "./dom.js";

export function chip(app, label, given = {}) {
  const code = app.task.codeNamed(label);
  return el("span", { class: "chip", ...given }, code === undefined ? null : sign(code), brief(named(app, label), 40));
}

// A label, the labels of an example, or its numbers, as text.
export function named(app, label) {
  if (app.task.unit === "number") return [label].flat().map((each) => numeral(each)).join(", ");
  return Array.isArray(label) ? label.join(", ") || "no label" : label;
}
