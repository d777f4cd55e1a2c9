// What a training example votes for, changed: another label, other labels, or another number.

import { named } from "./chips.js";
import { brief, el, text } from "./dom.js";

const MOST = 200; // choices in a menu

// A menu or a field that edits a training example. who: its name, for screen readers.
export function relabel(app, point, who) {
  return { labels: sets, number }[app.task.unit]?.(app, point, who) ?? classes(app, point, who);
}

function menu(app, point, who, title, choices) {
  return el("select", { "aria-label": `${title} of ${who}`, onchange: (event) => {
    if (event.target.value !== "") app.relabel(point, Number(event.target.value));
  } }, el("option", { value: "" }, "relabel …"), choices.map(([code, name]) => el("option", { value: code }, brief(name, 30))));
}

function classes(app, point, who) {
  const choices = app.start.card.classes.map((name, code) => [code, name]).filter(([code]) => code !== app.points.label[point]);
  return menu(app, point, who, "New label", choices);
}

// The label sets that training examples have, those that differ least first.
function sets(app, point, who) {
  const { card, target } = app.start;
  const n = card.labels.length;
  const now = Array.from(app.points.label.subarray(point * n, (point + 1) * n));
  const changes = (row) => row.filter((has, label) => has !== now[label]).length;
  const choices = target.label_sets.map((row, code) => [code, row]).filter(([, row]) => changes(row))
    .sort(([, a], [, b]) => changes(a) - changes(b)).slice(0, MOST);
  return menu(app, point, who, "New labels", choices.map(([code, row]) => [code, named(app, card.labels.filter((_, label) => row[label]))]));
}

function number(app, point, who) {
  const n = app.task.n;
  const now = Array.from(app.points.label.subarray(point * n, (point + 1) * n));
  const field = el("input", { type: "number", step: "any", value: now[app.task.subject], "aria-label": `New number of ${who}` });
  return el("form", { class: "set", onsubmit: (event) => {
    event.preventDefault();
    const value = Number(field.value);
    if (field.value === "" || !Number.isFinite(value) || value === now[app.task.subject]) return;
    app.relabel(point, now.map((each, t) => (t === app.task.subject ? value : each)));
  } }, field, el("button", { title: `Let ${text(who)} vote for this number` }, "Set"));
}
