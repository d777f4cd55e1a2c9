// Histogram of typicality, or of another measure; dragging over the bars filters the map.

import { css } from "./colours.js";
import { $, el, fill, commas, numeral } from "./dom.js";

const BINS = 40;

export class Histogram {
  constructor(app, changed) {
    Object.assign(this, { app, changed, canvas: $("histogram"), chosen: 0 });
    for (const id of ["low", "high"]) $(id).addEventListener("change", () => this.set(Number($("low").value), Number($("high").value)));
    $("all").addEventListener("click", () => this.everything());
    $("measure").addEventListener("change", () => {
      this.chosen = Number($("measure").value);
      this.everything();
    });
    this.measured();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // What can be measured now: again after edits, or if another label or number is shown.
  measured() {
    this.measures = this.app.task.measures();
    this.chosen = Math.min(this.chosen, this.measures.length - 1);
    fill($("measure"), this.measures.map(({ name }, i) => el("option", { value: i, selected: i === this.chosen }, name)));
    $("measure").hidden = this.measures.length < 2;
    $("histogram-title").textContent = this.measures.length < 2 ? "Typicality" : "Filter by ";
    this.everything();
  }

  get filtered() { return this.low !== this.measure.low || this.high !== this.measure.high; }

  // Another measure, and the range of it that is shown.
  choose(which, low, high) {
    this.chosen = which;
    $("measure").value = which;
    this.set(low, high);
  }

  get measure() { return this.measures[this.chosen]; }
  get step() { return (this.measure.high - this.measure.low) / 100 || 1; }

  listen() {
    let from = null;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      return this.measure.low + share * (this.measure.high - this.measure.low);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      from = at(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (from !== null) this.set(Math.min(from, at(event)), Math.max(from, at(event)));
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(at(event) - from) < this.step) this.everything();
      from = null;
    });
  }

  everything() {
    this.set(this.measure.low, this.measure.high);
  }

  set(from, to) {
    const { low, high } = this.measure;
    const digits = Math.max(0, 1 - Math.floor(Math.log10(this.step)));
    const within = (value) => Number(Math.min(high, Math.max(low, value || 0)).toFixed(Math.min(digits, 12)));
    [this.low, this.high] = [within(Math.min(from, to)), within(Math.max(from, to))];
    // Rounded ends would leave out the outermost.
    if (this.low <= low + this.step / 2) this.low = low;
    if (this.high >= high - this.step / 2) this.high = high;
    this.draw();
    const all = this.low === low && this.high === high;
    this.changed({ measure: all ? null : this.measure, low: this.low, high: this.high });
  }

  draw() {
    const { of, low, high, name } = this.measure;
    const known = Array.from(this.app.points.withPrediction).filter((point) => !Number.isNaN(of(point)));
    $("typicality").hidden = known.length === 0 && this.measures.length < 2;
    $("histogram-guide").textContent = name === "typicality" ? this.app.start.guide.histogram : this.app.start.guide.measure;
    if ($("typicality").hidden) return;
    const counts = new Uint32Array(BINS);
    let kept = 0;
    for (const point of known) {
      const value = of(point);
      counts[Math.min(BINS - 1, Math.max(0, Math.floor(((value - low) / (high - low || 1)) * BINS)))]++;
      if (value >= this.low && value <= this.high) kept++;
    }
    for (const [id, value] of [["low", this.low], ["high", this.high]]) {
      const [least, most] = name === "typicality" ? [low, high] : ["", ""];
      Object.assign($(id), { min: least, max: most, step: name === "typicality" ? 0.01 : "any", value: Number(value.toPrecision(5)) });
    }
    $("kept").textContent = `${commas(kept)} of ${commas(known.length)} examples`;
    $("kept").dataset.kept = kept;
    this.canvas.setAttribute("aria-label", `Histogram of ${name}, from ${numeral(low)} to ${numeral(high)}`);
    this.paint(counts);
  }

  paint(counts) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth * ratio, this.canvas.clientHeight * ratio];
    Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    const most = Math.max(...counts);
    const { low, high } = this.measure;
    const place = (bin) => low + ((high - low) * bin) / BINS;
    counts.forEach((count, bin) => {
      const inside = place(bin + 1) > this.low && place(bin) < this.high;
      context.fillStyle = inside ? css("--vote") : css("--line");
      const tall = count ? Math.max(2, (height - 2) * (count / most)) : 0;
      context.fillRect((bin * width) / BINS + 1, height - tall, width / BINS - 2, tall);
    });
    context.fillStyle = css("--edge");
    context.fillRect(0, height - 1, width, 1);
  }
}
