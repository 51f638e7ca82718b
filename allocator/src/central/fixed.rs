//! At most N in each of the windows that follow each other. What was taken counts until its window ends, and not a
//! nanosecond longer.

use super::Exact;
use super::carry::{Carry, scaled_up};
use lessor_protocol::moment::nanos;
use lessor_protocol::rule::FixedWindow;
use lessor_protocol::{Moment, Rule};

/// The window that holds the present.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    rule: FixedWindow,
    now: Moment,
    /// When it ends.
    end: Moment,
    /// Taken in it. Above the limit only after a change.
    counted: u64,
}

impl Fixed {
    /// An empty window at `now`.
    pub(super) fn new(rule: &FixedWindow, now: Moment) -> Self {
        Fixed { rule: *rule, now, end: end_of(rule, now), counted: 0 }
    }
}

/// The end of the window of `rule` that holds `at`.
fn end_of(rule: &FixedWindow, at: Moment) -> Moment {
    let per = nanos(rule.per());
    Moment::from_nanos((at.as_nanos() / per + 1).saturating_mul(per))
}

impl Exact for Fixed {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.now >= self.end {
            self.end = end_of(&self.rule, self.now);
            self.counted = 0;
        }
    }

    fn available(&self) -> u64 {
        self.rule.limit().saturating_sub(self.counted)
    }

    fn ready_at(&self, permits: u64) -> Option<Moment> {
        if permits <= self.available() {
            Some(self.now)
        } else if permits <= self.rule.limit() {
            Some(self.end)
        } else {
            None
        }
    }

    fn take(&mut self, permits: u64) {
        self.counted += permits;
    }

    fn refund(&mut self, permits: u64) {
        self.counted = self.counted.saturating_sub(permits);
    }

    fn top_up(&mut self, permits: u64) {
        self.refund(permits);
    }

    fn carried(&self, rule: &Rule, carry: Carry) -> Box<dyn Exact> {
        let Rule::FixedWindow(rule) = rule else {
            unreachable!("rules are matched by kind");
        };
        let counted = match carry {
            Carry::Reset => 0,
            Carry::Proportional => scaled_up(self.counted, rule.limit(), self.rule.limit()),
            Carry::AsIs | Carry::Additive => self.counted,
        };
        Box::new(Fixed { counted, ..Fixed::new(rule, self.now) })
    }

    fn is_fresh(&self) -> bool {
        self.counted == 0
    }

    fn copy(&self) -> Box<dyn Exact> {
        Box::new(self.clone())
    }
}
