// How the map is coloured: by label or prediction, by trust or error, or by any column of the data.
// A paint gives a point a code, and a code its colour and shape. names: of codes; ends: of a scale of numbers.

import { get } from "./api.js";
import { SERIES, colourOf, css, ramp, shapeOf, sides, stepOf } from "./colours.js";
import { titleOf } from "./names.js";
import { isDark, palette } from "./palette.js";
import { NONE } from "./points.js";
import { signed, worthOf } from "./worth.js";

const SHAPES = ["o", "s", "^", "D", "v", "P", "X"];

// A scale of numbers: of(i) is that of a point, NaN if unknown.
function scale(name, of, ends, words = null) {
  return {
    name, ends, words, discs: false,
    codeOf: (i) => stepOf(of(i), ends),
    colour: (code) => ramp(isDark(), SERIES)[code],
    shape: () => "o",
  };
}

function named(name, names, codeOf) {
  return { name, names, codeOf, discs: false, colour: (code) => palette()[code % palette().length], shape: (code) => SHAPES[code % SHAPES.length] };
}

// By what the task colours: labels, predictions, numbers and their errors.
const own = (app, value) => ({
  name: value, task: true, discs: value !== "error",
  names: app.task.unit === "number" ? null : app.task.names,
  ends: app.task.unit === "number" ? app.task.ends(value) : null,
  codeOf: (i) => app.task.codeOf(i, value), colour: colourOf, shape: shapeOf,
});

const errors = (app) => ({
  ...named("error", ["correct", "wrong"], (i) => (app.task.isJudged(i) ? Number(app.task.isMistake(i)) : NONE)),
  colour: (code) => css(code ? "--other" : "--vote"), shape: (code) => (code ? "X" : "o"),
});

async function column(app, place) {
  app.columns[place] ??= await get(`/explorer/values/${place}`);
  const found = app.columns[place];
  const name = titleOf(app.start.data_columns[place]);
  if (found.names) return named(name, found.names, (i) => found.codes[i] ?? NONE);
  const known = found.numbers.filter((value) => value !== null).sort((a, b) => a - b);
  const at = (share) => known[Math.round(share * (known.length - 1))] ?? 0;
  return scale(name, (i) => found.numbers[i], found.ends?.length ? [at(0), at(1)] : [at(0.02), at(0.98)], found.ends);
}

// Worth within a class, with its mean in the middle; rows of data have none.
async function worth(app) {
  const values = await worthOf(app);
  const sizes = Array.from(values, Math.abs).filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  const end = sizes[Math.floor(0.98 * (sizes.length - 1))] || 1e-6;
  const ends = [`helps less ≤ ${signed(-end)}`, `≥ ${signed(end)} helps more`];
  return { ...scale("relative worth", (i) => values[i], [-end, end], ends), voters: true, colour: (code) => sides(isDark(), SERIES)[code] };
}

// The values of the menu "Colour by", each with its name.
export function choices(app) {
  const { task, points } = app;
  const trusted = points.withPrediction.some((i) => !Number.isNaN(points.typicality[i]));
  return [...task.colours, ...(trusted ? [["typicality", "typicality"]] : []), ...(task.credibility ? [["credibility", "credibility"]] : []),
    ...(task.unit === "number" ? [] : [["error", "error"]]), ...(app.start.worth ? [["worth", "worth"]] : [])];
}

export async function paintOf(app, value) {
  if (value.startsWith("column:")) return column(app, Number(value.slice(7)));
  if (value === "group") return named(app.split.name, app.split.names, (i) => (app.split.codes[i] < 0 ? NONE : app.split.codes[i]));
  if (value === "typicality") return scale(value, (i) => app.points.typicality[i], [0, 1]);
  if (value === "worth") return worth(app);
  if (value === "credibility") return scale(value, (i) => app.task.credibility(i), [0, 1]);
  if (value === "error" && app.task.unit !== "number") return errors(app);
  return own(app, value);
}
