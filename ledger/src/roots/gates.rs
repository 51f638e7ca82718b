//! What operators have decided about limits that several allocators lend: paused, and nodes that are blocked. It is in the head.
//! So all allocators go by it whichever of them was told, and an allocator that is started later does too.

use crate::rule::At;
use lessor_protocol::{Moment, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Nodes that can be blocked in one store, and limits that can be closed: the head is written several times a second.
pub const CLOSED_MAX: usize = 1_000;

/// To whom limits are closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// Counts what was decided: of two, the higher is newer.
    serial: u64,
    limits: BTreeMap<String, Closed>,
}

/// To whom one limit is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// To all, before this on the clock of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<At>,
    /// To these nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    blocked: BTreeSet<String>,
}

/// What an operator decides about a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is lent to any node, for so long or until an operator resumes it.
    Pause(Option<Duration>),
    /// It lends again.
    Resume,
    /// Nothing is lent to this node.
    Block(NodeName),
    /// It is lent to again.
    Unblock(NodeName),
}

/// There is room for no more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{CLOSED_MAX} nodes are blocked and limits closed in this store, as many as may be: lift one first")]
pub struct GatesFull;

impl Gates {
    /// Decides about `limit`, when it is `now` there: whether that was so of a pause or a block that is lifted or made.
    ///
    /// # Errors
    /// If there is no room. Nothing changes then.
    pub fn decide(&mut self, limit: &str, decision: &Decision, now: Moment) -> Result<bool, GatesFull> {
        let is_over = |until: &At| until.as_calendar() <= now;
        for closed in self.limits.values_mut() {
            closed.until = closed.until.filter(|until| !is_over(until));
        }
        self.limits.retain(|_, closed| *closed != Closed::default());
        let mut closed = self.limits.get(limit).cloned().unwrap_or_default();
        let was_so = match decision {
            Decision::Pause(span) => {
                let until = span.map_or(Moment::NEVER, |span| now + span);
                closed.until.replace(until.into()).is_some()
            }
            Decision::Resume => closed.until.take().is_some(),
            Decision::Block(node) => !closed.blocked.insert(node.to_string()),
            Decision::Unblock(node) => closed.blocked.remove(node.as_str()),
        };
        let before = self.limits.insert(limit.to_owned(), closed);
        if self.limits.len() + self.limits.values().map(|closed| closed.blocked.len()).sum::<usize>()
            > CLOSED_MAX
            && matches!(decision, Decision::Pause(_) | Decision::Block(_))
        {
            match before {
                Some(before) => _ = self.limits.insert(limit.to_owned(), before),
                None => _ = self.limits.remove(limit),
            }
            return Err(GatesFull);
        }
        self.limits.retain(|_, closed| *closed != Closed::default());
        self.serial += 1;
        Ok(was_so)
    }

    /// Whether no operator has decided anything.
    pub fn is_new(&self) -> bool {
        self.serial == 0
    }

    /// Whether more was decided here than there.
    pub fn is_newer(&self, than: &Gates) -> bool {
        self.serial > than.serial
    }

    /// To whom `limit` is closed.
    pub fn of(&self, limit: &str) -> Option<&Closed> {
        self.limits.get(limit)
    }
}

impl Closed {
    /// Until when to all: [`Moment::NEVER`] until an operator opens it.
    pub fn until(&self) -> Option<Moment> {
        self.until.map(At::as_calendar)
    }

    /// To which nodes.
    pub fn blocked(&self) -> impl Iterator<Item = NodeName> {
        self.blocked.iter().filter_map(|node| NodeName::try_new(node).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(seconds)
    }

    fn node(name: &str) -> NodeName {
        NodeName::try_new(name).expect("valid")
    }

    #[test]
    fn what_is_decided_last_holds_and_what_is_over_is_forgotten() {
        let mut gates = Gates::default();
        assert_eq!(gates.decide("a", &Decision::Pause(Some(10 * SECOND)), at(1)), Ok(false));
        assert_eq!(gates.of("a").and_then(Closed::until), Some(at(11)));
        assert_eq!(gates.decide("a", &Decision::Pause(None), at(2)), Ok(true));
        assert_eq!(gates.of("a").and_then(Closed::until), Some(Moment::NEVER));
        assert_eq!(gates.decide("a", &Decision::Block(node("n")), at(3)), Ok(false));
        assert_eq!(gates.decide("a", &Decision::Resume, at(4)), Ok(true));
        assert_eq!(gates.of("a").map(|closed| closed.blocked().collect::<Vec<_>>()), Some(vec![node("n")]));
        assert_eq!(gates.decide("b", &Decision::Pause(Some(SECOND)), at(5)), Ok(false));
        assert_eq!(gates.decide("a", &Decision::Unblock(node("n")), at(7)), Ok(true));
        assert_eq!((gates.of("a"), gates.of("b"), gates.serial), (None, None, 6), "the pause of b is over");
        assert_eq!(gates.decide("a", &Decision::Resume, at(8)), Ok(false));
    }

    #[test]
    fn as_many_are_closed_as_may_be_and_no_more() {
        let mut gates = Gates::default();
        for n in 1..CLOSED_MAX {
            assert!(gates.decide("a", &Decision::Block(node(&format!("n{n}"))), at(1)).is_ok());
        }
        let full = gates.clone();
        assert_eq!(gates.decide("a", &Decision::Block(node("n0")), at(1)), Err(GatesFull));
        assert_eq!(gates.decide("b", &Decision::Pause(None), at(1)), Err(GatesFull));
        assert_eq!(gates, full, "nothing changed");
        assert_eq!(gates.decide("a", &Decision::Block(node("n1")), at(1)), Ok(true));
        assert_eq!(gates.decide("a", &Decision::Pause(None), at(1)), Ok(false));
        assert_eq!(gates.decide("a", &Decision::Unblock(node("n1")), at(1)), Ok(true));
    }
}
