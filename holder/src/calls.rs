//! The calls that one process has in flight of one pool, where the allocator counts them. The refill keeps them beside
//! the slot, under the pool's lock. They decide nothing and read no clock.
//!
//! Permits are all alike: only the number of ended calls matters, not which ones. So ended calls are first attributed
//! to permits that must not be spent again.

use lessor_protocol::moment::nanos;
use lessor_protocol::rare::Usual;
use lessor_protocol::{InFlight, Moment};
use std::time::Duration;

/// Permits over which the mean length of a call is taken; at twice this count the history is halved. The mean is used
/// for refused calls. A larger value would lag when calls get longer, a smaller one would follow single calls.
const MEAN_OVER: u64 = 256;

/// The calls in flight of one pool, in permits.
#[derive(Clone, Debug)]
pub struct SessionCalls {
    cap: Option<Cap>,
    /// Spent, and to be handed back when their calls end.
    running: u64,
    /// Held and in use, and to be spent again when their calls end.
    busy: u64,
    /// In use when the allocator forgot this session: the allocator does not know them.
    forgotten: u64,
    /// Spent since the allocator began to count, and never handed back. The allocator knows `reported` of them.
    unguarded: u64,
    reported: u64,
    /// Total spent at the last check for callers that spend without handing back.
    noted: u64,
    /// Permits that must not be spent again and whose calls have ended since the last ask.
    ended: u64,
    /// Permits that were in use and were handed back, in total.
    used: u64,
    usage: Usage,
}

/// The cap on calls in flight that a grant told.
#[derive(Clone, Copy, Debug)]
struct Cap {
    /// The most to have in hand and in use, where a permit may be spent again.
    hold: Option<u64>,
}

/// Integral of the permits in use over time.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Permits · nanoseconds until `at`: of permits in use, and of refused ones for the mean length of a call.
    area: u128,
    at: Moment,
    /// Permits taken to be spent again, in total.
    taken: u64,
    refused: u64,
    /// Recently taken permits, and their permits · nanoseconds.
    recent: (u64, u128),
}

/// No call is in flight, or the allocator does not count them.
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

/// Permits of ended calls, by what becomes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Back in hand, to be spent again.
    pub(crate) reused: u64,
    /// Given back unspent.
    pub(crate) removed: u64,
}

impl SessionCalls {
    /// Whether the allocator counts calls in flight.
    pub fn count(&self) -> bool {
        self.cap.is_some()
    }

    /// Returns the permits held and in use.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Returns the permits spent whose calls are in flight; `None` if the allocator does not count them.
    pub fn running(&self) -> Option<u64> {
        self.cap.map(|_| self.running)
    }

    /// Returns the permits spent on calls whose end no caller will report.
    pub fn unguarded(&self) -> u64 {
        self.unguarded
    }

    /// Returns the permits spent whose calls may be in flight, without the unguarded ones that the allocator knows.
    pub(crate) fn left_running(&self) -> Option<u64> {
        self.running().map(|running| running + self.unguarded.saturating_sub(self.reported))
    }

    /// Returns the most to have in hand and in use, where a permit may be spent again.
    pub fn hold(&self) -> Option<u64> {
        self.cap.and_then(|cap| cap.hold)
    }

    /// Returns the permits ever taken to be spent again.
    pub(crate) fn taken(&self) -> u64 {
        self.usage.taken
    }

    /// Returns the permits that calls got without spending them: in use now, or in use before.
    pub(crate) fn used(&self) -> u64 {
        self.busy + self.used
    }

    /// Whether calls have ended that the allocator should hear of, because others wait for their permits.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended > 0
    }

    /// Whether the allocator knows of no call in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.busy == 0 && self.running == 0
    }

    /// Whether calls are in flight that the allocator has forgotten.
    pub(crate) fn are_forgotten(&self) -> bool {
        self.forgotten > 0
    }

    /// Records that `permits` were taken out of the slot and will be handed back.
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

    /// Records that calls with `permits` have ended; `in_hand` permits are held and not in use. No permit is spent again
    /// while the limit `is_stopped`.
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

    /// Records that no caller will report the end of calls with `permits`. They count for as long as a call may take.
    pub(crate) fn lapse(&mut self, permits: u64, now: Moment) {
        // Which calls end is unknown. The allocator has to hear of those that it has not forgotten.
        let known = permits.min(self.running + self.busy);
        let forgotten = std::mem::take(&mut self.forgotten);
        let part = self.part(known, now);
        self.forgotten = forgotten.saturating_sub(permits - known);
        // Permits that were held until now are spent.
        self.noted += part.busy;
        self.unguarded += part.busy + part.running;
    }

    /// Removes `permits` from the calls in flight: first forgotten ones, then spent ones, then those in use.
    fn part(&mut self, permits: u64, now: Moment) -> Part {
        let forgotten = permits.min(self.forgotten);
        let running = (permits - forgotten).min(self.running);
        let busy = (permits - forgotten - running).min(self.busy);
        self.usage.pass(self.busy, now);
        (self.forgotten, self.running) = (self.forgotten - forgotten, self.running - running);
        self.busy -= busy;
        Part { forgotten, running, busy }
    }

    /// Records that `spent` permits were ever spent. Permits that no caller will hand back count for as long as a call
    /// may take, from when the allocator hears of them. The allocator's clock times that, because the clock of this
    /// node may jump.
    pub(crate) fn look(&mut self, spent: u64) {
        if self.cap.is_some() {
            self.unguarded += spent.saturating_sub(self.noted);
        }
        self.noted = self.noted.max(spent);
    }

    /// Records that an ask was written.
    pub(crate) fn on_ask(&mut self) {
        self.ended = 0;
    }

    /// Records that a lease has ended under `permits` in use. The allocator takes them for spent, and counts their
    /// calls only for as long as a call may take. So they are reported as spent and running until they end.
    pub(crate) fn spend(&mut self, permits: u64, now: Moment) {
        self.usage.pass(self.busy, now);
        let permits = permits.min(self.busy);
        self.busy -= permits;
        self.running += permits;
        self.noted += permits;
    }

    /// Records from a grant whether the allocator counts calls in flight. The ask reported `spent` and `unguarded`. A
    /// caller that spent after that may not have been asked to hand back.
    pub(crate) fn on_grant(&mut self, cap: Option<InFlight>, spent: u64, unguarded: u64) {
        if self.cap.is_none() {
            self.noted = spent;
        }
        self.cap = cap.map(|cap| Cap { hold: cap.hold });
        self.reported = unguarded;
    }

    /// Records that the allocator does not know this session. Calls in flight end without a report, and their permits
    /// are not spent again.
    pub(crate) fn forget(&mut self) {
        self.forgotten += self.running + self.busy;
        (self.running, self.busy) = (0, 0);
        (self.unguarded, self.reported) = (0, 0);
    }

    /// Records that the allocator needs no report of the `spent` permits.
    pub(crate) fn note(&mut self, spent: u64) {
        self.noted = spent;
    }

    /// Closes the pool: no permit is spent again, and permits in use count as spent, beside the `spent` ones.
    pub(crate) fn close(&mut self, spent: u64) {
        if let Some(cap) = &mut self.cap {
            cap.hold = None;
            self.unguarded += spent.saturating_sub(self.noted);
        }
        self.running += self.busy;
        self.noted = spent + self.busy;
        self.busy = 0;
    }

    /// Returns the integral of permits in use over time, in thousandths of a permit and second. It includes `refused`
    /// permits for the mean length of a call, which is `guess` while it is unknown.
    pub(crate) fn usage(&mut self, refused: u64, guess: Duration, now: Moment) -> u64 {
        self.usage.pass(self.busy, now);
        self.usage.refuse(refused, guess);
        u64::try_from(self.usage.area / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// Permits of ended calls, by what they were.
#[derive(Clone, Copy, Debug)]
struct Part {
    forgotten: u64,
    running: u64,
    busy: u64,
}

impl Usage {
    /// Records that `busy` permits were in use until now.
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
