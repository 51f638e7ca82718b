//! Roots that this allocator has asked, and that may be of no use after a while without asks.

use super::{RootAsk, RootSpec};
use lessor_protocol::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time without asks after which a root is looked at. Sessions are remembered for nearly as long, and a root with a
/// session stays.
const AFTER: Duration = Duration::from_secs(12);

/// Most roots looked at in one go, so that the next exchange does not wait for long.
const BATCH: usize = 500;

/// Most roots looked at in one go while looks are late: so a flood of new keys leaves no more behind than a store can
/// take away.
const BATCH_LATE: usize = 2_000;

/// How late a look is by then.
const LATE: Duration = Duration::from_secs(1);

/// Most roots that are remembered. Each takes some hundred bytes.
const MAX: usize = 200_000;

/// Roots, by when they are to be looked at.
#[derive(Debug, Default)]
pub(super) struct Idle {
    roots: BTreeMap<String, (RootSpec, Moment)>,
    /// Each root once, by when it is to be looked at.
    order: BTreeSet<(Moment, String)>,
    /// Whether roots were not remembered, for want of room.
    overflows: Overflow,
}

/// Whether there was room to remember all roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Overflow {
    #[default]
    No,
    /// There was not, and no caller has been told.
    Untold,
    Told,
}

impl Idle {
    /// Notes that roots are asked at `now`.
    pub(super) fn used<'a>(&mut self, asks: impl Iterator<Item = &'a RootAsk>, now: Moment) {
        for ask in asks {
            match self.roots.get_mut(&ask.name) {
                // Its place in `order` is moved once it is due.
                Some((_, used)) => *used = now,
                None => self.again(ask.name.clone(), ask.spec.clone(), now, AFTER),
            }
        }
    }

    /// Schedules another look at a root, after `wait` or [`AFTER`].
    pub(super) fn again(&mut self, name: String, spec: RootSpec, now: Moment, wait: Duration) {
        if self.roots.len() < MAX {
            self.order.insert((now + wait.max(AFTER), name.clone()));
            self.roots.insert(name, (spec, now));
        } else if self.overflows == Overflow::No {
            self.overflows = Overflow::Untold;
        }
    }

    /// Whether a root was not remembered, for the first time since there was plenty of room.
    pub(super) fn has_overflowed(&mut self) -> bool {
        let is_untold = self.overflows == Overflow::Untold;
        if is_untold {
            self.overflows = Overflow::Told;
        } else if self.roots.len() < MAX / 2 {
            self.overflows = Overflow::No;
        }
        is_untold
    }

    /// Returns the roots that were not asked for long enough, and forgets them.
    pub(super) fn due(&mut self, now: Moment) -> Vec<(String, RootSpec)> {
        let mut due = vec![];
        let is_late = self.order.first().is_some_and(|(at, _)| *at + LATE <= now);
        for _ in 0..if is_late { BATCH_LATE } else { BATCH } {
            if self.order.first().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((_, name)) = self.order.pop_first() else { break };
            let Some((spec, used)) = self.roots.remove(&name) else { continue };
            if used + AFTER <= now {
                due.push((name, spec));
            } else {
                self.order.insert((used + AFTER, name.clone()));
                self.roots.insert(name, (spec, used));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::Version;
    use crate::pool::Plan;
    use crate::roots::TimeSource;
    use crate::roots::{CompiledPlan, ParentRef};
    use lessor_protocol::Ask;
    use lessor_protocol::moment::seconds as at;

    fn ask(name: &str) -> RootAsk {
        let plan = Plan { is_root: true, lessees_max: 1, ..Plan::of(vec![]) };
        let spec = RootSpec {
            compiled: CompiledPlan::new(plan, TimeSource::Store),
            version: Some(Version::of_file(1)),
            parent_ref: ParentRef::default(),
        };
        RootAsk { name: name.to_owned(), spec, ask: Ask::default(), safe: None, groups: vec![] }
    }

    fn names(due: Vec<(String, RootSpec)>) -> Vec<String> {
        due.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_root_is_due_once_it_was_not_asked_for_long_enough() {
        let mut idle = Idle::default();
        idle.used([ask("a"), ask("b")].iter(), at(0));
        idle.used([ask("a")].iter(), at(5));
        assert!(idle.due(at(11)).is_empty());
        assert_eq!(names(idle.due(at(12))), ["b"]);
        assert!(idle.due(at(16)).is_empty());
        assert_eq!(names(idle.due(at(17))), ["a"]);
        assert!(idle.due(at(100)).is_empty() && idle.roots.is_empty() && idle.order.is_empty());
    }

    /// The bug: each root that still counted was looked at every twelve seconds, however long its window.
    #[test]
    fn a_root_that_counts_for_an_hour_is_looked_at_when_the_hour_is_over() {
        let mut idle = Idle::default();
        let RootAsk { name, spec, .. } = ask("long");
        idle.again(name, spec.clone(), at(0), Duration::from_secs(3_600));
        idle.again("short".to_owned(), spec, at(10), Duration::ZERO);
        assert_eq!(names(idle.due(at(22))), ["short"]);
        assert!(idle.due(at(3_599)).is_empty());
        idle.used([ask("long")].iter(), at(3_599));
        assert!(idle.due(at(3_600)).is_empty(), "it is in use again");
        assert_eq!(names(idle.due(at(3_611))), ["long"]);
    }

    /// The bug: roots beyond the bound stayed in the store for good, and no log said so. A flood of keys that was over was
    /// looked at no faster.
    #[test]
    fn roots_beyond_the_bound_are_told_of_once_and_late_looks_are_made_up_for() {
        let (mut idle, spec) = (Idle::default(), ask("").spec);
        let fill = |idle: &mut Idle, from: usize, to: usize, now: Moment| {
            (from..to).for_each(|n| idle.again(n.to_string(), spec.clone(), now, Duration::ZERO));
        };
        fill(&mut idle, 0, MAX, at(0));
        assert!(!idle.has_overflowed());
        for told in [true, false] {
            fill(&mut idle, MAX, MAX + 2, at(0));
            assert_eq!((idle.has_overflowed(), idle.roots.len()), (told, MAX));
        }
        assert_eq!(idle.due(at(12)).len(), BATCH);
        while idle.roots.len() >= MAX / 2 {
            assert_eq!(idle.due(at(13)).len(), BATCH_LATE, "of {}", idle.roots.len());
        }
        assert!(!idle.has_overflowed());
        fill(&mut idle, MAX, 2 * MAX, at(13));
        assert!(idle.has_overflowed(), "it is another flood");
    }
}
