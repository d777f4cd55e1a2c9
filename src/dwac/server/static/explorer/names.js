// What people call columns and codes; those without a name are shown as they are.

import { text } from "./dom.js";

let known = new Map();

// columns: of the card of the model.
export function learn(columns) {
  known = new Map((columns ?? []).map((column) => [text(column.name), column]));
}

export const titleOf = (column) => known.get(text(column))?.title ?? text(column);

// The meaning of a code of a column; null if it has none.
export const meaningOf = (column, value) => known.get(text(column))?.codes?.[text(value)] ?? null;
