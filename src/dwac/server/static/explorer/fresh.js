// Something new: a text, a row or an uploaded image, its prediction, and the examples nearest to it.

import { oneFile } from "./api.js";
import { $, button, el, fill, note } from "./dom.js";
import { formOf } from "./forms.js";

const LARGEST = 2_500_000; // bytes of a file, which grow by a third on their way

const dataUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(reader.result));
  reader.addEventListener("error", () => reject(new Error("The file cannot be read.")));
  reader.readAsDataURL(file);
});

function upload() {
  const field = el("input", { type: "file", name: "picture", accept: "image/png,image/jpeg", required: true });
  const form = el("form", {}, el("label", {}, "A PNG or JPEG file ", field));
  form.question = async () => {
    const [file] = field.files;
    if (file.size > LARGEST) throw new Error(`The file has ${(file.size / 1e6).toFixed(1)} MB; at most ${LARGEST / 1e6} MB are read. Choose a smaller one.`);
    return { picture: await dataUrl(file) };
  };
  return form;
}

const TITLES = { image: "Search by an image", text: "Search by a new text", huggingface: "Search by a new text", tabular: "Predict a new row" };

export function listen(app) {
  const { kind } = app.start.card;
  $("new-button").hidden = oneFile || !(kind in TITLES);
  if ($("new-button").hidden) return;
  $("new-title").textContent = TITLES[kind];
  const form = kind === "image" ? upload() : formOf(app, null);
  form.id = "new-form";
  form.append(el("p", { class: "buttons" }, el("button", { class: "main" }, "Predict and find the nearest"), button({ onclick: () => $("new").close() }, "Close")));
  fill($("new-place"), note("It is predicted, placed on the map, and shown with the training examples that vote on it, nearest first."), form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    app.tried((async () => {
      const question = await form.question();
      $("new").close();
      await app.askNew(question);
    })());
  });
  $("new-button").addEventListener("click", () => $("new").showModal());
}
