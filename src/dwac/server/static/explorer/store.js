// What the page remembers until its tab is closed; in a frame without storage, as in a notebook, until it is loaded again.

function open() {
  try {
    return sessionStorage;
  } catch {
    const kept = new Map();
    return { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) };
  }
}

export const store = open();
