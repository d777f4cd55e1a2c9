// Colours that colour-blind people can distinguish; each class also has its own shape. Numbers have a ramp of colours.

import { NONE } from "./points.js";

let colours = [];
let shapes = [];

export function use(some, markers) {
  colours = some;
  shapes = markers;
}

export const SERIES = 140; // different pairs of 20 colours and 7 shapes, or steps of a ramp

// Viridis, which rises in lightness; without the end that would vanish on the page.
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
// Orange over grey to blue: grey is 0, and recedes into the page.
const SIDES = {
  light: ["#a63d00", "#e08a4f", "#cfcdc8", "#5c9fce", "#00528a"],
  dark: ["#ff9d4d", "#a8703f", "#4b4e55", "#4a86b4", "#6cc8ff"],
};
const ramps = new Map();
const kept = (key, made) => {
  if (!ramps.has(key)) ramps.set(key, made());
  return ramps.get(key);
};
export const ramp = (dark, n) => kept(`ramp ${dark} ${n}`, () => steps(VIRIDIS, dark ? [2, 9] : [0, 8.2], n));
export const sides = (dark, n) => kept(`sides ${dark} ${n}`, () => steps(SIDES[dark ? "dark" : "light"], [0, 4], n));
function steps(stops, [from, to], n) {
  const hex = (parts) => `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  return Array.from({ length: n }, (_, i) => {
    const at = from + ((to - from) * i) / (n - 1);
    const below = Math.min(Math.floor(at), stops.length - 2);
    return hex(mixed(rgb(stops[below + 1]), rgb(stops[below]), at - below));
  });
}

// The step of a ramp for a value between two ends; NONE if it is not known.
export function stepOf(value, [low, high]) {
  if (value === null || Number.isNaN(value)) return NONE;
  const share = high > low ? (value - low) / (high - low) : 0.5;
  return Math.round(Math.min(1, Math.max(0, share)) * (SERIES - 1));
}

export const series = (code) => code % SERIES;
export const colourOf = (code) => colours[code % colours.length];
export const shapeOf = (code) => shapes[code % shapes.length];

export const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
export const mixed = (a, b, share) => a.map((value, i) => Math.round(value * share + b[i] * (1 - share)));
export const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // in the format of ImageData

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const INSIDE = {
  o: (x, y) => x * x + y * y <= 1.05,
  s: (x, y) => Math.abs(x) <= 0.88 && Math.abs(y) <= 0.88,
  "^": (x, y) => y >= -1 && y <= 0.85 && Math.abs(x) <= (y + 1) / 1.85,
  v: (x, y) => y <= 1 && y >= -0.85 && Math.abs(x) <= (1 - y) / 1.85,
  D: (x, y) => Math.abs(x) + Math.abs(y) <= 1.1,
  P: (x, y) => Math.min(Math.abs(x), Math.abs(y)) <= 0.36 && Math.max(Math.abs(x), Math.abs(y)) <= 1,
  X: (x, y) => Math.abs(Math.abs(x) - Math.abs(y)) <= 0.5 && Math.max(Math.abs(x), Math.abs(y)) <= 1,
};

// Whether the pixel (dx, dy) belongs to a shape of that size, centred at (0, 0).
export function inside(shape, size, dx, dy) {
  if (size < 5) return Math.abs(dx) <= size / 2 && Math.abs(dy) <= size / 2;
  return INSIDE[shape](dx / (size / 2), dy / (size / 2));
}

// A small canvas with the symbol of a class, or of another code of a paint.
export function sign(code, paint = { colour: colourOf, shape: shapeOf }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 13;
  const context = canvas.getContext("2d");
  context.fillStyle = paint.colour(code);
  for (let y = 0; y < 13; y++) for (let x = 0; x < 13; x++) if (inside(paint.shape(code), 12, x - 6, y - 6)) context.fillRect(x, y, 1, 1);
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}
