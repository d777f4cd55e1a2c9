// Drawn above the points: rims of discs, names of classes, the selected example, its voters, and where it moves if changed.

import { css } from "./colours.js";
import { brief, compact } from "./dom.js";
import { NONE } from "./points.js";
import { against } from "./records.js";

const SAMPLE = 2000; // points used to position a name

export class Marks {
  constructor(canvas, map, classes, sizes = null) {
    Object.assign(this, { canvas, map, sizes, chosen: null, moved: null, group: [], hover: [], lasso: [] });
    this.context = canvas.getContext("2d");
    this.names = namesOf(map.points, classes);
  }

  get task() {
    return this.map.task;
  }

  show(answer) {
    this.chosen = answer;
    this.moved = null;
    this.draw();
  }

  move(answer) {
    this.moved = answer;
    this.draw();
  }

  // Which discs stand out: those of the group whose members are listed, and those below the pointer.
  outline(which, discs) {
    if (String(this[which]) === String(discs)) return;
    this[which] = discs;
    this.draw();
  }

  draw() {
    const { width, height } = this.map.frame;
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.context.clearRect(0, 0, width, height);
    this.colours = { ink: css("--ink"), card: css("--card"), vote: css("--vote") };
    this.drawRims();
    if (this.sizes) this.drawSizes();
    this.drawNames();
    if (this.chosen) this.drawVotes(this.moved ?? this.chosen);
    this.rims(this.hover, this.colours.ink, 1);
    this.rims(this.group, this.colours.ink, 2.5);
    this.drawLasso();
    if (this.chosen) this.ring(this.chosen.xy, 9, false);
    if (this.moved) this.drawMove();
  }

  // The line drawn around points, in places of the map.
  drawLasso() {
    const { context, map, colours } = this;
    if (this.lasso.length < 2) return;
    context.beginPath();
    this.lasso.forEach((place, i) => context[i ? "lineTo" : "moveTo"](...map.pixelOf(...place)));
    context.closePath();
    context.globalAlpha = 0.08;
    context.fillStyle = colours.vote;
    context.fill();
    context.globalAlpha = 1;
    this.pen(2, [6, 4]);
    context.strokeStyle = colours.ink;
    context.stroke();
  }

  drawNames() {
    const { context, map, colours } = this;
    context.font = `600 ${13 * map.ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.pen(4);
    context.lineJoin = "round";
    const taken = [];
    for (const { name, place } of this.names) {
      const [x, y] = map.pixelOf(...place);
      const wide = context.measureText(name).width;
      if (taken.some(([tx, ty, tw]) => Math.abs(tx - x) < (tw + wide) / 2 && Math.abs(ty - y) < 16 * map.ratio)) continue;
      taken.push([x, y, wide]);
      context.strokeStyle = colours.card;
      context.strokeText(name, x, y);
      context.fillStyle = colours.ink;
      context.fillText(name, x, y);
    }
  }

  drawRims() {
    const colours = this.map.discs.map((disc) => this.map.discColour(disc));
    this.context.globalAlpha = 0.6;
    for (const colour of new Set(colours)) this.rims(colours.flatMap((each, i) => (each === colour ? [i] : [])), colour, 0.8);
    this.context.globalAlpha = 1;
  }

  rims(discs, colour, wide, dash = []) {
    const { context, map } = this;
    context.strokeStyle = colour;
    this.pen(wide, dash);
    context.beginPath();
    for (const number of discs) {
      const { x, y, r } = map.discs[number];
      const [cx, cy] = map.pixelOf(x, y);
      context.moveTo(cx + r * map.view.scale, cy);
      context.arc(cx, cy, r * map.view.scale, 0, 2 * Math.PI);
    }
    context.stroke();
  }

  // How many examples each representative votes for, where there is room.
  drawSizes() {
    const { context, map, colours } = this;
    context.font = `${11 * map.ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.fillStyle = colours.ink;
    context.strokeStyle = colours.card;
    this.pen(3);
    context.lineJoin = "round";
    for (const { x, y, r, size } of map.discs) {
      const words = compact(size);
      if (2 * r * map.view.scale < context.measureText(words).width + 6 * map.ratio) continue;
      const [cx, cy] = map.pixelOf(x, y);
      const below = cy + map.size / 2 + 2 * map.ratio;
      context.strokeText(words, cx, below);
      context.fillText(words, cx, below);
    }
  }

  // Lines to those who vote on an example, dashed if they vote for another label; of groups, their discs, too.
  drawVotes({ xy, explanation, groups, neighbor_points: neighbors }) {
    const { map, colours } = this;
    const dash = (voter) => (against(voter, explanation) ? [5, 4] : []);
    if (groups?.some(({ discs }) => discs.length)) {
      groups.forEach(({ representative_point: central, discs }, i) => {
        const group = explanation.groups[i];
        this.rims(discs, colours.ink, 1.2 + 3 * group.share, dash(group));
        this.line(xy, map.xyOf(central), 0.8 + 4 * group.share, dash(group));
      });
    } else (neighbors ?? []).forEach((point, i) => {
      const voter = explanation.neighbors[i];
      this.line(xy, map.xyOf(point), 1 + 5 * voter.share, dash(voter));
    });
  }

  drawMove() {
    if (this.chosen) this.line(this.chosen.xy, this.moved.xy, 1.5, [3, 3]);
    this.ring(this.moved.xy, 7, true);
  }

  // A line between two places of the map.
  line(from, to, wide, dash) {
    const { context, map, colours } = this;
    context.strokeStyle = colours.ink; // other colours are those of the classes
    this.pen(wide, dash);
    context.beginPath();
    context.moveTo(...map.pixelOf(...from));
    context.lineTo(...map.pixelOf(...to));
    context.stroke();
  }

  // dash: the lengths of strokes and gaps.
  pen(wide, dash = []) {
    this.context.lineWidth = wide * this.map.ratio;
    this.context.setLineDash(dash.map((length) => length * this.map.ratio));
  }

  ring(xy, radius, full) {
    const { context, map, colours } = this;
    const [x, y] = map.pixelOf(...xy);
    for (const [colour, width] of [[colours.card, 5], [colours.ink, 2.5]]) {
      context.beginPath();
      context.arc(x, y, radius * map.ratio, 0, 2 * Math.PI);
      context.strokeStyle = colour;
      this.pen(width);
      context.stroke();
    }
    if (!full) return;
    context.fillStyle = colours.ink;
    context.fill();
  }
}

// The position of each class: the median of its points in each direction.
function namesOf(points, classes) {
  if (!classes.length) return []; // only classes have a place
  const places = classes.map(() => []);
  for (let i = 0; i < points.n; i++) {
    const code = points.label[i] === NONE ? points.predicted[i] : points.label[i];
    if (code !== NONE && places[code].length < SAMPLE) places[code].push(i);
  }
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  return classes
    .map((name, code) => ({ name: brief(name, 24), held: places[code] }))
    .filter(({ held }) => held.length)
    .slice(0, 60)
    .map(({ name, held }) => ({ name, place: [0, 1].map((axis) => median(held.map((i) => points.xy[2 * i + axis]))) }));
}
