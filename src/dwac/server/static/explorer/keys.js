// Keyboard shortcuts, except while the user types.

import { $ } from "./dom.js";
import { MOVES } from "./gestures.js";
import { clear, inView } from "./selection.js";

const typing = (target) => target.matches("input, select, textarea");

export function listen(app) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    if (event.target.closest("details, #legend") && event.key.startsWith("Arrow")) return;
    if (MOVES[event.key]) MOVES[event.key](app.map);
    else if (event.key === "/") $("wanted").focus();
    else if (event.key === "?") $("help").showModal();
    else if (event.key === "n") app.step(1);
    else if (event.key === "p") app.step(-1);
    else if (event.key === "w" && !$("whatif").hidden) app.openSection("whatif");
    else if (event.key === "Escape" && app.picking) app.pick(false);
    else if (event.key === "l") $("lasso").click();
    else if (event.key === "v") app.tried(inView(app));
    else if (event.key === "Escape" && app.selected.length) app.tried(clear(app));
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
