// All limits in one table, those that need an operator first. Ten thousand of them are as quick as ten: a filter,
// and a hundred rows at a time.

import { known } from "./allocator.js";
import { attr, children, el, figure, kept, show, text } from "./dom.js";
import { emptiesIn, isOne, perSecond, refusals, stands } from "./figures.js";
import * as words from "./words.js";

/** Rows that are shown at once. */
const ROWS = 100;

/** Rows keep their places for so long after the pointer moved over one. They also keep them while the focus is in one. */
const HOLD_MS = 8_000;

const ORDERS = {
  attention: ["Needs attention", (a, b) => b.bad - a.bad],
  left: ["Least left", (a, b) => a.part - b.part],
  spent: ["Spent per second", (a, b) => (b.spent ?? 0) - (a.spent ?? 0)],
  refused: ["Refused per second", (a, b) => (b.refused ?? 0) - (a.refused ?? 0)],
  name: ["Name", () => 0],
};

/** What is chosen outlives a look at one limit. */
const chosen = { filter: "", order: "attention", rows: ROWS };

/** Everything that a row shows. */
function row(name, limit) {
  const found = stands(name, limit, words.span, words.some);
  return {
    name, limit, stands: found,
    bad: found.reduce((sum, { bad }) => Math.max(sum, bad), 0),
    part: limit.ceiling > 0 && isOne(limit) ? limit.available / limit.ceiling : 1,
    spent: perSecond(name, (sample) => sample.spent),
    refused: perSecond(name, (sample) => sample.refused),
    empties: emptiesIn(limit),
  };
}

/** Words for how a limit stands. */
export function badges() {
  const make = kept(() => el("li"), (item, stands) => {
    text(item, stands.word);
    attr(item, "title", stands.why);
    attr(item, "class", `badge bad-${stands.bad}`);
  });
  const list = el("ul", { class: "badges" });
  return {
    root: list,
    show: (found) => children(list, make((found.length ? found : [{ bad: 0, word: "ok", why: "" }]).map((one, at) => [at, one]))),
  };
}

/** How much is left, as a bar and in figures. */
export function level() {
  const fill = el("span", { class: "fill" });
  const bar = el("span", { class: "bar", role: "meter", "aria-label": "left", "aria-valuemin": 0 }, fill);
  const [left, of] = [figure(), el("span", { class: "of" })];
  left.className = "available";
  const amount = el("span", { class: "amount" }, left, of);
  return {
    root: el("span", { class: "level" }, bar, amount),
    show(limit) {
      const one = isOne(limit);
      // The bar says the same to those who have it read to them.
      attr(amount, "aria-hidden", one ? "true" : null);
      const part = Math.min(1, limit.ceiling > 0 ? limit.available / limit.ceiling : 0);
      bar.hidden = !one;
      if (one) {
        fill.style.width = `${part * 100}%`;
        attr(fill, "class", part < 0.1 ? "fill low" : "fill");
        attr(bar, "aria-valuemax", limit.ceiling);
        attr(bar, "aria-valuenow", Math.min(limit.available, limit.ceiling));
        attr(bar, "aria-valuetext", `${words.count(limit.available)} of ${words.count(limit.ceiling)}`);
      }
      show(left, limit.available, words.count(limit.available));
      left.hidden = !one && limit.pools === 0;
      const each = `${limit.pools === 1 ? "" : "each "}of ${words.count(limit.ceiling)}`;
      text(of, one ? ` of ${words.count(limit.ceiling)}` : limit.pools === 0 ? "not in use" : ` in ${words.some(limit.pools, "pool")} ${each}`);
    },
  };
}

/** Why asks were refused lately, in words. */
export function why(name) {
  const reasons = Object.keys(refusals({})).map((reason) => [reason, perSecond(name, (sample) => sample.why[reason])]);
  const some = reasons.filter(([, rate]) => rate >= 0.05).sort(([, a], [, b]) => b - a);
  if (some.length === 1) return some[0][0];
  return some.map(([reason, rate]) => `${words.rate(rate)} ${reason}`).join(" · ");
}

function makeRow(name) {
  const parts = { badges: badges(), level: level() };
  for (const part of ["spent", "empties", "refused", "lent", "lessees"]) parts[part] = figure();
  parts.rules = el("span", { class: "rules" });
  parts.why = el("span", { class: "why" });
  const link = el("a", { href: `#/limit/${encodeURIComponent(name)}` }, name);
  const number = (part, ...more) => el("td", { class: "number" }, parts[part], ...more);
  parts.root = el(
    "tr", { "data-limit": name },
    (parts.name = el("th", { scope: "row" }, link, " ", parts.rules)),
    el("td", {}, parts.badges.root),
    el("td", {}, parts.level.root),
    number("spent"), number("empties"), number("refused", parts.why), number("lent"), number("lessees"),
  );
  return parts;
}

function updateRow(parts, { name, limit, stands: found, bad, spent, refused, empties }) {
  attr(parts.root, "class", `bad-${bad}`);
  text(parts.rules, words.rules(limit));
  attr(parts.name, "title", `${name}: ${words.rules(limit)}`);
  parts.badges.show(found);
  parts.level.show(limit);
  show(parts.spent, spent, words.rate(spent));
  show(parts.empties, empties, words.soon(empties));
  show(parts.refused, refused, words.rate(refused));
  text(parts.why, why(name));
  show(parts.lent, limit.outstanding, words.count(limit.outstanding));
  show(parts.lessees, limit.lessees, words.count(limit.lessees));
}

/** The page of all limits. Returns what brings it up to date. */
export function list(main) {
  const rows = kept(makeRow, updateRow);
  const filter = el("input", {
    type: "search", id: "filter", placeholder: "part of a name", autocomplete: "off", spellcheck: "false", value: chosen.filter,
    oninput: () => {
      [chosen.filter, chosen.rows] = [filter.value, ROWS];
      draw(true);
    },
  });
  const order = el(
    "select", { id: "order", onchange: () => { chosen.order = order.value; draw(true); } },
    ...Object.entries(ORDERS).map(([value, [label]]) => el("option", { value, selected: value === chosen.order }, label)),
  );
  const summary = el("p", { class: "summary", role: "status" });
  const body = el("tbody");
  const more = el("button", { type: "button", hidden: true, onclick: () => { chosen.rows += ROWS; draw(true); } });
  const none = el("p", { class: "quiet", hidden: true });
  let held = 0;
  body.addEventListener("pointermove", () => (held = performance.now() + HOLD_MS));
  body.addEventListener("pointerleave", () => (held = 0));
  const head = ["Limit", "State", "Left", "Spent/s", "Empty in", "Refused/s", "Lent", "Lessees"];
  children(main, [
    el("h1", { class: "unseen", tabindex: -1 }, "Limits"),
    el("div", { class: "tools" }, summary,
      el("label", { for: "filter" }, "Filter"), filter, el("label", { for: "order" }, "Order"), order),
    el("div", { class: "scroll" }, el("table", { class: "limits" },
      el("caption", { class: "unseen" }, "Every limit: what is left, how fast it is spent, and what is refused"),
      el("thead", {}, el("tr", {}, ...head.map((label, at) => el("th", { scope: "col", class: at > 2 ? "number" : null }, label)))), body)),
    none, more,
  ]);
  let shown = [];
  function draw(anew) {
    if (known.at === null) return;
    const wanted = chosen.filter.trim().toLowerCase();
    const all = [...known.limits].map(([name, limit]) => row(name, limit));
    const found = all.filter(({ name }) => name.toLowerCase().includes(wanted));
    const [, by] = ORDERS[chosen.order];
    found.sort((a, b) => by(a, b) || b.bad - a.bad || (a.name < b.name ? -1 : 1));
    let page = found.slice(0, chosen.rows);
    const isHeld = !anew && (performance.now() < held || body.contains(document.activeElement));
    if (isHeld) {
      const place = new Map(shown.map((name, at) => [name, at]));
      const due = new Set(page);
      // Rows that came meanwhile stay, too. Once there are as many of them as of the others, only those that are due stay.
      const most = shown.length < 2 * chosen.rows ? Infinity : chosen.rows;
      const stay = found.filter((one) => place.get(one.name) < most || (place.has(one.name) && due.has(one)));
      stay.sort((a, b) => place.get(a.name) - place.get(b.name));
      page = [...stay, ...page.filter(({ name }) => !place.has(name))];
    }
    shown = page.map(({ name }) => name);
    children(body, rows(page.map((one) => [one.name, one])));
    const worst = all.filter(({ bad }) => bad >= 2).length;
    text(summary, `${words.some(all.length, "limit")}, ${worst === 0 ? "none needs attention" : `${words.count(worst)} need${worst === 1 ? "s" : ""} attention`}`);
    none.hidden = found.length > 0;
    text(none, all.length === 0 ? "This allocator has no limits." : `No limit matches “${chosen.filter}”.`);
    more.hidden = found.length <= page.length;
    text(more, `Show more: ${words.count(found.length - page.length)} left`);
  }
  draw(true);
  return { update: () => draw(false), focus: () => filter.focus(), title: "Limits" };
}
