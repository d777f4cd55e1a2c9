// Actions behind one button: a list that opens below it; Escape or a click elsewhere closes it.

import { button, el } from "./dom.js";

// items: [name, action] or an element, such as a field; what is null is left out.
export function menu(name, title, items) {
  const given = items.filter(Boolean);
  if (!given.length) return null;
  const node = el("details", { class: "menu" }, el("summary", { "aria-label": title, title }, name));
  const act = (action) => () => {
    node.open = false;
    action();
  };
  node.append(el("ul", {}, given.map((item) => el("li", {}, Array.isArray(item)
    ? button({ "aria-label": item[2] ?? null, onclick: act(item[1]) }, item[0]) : item))));
  return node;
}

export function listen() {
  const close = (but) => document.querySelectorAll("details.menu[open]").forEach((each) => each !== but && (each.open = false));
  document.addEventListener("click", (event) => close(event.target.closest("details.menu")));
  document.addEventListener("keydown", (event) => {
    const open = event.target.closest?.("details.menu[open]");
    if (event.key !== "Escape" || !open) return;
    open.open = false;
    open.querySelector("summary").focus();
    event.stopPropagation();
  });
}
