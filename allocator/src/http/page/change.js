// Changing a limit, or taking it away. First its configuration as JSON is shown, then what that would do to its
// pools. Only then is the change made, if no other operator has changed the limit meanwhile.

import { ask, pathOf } from "./allocator.js";
import { field, open } from "./actions.js";
import { el } from "./dom.js";
import * as words from "./words.js";

/** What of a limit is how it stands, and not how it is configured. */
const FIGURES = [
  "ceiling", "pools", "leased", "upstream_silent", "names", "quarantine_ms", "paused", "paused_ms", "blocked_nodes", "topped_up", "available",
  "outstanding", "in_flight", "lessees", "asks", "granted", "spent", "returned", "burned", "shadow_refused", "vendor_withheld",
  "vendor_paused_pools", "vendor_paused_ms", "vendor_disagreed", "states", "time_to_empty_ms",
];

const CARRIES = {
  as_is: "keep: what is charged stays charged",
  proportional: "change in proportion to the limit",
  additive: "change by as much as the limit",
  reset: "start anew, except for permits that are out",
};

/** How a limit is configured, as JSON that can be put again. */
export function configuration(limit) {
  const own = Object.entries(limit).filter(([name, value]) => !FIGURES.includes(name) && value !== null);
  // One rule a line: a list of them is what people change.
  return JSON.stringify(Object.fromEntries(own), null, 2).replace(/\{[^{}]*\}/g, (inner) => inner.replace(/\s*\n\s*/g, " "));
}

function effects(preview) {
  if (preview.is_new) return el("p", {}, "This limit no longer exists: the change would create it.");
  const notes = [];
  if (preview.begins_anew_ms) {
    notes.push(el("p", { class: "warn" }, `The limit starts anew: it lends nothing for ${words.span(preview.begins_anew_ms)}.`));
  }
  const waits = Math.max(0, ...preview.pools.map((pool) => pool.quarantine_ms));
  if (!preview.begins_anew_ms && waits) {
    notes.push(el("p", { class: "warn" }, `The limit lends nothing for up to ${words.span(waits)}.`));
  }
  if (preview.confirm) notes.push(el("p", { class: "warn" }, `Needs confirmation: ${preview.confirm}.`));
  const head = ["Pool", "Left before", "Left after", "Over its limit", "Lent"];
  const rows = preview.pools.map((pool) => el("tr", {},
    el("th", { scope: "row" }, pool.key ?? pool.limit ?? "the only one"),
    ...[pool.available_before, pool.available_after, pool.over, pool.outstanding].map((number) => el("td", { class: "number" }, words.count(number)))));
  return el("div", {}, ...notes, el("div", { class: "scroll" }, el("table", {},
    el("caption", {}, rows.length < 10 ? "Effect of the change" : "Effect on the first pools"),
    el("thead", {}, el("tr", {}, ...head.map((label, at) => el("th", { scope: "col", class: at ? "number" : null }, label)))),
    el("tbody", {}, ...rows))));
}

export async function change(name) {
  const { body: limit, etag } = await ask(pathOf(name));
  const area = el("textarea", { name: "config", rows: 16, cols: 78, spellcheck: "false" });
  area.value = configuration(limit);
  const carry = el("select", { name: "carry" }, ...Object.entries(CARRIES).map(([value, label]) => el("option", { value }, label)));
  const put = (values, query, decision = {}) => {
    let body;
    try {
      body = JSON.parse(values.config);
    } catch (error) {
      throw new Error(`This is not valid JSON: ${error.message}`);
    }
    const path = `${pathOf(name)}?carry=${values.carry}${query}`;
    return ask(path, { method: "PUT", body, headers: { "if-match": etag }, decision });
  };
  open({
    title: `Change ${name}`,
    name,
    fields: [
      field("Configuration", area, "As in the file. It holds until a newer file replaces it; without a store, until a restart at the latest."),
      field("Balances", carry, "What happens to permits that are charged now."),
    ],
    sentence: () => `${name} uses this configuration from now on. Leases that are out stay valid until they end.`,
    preview: async (values) => effects((await put(values, "&dry_run=true&count=10")).body),
    verb: "Change it",
    send: async (values, decision) => {
      await put(values, "", decision);
      return `${name} was changed`;
    },
  });
}

export async function remove(name) {
  const { etag } = await ask(pathOf(name));
  open({
    title: `Take ${name} away`,
    name,
    isGrave: true,
    sentence: () => `Nothing of ${name} is lent any more, and nodes that ask for it are refused. Leases that are out end by themselves.`,
    verb: "Take it away",
    send: async (_, decision) => {
      await ask(pathOf(name), { method: "DELETE", headers: { "if-match": etag }, decision });
      return `${name} was taken away`;
    },
    done: () => (location.hash = "#/"),
  });
}
