// Histogram of typicality; dragging over the bars filters the map.

import { colourOf, css } from "./colours.js";
import { $ } from "./dom.js";

const BINS = 40;

export class Histogram {
  constructor(app, changed) {
    Object.assign(this, { app, changed, canvas: $("histogram"), low: 0, high: 1 });
    for (const id of ["low", "high"]) $(id).addEventListener("change", () => this.set(Number($("low").value), Number($("high").value)));
    $("all").addEventListener("click", () => this.set(0, 1));
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    $("histogram-guide").textContent = app.start.guide.histogram;
  }

  listen() {
    let from = null;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      from = at(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (from !== null) this.set(Math.min(from, at(event)), Math.max(from, at(event)));
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(at(event) - from) < 0.01) this.set(0, 1);
      from = null;
    });
  }

  set(low, high) {
    [this.low, this.high] = [Math.min(low, high), Math.max(low, high)].map((value) => Math.round(100 * Math.min(1, Math.max(0, value || 0))) / 100);
    this.draw();
    this.changed({ low: this.low, high: this.high });
  }

  draw() {
    const { typicality, asked } = this.app.points;
    const known = asked.filter((point) => !Number.isNaN(typicality[point]));
    $("typicality").hidden = known.length === 0;
    if (!known.length) return;
    const counts = new Uint32Array(BINS);
    let kept = 0;
    for (const point of known) {
      counts[Math.min(BINS - 1, Math.floor(typicality[point] * BINS))]++;
      if (typicality[point] >= this.low && typicality[point] <= this.high) kept++;
    }
    $("low").value = this.low;
    $("high").value = this.high;
    $("kept").textContent = `${kept.toLocaleString("en")} of ${known.length.toLocaleString("en")} examples`;
    $("kept").dataset.kept = kept;
    this.paint(counts);
  }

  paint(counts) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth * ratio, this.canvas.clientHeight * ratio];
    Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    const most = Math.max(...counts);
    counts.forEach((count, bin) => {
      const inside = (bin + 1) / BINS > this.low && bin / BINS < this.high;
      context.fillStyle = inside ? colourOf(0) : css("--line");
      const tall = count ? Math.max(2, (height - 2) * (count / most)) : 0;
      context.fillRect((bin * width) / BINS + 1, height - tall, width / BINS - 2, tall);
    });
    context.fillStyle = css("--edge");
    context.fillRect(0, height - 1, width, 1);
  }
}
