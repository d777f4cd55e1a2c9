// The examples divided by a column: the map in the colours of the groups, and the measures of each beside it.

import { get } from "./api.js";
import { sign } from "./colours.js";
import { $, brief, button, commas, el, fill, headsOf, note } from "./dom.js";
import { paintOf } from "./paints.js";

export function listen(app) {
  $("by").addEventListener("change", () => app.tried(app.splitBy($("by").value)));
}

// Divide by the column at a place of the menu; "" for none.
export async function splitBy(app, place) {
  if (![...$("by").options].some((option) => option.value === place)) return;
  $("by").value = place;
  const found = place === "" ? null : await ask(app, place);
  if ($("by").value !== place) return; // another was chosen meanwhile
  app.split = found;
  const painted = $("colour").value === "group";
  $("colour").querySelector('[value="group"]')?.remove();
  if (found) $("colour").append(el("option", { value: "group" }, `groups by ${brief(found.name, 30)}`));
  if (found || painted) await app.setColour(found ? "group" : "label");
  await show(app);
  app.remember();
  if (found) app.say(`Divided by ${found.name}: ${found.names.length} groups.`);
}

// After an edit, or at another ε: the same groups, measured again.
export async function refresh(app) {
  if (!app.split) return;
  app.split = await ask(app, $("by").value);
  await show(app);
}

const ask = (app, place) => get(`/explorer/split/${place}?epsilon=${app.epsilon}&label=${app.task.subject}`);

export async function show(app) {
  const { split } = app;
  $("split").hidden = !split;
  if (!split) return;
  const paint = await paintOf(app, "group");
  const known = split.rows.length ? split.rows : split.names.map((name, code) => [name, commas(split.counts[code]), []]);
  const code = (name) => split.names.indexOf(name.replace(/ \(small\)$/, ""));
  fill($("split"), el("div", { class: "head" }, el("h2", {}, `By ${brief(split.name, 60)}`), button({ id: "clear-split", onclick: () => app.tried(app.splitBy("")) }, "Close")),
    el("div", { class: "wide" }, el("table", { class: "split", "aria-label": `Measures by ${split.name}` },
      headsOf(["group", "rows", ...split.measures], (i) => i > 0),
      el("tbody", {}, known.map(([name, rows, cells]) => el("tr", { data: { group: name } },
        el("th", { scope: "row" }, code(name) < 0 ? null : sign(code(name), paint), " ", brief(name, 40)),
        el("td", { class: "number" }, rows),
        cells.map(([value, interval, unlike]) => el("td", { class: unlike ? "number unlike" : "number" }, value, unlike ? el("span", { class: "note", title: "unlike all other rows" }, " ≠") : null,
          interval ? el("div", { class: "note" }, interval) : null))))))),
    note(split.rows.length ? "Below each value its 95 % interval. ≠: unlike all other rows (p < 0.05, corrected for all comparisons)." : "The labels of these examples are not known, so nothing can be measured."));
}
