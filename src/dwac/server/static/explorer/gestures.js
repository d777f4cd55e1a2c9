// Moving the map with a mouse, fingers or keys; a click without movement selects what is there.

const STEP = 60; // pixels per arrow key
const STILL = 5; // pixels within which a press is a click

// choose(pixel, reach): reach is how far away a point may be. hover(pixel): null when the pointer leaves.
// lasso: on() says whether a drag selects (with Shift it always does), drawn(path) and done(path) get places of the map.
export function listen(marks, map, choose, hover, lasso) {
  const held = new Map();
  let moved = 0;
  let path = null;
  const at = (event) => {
    const box = marks.getBoundingClientRect();
    return [(event.clientX - box.left) * map.ratio, (event.clientY - box.top) * map.ratio];
  };

  marks.addEventListener("pointerdown", (event) => {
    marks.setPointerCapture(event.pointerId);
    held.set(event.pointerId, at(event));
    if (held.size === 1) moved = 0;
    path = held.size === 1 && (lasso.on() || event.shiftKey) ? [map.placeOf(...at(event))] : null;
  });
  marks.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return void (event.pointerType === "mouse" && hover(at(event)));
    const now = at(event);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (path) {
      path.push(map.placeOf(...now));
      if (moved > STILL) lasso.drawn(path);
    } else if (held.size === 1 && moved > STILL) map.pan(now[0] - before[0], now[1] - before[1]);
    if (held.size === 2) pinch(held, event.pointerId, now, map);
    held.set(event.pointerId, now);
  });
  const end = (event) => {
    const last = held.get(event.pointerId);
    held.delete(event.pointerId);
    if (last && held.size === 0 && moved <= STILL && event.type === "pointerup") choose(last);
    else if (path && held.size === 0) lasso.done(event.type === "pointerup" ? path : []);
    if (held.size === 0) path = null;
  };
  marks.addEventListener("pointerleave", () => hover(null));
  marks.addEventListener("pointerup", end);
  marks.addEventListener("pointercancel", end);
  marks.addEventListener("wheel", (event) => {
    event.preventDefault();
    map.zoom(Math.exp(-event.deltaY * 0.0015), ...at(event));
  }, { passive: false });
  marks.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    choose([map.frame.width / 2, map.frame.height / 2], Infinity);
  });
}

function pinch(held, id, now, map) {
  const [other] = [...held].filter(([name]) => name !== id).map(([, place]) => place);
  const before = held.get(id);
  const factor = Math.hypot(now[0] - other[0], now[1] - other[1]) / (Math.hypot(before[0] - other[0], before[1] - other[1]) || 1);
  map.zoom(factor, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}

export const MOVES = {
  ArrowLeft: (map) => map.pan(STEP * map.ratio, 0),
  ArrowRight: (map) => map.pan(-STEP * map.ratio, 0),
  ArrowUp: (map) => map.pan(0, STEP * map.ratio),
  ArrowDown: (map) => map.pan(0, -STEP * map.ratio),
  "+": (map) => map.zoom(1.3),
  "=": (map) => map.zoom(1.3),
  "-": (map) => map.zoom(1 / 1.3),
  0: (map) => map.fit(),
};
