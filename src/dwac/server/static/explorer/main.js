// The page as a whole: selection, edits and requests, and the views that show them.

import * as address from "./address.js";
import { download, get, oneFile, post, useToken } from "./api.js";
import { predictionOf } from "./change.js";
import { named } from "./chips.js";
import { $, brief, el, fill, commas, percent, summaryOf } from "./dom.js";
import { showExample, showWelcome } from "./example.js";
import * as discs from "./discs.js";
import * as fresh from "./fresh.js";
import * as gestures from "./gestures.js";
import { showAllGroups } from "./grouplist.js";
import { Histogram } from "./histogram.js";
import * as importance from "./importance.js";
import * as keys from "./keys.js";
import { showLegend } from "./legend.js";
import { showDisagreements, showEdits, showEffect, showIssues } from "./lists.js";
import { PointMap } from "./map.js";
import { Marks } from "./marks.js";
import * as menu from "./menu.js";
import { learn, titleOf } from "./names.js";
import { choices, paintOf } from "./paints.js";
import { load, reload, reloadIntervals } from "./points.js";
import * as search from "./search.js";
import * as selection from "./selection.js";
import { showSets } from "./sets.js";
import * as split from "./split.js";
import { taskOf } from "./tasks.js";
import * as theme from "./theme.js";
import * as whatif from "./whatif.js";
import * as worth from "./worth.js";

// Sections that ask the server for a list when they are opened, and again after edits.
const LISTS = { "all-groups": showAllGroups, issues: showIssues, worth: worth.showWorth, compare: showDisagreements };

const app = { k: 5, chosen: null, original: null, answer: null, selected: [], lasso: [], columns: [], split: null, remember: () => {} };
window.explorer = app; // for the console and for tests

const busy = (message) => { $("status").textContent = message; };

// Do something that may be refused; show the reason if it is.
app.tried = async (work) => {
  try {
    $("problem").textContent = "";
    return await work;
  } catch (error) {
    if (error.status === 401) $("token").hidden = false;
    $("problem").textContent = error.message;
    return null;
  } finally {
    busy("");
  }
};

app.isData = (point) => point >= app.start.n_training;

// Announced by screen readers.
app.say = (words) => { $("said").textContent = words; };

app.choose = (point, move = false) => app.tried((async () => {
  if (point === null || point === undefined) return;
  const answer = await get(`/explorer/points/${point}?k=${app.k}&epsilon=${app.epsilon}&label=${app.task.subject}`);
  present(answer, point);
  if (move) app.map.goTo(...answer.xy);
})());

// Show an example in the panel and on the map; point: null for one that is not on it.
function present(answer, point) {
  Object.assign(app, { chosen: point, original: answer });
  show(answer);
  app.marks.show(answer);
  app.say(descriptionOf(answer));
  app.remember();
}

function descriptionOf(answer) {
  const { probability } = answer.explanation;
  const known = answer.true !== null && answer.true !== undefined;
  const label = named(app, predictionOf(answer));
  return `${answer.point === null ? "New example" : `Example ${brief(answer.id, 60)}`}: predicted ${label}${app.task.unit === "label" ? `, ${percent(probability)}` : ""}${known ? `; it is ${named(app, answer.true)}` : ""}.`;
}

const predict = (question) => post("/explorer/ask", { ...question, k: app.k, epsilon: app.epsilon, label: app.task.subject });

// The selected example, changed.
app.ask = async (question) => {
  const answer = await predict(question);
  if (app.chosen !== null) app.marks.move(answer);
  app.say(`Changed: ${descriptionOf(answer)}`);
  return answer;
};

// The example in the panel as it was.
app.reset = () => (app.chosen === null ? show(app.original) : app.choose(app.chosen));

app.showAnswer = (answer) => {
  showExample(app, answer);
  $("right").scrollTo?.(0, 0);
};

// Something new, with the examples nearest to it.
app.askNew = async (question) => {
  const answer = { ...await predict(question), editable: app.start.card.kind !== "image" };
  present(answer, null);
  app.map.reveal(...answer.xy);
};

// The next or the previous of the loaded examples.
app.step = (by) => {
  const { withPrediction: points } = app.points;
  if (!points.length) return null;
  const shown = app.selected.length ? app.selected : Array.from(points);
  const at = shown.indexOf(app.chosen);
  return app.choose(shown[(at + by + shown.length) % shown.length] ?? shown[0]);
};

app.openSection = (id) => {
  $(id).open = true;
  $(id).scrollIntoView({ block: "start", behavior: "auto" });
  summaryOf(id).focus({ preventScroll: true });
};

app.copyLink = () => app.tried((async () => {
  const link = `${location.origin}${location.pathname}#${address.textOf(app)}`;
  $("link").value = link;
  $("share").showModal();
  $("link").select();
  await navigator.clipboard?.writeText(link).catch(() => null);
})());

app.lassoed = (polygon) => app.tried(selection.select(app, polygon));

app.setColour = async (value) => {
  if (![...$("colour").options].some((option) => option.value === value)) return;
  $("colour").value = value;
  const paint = await paintOf(app, value);
  if ($("colour").value !== value) return; // another was chosen meanwhile
  app.map.restyle({ paint });
  showLegend(app);
  app.remember();
};

// The examples divided by a column.
app.splitBy = (place) => split.splitBy(app, place);

app.setEpsilon = async (epsilon) => {
  app.epsilon = epsilon;
  if (app.start.columns.interval) {
    await reloadIntervals(app.points, app.start, epsilon);
    app.map.restyle();
  }
  showSets(app);
  await split.refresh(app);
};

// A disc of the map: its members are listed.
app.select = (disc, given) => app.tried(discs.select(app, disc, given));

// A click on the map: the example there, or the group if there is none or groups are to be selected.
function clicked(place, reach) {
  const groups = $("click").value === "groups";
  const point = groups && !app.picking ? null : app.map.at(...place, reach);
  if (app.picking && point !== null) return app.compare({ point });
  if (point !== null) return app.choose(point);
  const disc = app.map.discAt(...place);
  return disc === null ? null : app.select(disc);
}

// The training example with this id.
app.findVoter = (id) => app.tried((async () => {
  const { found } = await get(`/explorer/search?q=${encodeURIComponent(id)}`);
  const voter = found.find((each) => String(each.id) === String(id) && !app.isData(each.point));
  if (voter) await app.choose(voter.point);
})());

app.setNeighbors = (k) => {
  app.k = k;
  app.choose(app.chosen);
};

const edit = (step) => app.tried((async () => {
  busy("Counting votes …");
  const changes = await post("/explorer/edits", step);
  await reload(app.points, app.start, app.epsilon);
  app.task.forget?.();
  discs.forget();
  worth.forget(app);
  importance.forget(app);
  const byWorth = $("colour").value === "worth"; // takes time: the effect is shown first
  app.map.restyle(byWorth ? {} : { paint: await paintOf(app, $("colour").value) });
  app.histogram.measured();
  showSets(app);
  if (app.chosen !== null) await app.choose(app.chosen);
  if (!$("group").hidden) await discs.select(app, Number($("group").dataset.disc), { whole: $("group").dataset.whole === "true" });
  showEdits(app, changes);
  showEffect(app);
  $("edits").open = true;
  app.say(`${changes.n_changed} of ${changes.n_asked} predictions change because of the edits.`);
  await split.refresh(app);
  for (const [id, show] of Object.entries(LISTS)) if ($(id).open) await show(app);
  if (byWorth) await app.setColour("worth");
})());

app.remove = (point) => edit({ action: "remove", point });
app.relabel = (point, label) => edit({ action: "relabel", point, label });
app.undo = () => edit({ action: "undo" });
app.redo = () => edit({ action: "redo" });

function show(answer) {
  whatif.showWhatIf(app, answer);
  showExample(app, answer); // its menu leads to what is there
  showEdits(app, app.changes);
}

// Another label, or another number, of several.
app.setSubject = async (place) => {
  app.task.subject = place;
  $("subject").value = place;
  app.task.forget?.();
  app.map.restyle({ paint: await paintOf(app, $("colour").value) });
  app.histogram.measured();
  showSets(app);
  showLegend(app);
  importance.forget(app);
  await split.refresh(app);
  app.remember();
  if (app.chosen !== null) await app.choose(app.chosen);
};

// Menus and titles, by what is predicted.
function adapt() {
  const { task, start } = app;
  fill($("colour"), choices(app).map(([value, name]) => el("option", { value }, name)),
    start.data_columns.length ? el("optgroup", { label: "columns of the data" }, start.data_columns.map((name, i) => el("option", { value: `column:${i}` }, brief(titleOf(name), 40)))) : null);
  fill($("by"), [["", "nothing"], ...start.divisions.map((name, i) => [i, brief(name, 40)])].map(([value, name]) => el("option", { value }, name)));
  $("by").parentElement.hidden = !start.divisions.length;
  fill($("subject"), (task.subjects ?? []).map((name, i) => el("option", { value: i }, name)));
  $("subject").parentElement.hidden = !task.subjects;
  $("subject-title").textContent = task.unit === "labels" ? "Label" : "Number";
  $("sets-title").textContent = task.words.sets;
  summaryOf("issues").textContent = task.words.issues;
  const errors = $("layer").querySelector('[value="mistakes"]');
  errors.textContent = task.words.errors;
  errors.hidden = errors.disabled = task.unit === "number" && !app.points.interval.length;
  $("layer").querySelector('[value="data"]').hidden = start.n_data === 0;
}

// Draw everything in the colours of the theme.
function recolour() {
  if (!app.map) return; // the page is still loading
  app.map.restyle();
  app.histogram.draw();
  showLegend(app);
  app.tried(split.show(app));
  if (app.answer) showExample(app, app.answer);
}

function listen() {
  const lasso = {
    on: () => $("lasso").getAttribute("aria-pressed") === "true",
    drawn: (path) => {
      app.marks.lasso = path;
      app.marks.draw();
    },
    done: app.lassoed,
  };
  gestures.listen($("marks"), app.map, clicked, (place) => discs.hover(app, place), lasso);
  $("lasso").addEventListener("click", () => {
    $("lasso").setAttribute("aria-pressed", String(!lasso.on()));
    $("marks").classList.toggle("lasso", lasso.on());
    app.say(lasso.on() ? "Dragging on the map selects examples." : "Dragging moves the map.");
  });
  for (const name of ["pointerup", "wheel"]) $("marks").addEventListener(name, () => app.remember(), { passive: true });
  document.addEventListener("keyup", () => app.remember());
  menu.listen();
  fresh.listen(app);
  whatif.listen(app);
  importance.listen(app);
  split.listen(app);
  keys.listen(app);
  search.listen(app);
  app.map.drawn = () => app.marks.draw();
  $("epsilon").addEventListener("input", () => {
    app.epsilon = Number($("epsilon").value);
    showSets(app);
    if (app.answer) showExample(app, app.answer);
    app.remember();
  });
  // Intervals, and the measures of groups, are asked for when the slider rests.
  $("epsilon").addEventListener("change", () => app.tried((async () => {
    await app.setEpsilon(app.epsilon);
    if (app.start.columns.interval && app.chosen !== null) await app.choose(app.chosen);
  })()));
  $("subject").addEventListener("change", () => app.setSubject(Number($("subject").value)));
  $("colour").addEventListener("change", () => app.tried(app.setColour($("colour").value)));
  $("layer").addEventListener("change", () => {
    app.map.restyle({ layer: $("layer").value });
    app.remember();
  });
  for (const [id, show] of Object.entries(LISTS)) $(id).addEventListener("toggle", () => $(id).open && app.tried(show(app)));
  $("export-edits").addEventListener("click", () => app.tried(download("/explorer/edits.json", "edits.json")));
  $("export-table").addEventListener("click", () => app.tried(download(`/explorer/examples.csv?epsilon=${app.epsilon}`, "examples.csv")));
}

async function begin() {
  const start = await get("/explorer/start");
  app.start = start;
  learn(start.card.columns);
  app.epsilon = start.epsilon;
  app.codes = new Map((start.card.classes ?? []).map((name, code) => [String(name), code]));
  app.task = taskOf(app);
  app.points = await load(start);
  app.rows = new Int32Array(app.points.n).fill(-1); // the place of a point among those with predictions
  app.points.withPrediction.forEach((point, row) => { app.rows[point] = row; });
  $("token").hidden = true;
  $("main").hidden = false;
  $("title").textContent = start.title;
  document.title = `${start.title}: dwac explorer`;
  $("lead").textContent = start.guide.lead;
  $("export").hidden = oneFile;
  if (oneFile) summaryOf("whatif").textContent = "Why? Compared with a precedent";
  $("held").textContent = start.held ?? "";
  $("epsilon").disabled = oneFile && Boolean(start.columns.interval); // intervals are computed by the model
  $("map-help").textContent = `${start.map} Drag or use the arrow keys to move, the wheel or + and − to zoom.`;
  $("issues").hidden = start.private;
  $("worth").hidden = !start.worth;
  $("importance").hidden = !start.importance;
  if (start.card.kind === "image") summaryOf("importance").textContent = "Which patches matter?";
  $("compare").hidden = !start.compare;
  $("click").parentElement.hidden = !start.discs.length;
  $("all-groups").hidden = !start.groups.length;
  summaryOf("all-groups").textContent = `Groups (${commas(start.groups.length)})`;
  adapt();
  app.task.restyle();
  app.map = new PointMap($("points"), app.task, app.points, await paintOf(app, "label"), start.discs);
  app.map.restyle({ both: start.n_training > 0 && start.n_data > 0 });
  app.marks = new Marks($("marks"), app.map, start.card.classes ?? [], start.sizes);
  app.histogram = new Histogram(app, (filter) => {
    app.map.restyle(filter);
    app.remember();
  });
  showLegend(app);
  listen();
  showSets(app);
  app.histogram.draw();
  showWelcome(app);
  whatif.showWhatIf(app, null);
  showEdits(app, start);
  await address.follow(app);
  address.listen(app);
  if (start.split !== null && location.hash.length < 2) await app.splitBy(String(start.split));
  document.body.dataset.ready = "yes";
}

theme.listen(recolour);
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("secret").value);
  app.tried(begin());
});
app.tried(begin());
