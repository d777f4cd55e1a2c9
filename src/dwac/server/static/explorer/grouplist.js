// All groups of training examples in a list: what they vote for, how many they are, and how the data near them fares.

import { chip } from "./chips.js";
import { labelOf } from "./discs.js";
import { $, el, fill, percent } from "./dom.js";

const LISTED = 200;

// Of each group: its first disc, its discs, and the loaded examples in them with their errors.
function groupsOf(app) {
  const { start, points, task } = app;
  const found = start.groups.map((group) => ({ ...group, discs: [], n: 0, judged: 0, wrong: 0 }));
  start.discs.forEach(({ group }, disc) => found[group].discs.push(disc));
  for (const group of found) group.label = labelOf(app, meanOf(group.discs.map((disc) => start.discs[disc])));
  for (const i of points.asked) {
    const group = found[start.discs[points.leaf[i]].group];
    group.n++;
    if (!task.isJudged(i)) continue;
    group.judged++;
    if (task.isMistake(i)) group.wrong++;
  }
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

export function showAllGroups(app, order = "size") {
  const { start, task } = app;
  const place = $("all-groups").querySelector("div");
  const groups = groupsOf(app).sort(ORDERS[order][1]);
  const loaded = start.n_data ? "of your rows" : "predicted";
  const errors = task.unit === "number" ? "outside their interval" : "wrong";
  const show = (group) => {
    app.select(group.discs[0], { whole: true });
    app.map.goTo(start.discs[group.discs[0]].x, start.discs[group.discs[0]].y);
  };
  fill(place, el("p", { class: "note" }, start.guide.groups),
    el("p", {}, el("label", {}, "Order ", el("select", { id: "order", onchange: (event) => showAllGroups(app, event.target.value) },
      Object.entries(ORDERS).map(([value, [name]]) => el("option", { value, selected: value === order }, name))))),
    el("ol", { class: "members list" }, groups.slice(0, LISTED).map((group) => el("li", { data: { size: group.size, n: group.n, wrong: group.wrong },
      onmouseenter: () => app.marks.outline("hover", group.discs), onmouseleave: () => app.marks.outline("hover", []) },
      el("button", { type: "button", class: "row", onclick: () => show(group) }, chip(app, group.label), " ",
        el("b", {}, group.size.toLocaleString("en")), ` training example${group.size === 1 ? "" : "s"}`,
        group.n ? `; ${group.n.toLocaleString("en")} ${loaded}` : "", group.judged ? el("span", { class: group.wrong ? "verdict" : "" }, `, ${percent(group.wrong / group.judged)} ${errors}`) : null),
      group.description ? el("div", { class: "note" }, group.description) : null))),
    groups.length > LISTED ? el("p", { class: "note" }, `and ${(groups.length - LISTED).toLocaleString("en")} more groups`) : null);
}
