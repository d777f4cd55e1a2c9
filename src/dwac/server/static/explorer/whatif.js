// Why, and what if? The example beside a precedent, with bars between them; its values can be changed, and the vote follows.

import { post } from "./api.js";
import { beforeAfter } from "./change.js";
import { Comparison, contrasts } from "./compare.js";
import { $, button, contentOf, el, fill, link, note } from "./dom.js";
import { columnsOf, enter, formOf } from "./forms.js";
import { recourse } from "./recourse.js";

const PAUSE = 120; // milliseconds after the last change of a value

let shown = null; // the example in the panel, what it is compared with, and how it was changed

export function showWhatIf(app, answer) {
  shown = answer ? { answer, against: {}, reasons: null, changed: null } : null;
  stopPicking(app);
  $("whatif").hidden = !shown;
  if (!shown) return;
  shown.result = el("div", { id: "what-result", role: "region", "aria-label": "Before and after" });
  shown.form = answer.editable ? makeForm(app, shown) : null;
  shown.recourse = recourse(app, shown, (way) => load(app, shown, way));
  if ($("whatif").open) compare(app);
}

export function listen(app) {
  $("whatif").addEventListener("toggle", () => $("whatif").open && shown && !shown.reasons && compare(app));
  // With another label, range or training example, wherever on the page it was chosen.
  app.compare = (against) => {
    if (!shown) return;
    shown.against = against;
    shown.reasons = null;
    stopPicking(app);
    if ($("whatif").open) compare(app, true);
    else app.openSection("whatif");
  };
  app.pick = (on) => {
    app.picking = on;
    $("pick")?.setAttribute("aria-pressed", String(on));
    $("marks").classList.toggle("lasso", on);
    app.say(on ? "Select a training example on the map to compare with." : "Selecting on the map shows examples.");
  };
}

const stopPicking = (app) => app.picking && app.pick(false);

async function compare(app, announce = false) {
  const own = shown;
  const place = contentOf("whatif");
  if (!place.childElementCount) fill(place, note("Comparing with a precedent …"));
  let problem = null;
  try {
    own.reasons = await post(`/explorer/answers/${own.answer.answer}/reasons`, own.against);
  } catch (error) {
    problem = error.message;
  }
  if (own !== shown) return;
  own.comparison = new Comparison(app, own);
  const { form, fields, result } = own;
  const table = own.reasons ? own.comparison.draw() : el("p", { class: "change" }, problem);
  if (form) {
    const rest = own.answer.kind === "table" ? own.comparison.rest() : [own.input];
    fill(form, fields ? [result, table, rest] : [table, rest, result], el("p", { class: "buttons" }, el("button", { class: "main" }, "Predict"),
      button({ onclick: () => app.reset() }, "Back to the example")));
  }
  fill(place, contrasts(app, own), form ?? table, own.recourse);
  if (own.reasons && announce) app.say(own.reasons.sentences.join(" "));
  if (own.changed) run(app, own);
}

// The inputs of a table stand between the two cases; other forms below them.
function makeForm(app, own) {
  const form = el("form", {});
  if (own.answer.kind === "table" && app.start.card.columns) {
    own.fields = columnsOf(app, own.answer.explanation.record);
    form.question = own.fields.question;
  } else {
    own.input = formOf(app, own.answer);
    if (!own.input) return null;
    form.question = own.input.question;
    own.input = el("div", { id: "what-input" }, ...own.input.childNodes);
  }
  let timer = null;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    if (own.answer.kind !== "text") timer = setTimeout(() => run(app, own), PAUSE);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    run(app, own);
  });
  fill(own.result, note(app.start.guide.what_if));
  return form;
}

// A way to another outcome, in the form.
function load(app, own, way) {
  own.fields.inputs.forEach((input, i) => enter(input, own.fields.values[i]));
  for (const { column, to } of way.changes) enter(own.fields.inputs[own.fields.columns.findIndex(({ name }) => String(name) === String(column))], to);
  own.result.scrollIntoView({ block: "nearest" });
}

// Predicts the changed example; of changes that follow each other quickly, the last one.
async function run(app, own) {
  own.again = own.running;
  if (own.running) return;
  own.running = true;
  do {
    own.again = false;
    await app.tried(predict(app, own));
  } while (own.again && own === shown);
  own.running = false;
}

async function predict(app, own) {
  const answer = await app.ask({ ...own.form.question(), replaces: own.changed?.answer ?? null });
  if (own !== shown) return;
  own.changed = answer;
  const [verdict, table, bars] = beforeAfter(app, own.answer, answer, ["unchanged", "changed"]);
  verdict.append(" ", link({ onclick: () => app.showAnswer(answer) }, "Show who votes"));
  fill(own.result, verdict, bars ? el("div", { class: "beside" }, table, bars) : table);
  if (!own.reasons) return;
  const [point] = own.reasons.points;
  const reasons = await post(`/explorer/answers/${answer.answer}/reasons`, point === undefined ? own.against : { point });
  if (own === shown && own.changed === answer) own.comparison.move(reasons);
}
