// Light or dark: follows the system until the user chooses.

import { $ } from "./dom.js";
import { emit } from "./bus.js";
import { store } from "./store.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = store.getItem("dwac-theme");

function apply() {
  const theme = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  emit("theme");
}

export function listen() {
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    store.setItem("dwac-theme", chosen);
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}
