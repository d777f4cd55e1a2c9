// Search by id or text; Enter selects the first match.

import { get } from "./api.js";
import { $, aside, brief, button, el, fill } from "./dom.js";

const PAUSE = 200; // milliseconds after the last letter

export function listen(app) {
  let timer = null;
  const close = () => { $("found").hidden = true; };
  const choose = (point) => {
    close();
    app.choose(point, true);
  };
  const find = async () => {
    const wanted = $("wanted").value.trim();
    if (!wanted) return close();
    const { found } = await get(`/explorer/search?q=${encodeURIComponent(wanted)}`);
    if (wanted !== $("wanted").value.trim()) return null; // an outdated search
    fill($("found"), found.length
      ? found.map(({ point, id, text }) => el("li", {}, button({ onclick: () => choose(point) },
        el("b", {}, brief(id, 60)), app.isData(point) ? " (data) " : " (training) ", aside(brief(text, 90)))))
      : el("li", { class: "note" }, "No example has this id or text."));
    $("found").hidden = false;
    return found;
  };
  $("wanted").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => app.tried(find()), PAUSE);
  });
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    app.tried(find().then((found) => found?.length && choose(found[0].point)));
  });
  $("search").addEventListener("keydown", (event) => event.key === "Escape" && close());
  document.addEventListener("click", (event) => $("search").contains(event.target) || close());
}
