// What is known of the allocator: asked for once a second, at once when it says that something happened, and kept with
// its age when it cannot be reached.

/** A call is given up after so long; then the allocator counts as out of reach. */
const PATIENCE_MS = 4_000;

/** It is asked this often. */
const EVERY_MS = 1_000;

/** It is asked for at most this part of the time: a large answer makes the page slower, not the allocator. */
const REST = 9;

/** After something happened it is asked this soon: several things often happen together. */
const SOON_MS = 60;

/** An answer that says that something went wrong, as `application/problem+json`. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `status ${status}`);
    this.status = status;
    this.body = body;
  }
}

/** `path` with what an operator says of its decision: that it is meant, and why. */
function decided(path, { confirm = false, reason = "" }) {
  const said = new URLSearchParams({ ...(confirm ? { confirm } : {}), ...(reason.trim() ? { reason: reason.trim() } : {}) }).toString();
  return said ? `${path}${path.includes("?") ? "&" : "?"}${said}` : path;
}

/** What the allocator answers to a request, which may be a decision. */
export async function ask(path, { method = "GET", body, headers = {}, decision = {} } = {}) {
  const answer = await fetch(decided(path, decision), {
    method,
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MS),
    headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const read = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw new Problem(answer.status, read);
  return { body: read, etag: answer.headers.get("etag") };
}

/** The path of a limit, and of what is below it. */
export function pathOf(name, ...steps) {
  return ["/v1/limits", ...[name, ...steps].map(encodeURIComponent)].join("/");
}

/** What is known. `at` and `away` are on the clock of `performance.now()`. */
export const known = {
  /** The identity of this browser, with its roles. */
  me: null,
  status: null,
  limits: new Map(),
  /** When the newest figures came. */
  at: null,
  /** Since when it cannot be reached, and why. */
  away: null,
  why: "",
};

const watchers = new Set();
let wake = () => {};
let wanted = false;

/** Calls `watcher` with whatever is new: "figures", "away", or "shut" with the status 401 or 403. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** Asks as soon as possible. */
export function hurry() {
  wanted = true;
  wake();
}

function tell(what, more) {
  for (const watcher of [...watchers]) watcher(what, more);
}

async function look() {
  try {
    known.me = (await ask("/v1/whoami")).body;
    const [status, limits] = await Promise.all([ask("/v1/status"), ask("/v1/limits")]);
    known.status = status.body;
    known.limits = new Map(limits.body.limits.map((limit) => [limit.name, limit]));
    [known.at, known.away, known.why] = [performance.now(), null, ""];
    tell("figures");
  } catch (error) {
    if (error instanceof Problem && [401, 403].includes(error.status)) {
      [known.away, known.why] = [null, ""];
      tell("shut", error.status);
      return;
    }
    known.away ??= performance.now();
    known.why = error instanceof Problem ? error.message : error.name === "TimeoutError" ? "no answer" : "no connection";
    tell("away");
  }
}

/** Asks for ever. */
export async function run() {
  for (;;) {
    wanted = false;
    const began = performance.now();
    await look();
    const took = performance.now() - began;
    const rest = known.away === null ? Math.max(EVERY_MS - took, took * REST) : EVERY_MS;
    if (!wanted) {
      await new Promise((done) => {
        const timer = setTimeout(done, rest);
        wake = () => {
          clearTimeout(timer);
          done();
        };
      });
      wake = () => {};
    }
    if (wanted) await new Promise((done) => setTimeout(done, SOON_MS));
  }
}
