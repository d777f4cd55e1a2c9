// What is shown, in the address after the #: a link to it shows the same. It never holds the token.

import { $ } from "./dom.js";

const PAUSE = 250; // milliseconds after the last change
const round = (value) => Number(Number(value.toPrecision(5)).toFixed(7));

// The settings of a page as text, without those that have not changed since the start.
export function textOf(app) {
  const { map, histogram, task } = app;
  const given = new URLSearchParams();
  const [x, y] = map.middle();
  if (app.chosen !== null) given.set("point", app.chosen);
  if ($("colour").value !== "label") given.set("colour", $("colour").value);
  if ($("by").value !== "") given.set("by", $("by").value);
  if ($("layer").value !== "all") given.set("show", $("layer").value);
  if (app.epsilon !== app.start.epsilon) given.set("epsilon", app.epsilon);
  if (task.subject) given.set("subject", task.subject);
  if (app.k !== 5) given.set("k", app.k);
  if (histogram.filtered) given.set("filter", [histogram.chosen, round(histogram.low), round(histogram.high)].join(","));
  if (!map.fitted) given.set("view", [round(x), round(y), round((map.view.scale / map.frame.width) * 2)].join(","));
  if (app.lasso.length) given.set("lasso", app.lasso.map(([a, b]) => `${round(a)},${round(b)}`).join(";"));
  return given.toString().replaceAll("%2C", ",").replaceAll("%3B", ";").replaceAll("%3A", ":");
}

const numbers = (value) => (value ?? "").split(",").map(Number);

// Show what the address says; what does not fit this page is ignored.
export async function follow(app) {
  const given = new URLSearchParams(location.hash.slice(1));
  const choose = (id, value) => {
    if (value === null || ![...$(id).options].some((option) => option.value === value && !option.disabled)) return;
    $(id).value = value;
    $(id).dispatchEvent(new Event("change"));
  };
  const epsilon = Number(given.get("epsilon"));
  if (epsilon > 0 && epsilon < 1) await app.setEpsilon(epsilon);
  if ([5, 10, 20].includes(Number(given.get("k")))) app.k = Number(given.get("k"));
  if (app.task.subjects?.[Number(given.get("subject"))] !== undefined && given.has("subject")) await app.setSubject(Number(given.get("subject")));
  if (given.has("by")) await app.splitBy(given.get("by"));
  if (given.has("colour")) await app.setColour(given.get("colour"));
  choose("layer", given.get("show"));
  if (given.has("filter")) {
    const [which, low, high] = numbers(given.get("filter"));
    if (app.histogram.measures[which] && low <= high) app.histogram.choose(which, low, high);
  }
  if (given.has("view")) {
    const [x, y, scale] = numbers(given.get("view"));
    if ([x, y, scale].every(Number.isFinite) && scale > 0) app.map.lookAt(x, y, (scale * app.map.frame.width) / 2);
  }
  if (given.has("lasso")) {
    const polygon = given.get("lasso").split(";").map(numbers);
    if (polygon.every((place) => place.length === 2 && place.every(Number.isFinite))) await app.lassoed(polygon);
  }
  const point = Number(given.get("point"));
  if (given.has("point") && Number.isInteger(point) && point >= 0 && point < app.points.n) await app.choose(point);
}

export function listen(app) {
  let timer = null;
  let own = location.hash;
  app.remember = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const text = textOf(app);
      own = text ? `#${text}` : "";
      history.replaceState(null, "", own || location.pathname);
    }, PAUSE);
  };
  window.addEventListener("hashchange", () => location.hash !== own && app.tried(follow(app)));
}
