// Lists that lead to examples: edits and what they change, labels to check, where two models disagree.

import { get, oneFile } from "./api.js";
import { beforeAfter, inShort, labelled } from "./change.js";
import { chip } from "./chips.js";
import { $, brief, button, commas, contentOf, el, fill, headsOf, linkTo, note, numeral, percent, plural, summaryOf } from "./dom.js";
import { relabel } from "./relabel.js";

const odds = (log) => (log === null || log > Math.log(1e6) ? "over a million : 1" : `${Number(Math.exp(log).toPrecision(2)).toLocaleString("en")} : 1`);

export function showEdits(app, changes) {
  app.changes = changes;
  $("edits").hidden = app.start.private || oneFile;
  summaryOf("edits").textContent = changes.edits.length ? `Edits (${changes.edits.length})` : "Edits";
  fill(contentOf("edits"),
    note(app.start.guide.edits),
    el("div", { class: "beside" }, own(app), effect(app)),
    el("p", { class: "buttons" },
      button({ id: "undo", disabled: !changes.edits.length, onclick: app.undo }, "Undo"),
      button({ id: "redo", disabled: !changes.can_redo, onclick: app.redo }, "Redo")),
    el("ol", {}, changes.edits.map((edit) => el("li", {}, linkTo(app, edit.point, edit.id), ": ", chip(app, edit.before),
      edit.label === null ? " removed" : [" → ", chip(app, edit.label)]))),
    el("p", { id: "n-changed", data: { n: changes.n_changed } },
      `${plural(changes.n_changed, "example")} of the ${commas(changes.n_asked)} loaded ${changes.n_changed === 1 ? "gets" : "get"} ${app.task.unit === "number" ? "a different prediction" : app.task.unit === "labels" ? "different labels" : "a different label"} because of the edits.`),
    changes.changed.length ? el("div", { class: "wide list" }, el("table", {}, headsOf(["example", "before", "now"]), el("tbody", {},
      changes.changed.map(({ point, id, before, after }) => el("tr", {}, el("td", {}, linkTo(app, point, id)),
        [before, after].map(({ label, probability }) => el("td", {}, labelled(app, label, probability)))))))) : null);
}

// What the edits do to the selected example, beside the form.
function effect(app) {
  const { answer } = app;
  if (!answer) return note("Select an example to see here what edits change for it.");
  if (!answer.before) return note(`The prediction for ${answer.point === null ? "the new example" : brief(answer.id, 30)} before and after your edits appears here.`);
  return el("div", { id: "edit-result", role: "status" }, beforeAfter(app, answer.before, answer));
}

// The result of the last edit stays in view, wherever on the page it was made.
export function showEffect(app) {
  const { edits, n_changed: n, n_asked: all } = app.changes;
  const { answer } = app;
  $("effect").hidden = !edits.length;
  if (!edits.length) return;
  fill($("effect"), el("span", {}, answer?.before ? [el("b", {}, "This example: "), inShort(app, answer.before), " → ", inShort(app, answer), ". "] : null,
    `${commas(n)} of ${commas(all)} predictions change.`),
  button({ onclick: app.undo }, "Undo"));
}

// Edits of the selected example itself, if it votes.
function own(app) {
  const answer = app.answer;
  if (!answer || answer.part !== "training" || app.changes.edits.some((edit) => edit.point === answer.point && edit.label === null)) {
    return note("Edit a voter by the menu ⋯ at its vote, or select a training example.");
  }
  return el("div", { class: "act" }, `Example ${brief(answer.id, 30)}: `,
    button({ onclick: () => app.remove(answer.point) }, "Remove it"), relabel(app, answer.point, "the selected example"));
}

export async function showIssues(app) {
  const place = contentOf("issues");
  fill(place, note("Checking the label of every training example …"));
  const found = await get("/explorer/issues");
  if (app.task.unit !== "label") return fill(place, ...errors(app, found));
  const asked = found.asked < found.n_references ? ` ${commas(found.asked)} of ${commas(found.n_references)} were checked.` : "";
  fill(place, note(`${app.start.guide.issues} ${found.judged}`),
    el("p", {}, `${plural(found.n, "label")} to check.${asked}`),
    found.issues.length ? el("div", { class: "wide list" }, el("table", {}, headsOf(["example", "label", "suggested label", "odds"]), el("tbody", {},
      found.issues.map((issue) => el("tr", {}, el("td", {}, linkTo(app, issue.point, issue.id)), el("td", {}, chip(app, issue.label)),
        el("td", {}, chip(app, issue.suggested), ` ${percent(issue.suggested_probability)}`),
        el("td", { class: "number" }, odds(issue.log_odds))))))) : null);
}

// Loaded examples that are furthest from what the others vote for.
function errors(app, { issues, n }) {
  const numbers = app.task.unit === "number";
  const titles = numbers ? ["example", app.task.name, "predicted", "error"] : ["example", "label", "has it", "probability"];
  const at = (value) => (Array.isArray(value) ? value[app.task.subject] : value);
  const row = (issue) => (numbers
    ? [chip(app, issue.true), chip(app, issue.label), numeral(at(issue.label) - at(issue.true))]
    : [brief(issue.label, 30), issue.has ? "yes" : "no", percent(issue.probability)]);
  return [note(app.start.guide.issues),
    el("p", {}, numbers ? `${plural(n, "example")} with a known number.` : `${plural(n, "label")} to check.`),
    issues.length ? el("div", { class: "wide list" }, el("table", {}, headsOf(titles), el("tbody", {},
      issues.map((issue) => el("tr", {}, el("td", {}, linkTo(app, issue.point, issue.id)), row(issue).map((cell) => el("td", {}, cell))))))) : null];
}

export async function showDisagreements(app) {
  const place = contentOf("compare");
  const found = await get("/explorer/disagreements");
  fill(place, note(app.start.guide.compare),
    el("p", { data: { n: found.n } }, `${plural(found.n, "example")} of ${commas(app.start.n_data)}; ${app.task.unit === "label" ? "those where both models are most confident come first" : "those that differ most come first"}.`),
    found.rows.length ? el("div", { class: "wide list" }, el("table", {}, headsOf(["example", app.start.title, app.start.compare, app.task.unit === "number" ? "true number" : "true label"]), el("tbody", {},
      found.rows.map((row) => el("tr", {}, el("td", {}, linkTo(app, row.point, row.id)),
        el("td", {}, labelled(app, row.label, row.probability)), el("td", {}, labelled(app, row.rival_label, row.rival_probability)),
        el("td", {}, row.true === null ? "–" : chip(app, row.true))))))) : null);
}
