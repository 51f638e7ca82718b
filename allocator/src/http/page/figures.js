// What follows from figures over time: rates, and how much a limit needs an operator to look.

/** Samples that are kept of a limit: ten minutes, and less where there are very many limits. */
const SAMPLES = 600;
const SAMPLES_OF_MANY = 60;
const MANY = 1_000;

/** Rates are taken over so long: nodes report up to a second apart. */
const OVER_MS = 5_000;

/** So long a change of a count is news. */
const NEWS_MS = 60_000;

/** A limit with less than this part left is low. */
const LOW = 0.1;

/** What never falls while a limit stays. What burned falls, as a late report says what became of it. */
const TOTALS = ["granted", "spent", "returned", "refused", "shadow", "disagreed"];
const histories = new Map();
let life = null;

/** Asks that were refused, by reason. */
export function refusals(limit) {
  const { empty = 0, quarantine = 0, paused = 0, blocked = 0, stopping = 0 } = limit.asks ?? {};
  return { empty, quarantine, paused, blocked, stopping };
}

/** How often the vendor counted otherwise, in a way that matters. */
export function disagreements(limit) {
  const { refused = 0, had_less = 0, lower_limit = 0 } = limit.vendor_disagreed ?? {};
  return refused + had_less + lower_limit;
}

function sample(limit, at) {
  const refused = Object.values(refusals(limit)).reduce((sum, count) => sum + count, 0);
  const { available, outstanding, granted, spent, returned, burned } = limit;
  return {
    at, available, outstanding, granted, spent, returned, burned, refused,
    why: refusals(limit), shadow: limit.shadow_refused, disagreed: disagreements(limit),
  };
}

/** Takes down what `limits` show at `at`. Returns what burned since the last time, as events. */
export function note(limits, epoch, at) {
  if (life !== epoch) histories.clear();
  life = epoch;
  const events = [];
  const most = limits.size > MANY ? SAMPLES_OF_MANY : SAMPLES;
  for (const [name, limit] of limits) {
    const history = histories.get(name) ?? [];
    const now = sample(limit, at);
    const last = history.at(-1);
    // A limit that was taken away and put again counts from zero.
    if (last && TOTALS.some((total) => now[total] < last[total])) history.length = 0;
    else if (last) {
      if (now.burned > last.burned) events.push({ kind: "burned", limit: name, permits: now.burned - last.burned });
      if (now.disagreed > last.disagreed) events.push({ kind: "disagreed", limit: name });
    }
    history.push(now);
    if (history.length > most) history.splice(0, history.length - most);
    histories.set(name, history);
  }
  for (const name of histories.keys()) if (!limits.has(name)) histories.delete(name);
  return events;
}

/** All that is remembered of a limit, oldest first. */
export function history(name) {
  return histories.get(name) ?? [];
}

function since(history, ms) {
  const from = history.at(-1)?.at - ms;
  // From the newest on: a few of hundreds are looked at.
  let at = history.length - 1;
  while (at > 0 && history[at - 1].at >= from) at -= 1;
  return history[at];
}

/** What `pick` grew by a second; `undefined` before there are two samples. */
export function perSecond(name, pick, over = OVER_MS) {
  const all = history(name);
  const [first, last] = [since(all, over), all.at(-1)];
  if (!last || first === last) return undefined;
  return ((pick(last) - pick(first)) * 1_000) / (last.at - first.at);
}

/** In how many ms the first permit is wanted that is not there, as the allocator foresees it; 0 if it is by now. */
export function emptiesIn(limit) {
  // Of many pools one is empty nearly always.
  return isOne(limit) ? limit.time_to_empty_ms : undefined;
}

/** Whether a limit has one pool, so that what is left has a ceiling. */
export function isOne(limit) {
  return !limit.keyed && limit.names === undefined;
}

/** What is to be said of a limit: a word, how bad it is (3 worst, 0 fine), and why. The worst first. */
export function stands(name, limit, span, some) {
  const found = [];
  const add = (bad, word, why) => found.push({ bad, word, why });
  const recent = (pick) => (perSecond(name, pick, NEWS_MS) ?? 0) > 0;
  if (limit.quarantine_ms > 0) {
    add(3, `quarantine, ${span(limit.quarantine_ms)} left`, "permits that an earlier process lent may still count");
  }
  if (limit.paused) add(3, limit.paused_ms ? `paused, ${span(limit.paused_ms)} left` : "paused", "nothing is lent");
  if (limit.upstream_silent) add(3, "upstream silent", "the allocator that it is leased from does not answer");
  const { vendor_paused_pools: paused, vendor_paused_ms: lasts, pools } = limit;
  if (paused > 0 && isOne(limit)) {
    add(3, lasts ? `vendor paused, ${span(lasts)} left` : "vendor paused", "the vendor asked for a pause");
  } else if (paused > 0) {
    // Of many keys, some are paused at any moment.
    add(paused * 2 > pools ? 3 : 2, `vendor paused ${paused} of ${some(pools, "pool")}`, "the vendor asked for a pause");
  }
  const refusing = perSecond(name, (sample) => sample.refused - sample.why.paused - sample.why.quarantine) > 0.05;
  const empty = limit.available === 0 && !limit.paused && limit.quarantine_ms === 0 && (limit.lessees > 0 || isOne(limit));
  if (empty && refusing) add(3, "empty, refusing", "nothing is left to lend, and asks are refused");
  else if (empty && isOne(limit) && !limit.leased) add(2, "empty", "nothing is left to lend");
  else if (refusing) add(2, "refusing", "asks are refused");
  if (limit.shadow && recent((sample) => sample.shadow)) add(2, "would refuse", "calls pass that the limit would refuse");
  if (recent((sample) => sample.disagreed)) add(2, "vendor disagrees", "the vendor refused calls, or announced less than the allocator counts");
  if (limit.vendor_withheld > 0) add(2, `${some(limit.vendor_withheld, "permit")} withheld`, "the vendor announced less than the allocator counts");
  if (limit.blocked_nodes > 0) add(1, `${some(limit.blocked_nodes, "node")} blocked`, "blocked nodes are lent nothing");
  // Of what is leased there is as much in hand as nodes want.
  const part = limit.ceiling > 0 && isOne(limit) && !limit.leased ? limit.available / limit.ceiling : 1;
  if (!empty && part < LOW) add(1, "low", "less than a tenth is left");
  if (limit.shadow) add(1, "shadow mode", "nothing is refused; calls that would be are counted");
  return found.sort((a, b) => b.bad - a.bad);
}
