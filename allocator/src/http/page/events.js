// What happened lately: what the allocator tells by itself, what it remembers, and what follows from its figures.

import { ask, hurry, known } from "./allocator.js";
import { attr, children, el, kept, say, text } from "./dom.js";
import * as words from "./words.js";

/** Events that are kept, and shown beside the limits. */
const KEPT = 300;
const SHOWN = 40;

/** What burns of a limit within this time of the last is told as one. */
const TOGETHER_MS = 30_000;

/** When to try again to listen, where all places are taken. */
const AGAIN_MS = 10_000;

/** Newest first; `at` is on the clock of `performance.now()`. */
let events = [];
let number = 0;

/** Something happened, `ago` ms ago. */
export function add(event, ago = 0) {
  const at = performance.now() - ago;
  const same = event.permits && events.find((one) => one.kind === event.kind && one.limit === event.limit && at - one.at < TOGETHER_MS);
  if (same) Object.assign(same, { at, permits: same.permits + event.permits });
  else events.push({ ...event, at, number: number++ });
  events.sort((a, b) => b.at - a.at || b.number - a.number);
  events.length = Math.min(events.length, KEPT);
}

/** What the allocator told before this page listened, in place of what it told until now. */
async function recall() {
  const { body } = await ask("/v1/events/recent");
  events = events.filter(({ told }) => !told);
  for (const { ago_ms: ago, ...event } of body.events) add({ ...event, told: true }, ago);
  draw();
}

/** Listens for as long as the page is open. */
export function listen() {
  const source = new EventSource("/v1/events");
  source.addEventListener("open", () => {
    // What was told between two connections is not told again.
    recall().catch(() => {});
    hurry();
  });
  source.addEventListener("limit", ({ data }) => {
    const event = JSON.parse(data);
    add({ ...event, told: true });
    say(`${event.limit ?? "all limits"}: ${words.event(event)}`);
    hurry();
    draw();
  });
  source.addEventListener("error", () => {
    hurry();
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
  });
}

/** A list that shows those that `picks`. */
export function eventList(list, picks = () => true) {
  const make = kept(() => {
    const parts = { time: el("time"), limit: el("a"), what: el("span") };
    parts.root = el("li", {}, parts.time, " ", parts.limit, " ", parts.what);
    return parts;
  }, (parts, event) => {
    const ago = performance.now() - event.at;
    text(parts.time, `${words.span(Math.max(1_000, ago))} ago`);
    attr(parts.time, "title", new Date(Date.now() - ago).toLocaleTimeString());
    text(parts.limit, event.limit ?? "");
    parts.limit.hidden = !event.limit;
    if (known.limits.has(event.limit)) attr(parts.limit, "href", `#/limit/${encodeURIComponent(event.limit)}`);
    else attr(parts.limit, "href", null);
    text(parts.what, words.event(event));
    attr(parts.root, "class", `event ${["paused", "blocked", "burned", "disagreed", "away", "began"].includes(event.kind) ? "bad-2" : ""}`);
  });
  const none = el("li", { class: "quiet" }, "No events are known.");
  return () => {
    const shown = events.filter(picks).slice(0, SHOWN);
    children(list, shown.length ? make(shown.map((event) => [event.number, event])) : [none]);
  };
}

let draw = () => {};

/** The list beside the limits. */
export function begin() {
  draw = eventList(document.getElementById("events-list"));
  return () => draw();
}
