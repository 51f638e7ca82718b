//! The suspensions of all limits of a shared store: paused limits and blocked nodes. They are in the head of the store. So all
//! allocators go by them, whichever allocator an operator told. An allocator that starts later does too.

use crate::rule::At;
use lessor_protocol::{Moment, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Suspended limits and blocked nodes of one store, together. The head is written several times a second.
pub const SUSPENDED_MAX: usize = 1_000;

/// The suspensions of all limits of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspensions {
    /// Counts decisions: of two, the higher is newer.
    serial: u64,
    limits: BTreeMap<String, Suspended>,
}

/// The suspension of one limit, on the clock of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspended {
    /// No node is lent anything before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<At>,
    /// These nodes are lent nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    blocked: BTreeSet<String>,
}

/// What an operator decides about the suspension of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No node is lent anything, for so long or until an operator resumes the limit.
    Pause(Option<Duration>),
    /// The pause ends.
    Resume,
    /// Nothing is lent to this node.
    Block(NodeName),
    /// This node is lent to again.
    Unblock(NodeName),
}

/// A store has [`SUSPENDED_MAX`] suspensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{SUSPENDED_MAX} nodes are blocked and limits closed in this store, as many as may be: lift one first"
)]
pub struct SuspensionsFull;

impl Suspensions {
    /// Decides about `limit`, when it is `now` on the clock of the store. Returns whether the pause or block was there before.
    ///
    /// # Errors
    /// If there is no room. Nothing changes then.
    pub fn decide(&mut self, limit: &str, decision: &Decision, now: Moment) -> Result<bool, SuspensionsFull> {
        let is_over = |until: &At| until.as_calendar() <= now;
        for suspended in self.limits.values_mut() {
            suspended.until = suspended.until.filter(|until| !is_over(until));
        }
        self.limits.retain(|_, suspended| *suspended != Suspended::default());
        let mut suspended = self.limits.get(limit).cloned().unwrap_or_default();
        let was_so = match decision {
            Decision::Pause(span) => {
                let until = span.map_or(Moment::NEVER, |span| now + span);
                suspended.until.replace(until.into()).is_some()
            }
            Decision::Resume => suspended.until.take().is_some(),
            Decision::Block(node) => !suspended.blocked.insert(node.to_string()),
            Decision::Unblock(node) => suspended.blocked.remove(node.as_str()),
        };
        let before = self.limits.insert(limit.to_owned(), suspended);
        if self.limits.len() + self.limits.values().map(|suspended| suspended.blocked.len()).sum::<usize>()
            > SUSPENDED_MAX
            && matches!(decision, Decision::Pause(_) | Decision::Block(_))
        {
            match before {
                Some(before) => _ = self.limits.insert(limit.to_owned(), before),
                None => _ = self.limits.remove(limit),
            }
            return Err(SuspensionsFull);
        }
        self.limits.retain(|_, suspended| *suspended != Suspended::default());
        self.serial += 1;
        Ok(was_so)
    }

    /// Whether no operator has decided anything yet.
    pub fn is_new(&self) -> bool {
        self.serial == 0
    }

    /// Whether more was decided here than there.
    pub fn is_newer(&self, than: &Suspensions) -> bool {
        self.serial > than.serial
    }

    /// The suspension of `limit`, if it has one.
    pub fn of(&self, limit: &str) -> Option<&Suspended> {
        self.limits.get(limit)
    }
}

impl Suspended {
    /// Until when the limit is paused: [`Moment::NEVER`] until an operator resumes it.
    pub fn until(&self) -> Option<Moment> {
        self.until.map(At::as_calendar)
    }

    /// The blocked nodes.
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
        let mut suspensions = Suspensions::default();
        assert_eq!(suspensions.decide("a", &Decision::Pause(Some(10 * SECOND)), at(1)), Ok(false));
        assert_eq!(suspensions.of("a").and_then(Suspended::until), Some(at(11)));
        assert_eq!(suspensions.decide("a", &Decision::Pause(None), at(2)), Ok(true));
        assert_eq!(suspensions.of("a").and_then(Suspended::until), Some(Moment::NEVER));
        assert_eq!(suspensions.decide("a", &Decision::Block(node("n")), at(3)), Ok(false));
        assert_eq!(suspensions.decide("a", &Decision::Resume, at(4)), Ok(true));
        assert_eq!(
            suspensions.of("a").map(|suspended| suspended.blocked().collect::<Vec<_>>()),
            Some(vec![node("n")])
        );
        assert_eq!(suspensions.decide("b", &Decision::Pause(Some(SECOND)), at(5)), Ok(false));
        assert_eq!(suspensions.decide("a", &Decision::Unblock(node("n")), at(7)), Ok(true));
        assert_eq!(
            (suspensions.of("a"), suspensions.of("b"), suspensions.serial),
            (None, None, 6),
            "the pause of b is over"
        );
        assert_eq!(suspensions.decide("a", &Decision::Resume, at(8)), Ok(false));
    }

    #[test]
    fn as_many_are_suspended_as_may_be_and_no_more() {
        let mut suspensions = Suspensions::default();
        for n in 1..SUSPENDED_MAX {
            assert!(suspensions.decide("a", &Decision::Block(node(&format!("n{n}"))), at(1)).is_ok());
        }
        let full = suspensions.clone();
        assert_eq!(suspensions.decide("a", &Decision::Block(node("n0")), at(1)), Err(SuspensionsFull));
        assert_eq!(suspensions.decide("b", &Decision::Pause(None), at(1)), Err(SuspensionsFull));
        assert_eq!(suspensions, full, "nothing changed");
        assert_eq!(suspensions.decide("a", &Decision::Block(node("n1")), at(1)), Ok(true));
        assert_eq!(suspensions.decide("a", &Decision::Pause(None), at(1)), Ok(false));
        assert_eq!(suspensions.decide("a", &Decision::Unblock(node("n1")), at(1)), Ok(true));
    }
}
