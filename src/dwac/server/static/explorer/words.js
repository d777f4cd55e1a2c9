// A text and its words: how much each matters, by leaving it out; and which ones the network read, by its attention.

import { get, post } from "./api.js";
import { brief, button, el, fill, headsOf, note, numeral, percent, text } from "./dom.js";

const LISTED = 5; // words listed with what happens without them
const SHOWN = 0.02; // of the largest change: words that matter less have no mark
const STRONG = 0.05; // a change of the probability (or, as a share of their range, of the numbers) that has a full mark

// Shows the text at once; the server predicts it again without each word.
export function words(app, answer) {
  const { explanation: e } = answer;
  const place = el("div", { class: "influence" }, el("p", { class: "words" }, brief(e.record.text, 4000)));
  if (app.start.words) {
    if (app.start.card.kind === "huggingface") place.append(button({ onclick: () => show(app, answer, place) }, "Leave out each word"));
    else show(app, answer, place);
  }
  return [place, read(e)];
}

async function show(app, answer, place) {
  const label = app.task.subject;
  const key = `${answer.answer} ${label}`;
  if (app.influence?.key !== key) {
    const asked = answer.point === null ? post("/explorer/words", { row: answer.explanation.record.text, label }) : get(`/explorer/points/${answer.point}/words?label=${label}`);
    const found = await app.tried(asked);
    if (!found) return;
    app.influence = { key, found };
  }
  draw(app, app.influence.found, place);
}

function draw(app, found, place) {
  const numbers = app.task.unit === "number";
  const shown = (value) => (numbers ? numeral(value) : percent(value));
  const moved = found.words.map(({ word, without }) => ({ word, without, by: without === null ? 0 : found.all - without }));
  const largest = Math.max(...moved.map(({ by }) => Math.abs(by)));
  const most = Math.max(largest, STRONG * (numbers ? app.task.high - app.task.low : 1), 1e-12);
  const what = numbers ? "the prediction" : `the probability of ${text(found.subject)}`;
  const title = ({ word, without }) => (without === null ? `nothing is left without “${word}”` : `without “${word}”: ${shown(without)}`);
  const top = moved.filter(({ without, by }) => without !== null && by !== 0).sort((a, b) => Math.abs(b.by) - Math.abs(a.by)).slice(0, LISTED);
  fill(place,
    el("p", { class: "words", data: { all: String(found.all) } }, moved.map((each) => [
      el("span", { class: Math.abs(each.by) < SHOWN * most ? null : each.by > 0 ? "for" : "against", title: title(each),
        data: { without: String(each.without), word: each.word }, style: { "--much": (Math.abs(each.by) / most).toFixed(2) } }, each.word), " "]), found.rest),
    largest < SHOWN * most ? note(`No single word decides: without any one of them, ${what} changes by less than ${numbers ? numeral(SHOWN * most) : `${Number((100 * SHOWN * most).toPrecision(2))} points`}.`)
      : note(`Each word was left out and the text predicted again. `, el("span", { class: "words inline" }, el("span", { class: "for", style: { "--much": 0.6 } }, "solid")), ` words raise ${what}, `,
      el("span", { class: "words inline" }, el("span", { class: "against", style: { "--much": 0.6 } }, "dotted")), " words lower it."),
    largest >= SHOWN * most ? el("details", { class: "opened", id: "left-out" }, el("summary", {}, `Without one word (${shown(found.all)} with all)`),
      el("table", {}, headsOf(["without", numbers ? "prediction" : "probability", "change"], (i) => i > 0),
        el("tbody", {}, top.map(({ word, without, by }) => el("tr", {}, el("th", { scope: "row" }, brief(word, 40)), el("td", { class: "number" }, shown(without)),
          el("td", { class: "number" }, `${by > 0 ? "−" : "+"}${numbers ? numeral(Math.abs(by)) : `${Number((100 * Math.abs(by)).toFixed(2))} points`}`)))))) : null);
}

// The attention of the network: what it read, which is not what decided.
function read(e) {
  if (!e.attention) return null;
  const most = Math.max(...e.attention.map(([, weight]) => weight)) || 1;
  return el("details", { class: "opened attention" }, el("summary", {}, "What the network read (attention)"),
    el("p", { class: "words" }, e.attention.map(([word, weight]) => [
      el("span", { style: { background: `rgba(var(--read), ${(weight / most).toFixed(2)})` }, title: percent(weight) }, word), " "])),
    note("The stronger the background, the more attention the network pays to a word. Attention says where it looked, not what decided."));
}
