// The map: points as pixels below, marks as lines and words above; drag, wheel, pinch and keys move it.

import { css, mixed, packed, rgb } from "./colours.js";
import { LARGEST, RANK, looksOf, paletteOf, shapesOf } from "./looks.js";
import { fillDiscs, orderOf, splat, stampsOf } from "./splat.js";

const REACH = 14; // maximum pixels from a click to its point
const SIZES = [1, 3, 5, 7, 9, 11, 13];
const TINT = 0.12; // how much of its colour a disc has

export class PointMap {
  constructor(ground, task, points, paint, discs = []) {
    this.ground = ground;
    this.task = task;
    this.points = points;
    this.discs = discs;
    this.context = ground.getContext("2d", { alpha: false });
    this.options = { layer: "all", paint, measure: null, low: 0, high: 1, both: false, selected: null };
    this.size = 3;
    this.shown = points.n;
    this.drawn = () => {}; // called after each drawing
    this.restyle();
    new ResizeObserver(() => this.resize()).observe(ground);
    this.resize();
    this.fit();
  }

  // Redraw after changes of labels, filter or colours.
  restyle(options = {}) {
    Object.assign(this.options, options);
    this.task.restyle();
    this.look = looksOf(this.points, this.task, this.options);
    this.order = orderOf(this.look, RANK);
    this.palette = paletteOf(this.options.paint);
    if (options.paint) this.stamps = null; // other shapes
    const card = rgb(css("--card"));
    this.background = packed(card);
    this.tinted = this.discs.map((disc) => ({ ...disc, colour: packed(mixed(rgb(this.discColour(disc)), card, TINT)) }));
    this.request();
  }

  // Discs are grey where colours say something about single points.
  discColour(disc) {
    const { paint } = this.options;
    return paint.discs ? paint.colour(this.task.discCode(disc)) : css("--edge");
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(this.ground.clientWidth * ratio));
    const height = Math.max(1, Math.round(this.ground.clientHeight * ratio));
    if (this.image && width === this.ground.width && height === this.ground.height) return;
    const before = this.view && this.middle();
    Object.assign(this.ground, { width, height });
    this.ratio = ratio;
    this.frame = { width, height, margin: LARGEST };
    this.image = new ImageData(width + 2 * LARGEST, height + 2 * LARGEST);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.stamps = null;
    if (before && this.fitted) this.fit();
    else if (before) this.goTo(before[0], before[1]);
  }

  bounds() {
    const { xy, n } = this.points;
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < n; i++) {
      left = Math.min(left, xy[2 * i]); right = Math.max(right, xy[2 * i]);
      low = Math.min(low, xy[2 * i + 1]); high = Math.max(high, xy[2 * i + 1]);
    }
    for (const { x, y, r } of this.discs) {
      left = Math.min(left, x - r); right = Math.max(right, x + r);
      low = Math.min(low, y - r); high = Math.max(high, y + r);
    }
    return n ? [left, right, low, high] : [-1, 1, -1, 1];
  }

  fit() {
    const [left, right, low, high] = this.bounds();
    const { width, height } = this.frame;
    const scale = 0.96 * Math.min(width / (right - left || 1), height / (high - low || 1));
    this.view = { scale, x: width / 2 - (scale * (left + right)) / 2, y: height / 2 + (scale * (low + high)) / 2 };
    this.fitted = true;
    this.request();
  }

  middle() {
    return this.placeOf(this.frame.width / 2, this.frame.height / 2);
  }

  placeOf(x, y) {
    return [(x - this.view.x) / this.view.scale, (this.view.y - y) / this.view.scale];
  }

  // The place of a point.
  xyOf(point) {
    return [this.points.xy[2 * point], this.points.xy[2 * point + 1]];
  }

  pixelOf(x, y) {
    return [x * this.view.scale + this.view.x, this.view.y - y * this.view.scale];
  }

  goTo(x, y) {
    const { scale } = this.view;
    this.view = { scale, x: this.frame.width / 2 - x * scale, y: this.frame.height / 2 + y * scale };
    this.fitted = false;
    this.request();
  }

  // Move only if the place is out of sight.
  reveal(x, y) {
    const [px, py] = this.pixelOf(x, y);
    if (px < 0 || py < 0 || px > this.frame.width || py > this.frame.height) this.goTo(x, y);
  }

  lookAt(x, y, scale) {
    this.view = { ...this.view, scale };
    this.goTo(x, y);
  }

  pan(dx, dy) {
    this.view = { ...this.view, x: this.view.x + dx, y: this.view.y + dy };
    this.fitted = false;
    this.request();
  }

  zoom(factor, x = this.frame.width / 2, y = this.frame.height / 2) {
    const scale = this.view.scale * factor;
    if (!(scale > 1e-9 && scale < 1e12)) return;
    this.view = { scale, x: x - (x - this.view.x) * factor, y: y - (y - this.view.y) * factor };
    this.fitted = false;
    this.request();
  }

  // The point nearest to a pixel, among those drawn; null if none is near.
  at(x, y, reach = REACH * this.ratio) {
    const { xy } = this.points;
    let [best, found] = [reach * reach, null];
    for (const i of this.order) {
      const dx = xy[2 * i] * this.view.scale + this.view.x - x;
      const dy = this.view.y - xy[2 * i + 1] * this.view.scale - y;
      if (dx * dx + dy * dy <= best) [best, found] = [dx * dx + dy * dy, i];
    }
    return found;
  }

  // The points inside a polygon [[x, y], …] of the map, among those drawn, in order.
  within(polygon) {
    const { xy } = this.points;
    const found = [];
    for (const i of this.order) {
      const [x, y] = [xy[2 * i], xy[2 * i + 1]];
      let inside = false;
      for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a++) {
        const [[ax, ay], [bx, by]] = [polygon[a], polygon[b]];
        if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
      }
      if (inside) found.push(i);
    }
    return found.sort((a, b) => a - b);
  }

  // The number of the disc at a pixel; null if there is none.
  discAt(x, y) {
    const [px, py] = this.placeOf(x, y);
    const found = this.discs.findIndex((disc) => Math.hypot(disc.x - px, disc.y - py) <= disc.r);
    return found < 0 ? null : found;
  }

  request() {
    if (this.waiting || !this.view) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  // Points are as large as possible without overlap.
  fitting() {
    const room = Math.sqrt((this.frame.width * this.frame.height) / Math.max(this.shown, 1)) * 0.3;
    return SIZES.reduce((best, size) => (size <= room ? size : best), 1);
  }

  draw() {
    const start = performance.now();
    const size = this.fitting();
    if (size !== this.size || !this.stamps) {
      this.size = size;
      this.stamps = stampsOf(shapesOf(size, this.options.paint), this.frame.width + 2 * LARGEST);
    }
    this.pixels.fill(this.background);
    fillDiscs(this.pixels, this.frame, this.view, this.tinted);
    this.shown = splat(this.pixels, this.frame, this.view, this.points.xy, this.order, this.look, this.palette, this.stamps);
    this.context.putImageData(this.image, -LARGEST, -LARGEST);
    this.ground.dataset.ms = (performance.now() - start).toFixed(2);
    this.ground.dataset.shown = this.shown;
    if (this.fitting() !== this.size) this.request();
    this.drawn();
  }
}
