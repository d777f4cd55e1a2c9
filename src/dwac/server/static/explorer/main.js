// The page as a whole: selection, edits and requests, and the views that show them.

import { download, get, post, useToken } from "./api.js";
import { on } from "./bus.js";
import { $, el, fill } from "./dom.js";
import { showExample, showWelcome } from "./example.js";
import * as gestures from "./gestures.js";
import * as discs from "./discs.js";
import { Histogram } from "./histogram.js";
import * as keys from "./keys.js";
import { showLegend } from "./legend.js";
import { showDisagreements, showEdits, showIssues } from "./lists.js";
import { PointMap } from "./map.js";
import { Marks } from "./marks.js";
import { load, reload, reloadIntervals } from "./points.js";
import * as search from "./search.js";
import { showSets } from "./sets.js";
import { taskOf } from "./tasks.js";
import * as theme from "./theme.js";
import { showWhatIf } from "./whatif.js";

const app = { k: 5, chosen: null, original: null, answer: null };
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

app.choose = (point, move = false) => app.tried((async () => {
  if (point === null || point === undefined) return;
  const answer = await get(`/explorer/points/${point}?k=${app.k}&epsilon=${app.epsilon}&label=${app.task.subject}`);
  app.chosen = point;
  app.original = answer;
  show(answer);
  app.marks.show(answer);
  if (move) app.map.goTo(...answer.xy);
})());

app.ask = (question) => app.tried((async () => {
  const answer = await post("/explorer/ask", { ...question, k: app.k, epsilon: app.epsilon, label: app.task.subject });
  showExample(app, answer);
  app.marks.move(answer);
})());

// A disc of the map: its members are listed.
app.select = (disc, given) => app.tried(discs.select(app, disc, given));

// A click on the map: the example there, or the group if there is none or groups are to be selected.
function clicked(place, reach) {
  const groups = $("click").value === "groups";
  const point = groups ? null : app.map.at(...place, reach);
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
  app.map.restyle();
  app.histogram.measured();
  showSets(app);
  if (app.chosen !== null) await app.choose(app.chosen);
  if (!$("group").hidden) await discs.select(app, Number($("group").dataset.disc), { whole: $("group").dataset.whole === "true" });
  showEdits(app, changes);
  $("edits").open = true;
  if ($("issues").open) await showIssues(app);
  if ($("compare").open) await showDisagreements(app);
})());

app.remove = (point) => edit({ action: "remove", point });
app.relabel = (point, label) => edit({ action: "relabel", point, label });
app.undo = () => edit({ action: "undo" });
app.redo = () => edit({ action: "redo" });

function show(answer) {
  showExample(app, answer);
  showWhatIf(app, answer);
  showEdits(app, app.changes);
}

// Another label, or another number, of several.
app.setSubject = async (place) => {
  app.task.subject = place;
  $("subject").value = place;
  app.task.forget?.();
  app.map.restyle();
  app.histogram.measured();
  showSets(app);
  showLegend(app);
  if (app.chosen !== null) await app.choose(app.chosen);
};

// Menus and titles, by what is predicted.
function adapt() {
  const { task, start } = app;
  fill($("colour"), task.colours.map(([value, name]) => el("option", { value }, name)));
  fill($("subject"), (task.subjects ?? []).map((name, i) => el("option", { value: i }, name)));
  $("subject").parentElement.hidden = !task.subjects;
  $("subject-title").textContent = task.unit === "labels" ? "Label" : "Number";
  $("sets-title").textContent = task.words.sets;
  $("issues").querySelector("summary").textContent = task.words.issues;
  const errors = $("layer").querySelector('[value="mistakes"]');
  errors.textContent = task.words.errors;
  errors.hidden = errors.disabled = task.unit === "number" && !app.points.interval.length;
  $("layer").querySelector('[value="data"]').hidden = start.n_data === 0;
}

function listen() {
  gestures.listen($("marks"), app.map, clicked, (place) => discs.hover(app, place));
  keys.listen(app);
  search.listen(app);
  on("moved", () => app.marks.draw());
  on("theme", () => {
    app.map.restyle();
    app.histogram.draw();
    showLegend(app);
    if (app.answer) showExample(app, app.answer);
  });
  $("epsilon").addEventListener("input", () => {
    app.epsilon = Number($("epsilon").value);
    showSets(app);
    if (app.answer) showExample(app, app.answer);
  });
  // Intervals are asked for when the slider rests.
  $("epsilon").addEventListener("change", () => app.start.columns.interval && app.tried((async () => {
    await reloadIntervals(app.points, app.start, app.epsilon);
    app.map.restyle();
    showSets(app);
    if (app.chosen !== null) await app.choose(app.chosen);
  })()));
  $("subject").addEventListener("change", () => app.setSubject(Number($("subject").value)));
  $("colour").addEventListener("change", () => {
    app.map.restyle({ colour: $("colour").value });
    showLegend(app);
  });
  $("layer").addEventListener("change", () => app.map.restyle({ layer: $("layer").value }));
  $("issues").addEventListener("toggle", () => $("issues").open && app.tried(showIssues(app)));
  $("compare").addEventListener("toggle", () => $("compare").open && app.tried(showDisagreements(app)));
  $("export-edits").addEventListener("click", () => app.tried(download("/explorer/edits.json", "edits.json")));
  $("export-table").addEventListener("click", () => app.tried(download(`/explorer/examples.csv?epsilon=${app.epsilon}`, "examples.csv")));
}

async function begin() {
  const start = await get("/explorer/start");
  app.start = start;
  app.epsilon = start.epsilon;
  app.codes = new Map((start.card.classes ?? []).map((name, code) => [String(name), code]));
  app.task = taskOf(app);
  app.points = await load(start);
  $("token").hidden = true;
  $("main").hidden = false;
  $("title").textContent = start.title;
  document.title = `${start.title}: dwac explorer`;
  $("lead").textContent = start.guide.lead;
  $("map-help").textContent = `${start.map} Drag or use the arrow keys to move, the wheel or + and − to zoom.`;
  $("issues").hidden = start.private;
  $("compare").hidden = !start.compare;
  $("click").parentElement.hidden = !start.discs.length;
  adapt();
  app.map = new PointMap($("points"), app.task, app.points, start.discs);
  app.map.restyle({ both: start.n_training > 0 && start.n_data > 0 });
  app.marks = new Marks($("marks"), app.map, start.card.classes ?? [], start.sizes);
  app.histogram = new Histogram(app, (filter) => app.map.restyle(filter));
  showLegend(app);
  listen();
  showSets(app);
  app.histogram.draw();
  showWelcome(app);
  showWhatIf(app, null);
  showEdits(app, start);
  document.body.dataset.ready = "yes";
}

theme.listen();
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("secret").value);
  app.tried(begin());
});
app.tried(begin());
