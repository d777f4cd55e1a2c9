// Records of examples: pictures, lines of text, rows of a table beside each other; and shares as bars.

import { brief, el, percent } from "./dom.js";

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
export function lineOf(record) {
  if (!record || imageIn(record)) return "";
  const names = Object.keys(record);
  return brief(names.length === 1 && names[0] === "text" ? record.text : names.map((name) => `${name} ${record[name] ?? "–"}`).join(", "), 240);
}

// The text that is explained, its words shaded by attention.
export function words(e) {
  if (!e.attention) return el("p", { class: "words" }, brief(e.record.text, 4000));
  const most = Math.max(...e.attention.map(([, weight]) => weight)) || 1;
  return [
    el("p", { class: "words" }, e.attention.map(([word, weight]) => [
      el("span", { style: { background: `rgba(var(--read), ${(weight / most).toFixed(2)})` }, title: percent(weight) }, word), " "])),
    el("p", { class: "note" }, "The stronger the background of a word, the more attention the model pays to it."),
  ];
}

// How many neighbours or groups to show.
export const chooser = (app, id) => el("select", { id, onchange: (event) => app.setNeighbors(Number(event.target.value)) },
  [5, 10, 20].map((k) => el("option", { value: k, selected: k === app.k }, String(k))));

export function bar(share, longest, other) {
  return el("span", { class: "track", "aria-hidden": "true" },
    el("span", { class: other ? "bar other" : "bar", style: { width: `${(100 * share) / longest}%` } }));
}

// Columns of an example beside those of others (with these heads), first those that differ.
export function comparison(id, columns, heads) {
  const differing = columns.filter((column) => column.differs.some(Boolean));
  const same = columns.filter((column) => !column.differs.some(Boolean)).map((column) => `${column.name} ${column.value}`);
  return [
    el("div", { class: "wide" }, el("table", { id, class: "compared" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "column"), el("th", { scope: "col" }, "this example"),
        heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, differing.map((column) => el("tr", {}, el("th", { scope: "row" }, column.name), el("td", {}, column.value),
        column.others.map((value, i) => el("td", {}, column.differs[i] ? el("mark", {}, "≠ ", value) : value))))))),
    same.length ? el("p", { class: "note" }, `Same in all: ${brief(same.join(", "), 600)}.`) : null,
  ];
}
