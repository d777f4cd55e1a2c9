// Requests to the page's own host. The token is read from the address after the #, and sent to no other host.

const TOKEN = "dwac-token";
const SESSION = "dwac-session";

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.get("token")) return;
  sessionStorage.setItem(TOKEN, given.get("token"));
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
}

function session() {
  if (!sessionStorage.getItem(SESSION)) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    sessionStorage.setItem(SESSION, Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return sessionStorage.getItem(SESSION);
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const useToken = (token) => sessionStorage.setItem(TOKEN, token);

async function ask(path, options = {}) {
  const headers = { "x-session": session(), authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}`, ...options.headers };
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

export const get = async (path) => (await ask(path)).json();
export const bytes = async (path) => (await ask(path)).arrayBuffer();
export const post = async (path, body) =>
  (await ask(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })).json();

export async function download(path, name, body = null) {
  const options = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const url = URL.createObjectURL(await (await ask(path, options ?? {})).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

takeToken();
