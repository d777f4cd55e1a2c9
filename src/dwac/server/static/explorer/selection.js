// Many examples at once: chosen with a lasso or all that are in view; counted, listed and exported.

import { download, oneFile, post } from "./api.js";
import { chip } from "./chips.js";
import { $, button, el, fill, commas, linkTo, pager, percent, text } from "./dom.js";
import { NONE } from "./points.js";
import { bar, picture } from "./records.js";

const PAGE = 60;
const COUNTED = 8; // labels with bars
const CORNERS = 60; // of a lasso, which is part of the address

// Select the drawn points inside a polygon of the map; an empty one clears the selection.
export async function select(app, polygon) {
  const line = simple(polygon);
  const found = line.length > 2 ? app.map.within(line) : [];
  app.lasso = found.length ? line : [];
  app.selected = found;
  app.marks.lasso = app.lasso;
  const chosen = found.length ? new Uint8Array(app.points.n) : null;
  for (const i of found) chosen[i] = 1;
  app.map.restyle({ selected: chosen });
  app.remember();
  if (found.length) {
    await show(app, 0);
    app.say(`${commas(found.length)} examples selected.`);
  } else app.say(polygon.length > 2 ? "No example is inside." : "The selection is cleared.");
  $("selection").hidden = !found.length;
}

// At most so many corners, with the digits that the address has: a link selects exactly the same.
function simple(polygon) {
  const step = Math.max(1, Math.ceil(polygon.length / CORNERS));
  return polygon.filter((_, i) => i % step === 0).map((place) => place.map((value) => Number(value.toPrecision(5))));
}

export const clear = (app) => select(app, []);

// All points of the map that are in view.
export function inView(app) {
  const { width, height } = app.map.frame;
  return select(app, [[0, 0], [width, 0], [width, height], [0, height]].map(([x, y]) => app.map.placeOf(x, y)));
}

async function show(app, start) {
  const { selected } = app;
  const found = await post("/explorer/selected", { points: selected, start });
  const judged = selected.filter((i) => app.task.isJudged(i));
  const wrong = judged.filter((i) => app.task.isMistake(i)).length;
  const data = selected.filter(app.isData).length;
  const end = start + found.examples.length;
  const sources = [data ? `${commas(data)} of your data` : "", selected.length - data ? `${commas(selected.length - data)} training examples` : ""].filter(Boolean).join(", ");
  Object.assign($("selection").dataset, { n: selected.length, wrong });
  fill($("selection"),
    el("div", { class: "head" }, el("h2", {}, `${commas(selected.length)} selected`), el("span", { class: "buttons" },
      oneFile ? null : button({ id: "export-selection", onclick: () => app.tried(download(`/explorer/selected.csv?epsilon=${app.epsilon}`, "selection.csv", { points: selected })) }, "Export (CSV)"),
      button({ id: "clear-selection", onclick: () => clear(app) }, "Clear"))),
    el("p", {}, `${sources}.`, judged.length ? ` ${commas(wrong)} of ${commas(judged.length)} ${app.task.unit === "number" ? "are outside their interval" : "are predicted wrongly"} (${percent(wrong / judged.length)}).` : ""),
    counts(app),
    el("ul", { class: "members list" }, found.examples.map((each) => item(app, each))),
    selected.length > PAGE ? pager({ start, end, n: selected.length, size: PAGE }, `${commas(start + 1)} to ${commas(end)}`, (place) => app.tried(show(app, place))) : null);
}

// How many have each label, or are predicted to.
function counts(app) {
  const { task, selected } = app;
  if (task.unit === "number") return null;
  const by = new Map();
  for (const i of selected) by.set(task.codeOf(i, "label"), (by.get(task.codeOf(i, "label")) ?? 0) + 1);
  const rows = [...by].filter(([code]) => code !== NONE).sort((a, b) => b[1] - a[1]);
  return el("ul", { class: "labels counts", "aria-label": "Labels of the selection" }, rows.slice(0, COUNTED).map(([code, count]) => el("li", { data: { label: task.names[code], count } },
    chip(app, task.names[code]), bar(count / selected.length), el("span", { class: "number" }, commas(count)), el("span", { class: "number note" }, percent(count / selected.length)))),
  rows.length > COUNTED ? el("li", { class: "note" }, `and ${rows.length - COUNTED} more label${rows.length > COUNTED + 1 ? "s" : ""}`) : null);
}

// One example in a list: its picture or line, its label and prediction.
function item(app, each) {
  return el("li", {}, el("span", { class: "member" }, picture(each.record, `example ${text(each.id)}`),
    linkTo(app, each.point, each.id, false), " ", verdict(app, each),
    each.text ? el("div", { class: "note clamp" }, each.text) : null));
}

// The label and, where it differs, the prediction.
export function verdict(app, { point, true: label, predicted }) {
  const known = label !== null && label !== undefined;
  const parts = known ? [chip(app, label)] : [];
  if (predicted && (!known || app.task.isMistake(point) || app.task.unit === "number")) parts.push(known ? " predicted " : "predicted ", chip(app, predicted.label));
  if (predicted?.probability !== undefined && app.task.unit === "label") parts.push(` ${percent(predicted.probability)}`);
  if (app.task.isMistake(point)) parts.push(app.task.unit === "number" ? " outside its interval" : " ✗ wrong");
  return parts;
}
