// Figures and rules in words.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const RATE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** A count; of millions the first digits. */
export function count(number) {
  if (number === undefined || number === null) return "–";
  return Math.abs(number) < 10_000_000 ? WHOLE.format(number) : SHORT.format(number);
}

/** So many a second. */
export function rate(number) {
  if (number === undefined || number === null) return "–";
  if (Math.abs(number) < 0.05) return "0";
  return Math.abs(number) >= 100 ? count(number) : RATE.format(number);
}

/** A span in at most two units. */
export function span(ms) {
  const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const at = units.findIndex(([, size]) => ms >= size);
  const [unit, size] = units[at];
  const whole = Math.floor(ms / size);
  const next = units[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return rest > 0 && whole < 10 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

/** The time until something is empty. */
export function soon(ms) {
  return ms === undefined ? "–" : ms < 1_000 ? "now" : span(ms);
}

/** So many of something. */
export function some(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A rule in a few words. */
export function rule(rule) {
  const n = (field) => count(rule[field]);
  switch (rule.kind) {
    case "sliding_window":
      return `${n("limit")} in any ${rule.per}`;
    case "sliding_log":
      return `${n("limit")} in any ${rule.per}, exact`;
    case "fixed_window":
      return rule.calendar
        ? `${n("limit")} a ${rule.calendar}`
        : `${n("limit")} each ${rule.per}${rule.anchor === "first_use" ? " from first use" : ""}`;
    case "token_bucket":
      return `${n("refill")} per ${rule.per}, bucket of ${n("capacity")}${rule.debt > 0 ? `, debt ${n("debt")}` : ""}`;
    case "leaky_bucket":
      return `${n("refill")} per ${rule.per}, evenly${rule.burst > 1 ? `, bursts of ${n("burst")}` : ""}`;
    case "concurrency":
      return `${n("limit")} in flight`;
    default:
      return String(rule.kind);
  }
}

/** All rules of a limit. */
export function rules(limit) {
  if (limit.upstream) return `leased from ${limit.upstream}`;
  return (limit.rules ?? []).map(rule).join(" · ");
}

/** What an event says. */
export function event(event) {
  const what = {
    changed: { new: "new", gone: "gone" }[event.became] ?? "changed",
    topped_up: "topped up",
    paused: "paused",
    // Of a node it is the end of a block.
    resumed: event.node ? "unblocked" : "resumed",
    blocked: "blocked",
    lagged: "some events were missed",
    burned: `${some(event.permits, "permit")} burned: leases ended without a report`,
    disagreed: "the vendor disagrees",
    quarantine: "in quarantine",
    began: "the allocator was started again",
    away: "the allocator could not be reached",
    back: "the allocator answers again",
  }[event.kind] ?? String(event.kind);
  return event.node ? `${what}: node ${event.node}` : what;
}
