// A label with the symbol of its class.

import { sign } from "./colours.js";
import { brief, el } from "./dom.js";

export const chip = (app, label, given = {}) =>
  el("span", { class: "chip", ...given }, app.codes.has(String(label)) ? sign(app.codes.get(String(label))) : null, brief(label, 40));
