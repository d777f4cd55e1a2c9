// How a point looks: its class gives colour and shape; errors stand out, filtered points fade.

import { SERIES, colourOf, css, inside, mixed, packed, rgb, series, shapeOf } from "./colours.js";
import { DATA, NONE, RELABELLED, REMOVED } from "./points.js";

// Kinds of looks, in drawing order. A look is 1 + kind * (SERIES + 1) + series; the last series is "unknown".
export const FADED = 0, TRAINING = 1, PLAIN = 2, MISTAKE = 3, EDITED = 4;
const EACH = SERIES + 1;
export const N_LOOKS = 1 + 5 * EACH;
export const RANK = Array.from({ length: N_LOOKS }, (_, look) => (look ? Math.floor((look - 1) / EACH) : 0));

function kindOf(points, i, task, { layer, measure, low, high, both }) {
  const data = (points.state[i] & DATA) !== 0;
  if ((layer === "training" && data) || (layer === "data" && !data)) return null;
  if (points.state[i] & (REMOVED | RELABELLED)) return EDITED;
  const mistake = task.isMistake(i);
  if (layer === "mistakes" && !mistake) return FADED;
  if (measure) {
    const value = measure.of(i);
    if (!(value >= low && value <= high)) return FADED; // NaN is outside, too
  }
  if (mistake) return MISTAKE;
  return both && !data ? TRAINING : PLAIN;
}

export function looksOf(points, task, options) {
  const look = new Uint16Array(points.n);
  for (let i = 0; i < points.n; i++) {
    const kind = kindOf(points, i, task, options);
    if (kind === null) continue;
    const code = task.codeOf(i, options.colour);
    look[i] = 1 + kind * EACH + (code === NONE ? SERIES : series(code));
  }
  return look;
}

export function paletteOf() {
  const ground = rgb(css("--card"));
  const ink = rgb(css("--ink"));
  const share = { [FADED]: 0.22, [TRAINING]: 0.45, [PLAIN]: 0.75, [MISTAKE]: 1, [EDITED]: 1 };
  const palette = new Uint32Array(N_LOOKS);
  for (let look = 1; look < N_LOOKS; look++) {
    const code = (look - 1) % EACH;
    const colour = code === SERIES ? mixed(ink, ground, 0.5) : rgb(colourOf(code));
    palette[look] = packed(mixed(colour, ground, share[RANK[look]]));
  }
  return palette;
}

// Errors are larger and hollow, edited examples larger.
export function shapesOf(size) {
  return Array.from({ length: N_LOOKS }, (_, look) => {
    const kind = RANK[look];
    const shape = shapeOf(look ? (look - 1) % EACH : 0);
    const wide = kind === MISTAKE || kind === EDITED ? size + (size < 3 ? 2 : 4) : size;
    const hollow = kind === MISTAKE && wide >= 7;
    const within = (dx, dy) => inside(shape, wide, dx, dy);
    const rim = (dx, dy) =>
      within(dx, dy) && [[1, 0], [-1, 0], [0, 1], [0, -1], [2, 0], [-2, 0], [0, 2], [0, -2]].some(([x, y]) => !within(dx + x, dy + y));
    return { size: wide, inside: hollow ? rim : within };
  });
}
export const LARGEST = 17; // pixels of the largest shape
