//! Roots that this allocator has asked, and that may be of no use after a while without asks.

use super::{RootAsk, RootSpec};
use lessor_protocol::Moment;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time without asks after which a root is looked at. Sessions are remembered for nearly as long, and a root with a
/// session stays.
const AFTER: Duration = Duration::from_secs(12);

/// Most roots looked at in one go: so a flood of new keys leaves no more behind than a store can take away.
const BATCH: usize = 500;

/// Most roots that are remembered. Each takes some hundred bytes.
const MAX: usize = 200_000;

/// Roots, by when they are to be looked at.
#[derive(Debug, Default)]
pub(super) struct Idle {
    roots: BTreeMap<String, (RootSpec, Moment)>,
    /// Each root once, the one to be looked at first in front.
    order: VecDeque<(Moment, String)>,
}

impl Idle {
    /// Notes that roots are asked at `now`.
    pub(super) fn used<'a>(&mut self, asks: impl Iterator<Item = &'a RootAsk>, now: Moment) {
        for ask in asks {
            match self.roots.get_mut(&ask.name) {
                // Its place in `order` is moved once it is due.
                Some((_, used)) => *used = now,
                None => self.again(ask.name.clone(), ask.spec.clone(), now),
            }
        }
    }

    /// Schedules another look at a root.
    pub(super) fn again(&mut self, name: String, spec: RootSpec, now: Moment) {
        if self.roots.len() < MAX {
            self.order.push_back((now + AFTER, name.clone()));
            self.roots.insert(name, (spec, now));
        }
    }

    /// Returns the roots that were not asked for long enough, and forgets them.
    pub(super) fn due(&mut self, now: Moment) -> Vec<(String, RootSpec)> {
        let mut due = vec![];
        for _ in 0..BATCH {
            if self.order.front().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((_, name)) = self.order.pop_front() else { break };
            let Some((spec, used)) = self.roots.remove(&name) else { continue };
            if used + AFTER <= now {
                due.push((name, spec));
            } else {
                self.order.push_back((used + AFTER, name.clone()));
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
    use crate::share::Sharing;
    use lessor_protocol::{Ask, ClockBounds};

    #[test]
    fn a_root_is_due_once_it_was_not_asked_for_long_enough() {
        let plan = Plan {
            rules: vec![],
            is_borrowed: false,
            is_root: true,
            clocks: ClockBounds::default(),
            ease_off: false,
            lessees_max: 1,
            sharing: Sharing::default(),
        };
        let spec = RootSpec {
            compiled: CompiledPlan::new(plan, TimeSource::Store),
            version: Some(Version::of_file(1)),
            parent_ref: ParentRef::default(),
        };
        let ask = |name: &str| RootAsk {
            name: name.to_owned(),
            spec: spec.clone(),
            ask: Ask::default(),
            safe: None,
            groups: vec![],
        };
        let at = |seconds| Moment::ORIGIN + Duration::from_secs(seconds);
        let names = |due: Vec<(String, RootSpec)>| due.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let mut idle = Idle::default();
        idle.used([ask("a"), ask("b")].iter(), at(0));
        idle.used([ask("a")].iter(), at(5));
        assert!(idle.due(at(11)).is_empty());
        assert_eq!(names(idle.due(at(12))), ["b"]);
        assert!(idle.due(at(16)).is_empty());
        assert_eq!(names(idle.due(at(17))), ["a"]);
        assert!(idle.due(at(100)).is_empty() && idle.roots.is_empty() && idle.order.is_empty());
    }
}
