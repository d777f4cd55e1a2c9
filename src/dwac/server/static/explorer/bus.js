// Events and their listeners: "selected", "edited", "epsilon", "filter", "theme", "moved".

const heard = new Map();

export function on(name, listener) {
  heard.set(name, [...(heard.get(name) ?? []), listener]);
}

export function emit(name, value) {
  for (const listener of heard.get(name) ?? []) listener(value);
}
