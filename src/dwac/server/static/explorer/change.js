// Before and after: of a changed example, or of edits. The same numbers beside each other.

import { chip } from "./chips.js";
import { ends, numberOf } from "./distribution.js";
import { el, headsOf, numeral, percent } from "./dom.js";
import { bar } from "./records.js";

const MOST = 4; // labels with bars

// What is predicted: a label, labels or numbers.
export const predictionOf = (answer) => answer.predicted ?? answer.explanation.label ?? answer.explanation.prediction;

export const same = (a, b) => JSON.stringify(predictionOf(a)) === JSON.stringify(predictionOf(b));

// A label with its probability, labels or a number.
export const labelled = (app, label, probability) => [chip(app, label), app.task.unit === "label" && probability !== undefined ? ` ${percent(probability)}` : null];

// The prediction of an answer in short.
export const inShort = (app, answer) => labelled(app, predictionOf(answer), answer.explanation.probability);

const fixed = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

// Rows of [name, before, after]; heads: what the two are called.
function rows(app, before, after) {
  const [b, a] = [before.explanation, after.explanation];
  const found = [["prediction", chip(app, predictionOf(before)), chip(app, predictionOf(after))]];
  if (app.task.unit === "number") {
    const [was, is] = [numberOf(app, b), numberOf(app, a)];
    if (was.interval && is.interval) found.push(["interval", ends(was.interval), ends(is.interval)]);
    found.push(["change", "", numeral(is.prediction - was.prediction)]);
  } else if (app.task.unit !== "label") found.push(["probability", percent(b.probability), percent(a.probability)]); // others have bars
  if (b.credibility !== undefined && b.credibility !== null) found.push(["credibility", fixed(b.credibility), fixed(a.credibility)]);
  if (b.typicality !== undefined && b.typicality !== null) found.push(["typicality", fixed(b.typicality), fixed(a.typicality)]);
  return found;
}

export function beforeAfter(app, before, after, heads = ["before", "after"]) {
  const what = { number: "prediction", labels: "labels" }[app.task.unit] ?? "label";
  return [
    el("p", { class: "verdict" }, same(before, after) ? `The ${what} ${what === "labels" ? "stay" : "stays"} the same.` : `The ${what} ${what === "labels" ? "change" : "changes"}.`),
    el("table", {}, headsOf(["", ...heads]),
      el("tbody", {}, rows(app, before, after).map(([name, was, is]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, was), el("td", {}, is))))),
    bars(app, before, after),
  ];
}

// The probabilities of the labels that have most before or after.
function bars(app, { explanation: b }, { explanation: a }) {
  if (app.task.unit !== "label" || !a.probabilities) return null;
  const most = (name) => Math.max(a.probabilities[name] ?? 0, b.probabilities[name] ?? 0);
  const names = Object.keys(a.probabilities).sort((x, y) => most(y) - most(x)).slice(0, MOST);
  return el("ul", { class: "moved" }, names.map((name) => el("li", {}, chip(app, name),
    [b, a].map((e, i) => el("span", { class: i ? "after" : "earlier" }, bar(e.probabilities[name] ?? 0), el("span", { class: "number" }, percent(e.probabilities[name] ?? 0)))))));
}
