// Light or dark: follows the system until the user chooses.

import { $ } from "./dom.js";
import { isDark } from "./palette.js";
import { store } from "./store.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = store.getItem("dwac-theme");

function apply(changed) {
  const theme = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  changed();
}

export function listen(changed) {
  $("theme").addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    store.setItem("dwac-theme", chosen);
    apply(changed);
  });
  dark.addEventListener("change", () => apply(changed));
  apply(changed);
}
