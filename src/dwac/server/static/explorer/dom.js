// Elements from data: text is always inserted as text, so no label, id or record can become markup.

export const $ = (id) => document.getElementById(id);

export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "style") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const button = (given, ...children) => el("button", { type: "button", ...given }, ...children);

// A remark in small letters: a paragraph, or part of one.
export const note = (...children) => el("p", { class: "note" }, ...children);
export const aside = (...children) => el("span", { class: "note" }, ...children);

// A button that looks like a link.
export const link = (given, ...children) => button({ class: "link", ...given }, ...children);

// A button that leads to an example; move: whether the map moves to it, too.
export const linkTo = (app, point, id, move = true) => link({ onclick: () => app.choose(point, move) }, brief(id, 40));

// The head of a table; isNumber says in which places the columns hold numbers.
export const headsOf = (names, isNumber = () => false) => el("thead", {}, el("tr", {}, names.map((name, i) =>
  (name ? el("th", { scope: "col", class: isNumber(i) ? "number" : null }, name) : el("td", {})))));

// Buttons to the previous and the next part of a long list: places `start` to `end` of `n`, in parts of `size`.
export const pager = ({ start, end, n, size }, words, show) => el("p", { class: "buttons" },
  button({ disabled: start === 0, onclick: () => show(Math.max(0, start - size)) }, "Previous"),
  aside(words),
  button({ disabled: end >= n, onclick: () => show(end) }, "Next"));

// An element of a drawing.
export function svg(tag, given, ...children) {
  const node = document.createElementNS($("drawing").namespaceURI, tag);
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null));
  return node;
}

// The content of a section that can be opened.
export const contentOf = (id) => $(id).querySelector("div");
export const summaryOf = (id) => $(id).querySelector("summary");

export const fill = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((child) => child));

export const text = (value) => (value === null || value === undefined ? "–" : String(value));

export function percent(share) {
  const value = 100 * share;
  for (const digits of [1, 2, 3]) {
    const shown = value.toFixed(digits);
    if (value === 0 || value === 100 || (Number(shown) !== 0 && Number(shown) !== 100)) return `${Number(shown)} %`;
  }
  return value < 50 ? "< 0.001 %" : "> 99.999 %";
}

// A rounded number, with all its digits in data-value.
export function number(name, value, digits = 3) {
  if (value === null || value === undefined) return el("b", {}, "–");
  const shown = Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(digits);
  return el("b", { data: { number: name, value: String(value) }, title: String(value) }, shown);
}

// A count with its thousands separated; and with what is counted.
export const commas = (n) => n.toLocaleString("en");
export const plural = (n, one) => `${commas(n)} ${one}${n === 1 ? "" : "s"}`;

export const brief = (value, most = 120) => (text(value).length > most ? `${text(value).slice(0, most - 1)}…` : text(value));

// A predicted number: four digits, or all before the point.
export const numeral = (value) => {
  if (typeof value !== "number") return text(value);
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e12)) return value.toExponential(2);
  return (Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4))).toLocaleString("en", { maximumFractionDigits: 8 });
};

// A count in few characters.
export const compact = (n) => (n < 10_000 ? n.toLocaleString("en") : `${Number((n / 1000).toPrecision(3)).toLocaleString("en")}k`);

// A number of any size in few characters.
export const short = (value) =>
  (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : Number(value.toPrecision(3)).toLocaleString("en"));
