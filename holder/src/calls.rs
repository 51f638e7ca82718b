//! What one process has in flight of one pool, where the allocator counts that. The refill keeps it beside the slot, under
//! the pool's lock; it decides nothing and reads no clock.
//!
//! Permits are all alike: which call has ended does not matter, only how many. So those that end are put first to what
//! must not be spent again.

use lessor_protocol::moment::nanos;
use lessor_protocol::rare::Usual;
use lessor_protocol::{InFlight, Moment};
use std::time::Duration;

/// Permits over which the mean length of a call is taken; twice as many count half. It is for calls that were refused:
/// more would be late when calls become longer, fewer would follow single ones.
const MEAN_OVER: u64 = 256;

/// What is in flight of one pool.
#[derive(Clone, Debug)]
pub struct SessionCalls {
    cap: Option<Cap>,
    /// Spent, and handed back when their calls end.
    running: u64,
    /// Held, in use, and spent again when their calls end.
    busy: u64,
    /// In use when the allocator forgot this session, and unknown to it.
    forgotten: u64,
    /// Spent since the allocator began to count, and never handed back. The allocator knows of `reported` of them.
    unguarded: u64,
    reported: u64,
    /// What the refill had spent at the last check for callers that spend without handing back.
    noted: u64,
    /// Permits that are not to be spent again and ended since the last ask was written.
    ended: u64,
    /// Permits that ever were in use and are not any more, without having been spent.
    used: u64,
    usage: Usage,
}

/// What a grant says of a cap on calls in flight.
#[derive(Clone, Copy, Debug)]
struct Cap {
    /// The most to have in hand and in use, where a permit may be spent again.
    hold: Option<u64>,
}

/// How much was in use on average, as a total.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Permits · nanoseconds until `at`: in use, and refused for as long as a call takes.
    area: u128,
    at: Moment,
    /// Permits taken to be spent again, ever.
    taken: u64,
    refused: u64,
    /// Permits and permits · nanoseconds of late.
    recent: (u64, u128),
}

/// Nothing is in flight, or the allocator does not count it.
impl Usual for SessionCalls {
    const USUAL: &'static Self = &SessionCalls {
        cap: None,
        running: 0,
        busy: 0,
        forgotten: 0,
        unguarded: 0,
        reported: 0,
        noted: 0,
        ended: 0,
        used: 0,
        usage: Usage { area: 0, at: Moment::ORIGIN, taken: 0, refused: 0, recent: (0, 0) },
    };
}

/// Permits that ended, by what becomes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Back in hand, to be spent again.
    pub(crate) reused: u64,
    /// Given back, unspent.
    pub(crate) removed: u64,
}

impl SessionCalls {
    /// Whether the allocator counts what is in flight.
    pub fn count(&self) -> bool {
        self.cap.is_some()
    }

    /// Held and in use.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Spent and in flight; `None` if the allocator does not count that.
    pub fn running(&self) -> Option<u64> {
        self.cap.map(|_| self.running)
    }

    /// Spent on calls whose end no caller will report.
    pub fn unguarded(&self) -> u64 {
        self.unguarded
    }

    /// Spent and in flight, as far as the allocator does not know of it otherwise.
    pub(crate) fn left_running(&self) -> Option<u64> {
        self.running().map(|running| running + self.unguarded.saturating_sub(self.reported))
    }

    /// The most to have in hand and in use, where a permit may be spent again.
    pub fn hold(&self) -> Option<u64> {
        self.cap.and_then(|cap| cap.hold)
    }

    /// Permits that were ever taken to be spent again.
    pub(crate) fn taken(&self) -> u64 {
        self.usage.taken
    }

    /// Permits that calls got which are not spent by that: in use, or in use before.
    pub(crate) fn used(&self) -> u64 {
        self.busy + self.used
    }

    /// Whether something ended that the allocator should hear of, for others wait for it.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended > 0
    }

    /// Whether nothing is in flight that the allocator knows of.
    pub(crate) fn is_empty(&self) -> bool {
        self.busy == 0 && self.running == 0
    }

    /// Whether something is in flight that the allocator has forgotten.
    pub(crate) fn are_forgotten(&self) -> bool {
        self.forgotten > 0
    }

    /// `permits` were taken out of the slot, and will be handed back.
    pub(crate) fn take(&mut self, permits: u64, now: Moment) {
        if self.hold().is_some() {
            self.usage.pass(self.busy, now);
            self.busy += permits;
            self.usage.take(permits);
        } else {
            self.running += permits;
            self.noted += permits;
        }
    }

    /// Calls with `permits` have ended; `in_hand` are free. Nothing is spent again while the limit `is_stopped`.
    pub(crate) fn hand_back(&mut self, permits: u64, in_hand: u64, is_stopped: bool, now: Moment) -> Ended {
        let part = self.part(permits, now);
        self.used += part.busy;
        self.ended += permits - part.forgotten;
        let hold = self.hold().filter(|_| !is_stopped).unwrap_or(0);
        let room = hold.saturating_sub(in_hand + self.busy);
        let reused = part.busy.min(room);
        self.ended -= reused.min(self.ended);
        Ended { reused, removed: part.busy - reused }
    }

    /// No caller will report when calls with `permits` end. The permits count for as long as a call may take.
    pub(crate) fn lapse(&mut self, permits: u64, now: Moment) {
        // Which calls end is unknown. The allocator has to hear of those that are not forgotten.
        let known = permits.min(self.running + self.busy);
        let forgotten = std::mem::take(&mut self.forgotten);
        let part = self.part(known, now);
        self.forgotten = forgotten.saturating_sub(permits - known);
        // What was held until now is spent.
        self.noted += part.busy;
        self.unguarded += part.busy + part.running;
    }

    /// Takes `permits` out of what is in flight: those first that were forgotten, then those that were spent.
    fn part(&mut self, permits: u64, now: Moment) -> Part {
        let forgotten = permits.min(self.forgotten);
        let running = (permits - forgotten).min(self.running);
        let busy = (permits - forgotten - running).min(self.busy);
        self.usage.pass(self.busy, now);
        (self.forgotten, self.running) = (self.forgotten - forgotten, self.running - running);
        self.busy -= busy;
        Part { forgotten, running, busy }
    }

    /// By now `spent` permits were ever spent. Permits that no caller took to hand back count for as long as a call may take,
    /// from when the allocator hears of them. The allocator's clock says when that is over: the clock of this node may jump.
    pub(crate) fn look(&mut self, spent: u64) {
        if self.cap.is_some() {
            self.unguarded += spent.saturating_sub(self.noted);
        }
        self.noted = self.noted.max(spent);
    }

    /// An ask was written.
    pub(crate) fn on_ask(&mut self) {
        self.ended = 0;
    }

    /// A lease has ended under `permits` that are in use: the allocator takes them for spent, and counts their calls only for as
    /// long as a call may take. So they are spent, and said to run until they end.
    pub(crate) fn spend(&mut self, permits: u64, now: Moment) {
        self.usage.pass(self.busy, now);
        let permits = permits.min(self.busy);
        self.busy -= permits;
        self.running += permits;
        self.noted += permits;
    }

    /// A grant says by `cap` whether the allocator counts what is in flight. The ask reported that `spent` are spent: a caller
    /// that spent since then may not have been asked to hand back. And it reported `unguarded`.
    pub(crate) fn on_grant(&mut self, cap: Option<InFlight>, spent: u64, unguarded: u64) {
        if self.cap.is_none() {
            self.noted = spent;
        }
        self.cap = cap.map(|cap| Cap { hold: cap.hold });
        self.reported = unguarded;
    }

    /// The allocator knows nothing of this session. What is in flight ends unheard, and is not spent again.
    pub(crate) fn forget(&mut self) {
        self.forgotten += self.running + self.busy;
        (self.running, self.busy) = (0, 0);
        (self.unguarded, self.reported) = (0, 0);
    }

    /// All that was ever spent was `spent`, and is known.
    pub(crate) fn note(&mut self, spent: u64) {
        self.noted = spent;
    }

    /// Nothing is spent again from now on: what is in use is spent, beside the `spent` permits that ever were.
    pub(crate) fn close(&mut self, spent: u64) {
        if let Some(cap) = &mut self.cap {
            cap.hold = None;
            self.unguarded += spent.saturating_sub(self.noted);
        }
        self.running += self.busy;
        self.noted = spent + self.busy;
        self.busy = 0;
    }

    /// What is in use on average, as a total in thousandths of a permit and second. It includes the `refused` permits, which
    /// would have been in use for as long as others are. While that length is unknown, `guess` stands for it.
    pub(crate) fn usage(&mut self, refused: u64, guess: Duration, now: Moment) -> u64 {
        self.usage.pass(self.busy, now);
        self.usage.refuse(refused, guess);
        u64::try_from(self.usage.area / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// Permits that ended, by what they were.
#[derive(Clone, Copy, Debug)]
struct Part {
    forgotten: u64,
    running: u64,
    busy: u64,
}

impl Usage {
    /// `busy` permits were in use until now.
    fn pass(&mut self, busy: u64, now: Moment) {
        let area = u128::from(busy) * u128::from(nanos(now.since(self.at)));
        self.at = self.at.max(now);
        self.area += area;
        self.recent.1 += area;
    }

    fn take(&mut self, permits: u64) {
        self.taken = self.taken.saturating_add(permits);
        self.recent.0 += permits;
        if self.recent.0 > 2 * MEAN_OVER {
            self.recent = (self.recent.0 / 2, self.recent.1 / 2);
        }
    }

    fn refuse(&mut self, refused: u64, guess: Duration) {
        let new = refused.saturating_sub(self.refused);
        self.refused = refused;
        let (taken, area) = self.recent;
        let mean = if taken == 0 { u128::from(nanos(guess)) } else { area / u128::from(taken) };
        self.area += u128::from(new) * mean;
    }
}

#[cfg(test)]
mod tests;
