// The votes: images side by side, texts with attention, rows of a table with their differences.

import { chip } from "./chips.js";
import { brief, el, percent, short, text } from "./dom.js";
import { bar, chooser, comparison, picture, words } from "./records.js";
import { relabel } from "./relabel.js";

export function showVoters(app, answer) {
  const { explanation: e, kind } = answer;
  if (e.private && !e.neighbors.length) return el("p", { class: "note" }, app.start.guide.private);
  const show = { image: images, text: texts, table, "": votes }[e.private ? "" : kind] ?? votes;
  const few = e.n_examples !== e.n_references; // vote for all
  const share = e.neighbors.reduce((sum, voter) => sum + voter.share, 0);
  return el("section", { id: "voters", "aria-labelledby": "voters-title" },
    el("h3", { id: "voters-title" }, e.private ? "Votes per label" : `Votes, ${few ? "heaviest representative" : "nearest training example"} first`),
    e.private ? null : el("p", {}, el("label", {}, "Show ", chooser(app, "k")), ` of ${e.n_references.toLocaleString("en")} ${few ? "representatives" : "training examples"}; these have ${percent(share)} of the vote.`),
    show(app, answer),
    el("p", { class: "note" }, e.private ? app.start.guide.private : `Share: ${app.start.guide.share} Weight: ${app.start.guide.weight}`));
}

// A vote for another label; one for a number is against nothing.
const against = (voter, e) => e.label !== undefined && voter.label !== e.label;

const barOf = (voter, e) => bar(voter.share, Math.max(...e.neighbors.map((each) => each.share)) || 1, against(voter, e));

// A private share belongs to a label, in whole per cent; it has no weight.
const votesOf = (voter) => (voter.weight === undefined
  ? el("span", { class: "share", data: { share: String(voter.share) } }, percent(voter.share))
  : el("span", {
    class: "share", data: { share: String(voter.share), weight: String(voter.weight) }, title: `weight ${voter.weight}`,
  }, `${percent(voter.share)}, weight ${short(voter.weight)}`, voter.size > 1 ? `, votes for ${voter.size.toLocaleString("en")}` : ""));

function actions(app, answer, i) {
  const point = answer.neighbor_points?.[i];
  if (point === undefined) return null;
  const voter = answer.explanation.neighbors[i];
  return el("div", { class: "act" },
    el("button", { type: "button", "aria-label": `Remove ${text(voter.id)}`, onclick: () => app.remove(point) }, "Remove"),
    relabel(app, point, text(voter.id)),
    el("button", { type: "button", "aria-label": `Show ${text(voter.id)}`, onclick: () => app.choose(point) }, "Show"));
}

const missing = () => el("span", { class: "note" }, "no picture");

function images(app, answer) {
  const { explanation: e } = answer;
  return el("div", { class: "strip" },
    el("figure", { class: "asked" }, picture(e.record, "this example") ?? missing(), el("figcaption", {}, "this example")),
    e.neighbors.map((voter, i) => el("figure", { class: against(voter, e) ? "against" : "" },
      picture(voter.record, `training example ${text(voter.id)}`) ?? missing(),
      el("figcaption", {}, chip(app, voter.label), barOf(voter, e), votesOf(voter), el("div", { class: "note" }, brief(voter.id, 40)),
        actions(app, answer, i)))));
}

function texts(app, answer) {
  const { explanation: e } = answer;
  return [answer.few_suffice ? words(e) : null, list(app, answer, (voter) => el("p", {}, brief(voter.record?.text ?? "–", 400)))];
}

const votes = (app, answer) => list(app, answer, () => null);

function list(app, answer, body) {
  const { explanation: e } = answer;
  return el("ul", { class: "voters" }, e.neighbors.map((voter, i) => el("li", {},
    el("div", { class: "voter" }, el("span", {}, chip(app, voter.label), " ", voter.id === undefined ? null : el("span", { class: "note" }, brief(voter.id, 60))),
      votesOf(voter), barOf(voter, e)),
    body(voter), actions(app, answer, i))));
}

function table(app, answer) {
  const { explanation: e, compared } = answer;
  return comparison("compared", compared, e.neighbors.map((voter, i) =>
    [chip(app, voter.label), el("div", {}, brief(voter.id, 30)), barOf(voter, e), votesOf(voter), actions(app, answer, i)]));
}
