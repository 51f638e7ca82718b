//! Lending a steady flow: who mints how much of it, and who takes turns with whom. Pools call it at every ask; it sees
//! to it that what all may go by is never more than the flow, see [`crate::rule::Flow`].
//!
//! While the burst is enough for everybody's largest call, everybody has a part of it, and a share of the rate by weighted
//! max-min, identities first. Otherwise they take turns, see [`row`], and hand over what is left in the bucket. An ask looks at
//! what is kept of all of them, see [`sharers`], and not at each.

mod demands;
mod identities;
mod row;
mod sharers;
mod tally;
mod waiting;

pub(super) use sharers::Sharers;

use super::Pool;
use super::claims::poll;
use super::family::Place;
use super::rare::Usual;
use super::session::Session;
use crate::rule::Part;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::nanos;
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, RateClaim, RateLease};
use row::{Asks, Row};
use sharers::{demand_of, weight_of};
use std::time::Duration;

/// A round of turns takes so many terms: more of them mean longer waits, fewer more time lost in handing over.
const TERMS_PER_ROUND: u32 = 2;

/// A turn lasts for so many intervals and round trips at least, for about one of each is lost in handing over.
const TURN_MIN: u32 = 4;

/// So many calls at least are to be let through in a turn, if the flow is fast enough for that.
const TURN_CALLS: u32 = 2;

/// The first in the row asks again when this part of the time until the next turn is over, in percent: each time sooner, so
/// that it is there when the turn begins.
const ASK_AGAIN_PERCENT: u32 = 75;

/// Shortest time between two asks of a session that waits for its turn.
const POLL_MIN: Duration = Duration::from_millis(10);

/// A share smaller than this part of what is due is not worth a lease: it would keep the rest waiting.
const WORTH_PART: u64 = 8;

/// A rate that a session may go by, and what is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChargedRate {
    lease: RateLease,
    part: Part,
}

/// What a session may go by: what it said that it does, and what it was told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lent {
    held: Option<ChargedRate>,
    offered: Option<ChargedRate>,
}

impl Lent {
    /// What is charged: the larger of all that it may go by.
    pub(super) fn charged(&self) -> Part {
        let part = |rate: Option<ChargedRate>| rate.map_or(Part::default(), |rate| rate.part);
        part(self.held).max(part(self.offered))
    }

    /// Those that `fits`, newest first.
    fn matching(&self, fits: impl Fn(&RateLease) -> bool) -> Option<ChargedRate> {
        [self.offered, self.held].into_iter().flatten().find(|rate| fits(&rate.lease))
    }
}

/// What a pool remembers of a session that wants a part of the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) lent: Lent,
    /// Its largest call.
    largest: u64,
    /// Since when it has waited for its turn.
    waits_since: Option<Moment>,
    /// Until then it is expected to ask again; who does not loses its place.
    expected: Moment,
    /// For how long it may go by what it was lent last, if others wait for it.
    lasts: Option<Duration>,
    /// When it was lent a part of the flow that it had none of, and when it hands that over, or did.
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
    /// When a session which goes by this has handed its part over and that is known here, if it has any: it is an `rtt` away.
    pub(super) fn hand_over(&self, rtt: Duration) -> Option<Moment> {
        (self.lent.charged().cap > 0).then(|| self.hands_over + rtt)
    }

    /// The turn of a session that has `part` of the flow until it `hands_over`, and will never report.
    pub(super) fn silent(part: Part, hands_over: Moment) -> Self {
        let lease = RateLease { number: 0, cap: part.cap, interval: Duration::ZERO };
        let lent = Lent { held: Some(ChargedRate { lease, part }), offered: None };
        Turn { lent, hands_over, ..Turn::default() }
    }
}

/// What a session may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    part: Part,
    /// Others wait: for how long it may have it.
    turn: Option<Duration>,
}

impl Pool {
    /// Believes what a session says of its rate: what it does not go by any more comes back.
    pub(super) fn settle_rate(&mut self, id: Place, claim: RateClaim) {
        let (Some(flow), Some(session)) = (&mut self.flow, self.sessions.get(id)) else { return };
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
                // Told in its own time: at the slowest rate that it may have gone by, or it would be worth more.
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
        self.sessions.update(id, |Session { turn, .. }| {
            if before.cap > 0 && after.is_none() {
                turn.hands_over = turn.hands_over.min(now);
            }
            turn.lent = Lent { held: after, offered: None };
        });
    }

    /// The lease of `id` ended at `end`, and with it the rate that it held.
    pub(super) fn end_rate(&mut self, id: Place, end: Moment) {
        let (Some(flow), Some(session)) = (&mut self.flow, self.sessions.get(id)) else { return };
        flow.advance(end);
        flow.lose(session.turn.lent.charged());
        self.sessions
            .update(id, |Session { turn, .. }| (turn.lent, turn.hands_over) = (Lent::default(), end));
    }

    /// What `id` may mint from now on, and how long the lease lasts in which it does: no longer than `term`.
    pub(super) fn lend_rate(&mut self, id: Place, ask: &Ask, term: Duration) -> (Rate, Duration) {
        let Some(flow) = self.flow.as_deref() else { return (Rate::Free, term) };
        self.sessions.share_flow(flow.speed(), self.now);
        let own = self.sessions[id].turn.lent;
        let wants = ask.want > 0 || ask.waiting > 0 || own.held.is_some();
        let (now, call_max) = (self.now, self.call_max());
        self.sessions.update(id, |Session { turn, .. }| {
            turn.largest = ask.largest.clamp(1, call_max.max(1));
            turn.waits_since =
                if wants && own.held.is_none() { turn.waits_since.or(Some(now)) } else { None };
        });
        if !wants || call_max == 0 {
            return (Rate::Nothing, term);
        }
        let due = if term.is_zero() { None } else { self.due(id, ask, term) };
        let outstays = own.held.is_some() && due.is_some_and(|due| due.turn.is_some()) && self.outstays(id);
        if term.is_zero() || outstays {
            // No lease fits before the window ends, or its turn is over: what is held goes on until its end.
            let rate =
                own.held.map(|rate| Rate::Lent { lease: rate.lease, credit: Duration::ZERO, turn: false });
            return (rate.unwrap_or(Rate::Nothing), Duration::ZERO);
        }
        let Some(due) = due else { return (Rate::Nothing, term) };
        let rate = self.tell(id, due, term, ask.waiting > 0);
        let Session { turn, .. } = &self.sessions[id];
        // A session that falls silent in its turn keeps others waiting for little longer than that.
        let ends = |lasts| turn.hands_over.since(self.now) + lasts / 2;
        let ends = turn.lasts.map(|lasts| whole_millis(ends(lasts)).max(self.plan.sharing.term_min));
        (rate, ends.map_or(term, |ends| ends.min(term)))
    }

    /// Whether `id` goes on with what it was told to hand over by now.
    fn outstays(&self, id: Place) -> bool {
        // A turn lasts for some round trips, as its session said when it began. What it says now may be anything.
        let Session { turn, .. } = &self.sessions[id];
        turn.lasts.is_some_and(|lasts| self.now > turn.hands_over + lasts / TURN_MIN)
    }

    /// `grant`, with what its rate says of waiting: how long a turn is, or when the next one may be.
    pub(super) fn in_turn(&mut self, id: Place, ask: &Ask, grant: Grant) -> Grant {
        match grant.rate {
            Rate::Nothing if ask.want > 0 => {
                let (ask_after, retry_after) = self.next_turn(id, ask, grant.term);
                Grant { ask_after, retry_after, ..grant }
            }
            Rate::Lent { turn: true, .. } => {
                let lasts = self.sessions[id].turn.hands_over.since(self.now);
                Grant { horizon: lasts.min(grant.term), ..grant }
            }
            Rate::Free | Rate::Nothing | Rate::Lent { .. } => grant,
        }
    }

    /// Charges what is due to `id`, and says it.
    fn tell(&mut self, id: Place, due: Due, term: Duration, is_waiting: bool) -> Rate {
        // By the instant: whatever is forgotten meanwhile, no other lease of its session has the same.
        let (now, instant) = (self.now, self.now.as_nanos() & PERMITS_MAX);
        let flow = self.flow.as_mut().expect("the caller looked");
        let Some(interval) = flow.interval(due.part.share) else { return Rate::Nothing };
        let lent = self.sessions[id].turn.lent;
        let held = lent.held;
        let number = held.map_or(instant, |rate| rate.lease.number);
        let lease = RateLease { number, cap: due.part.cap, interval };
        let offers = Lent { offered: Some(ChargedRate { lease, part: due.part }), ..lent };
        // A session with callers in line has an empty bucket: what is here would lie idle, or go with the room for it.
        let taken = if held.is_none() || is_waiting { flow.take(due.part.cap) } else { 0 };
        let credit = flow.credit(taken, interval);
        flow.recharge(lent.charged(), offers.charged());
        let ends = now + due.turn.unwrap_or(term);
        self.sessions.update(id, |Session { turn, .. }| {
            // A turn ends when it was to end first.
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

    /// What `id` may have now, if anything.
    fn due(&self, id: Place, ask: &Ask, term: Duration) -> Option<Due> {
        let flow = self.flow.as_ref()?;
        let me = &self.sessions[id];
        let own = me.turn.lent.charged();
        let mut free = flow.free(own);
        free.cap = free.cap.saturating_sub(self.reserve()).min(self.plan.sharing.lease_max);
        if own.cap > 0 && ask.waiting == 0 {
            // It grows into room that is empty only.
            free.cap = free.cap.saturating_sub(flow.level_up()).max(own.cap);
        }
        let row = self.row(id, ask)?;
        if let Some(room) = row.room {
            free.cap = free.cap.min(room.cap.max(own.cap));
            free.share = free.share.min(room.share.max(own.share));
        }
        let need = me.turn.largest;
        if row.needs() <= row.whole.cap {
            let share = row.share();
            let part = Part { cap: need.max(row.even()).min(free.cap), share: share.min(free.share) };
            let is_worth = part.cap >= need && part.share.saturating_mul(WORTH_PART) >= share;
            return (own.cap > 0 || is_worth).then_some(Due { part, turn: None }).filter(is_something);
        }
        let longest = term * 3 / 4;
        // No more at a time than can each let a few calls through: parts of permits in many buckets serve no caller.
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
        Some(Due { part: Part { cap, share }, turn: Some(turn) }).filter(is_something)
    }

    /// Those that share the flow with `id`, which says by `ask` what it demands; `None` without a flow.
    fn row(&self, id: Place, ask: &Ask) -> Option<Row<'_>> {
        let flow = self.flow.as_deref()?;
        // What is kept back is room that no session has.
        let burst = flow.burst().saturating_sub(self.reserve());
        let me = &self.sessions[id];
        let asks = Asks {
            owner: me.share.owner,
            weight: weight_of(me),
            demand: demand_of(flow.speed(), ask.demand_milli),
            largest: me.turn.largest,
            waits_since: me.turn.waits_since,
        };
        Some(Row::new(self.now, burst, asks, self.sessions.sharers()))
    }

    /// When a session that waits for its turn may have one, and when it should ask again.
    fn next_turn(&mut self, id: Place, ask: &Ask, term: Duration) -> (Duration, Option<Duration>) {
        let me = &self.sessions[id];
        let (soonest, holders) = self.sessions.hand_overs();
        let soonest = soonest.unwrap_or(self.now);
        let row = self.row(id, ask);
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
        self.sessions.update(id, |session| session.turn.expected = expected);
        (ask_after, Some(wait.saturating_add(wait.saturating_mul(rounds))))
    }
}

/// How far apart the calls of a session are whose callers only try: with callers in line there is always a call. The next one
/// comes so long after the one that asked, and a shorter turn would be over by then.
fn calls_apart(ask: &Ask) -> Duration {
    /// Nanoseconds apart at one permit in 1,000 s.
    const SELDOM: u64 = 1_000_000_000_000;
    if ask.waiting > 0 {
        return Duration::ZERO;
    }
    Duration::from_nanos(SELDOM.checked_div(ask.demand_milli).unwrap_or(0))
}

/// Calls that `rate` lets through in a lease of `term`, twice as many as may be, so that no renewal comes for want of
/// them.
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
