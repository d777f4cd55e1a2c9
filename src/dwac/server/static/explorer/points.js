// The points of the map: columns of numbers, as sent by the server.

import { bytes } from "./api.js";

export const NONE = 65535;
export const DATA = 1;
export const REMOVED = 2;
export const RELABELLED = 4;

const KINDS = {
  xy: Float32Array, label: Uint16Array, predicted: Uint16Array, typicality: Float32Array, state: Uint8Array,
  p_values: Float64Array,
};
const EDITED = ["label", "predicted", "typicality", "state", "p_values"]; // what edits change

async function fetched(names) {
  const columns = await Promise.all(names.map((name) => bytes(`/explorer/columns/${name}`)));
  return Object.fromEntries(names.map((name, i) => [name, new KINDS[name](columns[i])]));
}

export async function load(start) {
  const points = await fetched(Object.keys(KINDS));
  points.n = points.label.length;
  points.asked = start.asked ?? Array.from({ length: start.n_data }, (_, i) => start.n_training + i);
  return points;
}

export const reload = async (points) => Object.assign(points, await fetched(EDITED));

export const isMistake = (points, i) =>
  points.label[i] !== NONE && points.predicted[i] !== NONE && points.label[i] !== points.predicted[i];
