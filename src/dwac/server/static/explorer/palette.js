// Twenty colours that can be told apart on a light and on a dark page; a class keeps its hue in both.
// The first are Okabe and Ito's, for colour-blind readers; every class also has a shape, and a name on the map.

export const PALETTE = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#3c9bd0", "#6b4a12", "#9c00fc", "#a8006c", "#0000fc",
    "#fc30fc", "#60309c", "#fc006c", "#9c78fc", "#006c00", "#005460", "#906078", "#5454fc", "#b41800", "#c03cc0"],
  dark: ["#4da6e8", "#ff8a3d", "#2fcf9f", "#ee9ccb", "#f2c14e", "#a5dcff", "#c9a06a", "#e400fc", "#fc2478", "#009c00",
    "#a86ccc", "#00d800", "#549078", "#c06c6c", "#fc60d8", "#9cb400", "#9c8400", "#fc480c", "#6c78fc", "#b49cfc"],
};

export const isDark = () => document.documentElement.dataset.theme === "dark";
export const palette = () => PALETTE[isDark() ? "dark" : "light"];
