// Renders /openapi.json: all requests, their fields, and a form to try each. Plain DOM, no library.

let token = null;

const get = (id) => document.getElementById(id);

/** An element with attributes and children; text never becomes markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  return fetch(path, { ...options, headers });
}

async function start() {
  const answer = await ask("/openapi.json");
  get("token").hidden = answer.status !== 401;
  if (!answer.ok) {
    get("problem").textContent = token || answer.status !== 401 ? (await answer.json()).error.message : "";
    return;
  }
  get("problem").textContent = "";
  const api = await answer.json();
  get("about").textContent = `${api.info.description} Version ${api.info.version}.`;
  const found = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(api, path, method, operation)),
  );
  get("operations").replaceChildren(...found);
}

function section(api, path, method, operation) {
  const body = operation.requestBody?.content["application/json"];
  const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
  const refusals = Object.entries(operation.responses).filter(([status]) => status !== "200");
  return make(
    "section",
    { id: path.slice(1).replaceAll("/", "-") },
    make("h2", {}, make("code", { class: method }, method.toUpperCase()), " ", make("code", {}, path)),
    make("p", {}, operation.description ?? operation.summary ?? ""),
    body ? fold("Request", fields(api, body.schema)) : null,
    answer ? fold("Answer", fields(api, answer)) : null,
    fold("Errors", make("dl", {}, ...refusals.flatMap(([status, refusal]) => [
      make("dt", {}, status),
      make("dd", {}, refusal.description),
    ]))),
    tryOut(path, method, body?.example),
  );
}

const fold = (title, content) => make("details", {}, make("summary", {}, title), content);

/** The fields of a schema, level by level. */
function fields(api, schema, depth = 0) {
  const plain = resolve(api, schema);
  const inner = plain.properties ?? {};
  const item = resolve(api, plain.items || {});
  if (!Object.keys(inner).length && depth < 6 && plain.type === "array" && (item.properties || item.type === "array")) {
    return make("div", {}, make("p", { class: "kind" }, kind(api, plain)), fields(api, item, depth + 1));
  }
  if (!Object.keys(inner).length) return make("p", { class: "kind" }, kind(api, plain), description(plain));
  const rows = Object.entries(inner).map(([name, field]) => {
    const value = resolve(api, field);
    const below = resolve(api, value.items || {});
    const nested = below.properties || below.type === "array" || below.anyOf ? fields(api, below, depth + 1) : null;
    const required = (plain.required ?? []).includes(name) ? "" : " optional";
    return [
      make("dt", {}, make("code", {}, name), make("span", { class: "kind" }, ` ${kind(api, value)}${required}`)),
      make("dd", {}, description(field), depth < 6 ? nested : null),
    ];
  });
  return make("dl", {}, ...rows.flat());
}

const description = (schema) => (schema.description ? ` ${schema.description}` : "");

/** A schema with references resolved; of "this form or anything else", this form. */
function resolve(api, schema) {
  const plain = schema.$ref ? schema.$ref.split("/").slice(1).reduce((part, name) => part[name], api) : schema;
  const other = plain.anyOf?.at(-1);
  return other && Object.keys(other).length === 0 ? resolve(api, plain.anyOf[0]) : plain;
}

function kind(api, schema) {
  const plain = resolve(api, schema);
  if (plain.anyOf) return plain.anyOf.map((each) => kind(api, each)).join(" or ");
  if (plain.type === "array") {
    const [least, most] = [plain.minItems, plain.maxItems];
    const count = least === most ? (least ?? "") : `${least ?? 0}–${most ?? "…"}`;
    return `list${count === "" ? "" : ` of ${count}`}: ${kind(api, plain.items || {})}`;
  }
  const name = plain.title && plain.properties ? plain.title : [plain.type ?? "anything"].flat().join(" or ");
  const low = plain.minimum ?? plain.exclusiveMinimum;
  const high = plain.maximum ?? plain.exclusiveMaximum;
  return low === undefined || Math.abs(low) > 1e30 ? name : `${name} ${low} … ${high ?? ""}`;
}

function tryOut(path, method, example) {
  const id = `try-${path.slice(1).replaceAll("/", "-")}`;
  const sent = example === undefined ? null : make("textarea", { id, rows: 6, spellcheck: "false" });
  if (sent) sent.value = JSON.stringify(example);
  const output = make("pre", { tabindex: "0", "aria-live": "polite", hidden: "" });
  const send = async (event) => {
    event.preventDefault();
    const headers = sent ? { "content-type": "application/json" } : {};
    const began = performance.now();
    try {
      const answer = await ask(path, { method: method.toUpperCase(), headers, body: sent?.value });
      const text = await answer.text();
      const shown = answer.headers.get("content-type")?.includes("json") ? JSON.stringify(JSON.parse(text), null, 1) : text;
      output.textContent = `${answer.status}, ${Math.round(performance.now() - began)} ms\n${shown}`;
    } catch (error) {
      output.textContent = `no answer: ${error.message}`;
    }
    output.hidden = false;
  };
  const form = make(
    "form",
    { onsubmit: send },
    sent ? make("label", { for: id }, "Body") : null,
    sent,
    make("button", {}, "Send"),
    output,
  );
  const command = make("pre", { tabindex: "0" }, curl(path, method, example));
  return make("details", {}, make("summary", {}, "Try it"), form, make("p", {}, "From a terminal:"), command);
}

function curl(path, method, example) {
  const parts = [`curl ${location.origin}${path}`];
  if (token) parts.push("-H \"Authorization: Bearer $DWAC_TOKEN\"");
  if (example !== undefined) {
    parts.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`);
  } else if (method !== "get") parts.push(`-X ${method.toUpperCase()}`);
  return parts.join(" \\\n  ");
}

get("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token = get("secret").value.trim();
  start();
});
start().catch((error) => (get("problem").textContent = `no answer: ${error.message}`));
