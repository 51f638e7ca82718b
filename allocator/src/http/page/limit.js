// One limit: how it stands, how it went, who holds and wants most of it, and what can be done about it.

import { ask, known, pathOf } from "./allocator.js";
import * as actions from "./actions.js";
import { change, configuration, remove } from "./change.js";
import { attr, children, el, figure, kept, show, text } from "./dom.js";
import { eventList } from "./events.js";
import { disagreements, emptiesIn, isOne, perSecond, stands } from "./figures.js";
import { badges, level, why } from "./list.js";
import { plots } from "./plot.js";
import { mayChange, mayOperate, mayTopUp } from "./sign.js";
import * as words from "./words.js";

/** Who holds most is asked this often: it looks at every pool. */
const TOP_EVERY_MS = 2_000;

/** And for at most this part of the time. */
const TOP_REST = 9;

function part(number, of) {
  return of > 0 ? `${Math.round((number / of) * 100)} %` : "";
}

/** A table of the top ones: `columns` are pairs of a label and what shows it. */
function topTable(caption, columns, more) {
  const make = kept((_, item) => {
    const cells = columns.map(([, , cell]) => (cell ? cell(item) : figure()));
    const [first, ...others] = cells;
    const root = el("tr", {}, el("th", { scope: "row" }, first), ...others.map((cell) => el("td", { class: "number" }, cell)));
    return { root, cells };
  }, ({ cells }, item) => columns.forEach(([, shown], at) => shown && show(cells[at], ...[shown(item)].flat())));
  const body = el("tbody");
  const title = el("caption", {}, caption);
  const head = columns.map(([label], at) => el("th", { scope: "col", class: at ? "number" : null }, label || el("span", { class: "unseen" }, more)));
  const root = el("div", { class: "scroll" }, el("table", { class: "top" }, title, el("thead", {}, el("tr", {}, ...head)), body));
  return { root, show: (items, words) => { text(title, words); children(body, make(items)); } };
}

function nodes(name) {
  let sums = { lease: 0, demand: 0 };
  const past = new Map();
  const spent = (one) => {
    const before = past.get(one.id);
    return before && one.spent >= before.spent && one.at > before.at ? ((one.spent - before.spent) * 1_000) / (one.at - before.at) : undefined;
  };
  const table = topTable("Nodes", [
    ["Node", (one) => [one.node ?? "", one.node ?? "(forgotten)"]],
    ["Lent", (one) => [one.lease, words.count(one.lease)]],
    ["of all", (one) => [one.lease, part(one.lease, sums.lease)]],
    ["Ends in", (one) => [one.lease_ms, one.lease_ms ? words.span(one.lease_ms) : "–"]],
    ["Demand/s", (one) => [one.demand, words.rate(one.demand)]],
    ["of all", (one) => [one.demand, part(one.demand, sums.demand)]],
    ["Spent/s", (one) => [one.spentPerSecond, words.rate(one.spentPerSecond)]],
    ["Waiting", (one) => [one.waiting, words.count(one.waiting)]],
    ["Weight", (one) => [one.weight, `${words.count(one.weight)}${one.priority ? `, priority ${words.count(one.priority)}` : ""}`]],
    ["", null, (one) => (mayOperate(name) && one.node !== null
      ? el("button", { type: "button", class: "small", "aria-label": `Block ${one.node}`, onclick: () => actions.block(name, one.node) }, "Block…") : el("span"))],
  ], "Actions");
  return {
    root: table.root,
    show(top, at) {
      sums = top;
      const all = top.nodes.map((node) => ({ ...node, id: `${node.node} ${node.lessee}`, at }));
      for (const one of all) one.spentPerSecond = spent(one);
      for (const one of all) past.set(one.id, one);
      for (const id of past.keys()) if (!all.some((one) => one.id === id)) past.delete(id);
      const shown = all.length < top.sessions ? `the ${all.length} of ${words.count(top.sessions)} that want most` : words.count(all.length);
      table.show(all.map((one) => [one.id, one]), `Nodes: ${shown}`);
    },
  };
}

function keys() {
  return topTable("Keys", [
    ["Pool", (one) => [one.id, one.id]],
    ["Left", (one) => [one.available, words.count(one.available)]],
    ["Lent", (one) => [one.outstanding, words.count(one.outstanding)]],
    ["Demand/s", (one) => [one.demand, words.rate(one.demand)]],
    ["Waiting", (one) => [one.waiting, words.count(one.waiting)]],
    ["Spent", (one) => [one.spent, words.count(one.spent)]],
    ["Burned", (one) => [one.burned, words.count(one.burned)]],
    ["Lessees", (one) => [one.lessees, words.count(one.lessees)]],
  ]);
}

/** Looks one key up. */
function lookUp(name) {
  const input = el("input", { name: "key", id: "look-up", type: "search", spellcheck: "false", autocomplete: "off" });
  const found = el("div", { role: "status" });
  const form = el("form", { class: "look-up", onsubmit: async (event) => {
    event.preventDefault();
    const key = input.value;
    try {
      const { body } = await ask(`${pathOf(name, "pools")}?key=${encodeURIComponent(key)}`);
      const [pool] = body.pools;
      text(found, pool
        ? `${key}: ${words.count(pool.available)} left, ${words.count(pool.outstanding)} lent to ${words.some(pool.lessees, "lessee")}, ${words.count(pool.spent)} spent, ${words.count(pool.burned)} burned.`
        : `${key} has no pool: no node uses it, and all of its limit is left.`);
    } catch (error) {
      children(found, [actions.wrong(error)]);
    }
  } }, el("label", { for: "look-up" }, "Look a key up"), input, el("button", { type: "submit" }, "Look"));
  return el("div", {}, form, found);
}

/** The tiles: a label, and what is shown. */
const TILES = [
  ["Spent/s", ({ name }) => { const at = perSecond(name, (one) => one.spent); return [at, words.rate(at)]; }],
  ["Granted/s", ({ name }) => { const at = perSecond(name, (one) => one.granted); return [at, words.rate(at)]; }],
  ["Empty in", ({ limit }) => { const ms = emptiesIn(limit); return [ms, words.soon(ms)]; }, isOne],
  ["Refused/s", ({ name }) => { const at = perSecond(name, (one) => one.refused); return [at, words.rate(at), why(name)]; }],
  ["Lent", ({ limit }) => [limit.outstanding, words.count(limit.outstanding), `to ${words.some(limit.lessees, "lessee")}`]],
  ["In flight", ({ limit }) => [limit.in_flight, words.count(limit.in_flight)], (limit) => (limit.rules ?? []).some(({ kind }) => kind === "concurrency")],
  ["Pools", ({ limit }) => [limit.pools, words.count(limit.pools)], (limit) => !isOne(limit)],
  ["Spent in all", ({ limit }) => [limit.spent, words.count(limit.spent)]],
  ["Burned in all", ({ limit }) => [limit.burned, words.count(limit.burned)]],
  ["Topped up", ({ limit }) => [limit.topped_up, words.count(limit.topped_up)], (limit) => limit.topped_up > 0],
  ["Would have refused", ({ limit }) => [limit.shadow_refused, words.count(limit.shadow_refused)], (limit) => limit.shadow || limit.shadow_refused > 0],
  ["Withheld", ({ limit }) => [limit.vendor_withheld, words.count(limit.vendor_withheld), "for the vendor"], (limit) => limit.vendor_withheld > 0],
  ["Vendor disagreed", ({ limit }) => [disagreements(limit), `${words.count(disagreements(limit))} ×`], (limit) => disagreements(limit) > 0],
];

function tiles() {
  const all = TILES.map(([label, shown, when]) => {
    const [number, note] = [figure(), el("small")];
    const root = el("div", { class: "tile" }, el("dt", {}, label), el("dd", {}, number, note));
    return { root, show(one) {
      root.hidden = when ? !when(one.limit) : false;
      if (root.hidden) return;
      const [value, words, more] = shown(one);
      show(number, value, words);
      text(note, more ?? "");
    } };
  });
  return { root: el("dl", { class: "tiles" }, ...all.map(({ root }) => root)), show: (one) => all.forEach((tile) => tile.show(one)) };
}

/** The page of the limit called `name`. */
export function limit(main, name) {
  const state = { badges: badges(), level: level(), tiles: tiles(), plots: plots(name), nodes: nodes(name), keys: keys() };
  const button = (label, act) => el("button", { type: "button", onclick: async () => {
    try {
      await act();
      children(problem, []);
    } catch (error) {
      children(problem, [actions.wrong(error)]);
    }
  } }, label);
  const problem = el("div");
  const now = () => known.limits.get(name);
  const [pause, resume] = [button("Pause…", () => actions.pause(name)), button("Resume…", () => actions.resume(name))];
  const topUp = button("Top up…", () => actions.topUp(name, now()));
  const blockNode = button("Block a node…", () => actions.block(name));
  const [alter, take] = [button("Change…", () => change(name)), button("Take away…", () => remove(name))];
  const rules = el("p", { class: "rules" });
  const [blocked, config] = [el("ul", { class: "blocked" }), el("pre", { tabindex: 0, "aria-label": "configuration" })];
  const keysPart = el("section", { hidden: true, "aria-label": "Keys" }, state.keys.root, lookUp(name));
  const looked = el("p", { class: "quiet" });
  const events = el("ol", { class: "events" });
  const drawEvents = eventList(events, (event) => event.limit === name || (event.kind === "began"));
  const gone = el("p", { class: "warn", hidden: true }, "This allocator has no such limit (any more).");
  const body = el("div", {},
    state.level.root, state.tiles.root,
    el("div", { class: "buttons" }, pause, resume, topUp, blockNode, alter, take),
    problem, state.plots.root,
    el("section", { "aria-label": "Nodes" }, state.nodes.root, looked, blocked), keysPart,
    el("section", {}, el("h2", {}, "Recent events of this limit"), events),
    el("details", {}, el("summary", {}, "Configuration"), config));
  const heading = el("h1", { tabindex: -1 }, name);
  children(main, [
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "All limits")),
    el("div", { class: "title" }, heading, state.badges.root), rules, gone, body,
  ]);

  const unblock = kept((node) => el("li", {}, el("span", {}, `${node} is blocked `), !mayOperate(name) ? null :
    el("button", { type: "button", class: "small", "aria-label": `Allow ${node} again`, onclick: () => actions.unblock(name, node) }, "Allow again…")), () => {});
  let [isOver, timer] = [false, null];
  async function top() {
    const began = performance.now();
    try {
      const { body } = await ask(pathOf(name, "top"));
      if (isOver) return;
      state.nodes.show(body, performance.now());
      children(blocked, unblock(body.blocked_nodes.map((node) => [node, node])));
      keysPart.hidden = body.keys === undefined;
      if (body.keys) {
        const pools = body.keys.map((pool) => ({ ...pool, id: [pool.limit, pool.key].filter((part) => part !== undefined).join(" · ") }));
        const shown = pools.length < body.pools ? `the ${pools.length} of ${words.count(body.pools)} that are wanted most` : words.count(pools.length);
        state.keys.show(pools.map((pool) => [pool.id, pool]), `Pools: ${shown}`);
      }
      text(looked, body.looked_at < body.pools ? `Only ${words.count(body.looked_at)} of ${words.count(body.pools)} pools were looked at.` : "");
    } catch {
      // The task that asks for all limits says that the allocator cannot be reached, and a limit that is
      // gone is gone there too.
    }
    if (!isOver) timer = setTimeout(top, Math.max(TOP_EVERY_MS, (performance.now() - began) * TOP_REST));
  }

  function update() {
    if (known.at === null) return;
    const limit = now();
    [gone.hidden, body.hidden] = [limit !== undefined, limit === undefined];
    if (!limit) return;
    state.badges.show(stands(name, limit, words.span, words.some));
    state.level.show(limit);
    state.tiles.show({ name, limit });
    state.plots.update();
    text(rules, words.rules(limit) + (limit.parent ? ` · below ${limit.parent}` : ""));
    pause.hidden = limit.paused || !mayOperate(name);
    resume.hidden = !limit.paused || !mayOperate(name);
    blockNode.hidden = !mayOperate(name);
    [alter.hidden, take.hidden] = [!mayChange(name), !mayChange(name)];
    topUp.hidden = limit.leased === true || !mayTopUp(name);
    text(config, configuration(limit));
    attr(main, "data-limit", name);
    drawEvents();
  }
  state.plots.begin();
  update();
  top();
  return {
    update,
    title: name,
    end() {
      isOver = true;
      clearTimeout(timer);
      attr(main, "data-limit", null);
      state.plots.end();
    },
  };
}
