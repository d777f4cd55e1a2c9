// The map says what is below the pointer: an example, or a disc; a selected disc lists its members.

import { get } from "./api.js";
import { chip } from "./chips.js";
import { $, aside, brief, button, commas, el, fill, link, linkTo, note, pager, plural, text } from "./dom.js";
import { picture } from "./records.js";
import { verdict } from "./selection.js";

const count = (n) => plural(n, "training example");
const together = (app, disc) => app.start.discs.flatMap((each, i) => (each.group === app.start.discs[disc].group ? [i] : []));

// What the members of a disc vote for.
export function labelOf(app, { label, value }) {
  const { classes, labels } = app.start.card;
  if (value) return value.length === 1 ? value[0] : value;
  return classes ? classes[label] : labels.filter((_, i) => app.start.target.label_sets[label][i]);
}

const PAGE = 30; // members that the server lists at once
const REACH = 9; // pixels from the pointer to the point whose example is shown
const PAUSE = 40; // milliseconds that the pointer rests before an example is asked for
const known = new Map(); // examples in short, by point
let timer = null;

export const forget = () => known.clear();

// A tip beside the pointer: the example there, or the label, size and description of the disc.
export function hover(app, place) {
  const point = place && $("click").value !== "groups" ? app.map.at(...place, REACH * app.map.ratio) : null;
  const disc = place && app.map.discAt(...place);
  const tip = $("tip");
  const seen = point !== null ? `point ${point}` : disc !== null ? `disc ${disc}` : "";
  app.marks.outline("hover", disc === null ? [] : together(app, disc));
  if (!seen) {
    clearTimeout(timer);
    tip.hidden = true;
    tip.dataset.seen = "";
    return;
  }
  if (tip.dataset.seen !== seen) {
    clearTimeout(timer);
    tip.dataset.seen = seen;
    if (point === null) fill(tip, about(app, disc));
    else timer = setTimeout(() => showPoint(app, point, seen), known.has(point) ? 0 : PAUSE);
  }
  if (point === null) tip.hidden = false;
  position(app, tip, place);
}

function position(app, tip, place) {
  const [x, y] = place.map((value) => value / app.map.ratio);
  const [wide, high] = [app.map.frame.width / app.map.ratio, app.map.frame.height / app.map.ratio];
  tip.style.setProperty("left", x < wide / 2 ? `${x + 14}px` : "auto");
  tip.style.setProperty("right", x < wide / 2 ? "auto" : `${wide - x + 14}px`);
  tip.style.setProperty("top", y < high / 2 ? `${Math.max(4, y - 12)}px` : "auto");
  tip.style.setProperty("bottom", y < high / 2 ? "auto" : `${Math.max(4, high - y - 12)}px`);
}

async function showPoint(app, point, seen) {
  if (!known.has(point)) known.set(point, await get(`/explorer/points/${point}/brief`).catch(() => null));
  const found = known.get(point);
  const tip = $("tip");
  if (tip.dataset.seen !== seen || !found) return;
  fill(tip, el("div", {}, el("b", {}, brief(found.id, 40)), aside(found.part === "data" ? " (your data)" : " (training example)")),
    el("div", {}, verdict(app, found)), picture(found.record, ""), found.text ? el("div", { class: "note clamp" }, found.text) : null);
  tip.hidden = false;
}

function about(app, disc) {
  const { size, group } = app.start.discs[disc];
  const whole = app.start.groups[group];
  return [el("div", {}, chip(app, labelOf(app, app.start.discs[disc])), ` ${count(size)}`),
    whole.size > size ? el("div", {}, `in a group of ${commas(whole.size)}`) : null,
    whole.description ? el("div", { class: "note" }, whole.description) : null];
}

export async function select(app, disc, { whole = false, start = 0 } = {}) {
  const found = await get(`/explorer/discs/${disc}?start=${start}&whole=${Number(whole)}`);
  app.marks.outline("group", whole ? together(app, disc) : [disc]);
  show(app, found);
  $("group").scrollIntoView({ block: "nearest" });
}

function close(app) {
  $("group").hidden = true;
  app.marks.outline("group", []);
}

function show(app, found) {
  const { group } = found;
  const end = found.start + found.members.length;
  const several = group.n_discs > 1;
  $("group").hidden = false;
  Object.assign($("group").dataset, { disc: found.disc, n: found.n, whole: found.whole });
  fill($("group"),
    el("div", { class: "voter" }, el("h2", {}, `${found.whole ? "Group" : "Disc"}: `, chip(app, found.label), ` ${count(found.n_examples)}`),
      button({ "aria-label": "Close the list of members", onclick: () => close(app) }, "×")),
    group.description ? el("p", {}, several && !found.whole ? "Its group: " : "", group.description) : null,
    note(app.start.guide.disc),
    several ? el("p", {}, link({ id: "whole", onclick: () => app.select(found.disc, { whole: !found.whole }) },
      found.whole ? `Only this disc (${commas(found.size)})` : `The whole group: ${group.n_discs} discs, ${count(group.size)}`)) : null,
    found.n_examples > found.n ? el("p", {}, `${found.n === 1 ? "The representative is" : "Representatives are"} shown; this model does not hold the others.`) : null,
    el("ul", { class: "members" }, found.members.map((member) => item(app, member))),
    found.n > found.members.length ? pager({ start: found.start, end, n: found.n, size: PAGE },
      `${commas(found.start + 1)} to ${commas(end)} of ${commas(found.n)}, the most central first`,
      (start) => app.select(found.disc, { whole: found.whole, start })) : null);
}

function item(app, member) {
  return el("li", {}, el("span", { class: "member" }, picture(member.record, `training example ${text(member.id)}`),
    member.point === null ? el("b", {}, brief(member.id, 40)) : linkTo(app, member.point, member.id, false), " ",
    member.size > 1 ? aside(`votes for ${commas(member.size)} `) : null,
    member.removed ? el("b", {}, "removed ") : null,
    aside(member.text)));
}
