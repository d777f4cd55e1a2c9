// Forms for what a model reads: the columns of a table, a text, an image that can be moved and made brighter.

import { el } from "./dom.js";
import { meaningOf, titleOf } from "./names.js";

const CHOICES = 60; // categories that fit into a menu

// The form for what the model reads; null if there is none.
export function formOf(app, answer) {
  const make = { tabular: table, text: words, huggingface: words, image }[app.start.card.kind];
  return make && (answer || app.start.card.kind !== "image") ? make(app, answer) : null;
}

// The columns of a table as inputs; question: what they hold, as the server takes it.
export function columnsOf(app, record) {
  const { columns, row } = app.start.card;
  const values = columns.map(({ name }, i) => (Array.isArray(record) ? record[i] : record[name]) ?? null);
  const inputs = columns.map((column, i) => field(column, values[i]));
  inputs.forEach((input, i) => input.addEventListener("input", () => input.classList.toggle("touched", input.value !== inputText(values[i]))));
  const question = () => {
    const given = columns.map((column, i) => valueOf(column, inputs[i], values[i]));
    return { row: row.type === "array" ? given : Object.fromEntries(columns.map(({ name }, i) => [name, given[i]])) };
  };
  return { columns, inputs, values, question };
}

// Gives an input a value as if somebody had typed it.
export function enter(input, value) {
  const given = inputText(value);
  if (input.matches("select") && ![...input.options].some((option) => option.value === given)) input.append(el("option", { value: given }, meaningOf(input.name, given) ?? given));
  input.value = given;
  input.exact = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

// A value in an input; of a fraction, the first digits.
const inputText = (value) => (value === null || value === undefined ? "" : String(typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value));

function table(app, answer) {
  const { columns, inputs, question } = columnsOf(app, answer ? answer.explanation.record : app.start.card.example);
  const form = el("form", {}, el("div", { class: "fields" }, columns.map(({ name }, i) => el("label", {}, titleOf(name), inputs[i]))));
  form.question = question;
  return form;
}

function field({ kind, categories, name }, value) {
  const shown = inputText(value);
  const held = (categories ?? []).filter((each) => each !== null).map(String);
  if (kind === "boolean" || (kind === "categorical" && held.length && held.length <= CHOICES)) {
    const choices = kind === "boolean" ? ["true", "false"] : held;
    const all = [...new Set(["", ...choices, shown])];
    return el("select", { name }, all.map((each) => el("option", { value: each, selected: each === shown }, meaningOf(name, each) ?? (each || "unknown"))));
  }
  return el("input", { name, value: shown, inputmode: kind === "numeric" ? "decimal" : null, placeholder: "unknown" });
}

// The typed value in the type of its column; values that nobody typed are kept as they were, with all digits.
function valueOf({ kind, categories }, { value: typed, exact }, before) {
  for (const known of [before, exact]) if (known !== undefined && typed === inputText(known)) return known;
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
