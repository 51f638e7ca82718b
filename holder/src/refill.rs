//! When to ask for more, what to say, and what to believe of the answer: one node's side of one pool. The background
//! task drives it with the time and random numbers as arguments; it does no IO.
//!
//! Low water is a time, not a percentage: the node asks when its permits would last only a few round trips. It returns
//! permits that its demand does not need, and all of them after a term without demand. A rare call waits a round trip
//! rather than have a permit sit idle for it. Asks always say totals.

mod asked;
mod due;
mod goodbye;
mod in_flight;
mod rate;
mod reserved;
mod unrecognised;

use crate::calls::SessionCalls;
use crate::demand::Demand;
use crate::permits::{Pacer, Permits};
use asked::Asked;
pub use due::GOES_ALONG;
use due::patience;
use goodbye::Known;
use lessor_protocol::rare::Rare;
use lessor_protocol::sizing::{GUARD, PERMIT, lasts, low_water_span, mean};
use lessor_protocol::{Ask, ClockBounds, Grant, Moment, PERMITS_MAX, TERM_MAX};
use rate::RateHeld;
use reserved::Reserved;
use std::time::Duration;
use unrecognised::Unrecognised;

/// Permits that the first ask for a limit wants, before a caller tries to spend. It is enough for the first calls of a
/// slow user, and too little for other users to miss.
const FIRST_WANT: u64 = 8;

/// Part of the term that is left when a lease is renewed, in percent. It leaves time to make good a lost answer.
const RENEW_PERCENT: u32 = 25;

/// Largest part by which a wait is stretched, in percent, so that nodes do not all come back at once.
const JITTER_PERCENT: u64 = 20;

/// Calls expected during a silence after which demand counts as over: by chance they stay away once in a thousand times.
/// A smaller value would take a pause between two calls for the end; a larger one would hold permits for longer.
const SILENT_CALLS: u128 = 7;

/// Time for which one permit is kept after a call, so that occasional calls are not refused each time. The lease that
/// holds it may last twice as long where most of a pool is left; the permit is returned at its renewal.
const SPARE_FOR: Duration = Duration::from_secs(1);

/// Time after which permits of an answer that never came are over: the ask may have been on its way as long as the
/// lease lasts.
const LATE_ANSWER_MAX: Duration = TERM_MAX.saturating_mul(3);

/// Reports per term of ended calls whose permits are not spent again here: others may wait for them. A larger value would
/// tell of them sooner, a smaller one would cost less.
const HAND_BACKS_PER_TERM: u32 = 4;

/// The term until the first grant.
const INITIAL_TERM: Duration = Duration::from_millis(500);

/// One node's side of one pool. The background task drives it, and handles call it under the pool's lock.
#[derive(Clone, Debug)]
pub struct Refill<P> {
    /// Permits ever put into the slot, and ever taken out of it unspent. The difference is spent or in the slot.
    installed: u64,
    removed: u64,
    /// Total spent when the allocator last began to count from zero.
    forgotten: u64,
    /// Permits let pass in shadow mode: the total when the allocator last began to count from zero, and the total
    /// reported.
    shadow: Shadow,
    demand: Demand,
    /// Total of attempts when the last ask was written.
    attempted: u64,
    /// The calls in flight, where the allocator counts them.
    calls: Rare<SessionCalls>,
    /// The permits that callers have reserved.
    reserved: Rare<Reserved>,
    /// Whether spending is stopped: permits that come back do not go into the slot.
    is_stopped: bool,
    /// When an attempt was last seen.
    tried: Moment,
    /// Total spent when the line was last seen to move, and when that was.
    moved: (u64, Moment),
    /// Terms for which the line may stand still.
    patience: u32,
    /// Whether the last ask returns everything because the line stood still.
    stepping_back: bool,
    /// The term of the lease.
    term: Duration,
    /// Time for which to hold permits in advance.
    horizon: Duration,
    /// Earliest time for the next ask, as the answer told.
    not_before: Moment,
    /// Set while the allocator does not know the lease.
    unrecognised: Option<Unrecognised>,
    /// Whether an unrecognised lease has just been given up for the grant that is being installed.
    made_way: bool,
    /// The last ask that was written.
    asked: Option<Asked>,
    /// Permits that the allocator knows to be lent.
    known: Known,
    /// Whether the allocator has granted anything, even nothing, since it last began to count from zero.
    is_known: bool,
    phase: Phase,
    /// When to ask because of an event ([`Moment::NEVER`] if there was none), and when the next event may be acted on.
    event_due: Moment,
    acted: Moment,
    /// Since when an ask that was put off is due; [`Moment::NEVER`] if none was.
    overdue: Moment,
    /// The rate lease in use, where the limit has a steady flow.
    rate: RateHeld<P>,
}

/// State of the conversation with the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Never answered. An eager pool wants a first lease before a caller tries.
    New { eager: bool },
    /// Answered, and there is something to report or to hold.
    Active,
    /// Nothing held and nothing to report: silent until a caller tries.
    Idle,
}

/// Permits let pass in shadow mode.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    forgotten: u64,
    reported: u64,
}

/// Totals and queues of the handles, read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Permits refused so far, in total.
    pub refused: u64,
    /// Permits that callers queue for.
    pub waiting: u64,
    /// The largest call that a steady flow has kept waiting, in permits. Of another limit, the call that is first in
    /// line.
    pub largest: u64,
    /// Of `refused`, permits that passed all the same because the limit is in shadow mode.
    pub shadow_refused: u64,
}

/// Whether a grant was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// The slot was refilled.
    Installed,
    /// The grant is impossible: more than was wanted, more kept than held, or longer than any term. Nothing was
    /// installed.
    Invalid,
}

impl<P: Pacer> Refill<P> {
    /// Creates it with nothing held and nothing spent. An `eager` one asks for a small first lease at once.
    pub fn new(now: Moment, eager: bool) -> Self {
        Refill {
            installed: 0,
            removed: 0,
            forgotten: 0,
            shadow: Shadow::default(),
            demand: Demand::new(now),
            attempted: 0,
            calls: Rare::default(),
            reserved: Rare::default(),
            is_stopped: false,
            tried: now,
            moved: (0, now),
            patience: patience(0),
            stepping_back: false,
            term: INITIAL_TERM,
            horizon: INITIAL_TERM,
            not_before: Moment::ORIGIN,
            unrecognised: None,
            made_way: false,
            asked: None,
            known: Known::default(),
            is_known: false,
            phase: Phase::New { eager },
            event_due: Moment::NEVER,
            acted: Moment::ORIGIN,
            overdue: Moment::NEVER,
            rate: RateHeld::new(),
        }
    }

    /// Returns the bucket that callers take from beside the slot, once the limit is known to have a steady flow.
    pub fn pace(&self) -> Option<&P> {
        self.rate.pace()
    }

    /// Whether the limit has a steady flow, as far as is known.
    pub fn is_paced(&self) -> bool {
        self.rate.is_paced
    }

    /// Returns the permits spent since the beginning. Reserved permits and those in use that will be spent again do not
    /// count.
    pub fn spent(&self, slot: &impl Permits) -> u64 {
        let unspent = slot.balance().total() + self.calls.busy() + self.reserved.permits();
        self.installed - self.removed - unspent
    }

    /// Returns the permits that calls ever got: those spent, and reusable ones each time they were in use. Reserved
    /// permits count once they are spent.
    pub fn admitted(&self, slot: &impl Permits) -> u64 {
        self.spent(slot) + self.calls.used()
    }

    /// Returns when to ask next: now or earlier if it is time, [`Moment::NEVER`] if there is nothing to say.
    pub fn due(&self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Moment {
        let tried = self.has_tried(slot, seen);
        match self.phase {
            Phase::New { eager: true } => now,
            Phase::New { eager: false } | Phase::Idle if tried => now.max(self.not_before),
            Phase::New { eager: false } | Phase::Idle => Moment::NEVER,
            Phase::Active => self.due_active(slot, seen, now, rtt),
        }
    }

    fn due_without_events(&self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Moment {
        if let Some(due) = self.due_ahead(slot, seen, now, rtt) {
            return due;
        }
        let margin = low_water_span(rtt).max(self.term * RENEW_PERCENT / 100);
        // Not so soon after the last ask, unless the answer would come too late.
        let once = rtt + GUARD;
        let next = (self.asked_at() + margin).min(slot.deadline().before(once)).max(self.asked_at() + once);
        let mut renew = slot.deadline().before(margin).max(next);
        if self.calls.have_ended() {
            renew = renew.min(self.asked_at() + self.term / HAND_BACKS_PER_TERM);
        }
        let soonest = self.not_before.max(now);
        let balance = slot.balance();
        let holds = balance.total() + self.reserved.permits() > 0;
        if let Some(ends) = self.rate.turn_ends() {
            // The next ask hands the turn over: not before the turn is over, unless nothing is left to spend.
            return if balance.total() == 0 && seen.waiting > 0 { soonest } else { renew.min(ends) };
        }
        let lacks_room = self.calls.hold().is_some_and(|_| self.target(rtt) > self.calls.busy());
        if seen.waiting > balance.free
            || (balance.free == 0 && (self.attempts(slot, seen) > self.attempted || lacks_room))
        {
            return if holds { soonest.min(renew) } else { soonest };
        }
        if self.calls.hold().is_some() {
            // Permits in hand do not become fewer by being used. But a lease that is over is not renewed any more.
            let renews = (holds || self.calls.busy() > 0) && now < slot.deadline();
            return if renews { renew } else { renew.max(self.not_before) };
        }
        if balance.total() == 0 {
            return if holds { renew } else { renew.max(self.not_before) };
        }
        let lasts = lasts(balance.free.saturating_sub(self.low_water(rtt)), self.demand.milli());
        renew.min((now + lasts).max(self.not_before))
    }

    /// Sheds permits that are not needed and writes the ask. The ask stays true however late it arrives.
    pub fn write(&mut self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Ask {
        if self.unrecognised.is_some() {
            if !self.is_used_up(slot, now) {
                return self.write_ahead(slot, seen, now, rtt);
            }
            self.forget(slot);
        }
        self.let_go_of_reserved(slot, now);
        let tried = self.has_tried(slot, seen);
        if tried || self.calls.busy() > 0 {
            self.tried = now;
        }
        self.observe(slot, seen, now);
        if self.is_idle_for_good(now) {
            self.demand.reset();
        }
        self.stepping_back = self.is_stuck(slot, seen, now);
        let spare = u64::from(now.since(self.tried) < SPARE_FOR);
        let (target, spare) = match self.stepping_back {
            true => (0, 0),
            false => (self.target(rtt).saturating_add(seen.waiting), spare),
        };
        let hands_over = self.rate.turn_ends().is_some();
        let busy = self.calls.busy();
        let share = self.calls.hold().unwrap_or(u64::MAX).saturating_sub(self.reserved.permits());
        let most = target.max(spare).min(share);
        let keep = if now >= slot.deadline() || hands_over { 0 } else { most.saturating_sub(busy) };
        let returned = slot.shed(keep);
        self.removed += returned;
        let spent = self.spent(slot);
        if let Some(calls) = self.calls.unusual() {
            calls.look(spent);
            calls.on_ask();
        }
        // The total spent was read before the balance: a permit that a caller spends in between is reported as held.
        let balance = slot.balance();
        let at_least = match self.phase {
            Phase::New { eager: true } => FIRST_WANT,
            Phase::New { eager: false } | Phase::Active | Phase::Idle if tried => spare,
            Phase::New { eager: false } | Phase::Active | Phase::Idle => 0,
        };
        if hands_over || target.max(spare).max(at_least) == 0 {
            self.rate.let_go(now);
        }
        let ask = Ask {
            spent_total: spent - self.forgotten,
            held: self.installed - self.removed - spent,
            want: target.max(at_least).saturating_sub(balance.free + busy).min(PERMITS_MAX),
            waiting: seen.waiting.min(PERMITS_MAX),
            demand_milli: self.reported_demand(),
            largest: seen.largest.min(PERMITS_MAX),
            lends_on: false,
            rate: self.rate.claim(),
            shadow_refused: self.shadow_refused(seen),
            running: self.calls.running(),
            unguarded: self.calls.unguarded(),
            busy,
        };
        self.acts(now);
        self.asked = Some(Asked::new(&ask, now, self.asked));
        self.known.asked(&ask);
        ask
    }

    /// Whether no caller has tried for a horizon, and for so long that a caller would have at the last known demand.
    fn is_idle_for_good(&self, now: Moment) -> bool {
        let silent = now.since(self.tried);
        silent >= self.horizon && mean(self.demand.milli(), silent) >= SILENT_CALLS * PERMIT
    }

    /// Installs the grant for the last ask, which was first sent at `first_sent`. `random` is any number: it spreads
    /// the next ask.
    pub fn believe(
        &mut self,
        slot: &impl Permits,
        grant: &Grant,
        clocks: ClockBounds,
        first_sent: Moment,
        now: Moment,
        random: u64,
    ) -> Belief {
        if !self.can_be(grant) {
            return Belief::Invalid;
        }
        self.make_way(slot, grant);
        let made_way = std::mem::take(&mut self.made_way);
        if self.unrecognised.is_some() {
            self.keep_unrecognised(slot, grant, now, random);
            return Belief::Installed;
        }
        let Some(ask) = self.asked else { return Belief::Invalid };
        self.awaits_no_answer();
        self.is_told();
        self.known.answered(&ask, grant);
        self.let_go_of_reserved(slot, now);
        self.is_stopped = ask.is_stopped_since;
        self.rate.install(&grant.rate, clocks, now, grant.horizon);
        let deadline = clocks.holder_end(first_sent, grant.term);
        let lost = ask.held - grant.kept;
        self.learn_of_cap(grant.in_flight, &ask);
        // A new lease that is over by now may end before the unrecognised one that was given up for it. A limit may have
        // been stopped since the ask. None of the permits may be spent then: the next ask does not claim them, and so
        // returns them.
        let is_of_no_use = ask.is_stopped_since || (made_way && now >= deadline);
        let permits = if is_of_no_use { 0 } else { grant.permits };
        let dropped = self.install(slot, permits, lost, deadline);
        if let Some(calls) = self.calls.unusual() {
            calls.spend(lost - dropped, now);
        }
        self.removed += dropped;
        self.installed += permits;
        if permits > 0 && !self.is_paced() {
            // What is in hand for the first in line still grows.
            self.moved.1 = now;
        }
        self.shadow.reported = ask.shadow_refused + self.shadow.forgotten;
        if !grant.term.is_zero() {
            (self.term, self.horizon) = (grant.term, grant.horizon.min(grant.term));
        }
        let pause = if self.stepping_back { self.term } else { Duration::ZERO };
        if self.stepping_back {
            self.patience = patience(random);
        }
        self.not_before = now + jittered(grant.ask_after.max(pause), random);
        self.is_known = true;
        let spent_is_reported = self.spent(slot) == ask.spent_total + self.forgotten;
        let is_over = self.calls.is_empty() && !ask.has_calls;
        let is_reported = spent_is_reported && is_over && ask.want == 0 && !ask.has_line;
        let holds_nothing = slot.balance().total() + self.reserved.permits() == 0 && !self.rate.is_held();
        self.phase = if holds_nothing && is_reported { Phase::Idle } else { Phase::Active };
        Belief::Installed
    }

    /// Whether `grant` can be an answer to the ask that was written last.
    fn can_be(&self, grant: &Grant) -> bool {
        // A node never has to wait longer than a term to ask again: a longer wait would silence it for as long as the
        // grant says.
        let longest = grant.term.max(grant.ask_after);
        let is_sane = longest <= TERM_MAX && RateHeld::<P>::is_sane(&grant.rate);
        is_sane && self.asked.is_some_and(|ask| grant.permits <= ask.want && grant.kept <= ask.held)
    }

    /// Whether the allocator has granted anything, even nothing, since it last began to count from zero.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns when the next ask may bring something.
    pub fn not_before(&self) -> Moment {
        self.not_before
    }

    fn attempts(&self, slot: &impl Permits, seen: Seen) -> u64 {
        self.spent(slot) + self.reserved.tried() + self.calls.taken() + seen.refused
    }

    fn has_tried(&self, slot: &impl Permits, seen: Seen) -> bool {
        self.attempts(slot, seen) > self.attempted || seen.waiting > 0
    }

    fn asked_at(&self) -> Moment {
        self.asked.map_or(Moment::ORIGIN, |asked| asked.at)
    }
}

/// Stretches `wait` by up to [`JITTER_PERCENT`].
fn jittered(wait: Duration, random: u64) -> Duration {
    wait.saturating_add(wait / 100 * u32::try_from(random % (JITTER_PERCENT + 1)).expect("a percentage"))
}

#[cfg(test)]
mod tests;
