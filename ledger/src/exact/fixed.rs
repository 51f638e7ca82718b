//! At most N in each of the windows that follow each other. A permit taken counts until its window ends, and not a
//! nanosecond longer.

use super::Exact;
use crate::rule::{FixedWindow, scaled_up};
use crate::{CarryOver, Rule};
use lessor_protocol::{Moment, PERMITS_MAX};

/// The books of a fixed window: the window that holds `now`.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    rule: FixedWindow,
    now: Moment,
    /// When the window ends. `None` while none is open: before the first use, and after the last window.
    end: Option<Moment>,
    /// Permits taken in the window. Above the limit only after a change.
    counted: u64,
    /// Permits on top of the limit in the window, or in the next one if none is open.
    extra: u64,
}

impl Fixed {
    /// Creates an empty window at `now`.
    pub(super) fn new(rule: &FixedWindow, now: Moment) -> Self {
        Fixed { rule: *rule, now, end: rule.windows().end_after(now), counted: 0, extra: 0 }
    }
}

impl Exact for Fixed {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.end.is_some_and(|end| end <= self.now) {
            self.end = self.rule.windows().end_after(self.now);
            (self.counted, self.extra) = (0, 0);
        }
    }

    fn available(&self) -> u64 {
        self.rule.limit().saturating_add(self.extra).min(PERMITS_MAX).saturating_sub(self.counted)
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.rule.limit() {
            self.end
        } else {
            None
        }
    }

    fn take(&mut self, permits: u64) {
        if permits > 0 {
            self.end = self.end.or(Some(self.now + self.rule.per()));
        }
        self.counted += permits;
    }

    fn refund(&mut self, permits: u64) {
        self.counted = self.counted.saturating_sub(permits);
    }

    fn top_up(&mut self, permits: u64) {
        self.extra = self.extra.saturating_add(permits);
    }

    fn lapses(&self) -> bool {
        self.extra > 0
    }

    fn carried(&self, rule: &Rule, carry_over: CarryOver) -> Box<dyn Exact> {
        let Rule::FixedWindow(rule) = rule else {
            unreachable!("rules are matched by kind");
        };
        let counted = match carry_over {
            CarryOver::Reset => 0,
            CarryOver::Proportional => scaled_up(self.counted, self.rule.limit(), rule.limit()),
            CarryOver::AsIs | CarryOver::Additive => self.counted,
        };
        let next = Fixed::new(rule, self.now);
        if carry_over == CarryOver::Reset {
            return Box::new(next);
        }
        // A window that first use has opened goes on, if it is as long.
        let opened = self.end.filter(|_| rule.windows() == self.rule.windows());
        Box::new(Fixed { counted, end: next.end.or(opened), extra: self.extra, ..next })
    }

    fn is_fresh(&self) -> bool {
        // A window that first use has opened ends when it ends, whatever is counted in it.
        self.counted == 0 && self.extra == 0 && self.end == self.rule.windows().end_after(self.now)
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
