// What would change it? The smallest changes towards real examples that give another label or number.

import { oneFile, post } from "./api.js";
import { rangeOf } from "./compare.js";
import { button, el, fill, note, numeral, percent, text } from "./dom.js";
import { meaningOf, titleOf } from "./names.js";

const frozen = new Set(); // places of columns that cannot change, for every example

export function recourse(app, { answer }, load) {
  const { columns } = app.start.card;
  if (oneFile || answer.kind !== "table" && !(app.start.private && columns)) return null;
  const ways = el("div", { id: "ways", role: "status" });
  const wanted = wantedOf(app, answer);
  const form = el("form", {}, el("p", { class: "tools" }, wanted.fields),
    el("fieldset", { class: "checks" }, el("legend", {}, "These cannot change:"), columns.map(({ name }, i) => el("label", {}, el("input", { type: "checkbox", checked: frozen.has(i), onchange: ({ target }) => frozen[target.checked ? "add" : "delete"](i) }), ` ${titleOf(name)}`))),
    el("p", { class: "buttons" }, el("button", { class: "main" }, "Find the smallest changes")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    fill(ways, note("Looking for changes …"));
    app.tried((async () => {
      fill(ways);
      const found = await post(`/explorer/answers/${answer.answer}/recourse`, { ...wanted.read(), frozen: [...frozen] });
      fill(ways, ...list(app, found, answer, load));
    })());
  });
  return el("details", { id: "recourse" }, el("summary", {}, "What would change it?"), form, ways);
}

// What to reach: another label, to have a label or not, or numbers in a range.
function wantedOf(app, answer) {
  if (app.task.unit === "number") {
    const { fields, read } = rangeOf(app, answer);
    return { fields: ["To get a number ", fields], read };
  }
  const { label } = answer.explanation;
  const options = app.task.unit === "label" ? app.task.names.map((name, code) => [code, name]).filter(([, name]) => String(name) !== String(label))
    : [[label === app.task.name ? 0 : 1, label === app.task.name ? `not ${app.task.name}` : app.task.name]];
  const select = el("select", { id: "wanted-label" }, options.map(([code, name]) => el("option", { value: code }, text(name))));
  return { fields: el("label", {}, "To get ", select), read: () => ({ code: Number(select.value) }) };
}

const shown = (value) => (typeof value === "number" ? numeral(value) : text(value));

function list(app, found, answer, load) {
  const [first] = found.sentences;
  if (!found.ways.length) return [el("p", {}, first)];
  const value = (way) => (app.task.unit === "number" ? shown(way.value) : `${text(found.wanted)} ${percent(way.value)}`);
  return [el("p", {}, first), el("ol", { class: "ways" }, found.ways.map((way) => el("li", { data: { value: String(way.value), columns: way.changes.map(({ column }) => column).join() } },
    el("div", {}, way.changes.map(({ column, value: from, to }, i) => [i ? ", " : "", el("b", {}, titleOf(column)), found.private ? "" : ` ${meaningOf(column, from) ?? shown(from)} → ${meaningOf(column, to) ?? shown(to)}`]),
        el("div", { class: "note" }, `${way.precedent ? `as in ${text(way.precedent.id)}: ` : ""}${value(way)}${way.typicality === null ? "" : `, typicality ${found.private && way.typicality === 1 ? "over 10 %" : percent(way.typicality)}`}`,
        way.atypical ? "; such a row is unlike the training data" : null)),
    found.private || !answer.editable ? null : button({ onclick: () => load(way) }, "Try it"))))];
}
