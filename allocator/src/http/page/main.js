// The page for operators: where one is, what the allocator says of itself, and whether it can be reached.

import { hurry, known, run, watch } from "./allocator.js";
import { attr, children, el, say, text } from "./dom.js";
import * as events from "./events.js";
import { note } from "./figures.js";
import { limit } from "./limit.js";
import { list } from "./list.js";
import { mayNothing, signIn, signOut } from "./sign.js";
import * as words from "./words.js";

const main = document.getElementById("main");
const [away, live] = [document.getElementById("away"), document.getElementById("live")];

const REASONS = { stopping: "stopping", store_failing: "the store cannot be used", upstream_failing: "no upstream answers", quarantine: "quarantine" };

/** What is shown, which knows how to come up to date and how to end. */
let shown = null;
let place = null;
let epoch = null;
const drawEvents = events.begin();

/** What the address says: all limits, or one. */
function where() {
  const found = location.hash.match(/^#\/limit\/(.+)$/);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return null;
  }
}

function go() {
  const isFirst = shown === null;
  const next = where();
  if (!isFirst && next === place) return;
  shown?.end?.();
  place = next;
  shown = place === null ? list(main) : limit(main, place);
  document.title = place === null ? "Lessor" : `${place} · Lessor`;
  // The focus moves to where the link leads, for a user of a keyboard or a screen reader.
  if (!isFirst) {
    main.querySelector("h1")?.focus();
    scrollTo(0, 0);
  }
}

function showStatus() {
  const { status } = known;
  const health = document.getElementById("health");
  const waits = status.quarantine;
  const reasons = status.reasons.map((reason) => (reason === "quarantine"
    ? `${words.some(waits.limits, "limit")} in quarantine for up to ${words.span(waits.longest_ms)}` : REASONS[reason] ?? reason));
  text(health, status.status === "ready" ? "ready" : reasons.join(", "));
  attr(health, "title", status.checks.store.reason ?? null);
  attr(health, "class", `chip ${status.status === "ready" ? "good" : "bad-3"}`);
  text(document.getElementById("node"), status.node ?? location.host);
  const facts = [
    ["version", status.version], ["up", words.span(status.up_ms)], ["sessions", words.count(status.sessions)], ["store", status.store],
    ...(status.sharing.length > 0 ? [["shared by", status.sharing.join(", ")]] : []),
    ...status.upstreams.map(({ url, is }) => [`upstream ${url}`, is === "down" ? "does not answer" : is === "up" ? "answers" : "not asked yet"]),
  ];
  const list = document.getElementById("facts");
  if (list.childElementCount !== facts.length) {
    children(list, facts.map(() => el("div", {}, el("dt"), el("dd"))));
  }
  facts.forEach(([name, value], at) => {
    const [term, shown] = list.children[at].children;
    text(term, name);
    text(shown, value);
    attr(shown, "class", value === "does not answer" ? "warn" : null);
  });
}

/** Lists what operators should mend. */
function showWarnings() {
  const { config } = known.status.checks;
  const refused = config.ok ? [] : [`The configuration file is refused, and its previous content is in force: ${config.reason}`];
  const warnings = [...refused, ...known.status.warnings];
  const list = document.getElementById("warnings");
  list.hidden = warnings.length === 0;
  if (list.childElementCount !== warnings.length) children(list, warnings.map(() => el("li")));
  warnings.forEach((warning, at) => text(list.children[at], warning));
}

/** Says who is signed in, where identities are asked for. */
function showMe() {
  const identity = known.me?.identity ?? null;
  const me = document.getElementById("me");
  if (me.hidden === (identity !== null)) {
    me.hidden = identity === null;
    children(me, [el("span"), el("button", { type: "button", class: "small", onclick: signOut }, "Sign out")]);
  }
  if (identity !== null) text(me.firstElementChild, identity);
}

/** What is not shown to this browser, by the status that said so. */
let shut = null;

function shutOut(status) {
  if (status === shut) return;
  shut = status;
  shown?.end?.();
  shown = null;
  document.body.classList.add("shut");
  document.title = "Lessor";
  if (status === 401) signIn(main);
  else mayNothing(main);
}

function showAge() {
  const isAway = known.away !== null;
  document.body.classList.toggle("stale", isAway);
  const age = known.at === null ? null : words.span(Math.max(1_000, performance.now() - known.at));
  text(live, isAway ? "" : "live");
  if (away.hidden === isAway) away.hidden = !isAway;
  if (isAway) {
    text(away, `The allocator cannot be reached (${known.why}). ${age === null ? "No figures have arrived yet." : `What is shown is ${age} old.`} This page keeps trying.`);
  }
}

let wasAway = false;
watch((what, status) => {
  if (what === "shut") {
    shutOut(status);
    showMe();
    showAge();
    return;
  }
  if (what === "away") {
    if (!wasAway && known.at !== null) events.add({ kind: "away" });
    wasAway = true;
    if (shut !== null) {
      showAge();
      return;
    }
  } else {
    // Another tab has signed in.
    if (shut !== null) location.reload();
    const { status, limits, at } = known;
    if (wasAway && epoch !== null) events.add({ kind: "back" });
    wasAway = false;
    if (epoch !== null && epoch !== status.epoch) {
      events.add({ kind: "began" });
      say("The allocator was started again");
    }
    epoch = status.epoch;
    note(limits, epoch, at).forEach((event) => events.add(event));
    showStatus();
    showWarnings();
    showMe();
  }
  showAge();
  go();
  shown.update();
  drawEvents();
});

setInterval(() => { if (known.away !== null) showAge(); }, 500);
addEventListener("hashchange", go);
addEventListener("online", hurry);
addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && shown?.focus) {
    event.preventDefault();
    shown.focus();
  }
});

events.listen();
run();
