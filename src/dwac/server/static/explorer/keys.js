// Keyboard shortcuts, except while the user types.

import { $ } from "./dom.js";
import { MOVES } from "./gestures.js";

const typing = (target) => target.matches("input, select, textarea");

export function listen(app) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || $("help").open) return;
    if (event.target.closest("details, #legend") && event.key.startsWith("Arrow")) return;
    if (MOVES[event.key]) MOVES[event.key](app.map);
    else if (event.key === "/") $("wanted").focus();
    else if (event.key === "?") $("help").showModal();
    else if (event.key === "z") app.undo();
    else if (event.key === "Z") app.redo();
    else return;
    event.preventDefault();
  });
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("zoom-in").addEventListener("click", () => app.map.zoom(1.4));
  $("zoom-out").addEventListener("click", () => app.map.zoom(1 / 1.4));
  $("fit").addEventListener("click", () => app.map.fit());
}
