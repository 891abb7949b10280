// Requests to the command that serves this page. The key of the session is in the window's session storage: it survives
// a reload, and no page of another port can read it.

const storage = "key";
let ahead = 0; // the node's clock minus this machine's, in milliseconds

/** Exchanges the token in the page's address, if there is one, for the key, and removes it from the address. */
export async function login() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", "#now");
  const { body } = await request("login", { method: "POST", body: JSON.stringify({ token }) });
  sessionStorage.setItem(storage, body.key);
}

/** Returns the answer of a resource of the admin API, get("history", {verb: "StopPodSandbox"}). */
export async function get(resource, parameters = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(storage)}` };
  const { answer, body } = await request(`api/${resource}?${new URLSearchParams(parameters)}`, { headers });
  ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
  return body;
}

async function request(path, options) {
  const answer = await fetch(path, options).catch(() => {
    throw new Error("podd ui does not answer: does it still run?");
  });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error), { status: answer.status });
  return { answer, body };
}

/** Returns the seconds since a time of the node, which need not agree with the clock of this machine. */
export function since(time) {
  return Math.max(0, (Date.now() + ahead - Date.parse(time)) / 1000);
}
