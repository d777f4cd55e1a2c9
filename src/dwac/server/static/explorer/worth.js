// What training examples are worth: the most and the least helpful of their class, and what removing each would change, exactly.

import { bytes, get, oneFile } from "./api.js";
import { chip } from "./chips.js";
import { $, brief, button, commas, contentOf, el, fill, headsOf, linkTo, note, summaryOf } from "./dom.js";

const unitOf = (app) => (app.task.unit === "number" ? "% of the variance" : "percentage points");

// So many digits behind the point show the largest of some values, in hundredths.
const digitsOf = (values) => Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(100 * Math.max(...values.map(Math.abs), 1e-8)))));

// A worth in hundredths, with its sign.
function points(value, digits = digitsOf([value])) {
  const shown = Math.abs(100 * value).toFixed(digits);
  return Number(shown) === 0 ? "0" : `${value > 0 ? "+" : "\u2212"}${shown}`;
}

// A relative worth, in standard deviations, with its sign.
export const signed = (value) => points(value / 100, 1);

// Relative worth of all points, in their order; asked for once, and again after an edit.
export async function worthOf(app) {
  if (!app.worth) $("status").textContent = "Weighing votes \u2026";
  app.worth ??= new Float32Array(await bytes("/explorer/worth/values"));
  return app.worth;
}
export const forget = (app) => { app.worth = null; };

export async function showWorth(app) {
  const place = contentOf("worth");
  const inside = place.contains(document.activeElement);
  fill(place, note("Weighing the vote of every training example \u2026"));
  if (inside) summaryOf("worth").focus({ preventScroll: true });
  const found = await get("/explorer/worth");
  fill(place, note(app.start.guide.worth), el("p", { data: { before: String(found.before) } }, summary(app, found)),
    el("p", { class: "buttons" }, button({ id: "colour-worth", onclick: () => app.tried(app.setColour("worth")) }, "Colour the map by worth")),
    part(app, "Most helpful", found.most, found), part(app, "Least helpful", found.least, found));
}

function summary(app, { n, judges, rows, harming, together, by_training: training }) {
  const some = judges < rows ? `${commas(judges)} drawn at random from ${commas(rows)}` : commas(judges);
  const who = training ? `${some} training examples, each without its own vote` : `${some} of your rows`;
  return `Judged by ${who}. All ${commas(n)} together are worth ${points(together)}; ${commas(harming)} of them harm more than they help.`;
}

function part(app, title, rows, { before }) {
  const digits = digitsOf(rows.map(({ worth }) => worth));
  const after = digitsOf(rows.map((row) => row.after - before));
  const percent = (value) => (100 * value).toFixed(after);
  const error = ({ standard_error: e }) => (e === null ? null : `\u00b1 ${(200 * e).toFixed(digits)} (2 standard errors)`);
  return [el("h3", {}, title), el("div", { class: "wide" }, el("table", { class: "worth", "aria-label": `${title}, in ${unitOf(app)}` },
    headsOf(["example", "worth", "relative", "if removed", ""], (i) => i > 0),
    el("tbody", {}, rows.map((row) => el("tr", { data: { point: row.point } },
      el("td", {}, linkTo(app, row.point, row.id), " ", chip(app, row.true)),
      el("td", { class: "number", data: { worth: String(row.worth) }, title: error(row) }, points(row.worth, digits)),
      el("td", { class: "number", data: { relative: String(row.relative) } }, signed(row.relative)),
      el("td", { class: "number", data: { after: String(row.after) } }, `${percent(before)} \u2192 ${percent(row.after)}\u00a0%`),
      el("td", {}, oneFile ? null : button({ "aria-label": `Remove ${brief(row.id, 40)}`, onclick: () => app.remove(row.point) }, "Remove")))))))];
}
