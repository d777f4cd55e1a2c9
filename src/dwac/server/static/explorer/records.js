// Records of examples: pictures, lines of text, rows of a table beside each other; and shares as bars.

import { oneFile } from "./api.js";
import { brief, el, headsOf, note, percent } from "./dom.js";
import { meaningOf, titleOf } from "./names.js";

const imageIn = (record) => Object.values(record ?? {}).find((value) => typeof value === "string" && value.startsWith("data:image/png"));

// The picture in a record; null if it has none.
export function picture(record, alt) {
  const source = imageIn(record);
  if (!source) return null;
  const image = el("img", { src: source, alt });
  image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth < 120));
  return image;
}

// A record in one line; a picture has none.
function lineOf(record) {
  if (!record || imageIn(record)) return "";
  const names = Object.keys(record);
  return brief(names.length === 1 && names[0] === "text" ? record.text : names.map((name) => `${titleOf(name)} ${meaningOf(name, record[name]) ?? record[name] ?? "–"}`).join(", "), 240);
}

// How many neighbours or groups to show.
export const chooser = (app, id) => (oneFile ? String(app.k) : el("select", { id, onchange: (event) => app.setNeighbors(Number(event.target.value)) },
  [5, 10, 20].map((k) => el("option", { value: k, selected: k === app.k }, String(k)))));

// Whether a voter or a group votes for another label than the one that is predicted; a vote for numbers does not.
export const against = (voter, explanation) => explanation.label !== undefined && voter.label !== explanation.label;

// A share of the whole: the full width is all votes.
export function bar(share, other) {
  return el("span", { class: "track", "aria-hidden": "true" },
    el("span", { class: other ? "bar other" : "bar", style: { width: `${100 * Math.min(1, share)}%` } }));
}

// All votes in one bar: a part for each voter or group, and the rest.
export function whole(parts, rest) {
  const description = `${parts.map(({ share, name }) => `${name} ${percent(share)}`).join(", ")}${rest > 0.0005 ? `, all others ${percent(rest)}` : ""}`;
  return el("div", { class: "whole", role: "img", "aria-label": `The whole vote: ${description}` },
    parts.map(({ share, name, other }) => el("span", { class: other ? "bar other" : "bar", title: `${name}: ${percent(share)}`, style: { width: `${100 * share}%` } })),
    rest > 0.0005 ? el("span", { class: "rest", title: `all others: ${percent(rest)}`, style: { width: `${100 * rest}%` } }) : null);
}

// In which columns of a table an example differs from the one explained; a text as it is.
export function apart({ kind, explanation: { record } }, member, most = 6) {
  if (kind !== "table" || !member.record) return lineOf(member.record);
  const shown = (value) => (typeof value === "number" ? Number(value.toPrecision(4)) : value ?? "–");
  const differing = Object.keys(record).filter((name) => record[name] !== member.record[name]).map((name) => `${titleOf(name)} ${meaningOf(name, member.record[name]) ?? shown(member.record[name])}`);
  if (!differing.length) return "the same in every column";
  return `≠ ${differing.slice(0, most).join(", ")}${differing.length > most ? `, and ${differing.length - most} more column${differing.length > most + 1 ? "s" : ""}` : ""}`;
}

// Columns of an example beside those of others (with these heads), first those that differ.
export function comparison(id, columns, heads) {
  const differing = columns.filter((column) => column.differs.some(Boolean));
  const same = columns.filter((column) => !column.differs.some(Boolean)).map((column) => `${column.name} ${column.value}`);
  return [
    el("div", { class: "wide" }, el("table", { id, class: "compared" },
      headsOf(["column", "this example", ...heads]),
      el("tbody", {}, differing.map((column) => el("tr", {}, el("th", { scope: "row" }, column.name), el("td", {}, column.value),
        column.others.map((value, i) => el("td", {}, column.differs[i] ? el("mark", {}, "≠ ", value) : value))))))),
    same.length ? note(`Same in all: ${brief(same.join(", "), 600)}.`) : null,
  ];
}
