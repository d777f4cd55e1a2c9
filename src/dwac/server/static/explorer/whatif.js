// What if? The selected example as a form: change it, predict again, and see beside it what that changes.

import { beforeAfter } from "./change.js";
import { $, el, fill, text } from "./dom.js";

const CHOICES = 60; // categories that fit into a menu

// The form for what the model reads; null if there is none.
export function formOf(app, answer) {
  const make = { tabular: table, text: words, huggingface: words, image }[app.start.card.kind];
  return make && (answer || app.start.card.kind !== "image") ? make(app, answer) : null;
}

export function showWhatIf(app, answer) {
  const known = answer?.editable ? answer : null;
  const form = formOf(app, known);
  $("whatif").hidden = !form || !known;
  if ($("whatif").hidden) return;
  const result = el("div", { id: "what-result", role: "status", "aria-label": "Before and after" }, el("p", { class: "note" }, "The result appears here, before and after."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    app.ask(form.question());
  });
  form.append(el("p", { class: "buttons" }, el("button", { class: "main" }, "Predict"),
    answer.point !== null ? el("button", { type: "button", onclick: () => app.choose(app.chosen) }, "Back to the example") : null));
  fill($("whatif").querySelector("div"), el("p", { class: "note" }, app.start.guide.what_if), el("div", { class: "beside" }, form, result));
}

// The result beside the form.
export function showResult(app, answer) {
  fill($("what-result"), beforeAfter(app, app.original, answer, ["unchanged", "changed"]),
    el("p", {}, el("button", { type: "button", class: "link", onclick: () => app.showAnswer(answer) }, "Show who votes on the changed example")));
}

function table(app, answer) {
  const { columns, example, row } = app.start.card;
  const record = answer ? answer.explanation.record : example;
  const values = columns.map(({ name }, i) => (Array.isArray(record) ? record[i] : record[name]) ?? null);
  const inputs = columns.map((column, i) => field(column, values[i]));
  const form = el("form", {}, el("div", { class: "fields" },
    columns.map(({ name }, i) => el("label", {}, text(name), inputs[i]))));
  inputs.forEach((input, i) => input.addEventListener("input", () => input.classList.toggle("touched", input.value !== (values[i] === null ? "" : String(values[i])))));
  form.question = () => {
    const given = columns.map((column, i) => valueOf(column, inputs[i].value, values[i]));
    return { row: row.type === "array" ? given : Object.fromEntries(columns.map(({ name }, i) => [name, given[i]])) };
  };
  return form;
}

function field({ kind, categories, name }, value) {
  const shown = value === null ? "" : String(value);
  const held = (categories ?? []).filter((each) => each !== null).map(String);
  if (kind === "boolean" || (kind === "categorical" && held.length && held.length <= CHOICES)) {
    const choices = kind === "boolean" ? ["true", "false"] : held;
    const all = [...new Set(["", ...choices, shown])];
    return el("select", { name }, all.map((each) => el("option", { value: each, selected: each === shown }, each || "unknown")));
  }
  return el("input", { name, value: shown, inputmode: kind === "numeric" ? "decimal" : null, placeholder: "unknown" });
}

// The typed value in the type of its column; untouched values are kept as they were.
function valueOf({ kind, categories }, typed, before) {
  if (typed === (before === null ? "" : String(before))) return before;
  if (typed.trim() === "") return null;
  if (kind === "boolean" && ["true", "false"].includes(typed)) return typed === "true";
  const known = (categories ?? []).find((each) => each !== null && String(each) === typed);
  if (known !== undefined) return known;
  const value = Number(typed);
  return kind === "numeric" && !Number.isNaN(value) ? value : typed;
}

function words(app, answer) {
  const area = el("textarea", { name: "text", "aria-label": "Text to classify" });
  area.value = answer ? answer.explanation.record.text : "";
  if (answer) area.id = "what-text";
  const form = el("form", {}, area);
  form.question = () => ({ row: area.value });
  return form;
}

function image(app, answer) {
  const number = (name, given) => el("label", {}, name, el("input", { type: "number", ...given }));
  const right = number("Move right, in pixels", { name: "right", value: 0, step: 1 });
  const down = number("Move down, in pixels", { name: "down", value: 0, step: 1 });
  const light = number("Brightness factor", { name: "brightness", value: 1, step: 0.1, min: 0, max: 10 });
  const form = el("form", {}, el("div", { class: "fields" }, right, down, light));
  const value = (label) => Number(label.querySelector("input").value);
  const point = answer.point ?? app.chosen;
  form.question = () => ({ point, right: Math.round(value(right)), down: Math.round(value(down)), brightness: value(light) });
  return form;
}
