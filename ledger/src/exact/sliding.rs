//! At most N in any window `[t − W, t)`, aligned or not: every admission is kept, with its instant, until exactly W
//! later. A margin that an operator wrote lengthens W; by default there is none here. A cap on calls in flight counts
//! as a window as long as the longest call. Permits that come back are taken for the oldest, whose calls would have been
//! over first.

use super::Exact;
use crate::rule::scaled_up;
use crate::{CarryOver, Rule};
use lessor_protocol::{Moment, PERMITS_MAX};
use std::collections::VecDeque;
use std::time::Duration;

/// The books of a sliding window or log, or of a cap on calls in flight: the admissions.
#[derive(Clone, Debug)]
pub(super) struct Sliding {
    limit: u64,
    /// Permits admitted at `t` count up to `t + window`, and no longer.
    window: Duration,
    now: Moment,
    /// Admissions that still count, oldest first, one entry for each instant.
    admitted: VecDeque<(Moment, u64)>,
    /// Sum of `admitted`. Above what is allowed only after a change, or when a top-up is over.
    counted: u64,
    /// Top-ups: when each ends, and its permits, soonest first.
    extra: VecDeque<(Moment, u64)>,
    /// Whether calls in flight are counted. They stay counted whatever is topped up or changed.
    is_cap: bool,
}

impl Sliding {
    /// Creates empty books of `rule` at `now`.
    pub(super) fn new(rule: &Rule, now: Moment) -> Self {
        let (limit, window) = match rule {
            Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => (rule.limit(), rule.per() + rule.margin()),
            Rule::Concurrency(rule) => (rule.limit(), rule.longest()),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                unreachable!("rules are matched by kind")
            }
        };
        let (admitted, extra) = (VecDeque::new(), VecDeque::new());
        Sliding { limit, window, now, admitted, counted: 0, extra, is_cap: rule.longest().is_some() }
    }

    /// Returns the most that may be counted now, top-ups included.
    fn allowed(&self) -> u64 {
        self.extra.iter().fold(self.limit, |sum, (_, permits)| sum.saturating_add(*permits)).min(PERMITS_MAX)
    }

    /// Forgets the oldest `permits`. A refund does not say which permits came back. The oldest would have left first,
    /// so whichever came back, no window holds more than it should.
    fn forget(&mut self, permits: u64) {
        let mut left = permits.min(self.counted);
        self.counted -= left;
        while let Some((_, oldest)) = self.admitted.front_mut()
            && left > 0
        {
            let part = left.min(*oldest);
            *oldest -= part;
            left -= part;
            if *oldest == 0 {
                self.admitted.pop_front();
            }
        }
    }

    /// Scales the counts in proportion from a limit of `before` to the present one. The sum of the newest counts is
    /// rounded up at each count, so what rounding adds leaves last.
    fn scale(&mut self, before: u64) {
        let (mut sum, mut scaled) = (0, 0);
        for (_, permits) in self.admitted.iter_mut().rev() {
            sum += *permits;
            let next = scaled_up(sum, before, self.limit);
            *permits = next - scaled;
            scaled = next;
        }
        self.admitted.retain(|&(_, permits)| permits > 0);
        self.counted = scaled;
    }
}

impl Exact for Sliding {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        while let Some(&(at, permits)) = self.admitted.front()
            && at + self.window <= self.now
        {
            self.counted -= permits;
            self.admitted.pop_front();
        }
        while self.extra.front().is_some_and(|&(until, _)| until <= self.now) {
            self.extra.pop_front();
        }
    }

    fn available(&self) -> u64 {
        self.allowed().saturating_sub(self.counted)
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        if permits > self.limit {
            return None;
        }
        let (mut allowed, mut counted, mut ready) = (self.allowed(), self.counted, self.now);
        let mut extra = self.extra.iter().peekable();
        for &(at, oldest) in &self.admitted {
            if counted + permits <= allowed {
                break;
            }
            counted -= oldest;
            ready = at + self.window;
            while let Some(&(_, permits)) = extra.next_if(|&&(until, _)| until <= ready) {
                allowed -= permits;
            }
        }
        Some(ready)
    }

    fn take(&mut self, permits: u64) {
        self.counted += permits;
        match self.admitted.back_mut() {
            Some((at, last)) if *at == self.now => *last += permits,
            _ => self.admitted.push_back((self.now, permits)),
        }
    }

    fn refund(&mut self, permits: u64) {
        self.forget(permits);
    }

    fn top_up(&mut self, permits: u64) {
        if self.is_cap {
            return;
        }
        let until = self.now + self.window;
        let place = self.extra.partition_point(|&(other, _)| other <= until);
        self.extra.insert(place, (until, permits));
    }

    fn lapses(&self) -> bool {
        !self.extra.is_empty()
    }

    fn carried(&self, rule: &Rule, carry_over: CarryOver) -> Box<dyn Exact> {
        let fresh = Sliding::new(rule, self.now);
        if carry_over == CarryOver::Reset && !self.is_cap {
            return Box::new(fresh);
        }
        // Permits that count for a shorter time may be gone at once.
        let mut next = Sliding { limit: fresh.limit, window: fresh.window, ..self.clone() };
        next.advance(self.now);
        if carry_over == CarryOver::Proportional && !self.is_cap {
            next.scale(self.limit);
        }
        Box::new(next)
    }

    fn is_fresh(&self) -> bool {
        self.counted == 0 && self.extra.is_empty()
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
