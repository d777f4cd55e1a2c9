// Which columns matter: the mean size of their contributions over a sample of the examples, and each against its value.

import { get } from "./api.js";
import { signed } from "./compare.js";
import { ticks } from "./distribution.js";
import { $, brief, button, commas, contentOf, el, fill, link, note, numeral, svg, text } from "./dom.js";
import { meaningOf, titleOf } from "./names.js";
import { bar } from "./records.js";

const [SAMPLE, MOST] = [40, 30]; // examples counted at first and with each request for more; columns listed
const [WIDE, HIGH, BELOW, SIDE] = [420, 220, 22, 44];

let counted = null; // examples so far: {point, contributions, values} by column

export function forget(app) {
  counted = null;
  if ($("importance").open) app.tried(count(app));
}

export function listen(app) {
  $("importance").addEventListener("toggle", () => ($("importance").open ? app.tried(count(app)) : counted && (counted.wanted = 0)));
}

// Asks for a few examples at a time, and shows what is known meanwhile.
async function count(app, more = SAMPLE, code = counted?.code ?? null) {
  counted ??= { rows: [], wanted: 0, code, column: null, n: Infinity };
  const own = counted;
  const busy = own.wanted > own.rows.length;
  own.wanted = own.rows.length + more;
  if (busy) return;
  if (!own.rows.length) fill(contentOf("importance"), note("Comparing examples with training examples …"));
  while (own === counted && own.rows.length < Math.min(own.wanted, own.n)) {
    const found = await get(`/explorer/importance?start=${own.rows.length}&label=${app.task.subject}${own.code === null ? "" : `&code=${own.code}`}`);
    Object.assign(own, { n: found.n, label: found.label, unit: found.unit });
    found.points.forEach((point, i) => own.rows.push({ point, parts: new Map(found.columns.map((name, j) => [text(name), { contribution: found.contributions[i][j], value: found.values?.[i][j] }])) }));
    if (own === counted) draw(app, own);
  }
}

const sizeOf = (rows, name) => rows.reduce((sum, { parts }) => sum + Math.abs(parts.get(name)?.contribution ?? 0), 0) / rows.length;

function draw(app, own) {
  const { rows, n, wanted, unit, label } = own;
  const names = [...new Set(rows.flatMap(({ parts }) => [...parts.keys()]))];
  const sizes = names.map((name) => [name, sizeOf(rows, name)]).sort((a, b) => b[1] - a[1]).slice(0, MOST);
  const most = sizes[0]?.[1] || 1;
  const place = contentOf("importance");
  const focus = place.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const drawn = rows[0].parts.values().next().value.value !== undefined && !Array.isArray(rows[0].parts.values().next().value.value);
  own.column = drawn ? own.column ?? sizes[0][0] : null;
  const to = { label: label === null ? "the label of each example" : `${text(label)}`, labels: text(label), number: "the predicted number" }[app.task.unit];
  const choose = (name) => {
    own.column = name;
    draw(app, own);
    app.say(`${titleOf(name)}: contribution against value.`);
  };
  fill(place,
    app.task.unit === "label" && app.task.names.length > 1 ? el("p", {}, el("label", {}, "Contributions to ", el("select", { id: "importance-label", onchange: ({ target }) => again(app, target.value === "" ? null : Number(target.value)) },
      [...(app.task.names.length > 2 ? [["", "the label of each example"]] : []), ...app.task.names.map((name, code) => [code, text(name)])].map(([value, name]) => el("option", { value, selected: value === (own.code ?? (app.task.names.length > 2 ? "" : 1)) }, name))))) : null,
    el("p", { class: "note", id: "importance-now", data: { rows: rows.length } }, `Mean size of contributions to ${to}${unit === "log-odds" ? ", in log-odds" : ""}, over ${commas(rows.length)} of ${commas(n)} examples drawn at random${rows.length < Math.min(wanted, n) ? " …" : "."}`),
    el("ul", { class: "labels importance" }, sizes.map(([name, size]) => el("li", { class: name === own.column ? "current" : "", data: { column: name, size: String(size) } },
      drawn ? link({ data: { name }, "aria-pressed": String(name === own.column), onclick: () => choose(name) }, brief(titleOf(name), 40)) : el("span", {}, brief(titleOf(name), 40)),
      bar(size / most), el("span", { class: "number" }, unit === "log-odds" ? size.toFixed(2) : numeral(size))))),
    own.column ? chart(app, own) : null,
    rows.length < n && rows.length >= wanted ? el("p", { class: "buttons" }, button({ onclick: () => app.tried(count(app)) }, `Count ${Math.min(SAMPLE, n - rows.length)} more`)) : null);
  if (focus) [...place.querySelectorAll("[data-name]")].find((node) => node.dataset.name === focus)?.focus({ preventScroll: true });
}

function again(app, code) {
  counted = null;
  app.tried(count(app, SAMPLE, code));
}

// The contribution of one column against its value, a dot per example; categories stand beside each other.
function chart(app, { rows, column, unit }) {
  const kind = app.start.card.columns?.find(({ name }) => text(name) === column)?.kind;
  const dots = rows.map(({ point, parts }) => ({ point, ...parts.get(column) })).filter(({ value }) => value !== null && value !== undefined);
  const coded = dots.every(({ value }) => meaningOf(column, value) !== null);
  const read = coded ? null : { numeric: (value) => value, datetime: (value) => Date.parse(value) }[kind];
  const names = read ? [] : [...new Set(dots.map(({ value }) => String(value)))].sort();
  const xs = dots.map(({ value }) => (read ? read(value) : names.indexOf(String(value))));
  const ys = dots.map(({ contribution }) => contribution);
  if (!dots.length) return note(`No example has a value of ${titleOf(column)}.`);
  const [low, high] = read ? [Math.min(...xs), Math.max(...xs)] : [-0.5, names.length - 0.5];
  const [least, most] = [Math.min(0, ...ys), Math.max(0, ...ys)];
  const top = HIGH - BELOW;
  const x = (value) => SIDE + ((WIDE - SIDE - 10) * (value - low)) / (high - low || 1);
  const y = (value) => 8 + ((top - 16) * (most - value)) / (most - least || 1);
  const description = `Contribution of ${titleOf(column)} against its value, ${dots.length} examples, from ${signed(Math.min(...ys), unit)} to ${signed(Math.max(...ys), unit)}`;
  const below = read ? ticks(low, high, x, top, HIGH, kind === "datetime" ? (value) => new Date(value).toISOString().slice(0, 10) : undefined)
    : names.map((name, i) => svg("text", { x: x(i), y: HIGH - 5, "text-anchor": "middle" }, brief(meaningOf(column, name) ?? name, Math.max(3, Math.floor(56 / names.length)))));
  return el("figure", { class: "chart", data: { column } }, svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": description },
    svg("line", { class: "axis", x1: SIDE, x2: WIDE, y1: y(0), y2: y(0) }), svg("line", { class: "axis", x1: SIDE, x2: WIDE, y1: top, y2: top }), below,
    [...new Set([most, 0, least])].map((value) => svg("text", { x: SIDE - 6, y: y(value) + 4, "text-anchor": "end" }, signed(value, unit))),
    dots.map(({ point, value, contribution }, i) => {
      const dot = svg("circle", { cx: x(xs[i]), cy: y(contribution), r: 3.5 }, svg("title", {}, `${titleOf(column)} ${meaningOf(column, value) ?? (typeof value === "number" ? numeral(value) : text(value))}: ${signed(contribution, unit)}`));
      dot.addEventListener("click", () => app.choose(point, true));
      return dot;
    })),
  el("figcaption", { class: "note" }, `${titleOf(column)}: contribution against value, a dot per example; click one to see it.`));
}
