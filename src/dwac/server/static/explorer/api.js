// Requests to the page's own host. The token is read from the address after the #, and sent to no other host.
// A page in one file holds the answers, and sends no request.

import { store } from "./store.js";

const TOKEN = "dwac-token";
const SESSION = "dwac-session";

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.get("token")) return;
  store.setItem(TOKEN, given.get("token"));
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
}

function session() {
  if (!store.getItem(SESSION)) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    store.setItem(SESSION, Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return store.getItem(SESSION);
}

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const useToken = (token) => store.setItem(TOKEN, token);

const held = document.getElementById("answers");
export const oneFile = held !== null;
let answers = null;

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

async function unpack() {
  const content = new Blob([decode(held.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(content).text());
}

// The answer that the file holds; searches and selections are made from the examples in it.
async function recall(path, body = null) {
  answers ??= unpack();
  const known = await answers;
  if (path === "/explorer/selected") {
    const chosen = body.points.slice(body.start, body.start + 60);
    return { examples: chosen.map((point) => known[`/explorer/points/${point}/brief`]).filter(Boolean) };
  }
  if (path.startsWith("/explorer/search")) {
    const wanted = new URLSearchParams(path.split("?")[1]).get("q").toLowerCase();
    const [same, others] = [[], []];
    const briefs = Object.keys(known).filter((key) => key.endsWith("/brief")).map((key) => known[key]);
    for (const each of briefs) {
      if (String(each.id).toLowerCase() === wanted) same.push(each);
      else if (`${each.id} ${each.text}`.toLowerCase().includes(wanted)) others.push(each);
    }
    return { found: [...same, ...others].slice(0, 50) };
  }
  const answer = known[path.replace(/[?&](epsilon|k)=[^&]*/g, "")];
  if (answer === undefined || Object.keys(body ?? {}).length) throw new Refused(404, "This file does not hold that. `dwac explore` answers it, with the model.");
  return answer;
}

async function ask(path, options = {}) {
  const headers = { "x-session": session(), authorization: `Bearer ${store.getItem(TOKEN) ?? ""}`, ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused(0, "The explorer does not respond. Is `dwac explore` still running?");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => null);
  throw new Refused(answer.status, problem?.error?.message ?? `The explorer answered ${answer.status}.`);
}

export const get = async (path) => (oneFile ? recall(path) : (await ask(path)).json());
export const bytes = async (path) => (oneFile ? decode(await recall(path)).buffer : (await ask(path)).arrayBuffer());
const posted = (body) => ({ method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
export const post = async (path, body) => (oneFile ? recall(path, body) : (await ask(path, posted(body))).json());

export async function download(path, name, body = null) {
  const url = URL.createObjectURL(await (await ask(path, body ? posted(body) : {})).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

takeToken();
