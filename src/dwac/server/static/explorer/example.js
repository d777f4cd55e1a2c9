// One example: its prediction, how far to trust it, and the effect of edits on it.

import { oneFile } from "./api.js";
import { beforeAfter, inShort, predictionOf, same } from "./change.js";
import { chip, named } from "./chips.js";
import { ends, numberOf, showVotes } from "./distribution.js";
import { $, aside, brief, button, commas, el, fill, headsOf, link, note, number, numeral, percent, summaryOf, text } from "./dom.js";
import { showGroups } from "./groups.js";
import { menu } from "./menu.js";
import { bar } from "./records.js";
import { showVoters } from "./voters.js";

const LABELS = 50; // shown with their probabilities

export function showWelcome(app) {
  const { guide, n_training, n_data, note: about, represented } = app.start;
  fill($("example"),
    el("h2", {}, "Select an example"),
    el("p", {}, "Click a point on the map, or search by id or text. Draw a lasso around points to select many."),
    note(guide.lead),
    about ? el("p", { class: "change" }, about) : null,
    app.start.private ? el("p", { class: "change" }, guide.private) : null,
    represented ? el("p", { id: "represented" }, represented) : null,
    note(`${commas(n_training)} ${represented ? "representatives" : "training examples"}, ${commas(n_data)} rows of data.`));
}

export function showExample(app, answer) {
  app.answer = answer;
  // The reason first, then the votes: at least five of them fit on a small screen.
  const [reason, ...others] = answer.lead.map((sentence) => el("p", {}, sentence));
  const more = el("div", { id: "reason-more" }, others);
  const parts = app.task.unit === "number" ? [numberFacts(app, answer), showVotes(app, answer), ...votes(app, answer), more, rival(app, answer), influential(app, answer)]
    : [labelBars(app, answer), facts(app, answer), ...votes(app, answer), more, rival(app, answer), labels(app, answer)];
  fill($("example"), heading(app, answer), el("div", { id: "reason" }, reason), labelSet(app, answer), unchanged(app, answer), changed(app, answer), ...parts);
  $("example").dataset.point = text(answer.point);
  $("example").dataset.label = text(predictionOf(answer));
}

// Groups first, where a few examples do not explain the prediction.
function votes(app, answer) {
  if (answer.few_suffice) return [showVoters(app, answer)];
  const open = $("nearest")?.open;
  const [order, who] = app.start.represented ? ["Heaviest", "representatives"] : ["Nearest", "training examples"];
  return [showGroups(app, answer), el("details", { id: "nearest", open }, el("summary", {}, `${order} ${who}, one by one`), showVoters(app, answer))];
}

function heading(app, answer) {
  const name = answer.point !== null ? `Example ${brief(answer.id, 60)}` : app.chosen === null ? "A new example" : "What if?";
  const known = answer.true !== null && answer.true !== undefined;
  const predicted = predictionOf(answer);
  const size = answer.part === "training" && app.start.sizes ? Math.round(app.start.sizes[answer.point]) : 1;
  const part = { data: "your data", training: app.start.represented ? `representative of ${commas(size)}` : "training example" }[answer.part];
  const verdict = known && el("span", { class: "verdict" }, judged(app, answer));
  const probable = app.task.unit === "label" ? el("b", {}, percent(answer.explanation.probability), " ") : null;
  return [
    el("div", { class: "head" }, el("h2", { id: "example-title", tabindex: "-1" }, name, part ? el("span", { class: "note", title: answer.part === "training" ? app.start.guide.training : null }, ` (${part})`) : null),
      el("span", { class: "pair" }, $("whatif").hidden ? null : button({ id: "why", onclick: () => app.openSection("whatif") }, "Why?"), actions(app, answer))),
    el("p", { class: "answer" }, "Predicted ", (Array.isArray(predicted) && app.task.unit === "labels" && predicted.length ? predicted : [predicted]).map((each) => [chip(app, each, { data: { predicted: text(each) } }), " "]), probable, verdict || null),
  ];
}

// Everything that can be done with the example, in one menu.
function actions(app, answer) {
  const open = (id) => () => app.openSection(id);
  const shown = (id) => !$(id).hidden;
  return menu("Actions", "Actions on this example", [
    shown("whatif") && [oneFile ? "Compare it with a precedent" : "Compare it, or change it", open("whatif")],
    shown("edits") && ["Edit its vote, or undo edits", open("edits")],
    answer.disc === null || answer.disc === undefined ? null : button({ id: "its-disc", onclick: () => app.select(answer.disc) }, "List the group around it"),
    answer.point === null ? null : ["Centre the map on it", () => app.map.goTo(...answer.xy)],
    shown("importance") && [summaryOf("importance").textContent, open("importance")],
    shown("issues") && [app.task.words.issues, open("issues")],
    shown("worth") && ["The most and the least helpful examples", open("worth")],
    shown("compare") && ["Where the models disagree", open("compare")],
    oneFile ? null : ["Copy a link to this view", app.copyLink],
    shown("export") && ["Export", open("export")],
  ]);
}

// Whether the prediction is right; of numbers, how far off it is.
function judged(app, answer) {
  const predicted = predictionOf(answer);
  if (app.task.unit !== "number") {
    const right = JSON.stringify([answer.true].flat()) === JSON.stringify([predicted].flat());
    const what = app.task.unit === "labels" ? "✗ wrong: it has " : "✗ wrong: the label is ";
    return right ? "✓ correct" : [what, chip(app, answer.true)];
  }
  const at = (value) => (Array.isArray(value) ? value[app.task.subject] : value);
  const { interval } = numberOf(app, answer.explanation);
  const truth = at(answer.true);
  const outside = interval && (truth < (interval[0] ?? -Infinity) || truth > (interval[1] ?? Infinity));
  return ["· true number ", chip(app, answer.true), ` · off by ${numeral(Math.abs(at(predicted) - truth))}${outside ? ", outside the interval" : ""}`];
}

// The same example before it was changed.
function unchanged(app, answer) {
  if (answer.point !== null || app.chosen === null) return null;
  return el("p", { class: "change", id: "unchanged" },
    `Example ${brief(app.original.id, 40)} unchanged: `, inShort(app, app.original), "; changed: ", inShort(app, answer));
}

function changed(app, answer) {
  if (!answer.before) return null;
  return el("section", { class: "change", id: "before-after", "aria-label": "What the edits change" }, beforeAfter(app, answer.before, answer, ["before the edits", "with the edits"]));
}

const typicalityOf = (e) => (e.private && e.typicality === 1 ? el("b", {}, "over 10 %") : number("typicality", e.typicality));

const listOf = (rows) => el("dl", { class: "facts" }, rows.map(([name, value, meaning]) =>
  [el("dt", {}, name), el("dd", {}, value, el("div", { class: "note" }, meaning))]));

function numberFacts(app, { explanation: e, sentences }) {
  const guide = app.start.guide;
  const { prediction, interval } = numberOf(app, e);
  const theory = e.guarantee !== null && e.guarantee < 1 - e.epsilon - 1e-9 ? ` In theory at least ${percent(e.guarantee)} hold it.` : "";
  const rows = [
    ["Prediction", el("b", { data: { number: "prediction", value: String(prediction) }, title: String(prediction) }, `${e.private ? "about " : ""}${numeral(prediction)}`), e.average === "median" ? "The number with half of the votes on either side." : guide.prediction],
    ...(interval ? [[`Interval at ε = ${e.epsilon}`, el("b", {}, ends(interval)), guide.interval + theory]] : []),
    ["Typicality", typicalityOf(e), guide.typicality],
  ];
  return [tiles(rows), el("details", { id: "sentences", class: "opened", open: $("sentences")?.open }, el("summary", {}, "In words"),
    listOf(rows.map(([name, , means]) => [name, "", means])), sentences.map((sentence) => el("p", {}, sentence)),
    app.answer.part === "training" ? note(guide.training) : null)];
}

// Whose removal would move the prediction most.
function influential(app, { explanation: e }) {
  const rows = e.influential.filter(({ name }) => !app.task.subjects || String(name) === app.task.subjects[app.task.subject]);
  if (!rows.length) return null;
  return el("details", { id: "influential", open: $("influential")?.open }, el("summary", {}, "Whose removal would matter most"),
    note(app.start.guide.influential),
    el("div", { class: "wide" }, el("table", {},
      headsOf(["example", "number", "share", "moves it by"], (i) => i > 1),
      el("tbody", {}, rows.map(({ id, target, share, move }) => el("tr", {},
        el("td", {}, link({ onclick: () => app.findVoter(id) }, brief(id, 40))),
        el("td", {}, chip(app, app.task.subjects ? String(numeral(target)) : target)), el("td", { class: "number" }, percent(share)),
        el("td", { class: "number", data: { move: String(move) } }, `${move > 0 ? "+" : ""}${numeral(move)}`)))))));
}

// The probability of each of several labels; a click explains another one.
function labelBars(app, answer) {
  if (!answer.labels) return null;
  const row = answer.point === null ? -1 : app.points.withPrediction.indexOf(answer.point);
  return el("section", { id: "label-bars", "aria-label": "All labels" },
    el("ul", { class: "labels" }, answer.labels.map(({ name, probability }, label) => {
      const decision = app.task.decided(row, label, app.epsilon);
      return el("li", { class: label === app.task.subject ? "current" : "", data: { label: text(name), probability: String(probability), decision: text(decision) } },
        link({ "aria-pressed": String(label === app.task.subject), onclick: () => app.setSubject(label) }, brief(name, 30)),
        bar(probability, probability < 0.5), el("span", { class: "number" }, percent(probability)), aside(decision ?? ""));
    })),
    note(row < 0 ? "Select a label to see who votes for it." : `Decisions at ε = ${app.epsilon}: yes, no or undecided. Select a label to see who votes for it.`),
    el("h3", {}, "The vote on ", el("b", {}, app.task.name), ": ", chip(app, answer.explanation.label)));
}

function facts(app, { explanation: e, facts: said, few_suffice: few }) {
  const guide = app.start.guide;
  const [first, second, words] = said.decided;
  const confidence = e.private && e.confidence === 0 ? el("b", {}, "below 90 %") : number("confidence", e.confidence);
  const credibility = e.private && e.credibility === 1 ? el("b", {}, "over 10 %") : number("credibility", e.credibility);
  const decided = few ? ["Decided by", number("deciding", e.deciding), first] : ["Decided by", [number("deciding_groups", e.deciding_groups), e.deciding_groups === 1 ? " group" : " groups"], second];
  const rows = [
    ["Probability", number("probability", e.probability), guide.probability],
    ["Confidence", confidence, guide.confidence],
    ["Typicality", typicalityOf(e), guide.typicality],
    ["Credibility", credibility, guide.credibility],
    decided,
    ["To change", number("flip_size", e.flip_size), said.flipped],
  ];
  const more = [
    ...(words ? [["The vote", "", words]] : []),
    ...(few ? [] : [["One by one", number("deciding", e.deciding), first]]),
    ...(e.agreement && !e.private ? [["Agreement", number("agreement", e.agreement.share), said.agreed]] : said.agreed ? [["Voters", "", said.agreed]] : []),
  ];
  return [tiles(rows), meaning(app, [...rows.map(([name, , means]) => [name, "", means]), ...more])];
}

// Numbers beside each other; the sentences below say what they mean.
const tiles = (rows) => el("dl", { class: "tiles" }, rows.map(([name, value, means]) => el("div", { title: means }, el("dt", {}, name), el("dd", {}, value))));

const meaning = (app, rows) => el("details", { id: "sentences", class: "opened", open: $("sentences")?.open }, el("summary", {}, "In words"), listOf(rows),
  app.answer.part === "training" ? note(app.start.guide.training) : null);

// The names of labels that cannot be rejected, in the order of the classes.
function heldOf(app, p) {
  const names = app.start.target.keys ?? Object.keys(p);
  const inside = app.task.held ? app.task.held(names.map((name) => p[name]), app.epsilon) : names.map((name) => p[name] > app.epsilon);
  return names.filter((_, i) => inside[i]);
}

function labelSet(app, { explanation: { p_values: p } }) {
  if (!p) return null;
  const held = heldOf(app, p);
  const several = app.task.unit === "labels";
  const [title, nothing] = several ? ["Decision", "undecided"] : ["Prediction set", "empty: no label fits"];
  return el("p", { id: "label-set", data: { set: JSON.stringify(held) }, title: app.start.guide.set }, `${title} at ε = ${app.epsilon}: `,
    held.length && !(several && held.length > 1) ? held.map((name) => [chip(app, name), " "]) : nothing);
}

function labels(app, { explanation: e }) {
  const names = Object.keys(e.probabilities).sort((a, b) => e.probabilities[b] - e.probabilities[a]);
  const p = e.p_values;
  const held = p ? heldOf(app, p) : [];
  const heads = ["label", "probability", ...(p ? ["p-value", "in the set"] : [])];
  const open = $("labels")?.open;
  return el("details", { id: "labels", open },
    el("summary", {}, app.task.unit === "labels" ? "p-values" : "All labels"),
    el("div", { class: "wide" }, el("table", {},
      headsOf(heads, (i) => i === 1 || i === 2),
      el("tbody", {}, names.slice(0, LABELS).map((name) => el("tr", {},
        el("th", { scope: "row" }, chip(app, name)),
        el("td", { class: "number", title: String(e.probabilities[name]) }, percent(e.probabilities[name])),
        p && el("td", { class: "number", title: String(p[name]) }, p[name].toFixed(3)),
        p && el("td", {}, held.includes(name) ? "yes" : "no")))))),
    names.length > LABELS ? note(`and ${names.length - LABELS} more label${names.length > LABELS + 1 ? "s" : ""}`) : null,
    p ? note(`p-value: ${app.start.guide.p_value}`) : null);
}

function rival(app, answer) {
  const other = answer.rival;
  if (!other) return null;
  const e = other.explanation;
  const probable = app.task.unit === "label";
  const agree = app.task.unit === "number" ? `They differ by ${numeral(Math.abs(numberOf(app, e).prediction - numberOf(app, answer.explanation).prediction))}.` : same(other, answer) ? "They agree." : "They disagree.";
  return el("div", { id: "rival" }, el("h3", {}, "The two models"),
    el("table", {},
      headsOf(["model", { number: "number", labels: "labels" }[app.task.unit] ?? "label", probable && "probability", "typicality"].filter(Boolean)),
      el("tbody", {}, [[app.start.title, answer], [app.start.compare, other]].map(([name, each]) => el("tr", {},
        el("th", { scope: "row" }, name), el("td", {}, chip(app, predictionOf(each))),
        probable ? el("td", { class: "number" }, percent(each.explanation.probability)) : null,
        el("td", { class: "number" }, each.explanation.typicality === null ? "–" : each.explanation.typicality.toFixed(3)))))),
    note(agree, ` ${app.start.compare} relies on: `,
      e.neighbors.map((voter) => `${voter.id === undefined ? "" : `${brief(voter.id, 30)} `}${named(app, voter.label)} (${percent(voter.share)})`).join(", ")));
}
