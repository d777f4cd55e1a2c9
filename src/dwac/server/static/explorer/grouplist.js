// All groups of training examples in a list: what they vote for, how many they are, and how well the examples that rely
// on them are predicted, as the report says it.

import { get } from "./api.js";
import { chip } from "./chips.js";
import { labelOf } from "./discs.js";
import { $, button, commas, contentOf, el, fill, note } from "./dom.js";

const LISTED = 200;

// Of each group: its discs, and the loaded examples that rely on it with their errors.
function groupsOf(app, scores) {
  const { start } = app;
  const found = start.groups.map((group, i) => ({ ...group, ...scores.groups[i], discs: [] }));
  start.discs.forEach(({ group }, disc) => found[group].discs.push(disc));
  for (const group of found) group.label = labelOf(app, meanOf(group.discs.map((disc) => start.discs[disc])));
  return found;
}

// Discs as one: of numbers, their mean.
function meanOf(discs) {
  if (!discs[0].value) return discs[0];
  const size = discs.reduce((sum, disc) => sum + disc.size, 0);
  return { value: discs[0].value.map((_, t) => discs.reduce((sum, disc) => sum + disc.value[t] * disc.size, 0) / size) };
}

const ORDERS = {
  size: ["largest first", (a, b) => b.size - a.size],
  wrong: ["most errors first", (a, b) => b.wrong - a.wrong || b.size - a.size],
  data: ["most of the loaded examples first", (a, b) => b.n - a.n || b.size - a.size],
};

export async function showAllGroups(app, order = $("order")?.value ?? "size", known = null) {
  const { start } = app;
  const place = contentOf("all-groups");
  const scores = known ?? await get("/explorer/groups");
  const groups = groupsOf(app, scores).sort(ORDERS[order][1]);
  const loaded = start.n_data ? "of your rows rely on it" : "predicted by the others";
  const show = (group) => {
    app.select(group.discs[0], { whole: true });
    app.map.goTo(start.discs[group.discs[0]].x, start.discs[group.discs[0]].y);
  };
  fill(place, note(start.guide.groups),
    el("p", {}, el("label", {}, "Order ", el("select", { id: "order", onchange: (event) => showAllGroups(app, event.target.value, scores) },
      Object.entries(ORDERS).map(([value, [name]]) => el("option", { value, selected: value === order }, name))))),
    el("ol", { class: "members list" }, groups.slice(0, LISTED).map((group) => el("li", { data: { size: group.size, n: group.n, wrong: group.wrong },
      onmouseenter: () => app.marks.outline("hover", group.discs), onmouseleave: () => app.marks.outline("hover", []) },
      button({ class: "row", onclick: () => show(group) }, chip(app, group.label), " ",
        el("b", {}, commas(group.size)), ` training example${group.size === 1 ? "" : "s"}`,
        group.n ? `; ${commas(group.n)} ${loaded}` : "", group.said ? el("span", { class: group.wrong ? "verdict" : "" }, `; ${scores.measure}: ${group.said}`) : null),
      group.description ? el("div", { class: "note" }, group.description) : null))),
    groups.length > LISTED ? note(`and ${commas(groups.length - LISTED)} more groups`) : null);
}
