// How a point looks: its paint gives colour and shape; errors stand out, filtered points fade.

import { SERIES, css, inside, mixed, packed, rgb, series } from "./colours.js";
import { isDark } from "./palette.js";
import { DATA, NONE, RELABELLED, REMOVED } from "./points.js";

// Kinds of looks, in drawing order. A look is 1 + kind * (SERIES + 1) + series; the last series is "unknown".
const FADED = 0, TRAINING = 1, PLAIN = 2, MISTAKE = 3, EDITED = 4;
const EACH = SERIES + 1;
const N_LOOKS = 1 + 5 * EACH;
export const RANK = Array.from({ length: N_LOOKS }, (_, look) => (look ? Math.floor((look - 1) / EACH) : 0));

// How much of its colour a point has; the rest is that of the page.
const SHARES = {
  light: { [FADED]: 0.16, [TRAINING]: 0.55, [PLAIN]: 0.9, [MISTAKE]: 1, [EDITED]: 1 },
  dark: { [FADED]: 0.2, [TRAINING]: 0.62, [PLAIN]: 1, [MISTAKE]: 1, [EDITED]: 1 },
};

function kindOf(points, i, task, { layer, measure, low, high, both, selected, paint }) {
  const data = (points.state[i] & DATA) !== 0;
  if ((layer === "training" && data) || (layer === "data" && !data)) return null;
  if (selected && !selected[i]) return FADED;
  if (points.state[i] & (REMOVED | RELABELLED)) return EDITED;
  const mistake = task.isMistake(i);
  if (layer === "mistakes" && !mistake) return FADED;
  if (measure) {
    const value = measure.of(i);
    if (!(value >= low && value <= high)) return FADED; // NaN is outside, too
  }
  if (mistake && !(paint.voters && data)) return MISTAKE;
  if (paint.voters) return data ? FADED : PLAIN; // rows of data have no such value
  return both && !data ? TRAINING : PLAIN;
}

export function looksOf(points, task, options) {
  const look = new Uint16Array(points.n);
  for (let i = 0; i < points.n; i++) {
    const kind = kindOf(points, i, task, options);
    if (kind === null) continue;
    const code = options.paint.codeOf(i);
    look[i] = 1 + kind * EACH + (code === NONE ? SERIES : series(code));
  }
  return look;
}

export function paletteOf(paint) {
  const ground = rgb(css("--card"));
  const unknown = mixed(rgb(css("--ink")), ground, 0.5);
  const share = SHARES[isDark() ? "dark" : "light"];
  const colours = Array.from({ length: SERIES }, (_, code) => rgb(paint.colour(code)));
  const palette = new Uint32Array(N_LOOKS);
  for (let look = 1; look < N_LOOKS; look++) {
    const code = (look - 1) % EACH;
    palette[look] = packed(mixed(code === SERIES ? unknown : colours[code], ground, share[RANK[look]]));
  }
  return palette;
}

// Errors are larger and hollow, edited examples larger.
export function shapesOf(size, paint) {
  return Array.from({ length: N_LOOKS }, (_, look) => {
    const kind = RANK[look];
    const code = look ? (look - 1) % EACH : 0;
    const shape = code === SERIES ? "o" : paint.shape(code);
    const wide = kind === MISTAKE || kind === EDITED ? size + (size < 3 ? 2 : 4) : size;
    const hollow = kind === MISTAKE && wide >= 7;
    const within = (dx, dy) => inside(shape, wide, dx, dy);
    const rim = (dx, dy) =>
      within(dx, dy) && [[1, 0], [-1, 0], [0, 1], [0, -1], [2, 0], [-2, 0], [0, 2], [0, -2]].some(([x, y]) => !within(dx + x, dy + y));
    return { size: wide, inside: hollow ? rim : within };
  });
}
export const LARGEST = 17; // pixels of the largest shape
