// Two cases side by side, and bars between them: what each column, phrase or patch adds to the difference in the vote.

import { oneFile } from "./api.js";
import { chip, named } from "./chips.js";
import { numberOf } from "./distribution.js";
import { aside, brief, button, el, fill, link, linkTo, numeral, svg, text } from "./dom.js";
import { enter } from "./forms.js";
import { meaningOf, titleOf } from "./names.js";
import { picture } from "./records.js";

const STEPS = 100; // of a slider
const SHOWN = 50; // labels to choose from
const LOG_ODDS = "log-odds";

export const signed = (value, unit) => {
  const size = unit === LOG_ODDS ? Math.abs(value).toFixed(2) : numeral(Math.abs(value));
  return Number(size) === 0 ? "0" : `${value > 0 ? "+" : "\u2212"}${size}`;
};

// A bar from the middle: to the left if it speaks for this example's outcome, to the right if it speaks against it.
const lean = (share) => el("span", { class: "lean", "aria-hidden": "true" },
  el("span", { class: share > 0 ? "bar" : "bar other", style: { width: `${50 * Math.min(1, Math.abs(share))}%`, [share > 0 ? "right" : "left"]: "50%" } }));

const short = (value) => (typeof value === "number" ? numeral(value) : brief(value, 60));

// Against whom: the runner-up, another label, a range of numbers, or a training example.
export function contrasts(app, own) {
  if (oneFile) return null;
  const { against, reasons, answer: { explanation: e } } = own;
  const options = [["", { label: "the runner-up", labels: "the other answer", number: "another number" }[app.task.unit]]];
  if (app.task.unit === "label") app.task.names.slice(0, SHOWN).forEach((name, code) => String(name) !== String(e.label) && options.push([String(code), text(name)]));
  if (app.task.unit === "number") options.push(["range", "a number in a range"]);
  const precedent = against.point !== undefined;
  if (precedent) options.push(["point", `example ${brief(reasons?.precedents[0]?.id, 40)}`]);
  const now = precedent ? "point" : against.low !== undefined ? "range" : String(against.code ?? "");
  const ends = rangeOf(app, own.answer, against);
  const range = el("span", { class: "tools", hidden: now !== "range" }, ends.fields, button({ onclick: () => app.compare(ends.read()) }, "Compare"));
  const choose = ({ target: { value } }) => {
    range.hidden = value !== "range";
    if (value !== "range") app.compare(value === "" ? {} : { code: Number(value) });
  };
  return el("div", { class: "tools" },
    el("label", {}, "Compare with ", el("select", { id: "against", onchange: choose }, options.map(([value, name]) => el("option", { value, selected: value === now }, name)))),
    range,
    app.start.private ? null : button({ id: "pick", "aria-pressed": String(Boolean(app.picking)), onclick: () => app.pick(!app.picking) }, "Pick on the map"));
}

// Two ends of a range of numbers; at first, numbers higher than the predicted one.
export function rangeOf(app, { explanation }, { low, high } = {}) {
  const higher = () => Number((numberOf(app, explanation).prediction + (app.task.high - app.task.low) / 10).toPrecision(3));
  const first = app.task.unit === "number" && low === undefined ? higher() : low;
  const inputs = [first, high].map((value) => el("input", { type: "number", step: "any", class: "end", value: value ?? null }));
  const [from, to] = inputs;
  const read = () => Object.fromEntries(inputs.map(({ value }, i) => [["low", "high"][i], value === "" ? null : Number(value)]));
  return { fields: [el("label", {}, "from ", from), " ", el("label", {}, "to ", to)], read };
}

export class Comparison {
  constructor(app, own) {
    Object.assign(this, { app, own, rows: new Map(), most: 0 });
  }

  get reasons() { return this.own.reasons; }

  draw() {
    const { kind } = this.own.answer;
    const { contributions, label, other, precedents, total, error } = this.reasons;
    this.most = Math.max(...contributions.map(({ contribution }) => Math.abs(contribution)));
    const deciding = contributions.filter(({ contribution }) => contribution !== 0);
    this.same = contributions.filter(({ contribution }) => contribution === 0);
    this.between = el("th", { scope: "col", class: "between" });
    this.sum = el("p", { class: "note" });
    this.mine = el("span", {});
    this.titles = { mine: [el("div", {}, "this example"), this.mine], theirs: this.precedent(precedents[0], other) };
    this.describe(label, other, label, total, error);
    return [kind === "image" ? this.pictures() : null, this.table(deciding, true), this.sum];
  }

  // Columns in which the two do not differ: they can be changed, too.
  rest() {
    const { fields } = this.own;
    const same = this.reasons ? this.same : fields.columns.map(({ name }, i) => ({ column: name, value: fields.values[i], contribution: 0 }));
    if (!same.length) return null;
    return el("details", { class: "opened", id: "without-effect", open: !this.reasons }, el("summary", {}, this.reasons ? `${same.length} column${same.length > 1 ? "s" : ""} without effect here` : "All columns"), this.table(same, false));
  }

  get numeric() { return this.reasons.unit !== LOG_ODDS; }

  // What a bar to either side speaks for, what this example gets, and the sum of the bars.
  describe(left, right, own, total, error) {
    const names = this.numeric ? ["higher", "lower"] : [left, right].map((name) => brief(named(this.app, name), 24));
    const what = this.numeric ? "of the two predictions" : `in the log-odds of ${names[0]} against ${names[1]}`;
    fill(this.between, el("span", { class: "sides" }, el("span", {}, `◂ ${names[0]}`), el("span", {}, `${names[1]} ▸`)));
    fill(this.mine, this.outcome(own));
    const unseen = this.reasons.precedents.length ? "" : "Compared with a similar training example, which is not shown. ";
    fill(this.sum, `${unseen}The bars add up to ${this.signed(total)}, the difference ${what} between the two cases.${error ? ` Each is within ${this.signed(error).slice(1)} of its exact value.` : ""}`);
    this.sum.dataset.total = String(total);
  }

  signed(value) { return signed(value, this.reasons.unit); }

  outcome(value) { return this.numeric ? el("b", {}, numeral(value)) : chip(this.app, value); }

  // The precedent, what the model gives it, and its own label if that is another one.
  precedent(precedent, other) {
    if (!precedent) return [el("div", {}, "a similar training example"), this.outcome(other)];
    const [point] = this.reasons.points;
    const apart = !this.numeric && String(precedent.label) !== String(other) ? aside(` labelled ${text(precedent.label)}`) : null;
    return [el("div", {}, point < 0 ? brief(precedent.id, 40) : linkTo(this.app, point, precedent.id, false)), this.outcome(other), apart];
  }

  table(parts, heads) {
    const pictures = this.own.answer.kind === "image";
    const valued = !pictures && !(this.app.start.private && !this.own.form);
    const head = heads ? [el("th", { scope: "col" }, { image: "patch", text: "" }[this.own.answer.kind] ?? "column"), valued ? el("th", { scope: "col" }, this.titles.mine) : null, this.between,
      valued && this.reasons.precedents.length ? el("th", { scope: "col" }, this.titles.theirs) : null]
      : [el("th", { scope: "col" }, "column"), el("th", { scope: "col" }, "this example"), this.reasons ? el("th", { scope: "col" }, "contribution") : null, this.reasons?.precedents.length ? el("th", { scope: "col" }, "the other") : null];
    return el("table", { class: `versus${this.own.answer.kind === "text" ? " phrases" : ""}` }, el("thead", {}, el("tr", {}, head)),
      el("tbody", {}, parts.map((part, i) => this.row(part, valued, i))));
  }

  row(part, valued, i) {
    const { own } = this;
    const place = own.fields?.columns.findIndex(({ name }) => String(name) === String(part.column)) ?? -1;
    const between = el("td", { class: "between" });
    const row = el("tr", { data: { column: text(part.column) } },
      el("th", { scope: "row" }, own.answer.kind === "text" ? String(i + 1) : titleOf(part.column)),
      valued ? el("td", {}, place < 0 ? this.shownValue(part, part.value) : this.editor(part, place)) : null,
      this.reasons ? between : null,
      valued && this.reasons?.precedents.length ? el("td", {}, this.precedentValue(part, place)) : null);
    this.rows.set(String(part.column), { row, between });
    if (this.reasons) this.set(part.column, part.contribution);
    return row;
  }

  shownValue({ column }, value) { return this.own.answer.kind === "text" ? (value ? `“${value}”` : aside("nothing")) : meaningOf(column, value) ?? short(value); }

  // The precedent's value; a click takes it over.
  precedentValue(part, place) {
    if (place < 0) return this.shownValue(part, part.other_value);
    if (part.value === part.other_value) return aside("the same");
    return link({ title: "Take this value", "aria-label": `Take ${this.shownValue(part, part.other_value)} for ${titleOf(part.column)}`,
      onclick: () => enter(this.own.fields.inputs[place], part.other_value) }, "← ", this.shownValue(part, part.other_value));
  }

  // The value in its input, and a slider if it is a number.
  editor({ column, value, other_value: other }, place) {
    const input = this.own.fields.inputs[place];
    input.setAttribute("aria-label", titleOf(column));
    const usual = this.reasons?.ranges?.[place];
    if (input.matches("select")) return input;
    const meaning = aside(meaningOf(column, value));
    input.addEventListener("input", () => fill(meaning, meaningOf(column, input.value)));
    if (!usual) return [input, meaning];
    const known = [...usual, value, other].filter((each) => typeof each === "number");
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const step = known.every(Number.isInteger) ? Math.max(1, Math.round((high - low) / STEPS)) : Number(((high - low) / STEPS).toPrecision(2));
    if (!(step > 0)) return [input, meaning];
    const slider = el("input", { type: "range", min: low, max: high, step, "aria-label": `${titleOf(column)}, slider` });
    slider.value = input.value;
    slider.addEventListener("input", (event) => {
      event.stopPropagation(); // the input says it
      enter(input, Number(Number(slider.value).toPrecision(6)));
    });
    input.addEventListener("input", () => { slider.value = input.value; });
    return [input, meaning, slider];
  }

  set(column, value) {
    const { row, between } = this.rows.get(String(column)) ?? {};
    if (!row) return;
    row.dataset.contribution = String(value);
    fill(between, lean(value / (this.most || 1)), el("span", { class: "number" }, this.signed(value)));
  }

  // The bars of the changed example: they keep their sides, even if the label becomes that of the precedent.
  move(reasons) {
    if (this.own.answer.kind !== "table") return; // the parts of other texts and images are others
    const turned = !this.numeric && reasons.label !== this.reasons.label && reasons.other === this.reasons.label;
    const sign = turned ? -1 : 1;
    const { label, other, contributions, total, error } = reasons;
    this.describe(...(turned ? [other, label] : [label, other]), label, sign * total, error);
    this.most = Math.max(this.most, ...contributions.map(({ contribution }) => Math.abs(contribution)));
    for (const { column, contribution } of contributions) this.set(column, sign * contribution);
  }

  // Both pictures, large; the patches that speak for the prediction are blue, those against it hatched.
  pictures() {
    const { contributions, precedents, unit } = this.reasons;
    const mine = patched(this.own.answer.explanation.record, "this example", contributions, this.most, unit);
    const theirs = precedents.length ? patched(precedents[0].record, `example ${brief(precedents[0].id, 40)}`, contributions.map((part) => ({ ...part, contribution: 0 })), 1, unit) : null;
    return el("div", { class: "two" }, [[mine, this.titles.mine], [theirs, this.titles.theirs]].map(([drawn, title]) => (drawn ? el("figure", {}, drawn, el("figcaption", {}, title)) : null)));
  }
}

// A picture with its patches outlined, each with its contribution.
function patched(record, title, parts, most, unit) {
  const image = picture(record, title);
  if (!image || !parts.length) return image;
  const [height, width] = [2, 3].map((side) => Math.max(...parts.map(({ value }) => value[side])));
  const size = width / 14;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    svg("image", { href: image.src, width, height, preserveAspectRatio: "none" }),
    parts.map(({ value: [top, left, bottom, right], contribution }) => [
      svg("rect", { x: left, y: top, width: right - left, height: bottom - top, class: contribution > 0 ? "for" : contribution < 0 ? "against" : "none", "fill-opacity": (0.6 * Math.abs(contribution)) / most, "stroke-width": width / 150 }),
      contribution ? svg("text", { x: (left + right) / 2, y: (top + bottom) / 2 + size / 3, "font-size": size, "stroke-width": size / 4, "text-anchor": "middle" }, signed(contribution, unit)) : null]));
}
