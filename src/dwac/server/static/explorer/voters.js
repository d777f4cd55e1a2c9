// The votes: images side by side, texts, rows of a table with their differences. Bars are shares of the whole vote.

import { oneFile } from "./api.js";
import { chip, named } from "./chips.js";
import { $, aside, brief, commas, el, note, percent, short, text } from "./dom.js";
import { menu } from "./menu.js";
import { against, apart, bar, chooser, comparison, picture, whole } from "./records.js";
import { relabel } from "./relabel.js";
import { words } from "./words.js";

export function showVoters(app, answer) {
  const { explanation: e, kind } = answer;
  if (e.private && !e.neighbors.length) return note(app.start.guide.private);
  const show = { image: images, text: texts, table, "": votes }[e.private ? "" : kind] ?? votes;
  const few = e.n_examples !== e.n_references; // vote for all
  const share = e.neighbors.reduce((sum, voter) => sum + voter.share, 0);
  const parts = e.neighbors.map((voter) => ({ share: voter.share, name: `${named(app, voter.label)}${voter.id === undefined ? "" : `, ${brief(voter.id, 30)}`}`, other: against(voter, e) }));
  return el("section", { id: "voters", "aria-labelledby": "voters-title" },
    el("h3", { id: "voters-title" }, e.private ? "Votes per label" : `Votes, ${few ? "heaviest representative" : "nearest training example"} first`),
    whole(parts, 1 - share),
    e.private ? null : note(el("label", {}, "Show ", chooser(app, "k")), ` of ${commas(e.n_references)} ${few ? "representatives" : "training examples"}: ${percent(share)} of the vote.`),
    show(app, answer),
    note(e.private ? app.start.guide.private : `Share: ${app.start.guide.share} Weight, shown when the pointer is on a share: ${app.start.guide.weight}`));
}

const barOf = (voter, e) => bar(voter.share, against(voter, e));

// A private share belongs to a label, in whole per cent; it has no weight.
const votesOf = (voter) => el("span", voter.weight === undefined
  ? { class: "share", data: { share: String(voter.share) } }
  : { class: "share", data: { share: String(voter.share), weight: String(voter.weight) }, title: `weight ${short(voter.weight)}` },
percent(voter.share), voter.size > 1 ? `, votes for ${commas(voter.size)}` : "");

// Everything that can be done with a voter.
function actions(app, answer, i) {
  const point = answer.neighbor_points?.[i];
  if (point === undefined) return null;
  const name = text(answer.explanation.neighbors[i].id);
  return menu("⋯", `Actions on ${name}`, [
    ["Show this example", () => app.choose(point), `Show ${name}`], ...oneFile ? [] : [["Compare with it", () => app.compare({ point }), `Compare with ${name}`], ["Remove its vote", () => app.remove(point), `Remove ${name}`], relabel(app, point, name)]]);
}

const missing = () => aside("no picture");

function images(app, answer) {
  const { explanation: e } = answer;
  return el("div", { class: "strip" },
    el("figure", { class: "asked" }, picture(e.record, "this example") ?? missing(), el("figcaption", {}, "this example")),
    e.neighbors.map((voter, i) => el("figure", { class: against(voter, e) ? "against" : "" },
      picture(voter.record, `training example ${text(voter.id)}`) ?? missing(),
      actions(app, answer, i), el("figcaption", {}, chip(app, voter.label), barOf(voter, e), votesOf(voter), el("div", { class: "note" }, brief(voter.id, 40))))));
}

function texts(app, answer) {
  return [answer.few_suffice ? words(app, answer) : null, list(app, answer, (voter) => voter.record?.text ?? "–")];
}

const votes = (app, answer) => list(app, answer, () => null);

function list(app, answer, body) {
  const { explanation: e } = answer;
  return el("ul", { class: "voters" }, e.neighbors.map((voter, i) => {
    const line = body(voter);
    return el("li", {},
      el("div", { class: "voter" }, el("span", {}, chip(app, voter.label), " ", voter.id === undefined ? null : aside(brief(voter.id, 60))),
        el("span", { class: "pair" }, votesOf(voter), actions(app, answer, i)), barOf(voter, e)),
      line === null ? null : el("p", { class: "clamp", title: brief(line, 1000) }, brief(line, 400)));
  }));
}

function table(app, answer) {
  const { explanation: e, compared } = answer;
  return [list(app, answer, (voter) => apart(answer, voter)),
    el("details", { id: "by-column", class: "opened", open: $("by-column")?.open }, el("summary", {}, "Column by column"),
      comparison("compared", compared, e.neighbors.map((voter) => [chip(app, voter.label), el("div", {}, brief(voter.id, 30))])))];
}
