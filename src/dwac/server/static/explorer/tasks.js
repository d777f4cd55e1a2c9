// What the page does differently by what is predicted: one label, several labels, or numbers.
// A point has a code, which gives it colour and shape, and measures, by which points can be filtered.

import { SERIES, ramp, stepOf, use } from "./colours.js";
import { brief, percent, short } from "./dom.js";
import { isDark, palette } from "./palette.js";
import { NONE } from "./points.js";

const UNKNOWN = 255; // it is not known whether an example has the label
const ANSWERS = { light: ["#999999", "#0072B2"], dark: ["#85888e", "#56b4e9"] }; // has it not, has it

const typicality = (points) => ({ name: "typicality", of: (i) => points.typicality[i], low: 0, high: 1 });

// The smallest and largest of the values of some points; null if there are none.
function range(name, points, of) {
  let [low, high] = [Infinity, -Infinity];
  for (const i of points.withPrediction) {
    const value = of(i);
    if (Number.isNaN(value)) continue;
    [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return low <= high ? { name, of, low, high } : null;
}

// What examples have, and what is predicted for them, as codes: `truth` and `predicted` are NONE where unknown.
class Coded {
  constructor(app, sets) {
    Object.assign(this, { app, subjects: null, subject: 0, colours: [["label", "label"], ["predicted", "prediction"]] });
    this.words = { sets, issues: "Labels to check", errors: "errors", hollow: "larger and hollow: wrong prediction" };
  }

  get points() { return this.app.points; }

  codeOf(i, colour) {
    const [first, other] = colour === "predicted" ? [this.predicted(i), this.truth(i)] : [this.truth(i), this.predicted(i)];
    return first === NONE ? other : first;
  }

  isJudged(i) { return this.truth(i) !== NONE && this.predicted(i) !== NONE; }

  isMistake(i) { return this.isJudged(i) && this.truth(i) !== this.predicted(i); }

  measures() {
    const { credibility } = this;
    return [typicality(this.points), ...(credibility ? [{ name: "credibility", of: credibility, low: 0, high: 1 }] : [])];
  }
}

class Classes extends Coded {
  constructor(app) {
    super(app, "Prediction sets");
    Object.assign(this, { names: app.start.card.classes, ordered: app.start.target.ordered, unit: "label" });
  }

  restyle() { use(palette(), this.app.start.markers); }

  truth(i) { return this.points.label[i]; }

  predicted(i) { return this.points.predicted[i]; }

  // The largest p-value of a point; null where there are no p-values at all.
  get credibility() {
    const { p_values: p } = this.points;
    const n = this.names.length;
    const rows = this.app.rows;
    return p.length ? (i) => (rows[i] < 0 ? NaN : Math.max(...p.subarray(rows[i] * n, (rows[i] + 1) * n))) : null;
  }

  discCode(disc) { return disc.label; }

  codeNamed(label) { return this.app.codes.get(String(label)); }

  // Labels that cannot be rejected, of p-values by code; between labels in an order there are no gaps.
  held(p, epsilon) {
    const inside = p.map((value) => value > epsilon);
    if (!this.ordered) return inside;
    const [first, last] = [inside.indexOf(true), inside.lastIndexOf(true)];
    return inside.map((_, code) => first >= 0 && code >= first && code <= last);
  }

  // Sets of all examples: how many have one label, several or none, and how many contain the true one.
  summary(epsilon) {
    const found = { n: 0, single: 0, several: 0, empty: 0, known: 0, covered: 0 };
    const { p_values: p, withPrediction, label } = this.points;
    const n = this.names.length;
    if (!p.length) return null;
    withPrediction.forEach((point, row) => {
      const held = this.held(Array.from(p.subarray(row * n, (row + 1) * n)), epsilon);
      const size = held.filter(Boolean).length;
      found.n++;
      found[size === 0 ? "empty" : size === 1 ? "single" : "several"]++;
      if (label[point] === NONE) return;
      found.known++;
      if (held[label[point]]) found.covered++;
    });
    return found;
  }

  overview(epsilon) {
    const found = this.summary(epsilon);
    if (!found) return ["", {}];
    const share = (count) => percent(count / found.n);
    const held = found.known ? ` The true label is in ${percent(found.covered / found.known)} of the sets; the target is at least ${percent(1 - epsilon)}.` : "";
    const few = epsilon * (this.app.start.card.n_calibration + 1) < 1 ? " There are too few calibration examples to exclude any label at this ε." : "";
    return [`One label ${share(found.single)}, several ${share(found.several)}, none ${share(found.empty)}.${held}${few}`, found];
  }
}

class Labels extends Coded {
  constructor(app) {
    super(app, "Decisions");
    Object.assign(this, { subjects: app.start.card.labels.map((name) => brief(name, 40)), sets: app.start.target.label_sets, unit: "labels" });
  }

  get n() { return this.app.start.card.labels.length; }
  get name() { return String(this.app.start.card.labels[this.subject]); }
  get names() { return [`not ${this.name}`, this.name]; }

  restyle() { use(ANSWERS[isDark() ? "dark" : "light"], ["o", "D"]); }

  truth(i) {
    const known = this.points.label[i * this.n + this.subject];
    return known === UNKNOWN ? NONE : known;
  }

  probability(i) { return this.points.predicted[i * this.n + this.subject]; }

  predicted(i) {
    const p = this.probability(i);
    return Number.isNaN(p) ? NONE : Number(p >= 0.5);
  }

  // The larger p-value of yes and no; null where there are none.
  get credibility() {
    const { p_yes, p_no } = this.points;
    const rows = this.app.rows;
    const at = (i) => rows[i] * this.n + this.subject;
    return p_yes.length ? (i) => (rows[i] < 0 ? NaN : Math.max(p_yes[at(i)], p_no[at(i)])) : null;
  }

  discCode(disc) { return this.sets[disc.label][this.subject]; }

  codeNamed(label) { return { [`not ${this.name}`]: 0, [this.name]: 1 }[String(label)]; }

  measures() {
    return [...super.measures(), { name: `probability of ${this.name}`, of: (i) => this.probability(i), low: 0, high: 1 }];
  }

  // "yes", "no" or "undecided" for a row of those with predictions.
  decided(row, label, epsilon) {
    const { p_yes, p_no } = this.points;
    if (!p_yes.length || row < 0) return null;
    const [yes, no] = [p_yes[row * this.n + label] > epsilon, p_no[row * this.n + label] > epsilon];
    return yes === no ? "undecided" : yes ? "yes" : "no";
  }

  overview(epsilon) {
    const found = { n: 0, yes: 0, no: 0, undecided: 0, having: 0, lacking: 0, missed: 0, false: 0 };
    if (!this.points.p_yes.length) return ["", {}];
    this.points.withPrediction.forEach((point, row) => {
      const decision = this.decided(row, this.subject, epsilon);
      found.n++;
      found[decision]++;
      const has = this.truth(point);
      if (has === NONE) return;
      found[has ? "having" : "lacking"]++;
      if (has && decision === "no") found.missed++;
      if (!has && decision === "yes") found.false++;
    });
    const share = (count) => percent(count / found.n);
    const wrong = [
      found.having ? `Of those that have it ${percent(found.missed / found.having)} are told no` : "",
      found.lacking ? `of those that do not ${percent(found.false / found.lacking)} are told yes` : "",
    ].filter(Boolean).join(", ");
    const rates = wrong ? ` ${wrong[0].toUpperCase()}${wrong.slice(1)}; allowed are ${percent(epsilon)}.` : "";
    return [`${this.name}: yes ${share(found.yes)}, no ${share(found.no)}, undecided ${share(found.undecided)}.${rates}`, found];
  }
}

class Numbers {
  constructor(app) {
    const { card, target } = app.start;
    const several = target.n_numbers > 1;
    Object.assign(this, { app, target, subjects: several ? card.numbers.map(String) : null, subject: 0, unit: "number", names: [] });
    this.colours = [["label", "number"], ["predicted", "prediction"], ["error", "error"]];
    this.words = { sets: "Intervals", issues: "Largest errors", errors: "outside interval", hollow: "larger and hollow: outside its interval" };
  }

  get points() { return this.app.points; }
  get n() { return this.target.n_numbers; }
  get name() { return this.app.start.card.numbers[this.subject] ?? "number"; }
  get low() { return this.target.low[this.subject]; }
  get high() { return this.target.high[this.subject]; }

  restyle() { use(ramp(isDark(), SERIES), ["o"]); }

  value(i) { return this.points.label[i * this.n + this.subject]; }
  predicted(i) { return this.points.predicted[i * this.n + this.subject]; }
  error(i) { return Math.abs(this.predicted(i) - this.value(i)); }

  // The ends of the colours: of the numbers, or of the errors.
  ends(colour) {
    if (colour !== "error") return [this.low, this.high];
    const known = this.points.withPrediction.map((i) => this.error(i)).filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
    return [0, known.length ? known[Math.floor(0.98 * (known.length - 1))] : 1];
  }

  codeOf(i, colour) {
    this.scale = this.scale?.colour === colour ? this.scale : { colour, ends: this.ends(colour) };
    const of = { label: [this.value(i), this.predicted(i)], predicted: [this.predicted(i), this.value(i)], error: [this.error(i), NaN] }[colour];
    return stepOf(Number.isNaN(of[0]) ? of[1] : of[0], this.scale.ends);
  }

  forget() { this.scale = null; }

  interval(i) {
    const row = i - this.app.start.n_training;
    const at = 2 * (row * this.n + this.subject);
    return row < 0 || !this.points.interval.length ? null : [this.points.interval[at], this.points.interval[at + 1]];
  }

  isJudged(i) { return this.interval(i) !== null && !Number.isNaN(this.value(i)); }

  isMistake(i) {
    const ends = this.interval(i);
    return ends !== null && !Number.isNaN(this.value(i)) && !(this.value(i) >= ends[0] && this.value(i) <= ends[1]);
  }

  discCode(disc) { return stepOf(disc.value[this.subject], this.ends("label")); }

  codeNamed(value) {
    const number = Array.isArray(value) ? value[this.subject] : value;
    return typeof number === "number" ? stepOf(number, this.ends("label")) : undefined;
  }

  measures() {
    return [typicality(this.points), range("prediction", this.points, (i) => this.predicted(i)), range("size of the error", this.points, (i) => this.error(i))].filter(Boolean);
  }

  overview(epsilon) {
    const found = { n: 0, known: 0, covered: 0 };
    const widths = [];
    if (!this.points.interval.length) return [this.app.start.guide.unasked, found];
    for (const i of this.points.withPrediction) {
      const ends = this.interval(i);
      widths.push(ends[1] - ends[0]);
      found.n++;
      if (Number.isNaN(this.value(i))) continue;
      found.known++;
      if (!this.isMistake(i)) found.covered++;
    }
    widths.sort((a, b) => a - b);
    const middle = widths[Math.floor(widths.length / 2)];
    if (middle === Infinity) return ["There are too few calibration examples to bound numbers at this ε.", found];
    const held = found.known ? ` ${percent(found.covered / found.known)} hold the true number; the target is about ${percent(1 - epsilon)}.` : "";
    return [`Half of the intervals are at most ${short(middle)} wide.${held}`, { ...found, width: middle }];
  }
}

export const taskOf = (app) => new ({ labels: Labels, numbers: Numbers }[app.start.card.task] ?? Classes)(app);
