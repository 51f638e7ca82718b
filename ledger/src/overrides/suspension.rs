//! The nodes to which a limit lends nothing: all nodes while it is paused, and blocked nodes. An allocator asks the
//! [`Suspension`] of a limit before it asks a pool.

use super::Suspended;
use crate::rule::{At, Gap, Since};
use lessor_protocol::{ClockBounds, Moment, NodeName, Refusal, RefusalReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes that can be blocked at a time. Each takes a hundred bytes. An operator who wants to keep out more lowers the
/// limit.
pub const BLOCKED_MAX: usize = 1_000;

/// Retry delay of a refusal without a known end. Pushes are faster; this is for nodes that do not hear them.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The suspension of one limit, on the clock of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// Moment until which no node is lent anything.
    paused_until: Option<Moment>,
    blocked: BTreeSet<NodeName>,
    /// The suspension in a shared store that was followed last.
    followed: Suspended,
}

/// A suspension as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSuspension {
    /// The moment of writing, and the moment until which the limit is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<(At, At)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    blocked: BTreeSet<String>,
}

impl SavedSuspension {
    /// Whether it suspends nothing.
    pub fn is_empty(&self) -> bool {
        *self == SavedSuspension::default()
    }

    /// Restores the suspension at `now`. After an unknown gap, a pause lasts as long as was left of it when it was
    /// written down.
    pub fn read(&self, gap: Gap, now: Moment, clocks: ClockBounds) -> Suspension {
        let until = |(written, until): (At, At)| match until == Moment::NEVER.into() {
            true => Moment::NEVER,
            false => Since { gap, written, now, clocks }.moment(until),
        };
        let blocked = self.blocked.iter().filter_map(|node| NodeName::try_new(node).ok());
        let paused_until = self.pause.map(until);
        Suspension { paused_until, blocked: blocked.collect(), followed: Suspended::default() }
    }
}

/// A change of a suspension, as nodes notice it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// No node is lent anything any more.
    Paused,
    /// All nodes may be lent something again.
    Resumed,
    /// This node is lent nothing any more.
    Blocked(NodeName),
    /// This node, which was blocked, may be lent something again.
    Unblocked(NodeName),
}

impl Suspension {
    /// Follows `suspended`, which is on a clock that shows `there` when it is `now` here. Returns what is new.
    pub fn follow(&mut self, suspended: &Suspended, there: Moment, now: Moment) -> Vec<News> {
        if self.followed == *suspended {
            return vec![];
        }
        self.followed = suspended.clone();
        let was_paused = self.paused_until(now).is_some();
        let here = |until: Moment| if until == Moment::NEVER { until } else { now + until.since(there) };
        self.paused_until = suspended.until().map(here);
        let before = std::mem::replace(&mut self.blocked, suspended.blocked().collect());
        let mut news: Vec<News> = self.blocked.difference(&before).cloned().map(News::Blocked).collect();
        news.extend(before.difference(&self.blocked).cloned().map(News::Unblocked));
        let is_paused = self.paused_until(now).is_some();
        if is_paused && !was_paused {
            news.push(News::Paused);
        }
        if was_paused && !is_paused {
            news.push(News::Resumed);
        }
        news
    }

    /// Pauses the limit until `until`.
    pub fn pause(&mut self, until: Moment) {
        self.paused_until = Some(until);
    }

    /// Ends a pause. Returns whether there was one.
    pub fn resume(&mut self, now: Moment) -> bool {
        let was_paused = self.paused_until(now).is_some();
        self.paused_until = None;
        was_paused
    }

    /// Returns the end of the pause, if the limit is paused. It is [`Moment::NEVER`] if only an operator ends the
    /// pause.
    pub fn paused_until(&self, now: Moment) -> Option<Moment> {
        self.paused_until.filter(|until| now < *until)
    }

    /// Blocks `node`. Returns false if [`BLOCKED_MAX`] nodes are blocked already.
    pub fn block(&mut self, node: NodeName) -> bool {
        let has_room = self.blocked.len() < BLOCKED_MAX || self.blocked.contains(&node);
        if has_room {
            self.blocked.insert(node);
        }
        has_room
    }

    /// Unblocks `node`. Returns whether it was blocked.
    pub fn unblock(&mut self, node: &NodeName) -> bool {
        self.blocked.remove(node)
    }

    /// Returns the suspension as it is written down `now`.
    pub fn save(&self, now: Moment) -> SavedSuspension {
        let pause = self.paused_until(now).map(|until| (now.into(), until.into()));
        SavedSuspension { pause, blocked: self.blocked.iter().map(NodeName::to_string).collect() }
    }

    /// Returns the blocked nodes.
    pub fn blocked(&self) -> &BTreeSet<NodeName> {
        &self.blocked
    }

    /// Returns the refusal that `node` gets instead of a grant, if the limit is suspended for it.
    pub fn refusal(&self, now: Moment, node: &NodeName) -> Option<Refusal> {
        if let Some(until) = self.paused_until(now) {
            let retry_after = if until == Moment::NEVER { ASK_AGAIN } else { until.since(now) };
            return Some(Refusal { reason: RefusalReason::Paused, retry_after });
        }
        self.blocked
            .contains(node)
            .then_some(Refusal { reason: RefusalReason::Blocked, retry_after: ASK_AGAIN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::{Decision, Suspensions};

    #[test]
    fn a_pause_ends_by_itself_and_a_block_does_not() {
        let (now, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
        let node = |name: &str| NodeName::try_new(name).expect("valid");
        let mut suspension = Suspension::default();
        assert_eq!(suspension.refusal(now, &node("a")), None);
        assert!(suspension.block(node("a")));
        suspension.pause(later);
        let refusal = suspension.refusal(now, &node("b")).expect("paused");
        assert_eq!((refusal.reason, refusal.retry_after), (RefusalReason::Paused, Duration::from_nanos(4)));
        assert_eq!(suspension.refusal(later, &node("b")), None);
        assert_eq!(
            suspension.refusal(later, &node("a")).map(|refusal| refusal.reason),
            Some(RefusalReason::Blocked)
        );
        assert!(suspension.unblock(&node("a")) && !suspension.unblock(&node("a")));
        assert_eq!(suspension.refusal(later, &node("a")), None);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_no_node_is_let_in_sooner() {
        let clocks = ClockBounds::try_new(1_000).expect("valid");
        let [decided, written, until] = [0, 4_000_000, 10_000_000].map(Moment::from_nanos);
        let now = Moment::from_nanos(1_000_000_000);
        let node = NodeName::try_new("a").expect("valid");
        let mut suspension = Suspension::default();
        assert!(suspension.save(decided).is_empty());
        suspension.pause(until);
        assert!(suspension.block(node.clone()));
        let saved = suspension.save(written);
        assert!(!saved.is_empty());
        let text = serde_json::to_string(&saved).expect("plain data");
        assert_eq!(serde_json::from_str::<SavedSuspension>(&text).expect("as written"), saved);
        assert_eq!(saved.read(Gap::Counted, Moment::from_nanos(5_000_000), clocks), suspension);
        let after = saved.read(Gap::Unknown, now, clocks);
        assert_eq!(
            after.paused_until(now),
            Some(now + clocks.stretched(until.since(written))),
            "what was left of it"
        );
        assert!(after.blocked().contains(&node));
        suspension.pause(Moment::NEVER);
        assert_eq!(
            suspension.save(written).read(Gap::Unknown, now, clocks).paused_until(now),
            Some(Moment::NEVER),
            "until an operator resumes it"
        );
        suspension.pause(until);
        assert_eq!(suspension.save(until).pause, None, "it is over");
    }

    #[test]
    fn as_many_are_blocked_as_can_be_and_no_more() {
        let mut suspension = Suspension::default();
        let node = |n: usize| NodeName::try_new(&format!("node-{n}")).expect("valid");
        assert!((0..BLOCKED_MAX).all(|n| suspension.block(node(n))));
        assert!(!suspension.block(node(BLOCKED_MAX)));
        assert!(suspension.block(node(0)), "it was already");
    }

    #[test]
    fn it_follows_what_was_decided_elsewhere_once_on_its_own_clock() {
        let (there, here) = (Moment::from_nanos(1_000), Moment::from_nanos(5));
        let node = NodeName::try_new("a").expect("valid");
        let (mut suspensions, mut suspension) = (Suspensions::default(), Suspension::default());
        let decide = |suspensions: &mut Suspensions, decision| {
            suspensions.decide("x", &decision, there).expect("room")
        };
        decide(&mut suspensions, Decision::Pause(Some(Duration::from_nanos(7))));
        decide(&mut suspensions, Decision::Block(node.clone()));
        let suspended = suspensions.of("x").cloned().unwrap_or_default();
        assert_eq!(suspension.follow(&suspended, there, here), [News::Blocked(node.clone()), News::Paused]);
        assert_eq!(suspension.paused_until(here), Some(Moment::from_nanos(12)));
        assert_eq!(
            suspension.follow(&suspended, there, Moment::from_nanos(9)),
            [],
            "the pause is no longer for that"
        );
        assert_eq!(suspension.paused_until(here), Some(Moment::from_nanos(12)));
        let ended = suspension.follow(&Suspended::default(), there, here);
        assert_eq!(ended, [News::Unblocked(node), News::Resumed]);
        assert_eq!((suspension.paused_until(here), suspension.blocked().len()), (None, 0));
    }
}
