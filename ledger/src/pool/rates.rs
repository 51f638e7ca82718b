//! Lending a steady flow: which session mints how much of it, and which sessions take turns. A pool calls it at every
//! ask. All rates that sessions may mint by never add up to more than the flow, see [`crate::rule::Flow`].
//!
//! While the burst covers the largest calls of all sessions together, each session has room for its own, a part of the
//! room that is left, and a share of the rate by weighted max-min, identities first. Otherwise sessions take turns, see [`row`], and hand over what is left
//! in the bucket. An ask reads sums and orders over all sessions, see [`sharers`], and walks none of them.

mod demands;
mod identities;
mod row;
mod sharers;
mod tally;
mod waiting;

pub(super) use sharers::Sharers;

use super::Pool;
use super::claims::{POLL_MIN, poll};
use super::family::Place;
use super::rare::Usual;
use super::session::Session;
use crate::rule::Part;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::lasts;
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, RateClaim, RateLease};
use row::{Asks, Row};
use sharers::{demand_of, weight_of};
use std::time::Duration;

/// Terms that a round of turns takes. More of them mean longer waits, fewer mean more time lost in hand-overs.
const TERMS_PER_ROUND: u32 = 2;

/// Shortest turn, in intervals or round trips, whichever is longer: a hand-over loses about one of each.
const TURN_MIN: u32 = 4;

/// Calls that a turn should let through at least, if the flow is fast enough.
const TURN_CALLS: u32 = 2;

/// Part of the wait for the next turn, in percent, after which the first session in the row asks again. Its asks come
/// at ever shorter intervals, so that one is there when the turn begins.
const ASK_AGAIN_PERCENT: u32 = 75;

/// Smallest share that is worth a lease, as a divisor of the share due: a smaller one would keep the rest waiting.
const WORTH_PART: u64 = 8;

/// A rate that a session may mint by, and the part of the flow that is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChargedRate {
    lease: RateLease,
    part: Part,
}

/// The rates that a session may mint by: the one that it says it holds, and the one that it was told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lent {
    held: Option<ChargedRate>,
    offered: Option<ChargedRate>,
}

impl Lent {
    /// Returns the part charged: the larger of both rates, in room and in share.
    pub(super) fn charged(&self) -> Part {
        let part = |rate: Option<ChargedRate>| rate.map_or(Part::default(), |rate| rate.part);
        part(self.held).max(part(self.offered))
    }

    /// Returns the newest rate that `fits`.
    fn matching(&self, fits: impl Fn(&RateLease) -> bool) -> Option<ChargedRate> {
        [self.offered, self.held].into_iter().flatten().find(|rate| fits(&rate.lease))
    }
}

/// A session's part in a steady flow: the rates lent to it, and its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) lent: Lent,
    /// The session's largest call, in permits.
    largest: u64,
    /// When the session began to wait for its turn, if it waits.
    waits_since: Option<Moment>,
    /// Deadline of the session's next ask: if it misses that, it loses its place in the row.
    expected: Moment,
    /// Length of its last turn; `None` if it did not take turns with others.
    lasts: Option<Duration>,
    /// When it was lent a part of the flow after it had none, and when it hands that part over, or did.
    began: Moment,
    hands_over: Moment,
}

impl Usual for Turn {
    const USUAL: &'static Self = &Turn {
        lent: Lent { held: None, offered: None },
        largest: 0,
        waits_since: None,
        expected: Moment::ORIGIN,
        lasts: None,
        began: Moment::ORIGIN,
        hands_over: Moment::ORIGIN,
    };
}

impl Turn {
    /// Returns when the pool knows that the session has handed its part over: one `rtt` after it did. `None` if it has
    /// no part.
    pub(super) fn hand_over(&self, rtt: Duration) -> Option<Moment> {
        (self.lent.charged().cap > 0).then(|| self.hands_over + rtt)
    }

    /// Makes the turn of a session that has `part` of the flow until `hands_over` and will never report.
    pub(super) fn silent(part: Part, hands_over: Moment) -> Self {
        let lease = RateLease { number: 0, cap: part.cap, interval: Duration::ZERO };
        let lent = Lent { held: Some(ChargedRate { lease, part }), offered: None };
        Turn { lent, hands_over, ..Turn::default() }
    }
}

/// The part of the flow that a session may have now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    part: Part,
    /// For how long the session may have the part, if it takes turns with others.
    turn: Option<Duration>,
}

impl Pool {
    /// Settles what a session says of its rate: a rate that it no longer holds comes back.
    pub(super) fn settle_rate(&mut self, place: Place, claim: RateClaim) {
        let Some(flow) = &mut self.flow else { return };
        let Some(session) = self.sessions.get(place) else { return };
        let lent = session.turn.lent;
        let before = lent.charged();
        let after = match claim {
            RateClaim::Holds(lease) => lent.matching(|rate| *rate == lease),
            RateClaim::LetGo { .. } | RateClaim::None => None,
        };
        match (claim, after) {
            (_, Some(rate)) => {
                flow.recharge(before, rate.part);
            }
            (RateClaim::LetGo { number, credit }, None) => {
                // The credit is a time. It counts at the slowest rate that the session may have minted by: at a faster
                // one it would be worth more.
                let named = [lent.held, lent.offered].into_iter().flatten();
                let slowest =
                    named.filter(|rate| rate.lease.number == number).map(|rate| rate.lease.interval);
                match slowest.max() {
                    Some(interval) => flow.give_back(before, credit, interval),
                    None => flow.lose(before),
                }
            }
            (RateClaim::None | RateClaim::Holds(_), None) => flow.lose(before),
        }
        let now = self.now;
        self.sessions.update(place, |Session { turn, .. }| {
            if before.cap > 0 && after.is_none() {
                turn.hands_over = turn.hands_over.min(now);
            }
            turn.lent = Lent { held: after, offered: None };
        });
    }

    /// Takes back the rates of `place`, whose lease ended at `end`.
    pub(super) fn end_rate(&mut self, place: Place, end: Moment) {
        let (Some(flow), Some(session)) = (&mut self.flow, self.sessions.get(place)) else { return };
        flow.advance(end);
        flow.lose(session.turn.lent.charged());
        self.sessions
            .update(place, |Session { turn, .. }| (turn.lent, turn.hands_over) = (Lent::default(), end));
    }

    /// Lends a rate to `place`. Returns the rate and the length of its lease, which is at most `term`.
    pub(super) fn lend_rate(&mut self, place: Place, ask: &Ask, term: Duration) -> (Rate, Duration) {
        let Some(flow) = self.flow.as_deref() else { return (Rate::Free, term) };
        self.sessions.share_flow(flow.speed(), self.now);
        let own = self.sessions[place].turn.lent;
        let wants = ask.want > 0 || ask.waiting > 0 || own.held.is_some();
        let (now, call_max) = (self.now, self.call_max());
        self.sessions.update(place, |Session { turn, .. }| {
            turn.largest = ask.largest.clamp(1, call_max.max(1));
            turn.waits_since =
                if wants && own.held.is_none() { turn.waits_since.or(Some(now)) } else { None };
        });
        if !wants || call_max == 0 {
            return (Rate::Nothing, term);
        }
        let due = if term.is_zero() { None } else { self.due(place, ask, term) };
        let overstays_turn =
            own.held.is_some() && due.is_some_and(|due| due.turn.is_some()) && self.overstays_turn(place);
        if term.is_zero() || overstays_turn {
            // No lease fits before the window ends, or the turn is over: a rate that is held goes on until its end.
            let rate =
                own.held.map(|rate| Rate::Lent { lease: rate.lease, credit: Duration::ZERO, turn: false });
            return (rate.unwrap_or(Rate::Nothing), Duration::ZERO);
        }
        let Some(due) = due else { return (Rate::Nothing, term) };
        let rate = self.tell(place, due, term, ask.waiting > 0);
        let Session { turn, .. } = &self.sessions[place];
        // The lease ends half a turn after the hand-over: a session that falls silent keeps others waiting little
        // longer.
        let ends = |lasts| turn.hands_over.since(self.now) + lasts / 2;
        let ends = turn.lasts.map(|lasts| whole_millis(ends(lasts)).max(self.plan.sharing.term_min));
        (rate, ends.map_or(term, |ends| ends.min(term)))
    }

    /// Whether `place` holds its part for more than a round trip after it was told to hand it over.
    fn overstays_turn(&self, place: Place) -> bool {
        // A turn lasts for `TURN_MIN` round trips, as its session told when it began. The round trip told now may be
        // made up.
        let Session { turn, .. } = &self.sessions[place];
        turn.lasts.is_some_and(|lasts| self.now > turn.hands_over + lasts / TURN_MIN)
    }

    /// Adds to `grant` the times that follow from its rate: how long the turn lasts, or when the next one may come.
    pub(super) fn in_turn(&mut self, place: Place, ask: &Ask, grant: Grant) -> Grant {
        match grant.rate {
            Rate::Nothing if ask.want > 0 => {
                let (ask_after, retry_after) = self.next_turn(place, ask, grant.term);
                Grant { ask_after, retry_after, ..grant }
            }
            Rate::Lent { turn: true, .. } => {
                let lasts = self.sessions[place].turn.hands_over.since(self.now);
                Grant { horizon: lasts.min(grant.term), ..grant }
            }
            Rate::Free | Rate::Nothing | Rate::Lent { .. } => grant,
        }
    }

    /// Charges the part `due` to `place`, and returns the rate to tell it.
    fn tell(&mut self, place: Place, due: Due, term: Duration, is_waiting: bool) -> Rate {
        // The instant is the number: no other lease of the session has it, even if the pool forgot the session
        // meanwhile.
        let (now, instant) = (self.now, self.now.as_nanos() & PERMITS_MAX);
        let reserve = self.reserve();
        let flow = self.flow.as_mut().expect("the caller looked");
        let Some(interval) = flow.interval(due.part.share) else { return Rate::Nothing };
        let lent = self.sessions[place].turn.lent;
        let held = lent.held;
        let number = held.map_or(instant, |rate| rate.lease.number);
        let lease = RateLease { number, cap: due.part.cap, interval };
        let offers = Lent { offered: Some(ChargedRate { lease, part: due.part }), ..lent };
        // A session with waiting callers has an empty bucket. Permits left here would lie idle, or be lost with the
        // room for them.
        let taken = if held.is_none() || is_waiting { flow.take(due.part.cap, reserve) } else { 0 };
        let credit = flow.credit(taken, interval);
        flow.recharge(lent.charged(), offers.charged());
        let ends = now + due.turn.unwrap_or(term);
        self.sessions.update(place, |Session { turn, .. }| {
            // A renewal does not move the end of a turn.
            let goes_on = held.is_some() && due.turn.is_some() && turn.lasts.is_some();
            if !goes_on {
                (turn.lasts, turn.hands_over) = (due.turn, ends);
            }
            if held.is_none() {
                turn.began = now;
            }
            (turn.lent, turn.waits_since) = (offers, None);
        });
        Rate::Lent { lease, credit, turn: due.turn.is_some() }
    }

    /// Returns the part that `place` may have now, if any.
    fn due(&self, place: Place, ask: &Ask, term: Duration) -> Option<Due> {
        let flow = self.flow.as_ref()?;
        let me = &self.sessions[place];
        let own = me.turn.lent.charged();
        let mut free = flow.free(own);
        free.cap = free.cap.saturating_sub(self.reserve()).min(self.plan.sharing.lease_max);
        if own.cap > 0 && ask.waiting == 0 {
            // Without waiting callers its bucket grows only into empty room. The reserve is a part of the level.
            let level = flow.level_up().saturating_sub(self.reserve());
            free.cap = free.cap.saturating_sub(level).max(own.cap);
        }
        let row = self.row(place, ask)?;
        if let Some(room) = row.room {
            free.cap = free.cap.min(room.cap.max(own.cap));
            free.share = free.share.min(room.share.max(own.share));
        }
        let need = me.turn.largest;
        if let Some(cap) = row.cap() {
            let share = row.share().max(flow.speed().least_share(need));
            let part = Part { cap: cap.min(free.cap), share: share.min(free.share) };
            let part = flow.fitting(part);
            let is_worth = part.cap >= need && part.share.saturating_mul(WORTH_PART) >= share;
            return (own.cap > 0 || is_worth).then_some(Due { part, turn: None }).filter(is_something);
        }
        let longest = term * 3 / 4;
        // Only as many sessions at a time as can let a few calls through each: fractions of a permit in many buckets
        // serve no caller.
        let flows = nanos(longest) / nanos(TURN_CALLS * flow.interval(row.whole.share)?).max(1);
        let at_once = (row.whole.cap / need).min(flows).max(1);
        let of_each = row.whole.share / at_once;
        let share = of_each.min(free.share);
        if own.cap == 0 {
            let wanted = row.ahead().largest + u128::from(need);
            if wanted > free.cap.into() || share.saturating_mul(WORTH_PART) < of_each {
                return None;
            }
        }
        let all = u32::try_from(row.count()).unwrap_or(u32::MAX);
        let (weight, weights) = (me.share.weight, row.weights());
        let heavier = |span: Duration| {
            span * u32::try_from(weight).unwrap_or(1) / u32::try_from(weights).unwrap_or(all)
        };
        let least = flow.interval(share).unwrap_or_default().max(me.rtt).saturating_mul(TURN_MIN);
        let least = least.max(TURN_CALLS * calls_apart(ask));
        let turn = heavier(TERMS_PER_ROUND * term).clamp(least.min(longest), longest);
        let cap = need.max(row.whole.cap / at_once).min(free.cap);
        Some(Due { part: flow.fitting(Part { cap, share }), turn: Some(turn) }).filter(is_something)
    }

    /// Returns the row of sessions that share the flow with `place`, which demands what `ask` says; `None` without a flow.
    fn row(&self, place: Place, ask: &Ask) -> Option<Row<'_>> {
        let flow = self.flow.as_deref()?;
        // The reserve is room that no session has.
        let burst = flow.burst().saturating_sub(self.reserve());
        let me = &self.sessions[place];
        let asks = Asks {
            owner: me.share.owner,
            weight: weight_of(me),
            demand: demand_of(flow.speed(), me, ask.demand_milli, ask.waiting),
            largest: me.turn.largest,
            waits_since: me.turn.waits_since,
        };
        Some(Row::new(self.now, burst, asks, self.sessions.sharers()))
    }

    /// Returns when a session that waits for its turn should ask again, and when its turn may come.
    fn next_turn(&mut self, place: Place, ask: &Ask, term: Duration) -> (Duration, Option<Duration>) {
        let me = &self.sessions[place];
        let (soonest, holders) = self.sessions.hand_overs();
        let soonest = soonest.unwrap_or(self.now);
        let row = self.row(place, ask);
        let (ahead, is_of_several) =
            row.map_or((0, false), |row| (row.ahead().count, row.has_several_owners()));
        let rounds = u32::try_from(ahead / holders.max(1) as u64).unwrap_or(u32::MAX);
        let wait = soonest.since(self.now).max(POLL_MIN);
        let ask_after = match rounds {
            0 => wait * ASK_AGAIN_PERCENT / 100,
            _ => wait,
        };
        // A session of another identity may hand over soon after it began, time and again.
        let ask_after = if is_of_several { ask_after.min(poll(term)) } else { ask_after };
        let ask_after = ask_after.clamp(POLL_MIN, term.max(POLL_MIN));
        let expected = self.now + ask_after * 3 / 2 + me.rtt * 2 + POLL_MIN;
        self.sessions.update(place, |session| session.turn.expected = expected);
        (ask_after, Some(wait.saturating_add(wait.saturating_mul(rounds))))
    }
}

/// Returns the time between two calls of a session whose callers only try. With waiting callers there is always a call.
/// A turn shorter than this would be over before the next call.
fn calls_apart(ask: &Ask) -> Duration {
    if ask.waiting > 0 || ask.demand_milli == 0 {
        return Duration::ZERO;
    }
    lasts(1, ask.demand_milli)
}

/// Returns the permits that `rate` lets through in twice the lease `term`, so that no renewal comes for want of them.
pub(super) fn callable(rate: &Rate, term: Duration) -> u64 {
    match rate {
        Rate::Free => u64::MAX,
        Rate::Nothing => 0,
        Rate::Lent { lease, .. } => {
            let minted = nanos(2 * term) / nanos(lease.interval).max(1);
            minted.saturating_add(1).saturating_add(lease.cap)
        }
    }
}

fn is_something(due: &Due) -> bool {
    due.part.cap > 0 && due.part.share > 0
}

#[cfg(test)]
mod tests;
