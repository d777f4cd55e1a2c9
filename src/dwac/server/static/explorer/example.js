// One example: its prediction, how far to trust it, and the effect of edits on it.

import { chip } from "./chips.js";
import { $, brief, el, fill, number, percent, text } from "./dom.js";
import { showGroups } from "./groups.js";
import { inSet } from "./sets.js";
import { showVoters } from "./voters.js";

const LABELS = 50; // shown with their probabilities

export function showWelcome(app) {
  const { guide, n_training, n_data, note, represented } = app.start;
  fill($("example"),
    el("h2", {}, "Select an example"),
    el("p", {}, "Click a point on the map, or search by id or text."),
    el("p", { class: "note" }, guide.lead),
    note ? el("p", { class: "change" }, note) : null,
    app.start.private ? el("p", { class: "change" }, guide.private) : null,
    represented ? el("p", { id: "represented" }, represented) : null,
    el("p", { class: "note" }, `${n_training.toLocaleString("en")} ${represented ? "representatives" : "training examples"}, ${n_data.toLocaleString("en")} rows of data.`));
}

export function showExample(app, answer) {
  app.answer = answer;
  const e = answer.explanation;
  fill($("example"), heading(app, answer), unchanged(app, answer), changed(app, answer), facts(app, answer), labelSet(app, answer),
    rival(app, answer), ...votes(app, answer), labels(app, answer));
  $("example").dataset.point = text(answer.point);
  $("example").dataset.label = text(e.label);
}

// Groups first, where a few examples do not explain the prediction.
function votes(app, answer) {
  if (answer.few_suffice) return [showVoters(app, answer)];
  const open = $("nearest")?.open;
  const [order, who] = app.start.represented ? ["Heaviest", "representatives"] : ["Nearest", "training examples"];
  return [showGroups(app, answer), el("details", { id: "nearest", open }, el("summary", {}, `${order} ${who}, one by one`), showVoters(app, answer))];
}

function heading(app, answer) {
  const e = answer.explanation;
  const name = answer.point === null ? "What if?" : `Example ${brief(answer.id, 60)}`;
  const known = answer.true !== null && answer.true !== undefined;
  const right = known && answer.true === e.label;
  const size = answer.part === "training" && app.start.sizes ? Math.round(app.start.sizes[answer.point]) : 1;
  const part = { data: "your data", training: app.start.represented ? `representative of ${size.toLocaleString("en")}` : "training example" }[answer.part];
  const verdict = known && el("span", { class: "verdict" }, right ? "✓ correct" : ["✗ wrong: the label is ", chip(app, answer.true)]);
  return [
    el("h2", {}, name, part ? el("span", { class: "note" }, ` (${part})`) : null),
    answer.disc === null || answer.disc === undefined ? null : el("p", {}, el("button", { type: "button", class: "link", id: "its-disc", onclick: () => app.select(answer.disc) }, "List the group around it on the map")),
    el("p", {}, "Predicted ", chip(app, e.label, { data: { predicted: text(e.label) } }), " ", verdict || null),
    answer.part === "training" ? el("p", { class: "note" }, app.start.guide.training) : null,
  ];
}

// The same example before it was changed.
function unchanged(app, { point, explanation }) {
  if (point !== null || app.chosen === null) return null;
  const was = app.original.explanation;
  return el("p", { class: "change", id: "unchanged" },
    `Example ${brief(app.original.id, 40)} unchanged: `, chip(app, was.label), ` ${percent(was.probability)}; changed: `,
    chip(app, explanation.label), ` ${percent(explanation.probability)}`);
}

function changed(app, { before, explanation }) {
  if (!before) return null;
  const was = before.explanation;
  const same = was.label === explanation.label;
  return el("p", { class: "change", id: "before-after" },
    same ? "The edits do not change the label: " : "The edits change the label: ",
    chip(app, was.label), ` ${percent(was.probability)} → `, chip(app, explanation.label), ` ${percent(explanation.probability)}`);
}

function facts(app, { explanation: e, facts: said, few_suffice: few }) {
  const guide = app.start.guide;
  const [first, second, words] = said.decided;
  const rows = [
    ["Probability", number("probability", e.probability), guide.probability],
    ["Confidence", e.private && e.confidence === 0 ? el("b", {}, "below 90 %") : number("confidence", e.confidence), guide.confidence],
    ["Typicality", e.private && e.typicality === 1 ? el("b", {}, "over 10 %") : number("typicality", e.typicality), guide.typicality],
    ["Credibility", e.private && e.credibility === 1 ? el("b", {}, "over 10 %") : number("credibility", e.credibility), guide.credibility],
    ...(few ? [] : [["Decided by", [number("deciding_groups", e.deciding_groups), e.deciding_groups === 1 ? " group" : " groups"], second]]),
    ...(words ? [["The vote", "", words]] : []),
    [few ? "Decided by" : "One by one", number("deciding", e.deciding), first],
    ["To change it", number("flip_size", e.flip_size), said.flipped],
    ...(e.agreement && !e.private ? [["Agreement", number("agreement", e.agreement.share), said.agreed]] : said.agreed ? [["Voters", "", said.agreed]] : []),
  ];
  return el("dl", { class: "facts" }, rows.map(([name, value, meaning]) =>
    [el("dt", {}, name), el("dd", {}, value, el("div", { class: "note" }, meaning))]));
}

function labelSet(app, { explanation: { p_values: p } }) {
  if (!p) return null;
  const held = Object.keys(p).filter((name) => inSet(p[name], app.epsilon));
  return el("div", {},
    el("p", { id: "label-set", data: { set: JSON.stringify(held) } }, `Prediction set at ε = ${app.epsilon}: `,
      held.length ? held.map((name) => [chip(app, name), " "]) : "empty: no label fits"),
    el("p", { class: "note" }, app.start.guide.set));
}

function labels(app, { explanation: e }) {
  const names = Object.keys(e.probabilities).sort((a, b) => e.probabilities[b] - e.probabilities[a]);
  const p = e.p_values;
  const heads = ["label", "probability", ...(p ? ["p-value", "in the set"] : [])];
  const open = $("labels")?.open;
  return el("details", { id: "labels", open },
    el("summary", {}, "All labels"),
    el("div", { class: "wide" }, el("table", {},
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i === 1 || i === 2 ? "number" : null }, head)))),
      el("tbody", {}, names.slice(0, LABELS).map((name) => el("tr", {},
        el("th", { scope: "row" }, chip(app, name)),
        el("td", { class: "number", title: String(e.probabilities[name]) }, percent(e.probabilities[name])),
        p && el("td", { class: "number", title: String(p[name]) }, p[name].toFixed(3)),
        p && el("td", {}, inSet(p[name], app.epsilon) ? "yes" : "no")))))),
    names.length > LABELS ? el("p", { class: "note" }, `and ${names.length - LABELS} more labels`) : null,
    p ? el("p", { class: "note" }, `p-value: ${app.start.guide.p_value}`) : null);
}

function rival(app, { rival: other, explanation }) {
  if (!other) return null;
  const e = other.explanation;
  const same = e.label === explanation.label;
  return el("div", { id: "rival" }, el("h3", {}, "The two models"),
    el("table", {},
      el("thead", {}, el("tr", {}, ["model", "label", "probability", "typicality"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, [[app.start.title, explanation], [app.start.compare, e]].map(([name, answer]) => el("tr", {},
        el("th", { scope: "row" }, name), el("td", {}, chip(app, answer.label)),
        el("td", { class: "number" }, percent(answer.probability)),
        el("td", { class: "number" }, answer.typicality === null ? "–" : answer.typicality.toFixed(3)))))),
    el("p", { class: "note" }, same ? "They agree." : "They disagree.", ` ${app.start.compare} relies on: `,
      e.neighbors.map((voter) => `${voter.id === undefined ? "" : `${brief(voter.id, 30)} `}${voter.label} (${percent(voter.share)})`).join(", ")));
}
