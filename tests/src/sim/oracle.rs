//! What must hold, checked by somebody who sees everything and shares no code with what it checks. The world tells it
//! of every admission, answer and install; its first complaint ends the run.

use lessor_allocator::pool::{AskError, PoolView};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Answer, Moment, Rule};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// One instant, in real time and on the allocator's clock.
#[derive(Clone, Copy, Debug)]
pub struct Instant {
    /// Nanoseconds of real time.
    pub real: u64,
    /// What the allocator's clock shows.
    pub allocator: Moment,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Whether more was admitted than promised.
    pub is_over: bool,
    /// In words.
    pub what: String,
}

/// Says yes, or what is wrong.
pub type Verdict = Result<(), Wrong>;

/// `true`, or `what` is wrong.
fn must(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Wrong { is_over: false, what: what() }) }
}

/// The omniscient ledger.
#[derive(Clone, Debug)]
pub struct Oracle {
    promises: Vec<Promise>,
    drift_ppm: u128,
    /// How long a session with nothing is known at least.
    remembered: Duration,
    /// What each session was told.
    told: BTreeMap<u64, Told>,
    /// Permits admitted so far, and before this life of the allocator.
    admitted: u64,
    admitted_before: u64,
    /// Whether a session may have been forgotten. An old copy of its first ask then makes it known again, and what it
    /// reported before is counted twice: too much, never too little.
    forgot: bool,
    granted: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    seq: u64,
    permits: Option<u64>,
    /// When it was last told something.
    at: Moment,
    /// When the allocator takes back all that the session holds.
    end: Moment,
}

impl Oracle {
    /// Sees to `rules` on clocks within `drift_ppm`, each of which allows `less` than it says.
    /// A session that says nothing may be forgotten after `remembered`.
    pub fn new(rules: &[Rule], drift_ppm: u32, less: u64, remembered: Duration) -> Self {
        let promises = rules.iter().map(|rule| Promise::new(rule, less)).collect();
        let (drift_ppm, told) = (u128::from(drift_ppm), BTreeMap::new());
        let forgot = remembered.is_zero();
        Oracle { promises, drift_ppm, remembered, told, admitted: 0, admitted_before: 0, forgot, granted: 0 }
    }

    /// S1–S3, S6, S7: `session` admitted a call of `permits`, which reaches the vendor `way` later.
    pub fn admitted(&mut self, now: Instant, session: u64, permits: u64, way: u64) -> Verdict {
        self.admitted += permits;
        let end = self.told.get(&session).map_or(Moment::ORIGIN, |told| told.end);
        must(now.allocator < end, || {
            format!("session {session} spent at {:?}, its lease ended at {end:?}", now.allocator)
        })?;
        self.promises.iter_mut().try_for_each(|promise| promise.admit(now, permits, way))
    }

    /// For those who promise nothing: counts `permits` as far as there is room, and says how many were too many.
    pub fn tally(&mut self, now: Instant, permits: u64) -> u64 {
        let within = permits.min(self.room(now));
        if within > 0 {
            let admitted = self.promises.iter_mut().try_for_each(|promise| promise.admit(now, within, 0));
            admitted.expect("there is room");
        }
        permits - within
    }

    /// P1 and the books: the pool answered `session`; `in_hand` is what all nodes can still spend.
    pub fn answered(
        &mut self,
        now: Instant,
        session: u64,
        seq: u64,
        answer: &Result<Answer, AskError>,
        view: PoolView,
        in_hand: u64,
    ) -> Verdict {
        if let Ok(Answer::Grant(grant)) = answer {
            let told = self.told.entry(session).or_default();
            // A session that was forgotten is a stranger, whatever an old message of it says.
            if now.allocator.since(told.at) >= self.remembered {
                (told.seq, told.permits) = (0, None);
            }
            told.at = now.allocator;
            must(seq >= told.seq, || format!("session {session} was answered {seq} after {}", told.seq))?;
            must(seq != told.seq || told.permits == Some(grant.permits), || {
                format!(
                    "session {session} was granted {} and {:?} for the same ask",
                    grant.permits, told.permits
                )
            })?;
            if seq > told.seq && !grant.term.is_zero() {
                let term = u128::from(nanos(grant.term)) * (1_000_000 + self.drift_ppm);
                let term = term.div_ceil(1_000_000 - self.drift_ppm) + 1_000_000;
                told.end = told.end.max(Moment::from_nanos(now.allocator.as_nanos() + term as u64));
            }
            (told.seq, told.permits) = (seq, Some(grant.permits));
        }
        self.books(now, view, in_hand)
    }

    /// K1, K2, K4, S9: the pool looks like `view`; nodes can still spend `in_hand`.
    pub fn books(&mut self, now: Instant, view: PoolView, in_hand: u64) -> Verdict {
        let books = view.books;
        must(books.granted == books.spent + books.returned + books.burned + books.outstanding, || {
            format!("books that do not balance: {books:?}")
        })?;
        let spent = self.admitted - self.admitted_before;
        must(books.spent <= spent || self.forgot, || {
            format!("{} were reported spent, {spent} were", books.spent)
        })?;
        must(books.granted >= self.granted, || format!("granted fell from {} to {books:?}", self.granted))?;
        self.granted = books.granted;
        must(in_hand <= books.outstanding || !view.quarantine.is_zero(), || {
            format!("nodes can spend {in_hand}, the pool knows of {books:?}")
        })?;
        self.exposed(now, in_hand + view.available)
    }

    /// S9, before it comes to it: all `permits` could be spent at this instant.
    pub fn exposed(&mut self, now: Instant, permits: u64) -> Verdict {
        let room = self.room(now);
        must(permits <= room, || format!("{permits} could be spent now, where {room} are promised"))
    }

    /// The allocator lost its books, or dropped ones that it took for new.
    pub fn books_lost(&mut self) {
        (self.admitted_before, self.granted, self.forgot) = (self.admitted, 0, true);
        for told in self.told.values_mut() {
            (told.seq, told.permits) = (0, None);
        }
    }

    /// Permits that may be admitted at this instant.
    pub fn room(&mut self, now: Instant) -> u64 {
        self.promises.iter_mut().map(|promise| promise.room(now)).min().unwrap_or(u64::MAX)
    }
}

/// A rule, kept by remembering what counts.
#[derive(Clone, Debug)]
enum Promise {
    Sliding {
        limit: u64,
        spends: Window,
        vendor: Window,
        on_the_way: BinaryHeap<Reverse<(u64, u64)>>,
    },
    Fixed {
        limit: u64,
        per: u64,
        window: u64,
        used: u64,
    },
    /// A single central bucket, in parts of a permit: `per` to one.
    Bucket {
        capacity: u128,
        refill: u128,
        per: u128,
        level: u128,
        real: u64,
    },
}

impl Promise {
    fn new(rule: &Rule, less: u64) -> Self {
        match rule {
            Rule::SlidingWindow(rule) => {
                let window = Window { per: nanos(rule.per()), spends: VecDeque::new(), used: 0 };
                let (spends, vendor) = (window.clone(), window);
                Promise::Sliding { limit: rule.limit() - less, spends, vendor, on_the_way: BinaryHeap::new() }
            }
            Rule::FixedWindow(rule) => {
                Promise::Fixed { limit: rule.limit() - less, per: nanos(rule.per()), window: 0, used: 0 }
            }
            Rule::TokenBucket(rule) => {
                let per = u128::from(nanos(rule.per()));
                let capacity = u128::from(rule.capacity() - less) * per;
                Promise::Bucket { capacity, refill: rule.refill().into(), per, level: capacity, real: 0 }
            }
        }
    }

    fn admit(&mut self, now: Instant, permits: u64, way: u64) -> Verdict {
        let room = self.room(now);
        let over = |what: String| Err(Wrong { is_over: true, what });
        if permits > room {
            return over(format!("{permits} admitted where {room} were left"));
        }
        match self {
            Promise::Sliding { limit, spends, vendor, on_the_way } => {
                spends.add(now.real, permits);
                on_the_way.push(Reverse((now.real + way, permits)));
                while let Some(&Reverse((real, permits))) = on_the_way.peek()
                    && real <= now.real
                {
                    on_the_way.pop();
                    vendor.add(real, permits);
                    if vendor.used > *limit {
                        return over(format!("the vendor counts {} at {real} ns", vendor.used));
                    }
                }
            }
            Promise::Fixed { used, .. } => *used += permits,
            Promise::Bucket { level, per, .. } => *level -= u128::from(permits) * *per,
        }
        Ok(())
    }

    fn room(&mut self, now: Instant) -> u64 {
        match self {
            Promise::Sliding { limit, spends, .. } => {
                spends.advance(now.real);
                limit.saturating_sub(spends.used)
            }
            Promise::Fixed { limit, per, window, used } => {
                let current = now.allocator.as_nanos() / *per;
                if current != *window {
                    (*window, *used) = (current, 0);
                }
                limit.saturating_sub(*used)
            }
            Promise::Bucket { capacity, refill, per, level, real } => {
                *level = (*level + u128::from(now.real - *real) * *refill).min(*capacity);
                *real = now.real;
                u64::try_from(*level / *per).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What happened in the last `per` nanoseconds: at `t` exactly, what happened at `t − per` counts no more.
#[derive(Clone, Debug)]
struct Window {
    per: u64,
    spends: VecDeque<(u64, u64)>,
    used: u64,
}

impl Window {
    fn advance(&mut self, real: u64) {
        while let Some(&(at, permits)) = self.spends.front()
            && at + self.per <= real
        {
            self.spends.pop_front();
            self.used -= permits;
        }
    }

    fn add(&mut self, real: u64, permits: u64) {
        self.advance(real);
        self.spends.push_back((real, permits));
        self.used += permits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::Grant;

    fn at(nanos: u64) -> Instant {
        Instant { real: nanos, allocator: Moment::from_nanos(nanos) }
    }

    /// The first of `times` at which one more permit is too many for `rule`.
    fn first_over(rule: &str, times: &[u64]) -> Option<u64> {
        let rules = crate::sim::setup::parse_rules(rule).expect("a rule");
        let mut oracle = Oracle::new(&rules, 0, 0, Duration::MAX);
        oracle.told.insert(1, Told { end: Moment::NEVER, ..Told::default() });
        times.iter().copied().find(|&time| oracle.admitted(at(time), 1, 1, 0).is_err())
    }

    #[test]
    fn it_sees_the_first_permit_too_many() {
        assert_eq!(first_over("sliding_window 2/100ns", &[0, 99, 100, 199, 200]), None);
        assert_eq!(first_over("sliding_window 2/100ns", &[0, 98, 99]), Some(99));
        assert_eq!(first_over("token_bucket 1/100ns capacity 2", &[0, 0, 100, 200]), None);
        assert_eq!(first_over("token_bucket 1/100ns capacity 2", &[0, 0, 99]), Some(99));
        let ms = 1_000_000;
        assert_eq!(first_over("fixed_window 2/100ms", &[98 * ms, 99 * ms, 100 * ms, 101 * ms]), None);
        assert_eq!(first_over("fixed_window 2/100ms", &[0, 50 * ms, 99 * ms]), Some(99 * ms));
    }

    #[test]
    fn it_sees_books_that_are_wrong() {
        let rules = crate::sim::setup::parse_rules("sliding_window 10/1s").expect("a rule");
        let grant = Grant {
            kept: 0,
            permits: 4,
            term: Duration::from_millis(20),
            ceiling: 10,
            ask_after: Duration::ZERO,
            retry_after: None,
        };
        let books = lessor_allocator::pool::Books { granted: 4, outstanding: 4, ..Default::default() };
        let view = PoolView { available: 6, books, lessees: 1, quarantine: Duration::ZERO };
        let answer = |permits| Ok(Answer::Grant(Grant { permits, ..grant }));
        let mut oracle = Oracle::new(&rules, 0, 0, Duration::MAX);
        assert_eq!(oracle.answered(at(5), 1, 1, &answer(4), view, 4), Ok(()));
        assert!(oracle.clone().answered(at(5), 1, 1, &answer(5), view, 4).is_err(), "two answers to one ask");
        assert!(oracle.clone().answered(at(5), 1, 2, &answer(4), view, 5).is_err(), "more in hand than out");
        assert!(oracle.clone().admitted(at(21_000_005), 1, 1, 0).is_err(), "too late");
        assert_eq!(oracle.admitted(at(21_000_004), 1, 1, 0), Ok(()));
    }
}
