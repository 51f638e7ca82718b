//! The suspensions of all limits of a shared store: paused limits and blocked nodes. They are in the head of the store.
//! So all allocators follow them, whichever allocator an operator told, and so does an allocator that starts later.
//!
//! A store may lose what was written last, while allocators know it. So each decision has a stamp. Of two decisions
//! about one node, or about the pause of one limit, the later one holds, in whatever order they are heard of
//! ([`Suspensions::merge`]).

use crate::cells::check_count;
use crate::rule::At;
use lessor_protocol::{Moment, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Suspended limits and blocked nodes of one store, together. The bound keeps the head small, which is written several
/// times a second.
pub const SUSPENDED_MAX: usize = 1_000;

/// Milliseconds before the last decision for which a lifted pause or block is remembered. An allocator that was cut off
/// from the store for longer may bring back what it knows.
const LIFTED_LASTS: u64 = 3_600_000;

/// Lifted pauses and blocks of one store that are remembered: the last ones.
const LIFTED_MAX: usize = 200;

/// The suspensions of all limits of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspensions {
    /// The stamp of the last decision.
    serial: u64,
    limits: BTreeMap<String, Suspended>,
}

/// The suspension of one limit, on the clock of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspended {
    /// Moment until which no node is lent anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<At>,
    /// Nodes that are lent nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    blocked: BTreeSet<String>,
    /// The stamp of the last decision to pause or to resume; 0 if there was none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pause_stamp: u64,
    /// The era of the store's head in which the end of the pause was dated anew, or a later one; 0 if it was not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pause_era: u64,
    /// The stamps of the last decisions about nodes: about all blocked nodes, and about nodes that were blocked until
    /// lately.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_stamps: BTreeMap<String, u64>,
}

fn is_zero(stamp: &u64) -> bool {
    *stamp == 0
}

/// A decision of an operator about the suspension of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No node is lent anything for this long, or, without a span, until an operator resumes the limit.
    Pause(Option<Duration>),
    /// The pause ends.
    Resume,
    /// Nothing is lent to this node.
    Block(NodeName),
    /// This node may be lent permits again.
    Unblock(NodeName),
}

/// The error that a store has [`SUSPENDED_MAX`] suspensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this store has {SUSPENDED_MAX} blocked nodes and paused limits, the maximum: unblock or resume one first"
)]
pub struct SuspensionsFull;

impl Suspensions {
    /// Checks that later decisions and dates can follow these.
    ///
    /// # Errors
    /// If a number is too large.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_count("a stamp of gates", self.newest())?;
        let mut eras = self.limits.values().map(|suspended| suspended.pause_era);
        eras.try_for_each(|era| check_count("pause_era", era))
    }

    /// Returns the stamp of the last decision.
    fn newest(&self) -> u64 {
        self.limits.values().flat_map(Suspended::stamps).fold(self.serial, u64::max)
    }

    /// Decides about `limit`, when the clock of the store shows `now`. Returns whether the pause or block was there
    /// before.
    ///
    /// # Errors
    /// If there is no room. Nothing changes then.
    pub fn decide(&mut self, limit: &str, decision: &Decision, now: Moment) -> Result<bool, SuspensionsFull> {
        let mut next = self.clone();
        for suspended in next.limits.values_mut() {
            suspended.until = suspended.until.filter(|until| now < until.as_calendar());
        }
        // Later than all decisions that are known here. By the clock also later than earlier ones that are not known
        // here.
        let stamp = (self.newest() + 1).max(now.as_nanos() / 1_000_000);
        let was_so = next.limits.entry(limit.to_owned()).or_default().decide(decision, stamp, now);
        next.serial = stamp;
        if next.suspended() > SUSPENDED_MAX && matches!(decision, Decision::Pause(_) | Decision::Block(_)) {
            return Err(SuspensionsFull);
        }
        next.forget();
        *self = next;
        Ok(was_so)
    }

    /// Dates the ends of pauses anew where `era` begins: the clock, which showed `before`, shows `now`. How long ago that
    /// was is unknown, so each pause lasts as long as was left of it.
    pub fn date_anew(&mut self, era: u64, before: Moment, now: Moment) {
        for suspended in self.limits.values_mut() {
            if let Some(until) = suspended.until().filter(|until| *until != Moment::NEVER) {
                suspended.until = Some((now + until.since(before)).into());
                // Later than all earlier dates, though a store that lost a head counts eras again.
                suspended.pause_era = era.max(suspended.pause_era.saturating_add(1));
            }
        }
    }

    /// Returns these suspensions without the pauses that `other` has, too, or of which it knows a later decision or date.
    pub fn without_pauses_of(mut self, other: &Suspensions) -> Self {
        for (limit, suspended) in &mut self.limits {
            if other.limits.get(limit).is_some_and(|other| other.has_pause_of(suspended)) {
                (suspended.pause_stamp, suspended.pause_era, suspended.until) = (0, 0, None);
            }
        }
        self
    }

    /// Forgets pauses and blocks that were lifted long ago, and the oldest lifted ones if there are too many. The rest
    /// depends on the decisions alone, so allocators that know the same decisions remember the same.
    fn forget(&mut self) {
        let mut stamps: Vec<u64> = self.limits.values().flat_map(Suspended::lifted).collect();
        stamps.sort_unstable_by(|a, b| b.cmp(a));
        let too_many = stamps.get(LIFTED_MAX).copied().unwrap_or(0);
        let oldest = too_many.max(self.serial.saturating_sub(LIFTED_LASTS));
        self.limits.values_mut().for_each(|suspended| suspended.forget(oldest));
        self.limits.retain(|_, suspended| *suspended != Suspended::default());
    }

    /// Returns the number of limits and nodes that are suspended.
    fn suspended(&self) -> usize {
        let suspended = self.limits.values().filter(|suspended| !suspended.is_lifted());
        suspended.map(|suspended| 1 + suspended.blocked.len()).sum()
    }

    /// Whether no operator has decided anything yet.
    pub fn is_new(&self) -> bool {
        self.serial == 0
    }

    /// Merges `other` in. Of two decisions about one node, or about the pause of one limit, the later one holds.
    pub fn merge(&mut self, other: &Suspensions) {
        self.serial = self.serial.max(other.serial);
        for (limit, suspended) in &other.limits {
            match self.limits.get_mut(limit) {
                Some(known) => known.merge(suspended),
                None => _ = self.limits.insert(limit.clone(), suspended.clone()),
            }
        }
        self.forget();
    }

    /// Returns the suspension of `limit`, if it has one.
    pub fn of(&self, limit: &str) -> Option<&Suspended> {
        self.limits.get(limit).filter(|suspended| !suspended.is_lifted())
    }
}

impl Suspended {
    fn decide(&mut self, decision: &Decision, stamp: u64, now: Moment) -> bool {
        match decision {
            Decision::Pause(span) => {
                let until = span.map_or(Moment::NEVER, |span| now + span);
                (self.pause_stamp, self.pause_era) = (stamp, 0);
                self.until.replace(until.into()).is_some()
            }
            Decision::Resume => {
                (self.pause_stamp, self.pause_era) = (stamp, 0);
                self.until.take().is_some()
            }
            Decision::Block(node) => {
                self.node_stamps.insert(node.to_string(), stamp);
                !self.blocked.insert(node.to_string())
            }
            Decision::Unblock(node) => {
                self.node_stamps.insert(node.to_string(), stamp);
                self.blocked.remove(node.as_str())
            }
        }
    }

    /// Returns the stamps of all decisions that it knows.
    fn stamps(&self) -> impl Iterator<Item = u64> {
        self.node_stamps.values().copied().chain([self.pause_stamp])
    }

    /// Returns the stamps of lifted pauses and blocks.
    fn lifted(&self) -> impl Iterator<Item = u64> {
        let pause = (self.until.is_none() && self.pause_stamp > 0).then_some(self.pause_stamp);
        let nodes = self.node_stamps.iter().filter(|(node, _)| !self.blocked.contains(*node));
        pause.into_iter().chain(nodes.map(|(_, stamp)| *stamp))
    }

    /// Forgets pauses and blocks that were lifted by the stamp `oldest` or before.
    fn forget(&mut self, oldest: u64) {
        if self.until.is_none() && self.pause_stamp <= oldest {
            (self.pause_stamp, self.pause_era) = (0, 0);
        }
        let blocked = &self.blocked;
        self.node_stamps.retain(|node, stamp| blocked.contains(node) || *stamp > oldest);
    }

    /// Whether it has the pause of `other`, or a later decision about it, or a later date of it.
    fn has_pause_of(&self, other: &Suspended) -> bool {
        let dated = |suspended: &Suspended| (suspended.pause_stamp, suspended.pause_era);
        dated(self) > dated(other) || (dated(self) == dated(other) && self.until == other.until)
    }

    fn merge(&mut self, other: &Suspended) {
        // Of one decision, the date by the clock of the later era holds. Otherwise, with equal stamps, the decision that
        // lends less does.
        let pause = |suspended: &Suspended| (suspended.pause_stamp, suspended.pause_era, suspended.until());
        if pause(other) > pause(self) {
            (self.pause_stamp, self.pause_era, self.until) =
                (other.pause_stamp, other.pause_era, other.until);
        }
        for node in other.blocked.iter().chain(other.node_stamps.keys()) {
            let stamp = |suspended: &Suspended| suspended.node_stamps.get(node).copied().unwrap_or(0);
            let of_node = |suspended: &Suspended| (stamp(suspended), suspended.blocked.contains(node));
            if of_node(other) <= of_node(self) {
                continue;
            }
            match other.blocked.contains(node) {
                true => _ = self.blocked.insert(node.clone()),
                false => _ = self.blocked.remove(node),
            }
            if let Some(stamp) = other.node_stamps.get(node) {
                self.node_stamps.insert(node.clone(), *stamp);
            }
        }
    }

    /// Whether nothing of the limit is suspended any more.
    fn is_lifted(&self) -> bool {
        self.until.is_none() && self.blocked.is_empty()
    }

    /// Returns the end of the pause. It is [`Moment::NEVER`] if only an operator ends the pause.
    pub fn until(&self) -> Option<Moment> {
        self.until.map(At::as_calendar)
    }

    /// Returns the blocked nodes.
    pub fn blocked(&self) -> impl Iterator<Item = NodeName> {
        self.blocked.iter().filter_map(|node| NodeName::try_new(node).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::seconds as at;

    const SECOND: Duration = Duration::from_secs(1);

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
            (None, None, 7_000),
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

    /// Two allocators use a store that has lost something. One knows what was lost, and the other does not.
    #[test]
    fn of_two_decisions_about_the_same_the_later_one_holds_in_any_order() {
        let mut known = Suspensions::default();
        known.decide("a", &Decision::Block(node("n")), at(1)).expect("there is room");
        let before = known.clone();
        // The later decision holds, however many came before.
        known.decide("a", &Decision::Unblock(node("n")), at(2)).expect("there is room");
        known.decide("a", &Decision::Block(node("n")), at(2)).expect("there is room");
        known.decide("a", &Decision::Block(node("m")), at(2)).expect("there is room");
        known.decide("a", &Decision::Pause(None), at(2)).expect("there is room");
        // The store goes on from what it had, and another allocator decides.
        let mut lost = before.clone();
        lost.decide("a", &Decision::Unblock(node("n")), at(3)).expect("there is room");
        lost.decide("b", &Decision::Pause(None), at(4)).expect("there is room");
        let merged = |one: &Suspensions, other: &Suspensions| {
            let mut both = one.clone();
            both.merge(other);
            both
        };
        let both = merged(&known, &lost);
        assert_eq!(both, merged(&lost, &known));
        assert_eq!(both, merged(&both, &before), "what is older changes nothing");
        let of_a = both.of("a").expect("it is suspended");
        assert_eq!(
            (of_a.until(), of_a.blocked().collect::<Vec<_>>()),
            (Some(Moment::NEVER), vec![node("m")])
        );
        assert_eq!(both.of("b").and_then(Suspended::until), Some(Moment::NEVER));
    }

    /// Operators lift many suspensions, of one limit or of many, and allocators bring back what they know. The head,
    /// which is written several times a second, stays small.
    #[test]
    fn what_was_lifted_is_remembered_for_an_hour_and_not_without_end() {
        let (mut there, mut here) = (Suspensions::default(), Suspensions::default());
        for n in 0..3 * LIFTED_MAX {
            let (node, limit) = (node(&format!("n{n}")), format!("l{}", n % 7 * n));
            there.decide(&limit, &Decision::Block(node.clone()), at(1)).expect("there is room");
            there.decide(&limit, &Decision::Unblock(node), at(1)).expect("there is room");
            there.decide(&limit, &Decision::Resume, at(1)).expect("there is room");
            here.merge(&there);
            there.merge(&here);
            assert!(there.limits.values().flat_map(Suspended::lifted).count() <= LIFTED_MAX);
            assert!(here == there && here.limits.len() <= LIFTED_MAX);
        }
        there.decide("b", &Decision::Resume, at(3_700)).expect("there is room");
        here.merge(&there);
        assert_eq!(here.limits.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn suspensions_of_earlier_versions_have_no_stamps() {
        let row = r#"{"serial":1,"limits":{"a":{"blocked":["n"]}}}"#;
        let old: Suspensions = serde_json::from_str(row).expect("it is one");
        assert_eq!(serde_json::to_string(&old).expect("plain data"), row);
        let mut lifted = old.clone();
        lifted.decide("a", &Decision::Unblock(node("n")), at(1)).expect("there is room");
        let mut merged = old.clone();
        merged.merge(&lifted);
        assert_eq!((merged.of("a"), old.of("a").is_some()), (None, true));
    }
}
