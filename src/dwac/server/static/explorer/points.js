// The points of the map: columns of numbers, as sent by the server.

import { bytes } from "./api.js";

export const NONE = 65535;
export const DATA = 1;
export const REMOVED = 2;
export const RELABELLED = 4;

const TYPES = { "<f4": Float32Array, "<f8": Float64Array, "<u1": Uint8Array, "<u2": Uint16Array, "<u4": Uint32Array };

async function fetched(types, names, epsilon) {
  const columns = await Promise.all(names.map((name) => bytes(`/explorer/columns/${name}?epsilon=${epsilon}`)));
  return Object.fromEntries(names.map((name, i) => [name, new TYPES[types[name]](columns[i])]));
}

export async function load(start) {
  const points = await fetched(start.columns, Object.keys(start.columns), start.epsilon);
  points.n = points.xy.length / 2;
  points.withPrediction = start.with_prediction ?? Array.from({ length: start.n_data }, (_, i) => start.n_training + i);
  return points;
}

// What edits change: all but places. Only intervals depend on ε.
export const reload = async (points, { columns }, epsilon) =>
  Object.assign(points, await fetched(columns, Object.keys(columns).filter((name) => name !== "xy"), epsilon));
export const reloadIntervals = async (points, { columns }, epsilon) =>
  Object.assign(points, await fetched(columns, ["interval"], epsilon));
