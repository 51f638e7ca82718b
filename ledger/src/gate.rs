//! To which nodes a limit lends nothing, whatever is left of it: to all nodes while it is paused, and always to a node that is
//! blocked. Operators decide it; the allocator asks a gate before it asks a pool.

use crate::roots::Closed;
use crate::rule::{At, Gap, Since};
use lessor_protocol::{ClockBounds, Moment, NodeName, Refusal, RefusalReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes that can be blocked at a time. An operator who wants to keep out more should lower the limit. Each blocked node takes
/// a hundred bytes.
pub const BLOCKED_MAX: usize = 1_000;

/// When to ask again where the time is unknown. Pushes are faster; this is for nodes that do not hear them.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// To whom nothing is lent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Nothing is lent to any node before this.
    paused_until: Option<Moment>,
    blocked: BTreeSet<NodeName>,
    /// What was followed last of what all allocators of a store know.
    followed: Closed,
}

/// A gate as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedGate {
    /// When it was, and until when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<(At, At)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    blocked: BTreeSet<String>,
}

impl SavedGate {
    /// Whether it keeps out no node.
    pub fn is_open(&self) -> bool {
        *self == SavedGate::default()
    }

    /// The gate that it is `now`. After a gap that was not counted a pause lasts as long from now on as it had to when it was
    /// written down.
    pub fn read(&self, gap: Gap, now: Moment, clocks: ClockBounds) -> Gate {
        let until = |(written, until): (At, At)| match until == Moment::NEVER.into() {
            true => Moment::NEVER,
            false => Since { gap, written, now, clocks }.moment(until),
        };
        let blocked = self.blocked.iter().filter_map(|node| NodeName::try_new(node).ok());
        Gate { paused_until: self.pause.map(until), blocked: blocked.collect(), followed: Closed::default() }
    }
}

/// What is new of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// No node is lent anything any more.
    Paused,
    /// Everybody, or a node, may be lent something again.
    Resumed,
    /// This node is lent nothing any more.
    Blocked(NodeName),
}

impl Gate {
    /// It is to be as `closed` says, which is on a clock that shows `there` when it is `now` here. What is new by that.
    pub fn follow(&mut self, closed: &Closed, there: Moment, now: Moment) -> Vec<News> {
        if self.followed == *closed {
            return vec![];
        }
        self.followed = closed.clone();
        let was_paused = self.pause(now).is_some();
        let here = |until: Moment| if until == Moment::NEVER { until } else { now + until.since(there) };
        self.paused_until = closed.until().map(here);
        let before = std::mem::replace(&mut self.blocked, closed.blocked().collect());
        let mut news: Vec<News> = self.blocked.difference(&before).cloned().map(News::Blocked).collect();
        let is_paused = self.pause(now).is_some();
        if is_paused && !was_paused {
            news.push(News::Paused);
        }
        if (was_paused && !is_paused) || !before.is_subset(&self.blocked) {
            news.push(News::Resumed);
        }
        news
    }

    /// No node is lent anything before `until`.
    pub fn close(&mut self, until: Moment) {
        self.paused_until = Some(until);
    }

    /// Lends to every node again. Whether it was paused.
    pub fn open(&mut self, now: Moment) -> bool {
        let was_paused = self.pause(now).is_some();
        self.paused_until = None;
        was_paused
    }

    /// Until when it is paused, if it is: [`Moment::NEVER`] until an operator opens it.
    pub fn pause(&self, now: Moment) -> Option<Moment> {
        self.paused_until.filter(|until| now < *until)
    }

    /// Lends nothing to `node` from now on; false if as many are blocked as can be.
    pub fn block(&mut self, node: NodeName) -> bool {
        let has_room = self.blocked.len() < BLOCKED_MAX || self.blocked.contains(&node);
        if has_room {
            self.blocked.insert(node);
        }
        has_room
    }

    /// Lends to `node` again. Whether it was blocked.
    pub fn unblock(&mut self, node: &NodeName) -> bool {
        self.blocked.remove(node)
    }

    /// As it is written down `now`.
    pub fn save(&self, now: Moment) -> SavedGate {
        let pause = self.pause(now).map(|until| (now.into(), until.into()));
        SavedGate { pause, blocked: self.blocked.iter().map(NodeName::to_string).collect() }
    }

    /// Nodes that are blocked.
    pub fn blocked(&self) -> &BTreeSet<NodeName> {
        &self.blocked
    }

    /// What `node` is to be told instead of a grant, if anything is.
    pub fn refusal(&self, now: Moment, node: &NodeName) -> Option<Refusal> {
        if let Some(until) = self.pause(now) {
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
    use crate::roots::{Decision, Gates};

    #[test]
    fn a_pause_ends_by_itself_and_a_block_does_not() {
        let (now, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
        let node = |name: &str| NodeName::try_new(name).expect("valid");
        let mut gate = Gate::default();
        assert_eq!(gate.refusal(now, &node("a")), None);
        assert!(gate.block(node("a")));
        gate.close(later);
        let refusal = gate.refusal(now, &node("b")).expect("paused");
        assert_eq!((refusal.reason, refusal.retry_after), (RefusalReason::Paused, Duration::from_nanos(4)));
        assert_eq!(gate.refusal(later, &node("b")), None);
        assert_eq!(
            gate.refusal(later, &node("a")).map(|refusal| refusal.reason),
            Some(RefusalReason::Blocked)
        );
        assert!(gate.unblock(&node("a")) && !gate.unblock(&node("a")));
        assert_eq!(gate.refusal(later, &node("a")), None);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_no_node_is_let_in_sooner() {
        let clocks = ClockBounds::try_new(1_000).expect("valid");
        let [decided, written, until] = [0, 4_000_000, 10_000_000].map(Moment::from_nanos);
        let now = Moment::from_nanos(1_000_000_000);
        let node = NodeName::try_new("a").expect("valid");
        let mut gate = Gate::default();
        assert!(gate.save(decided).is_open());
        gate.close(until);
        assert!(gate.block(node.clone()));
        let saved = gate.save(written);
        assert!(!saved.is_open());
        let text = serde_json::to_string(&saved).expect("plain data");
        assert_eq!(serde_json::from_str::<SavedGate>(&text).expect("as written"), saved);
        assert_eq!(saved.read(Gap::Counted, Moment::from_nanos(5_000_000), clocks), gate);
        let after = saved.read(Gap::Unknown, now, clocks);
        assert_eq!(
            after.pause(now),
            Some(now + clocks.stretched(until.since(written))),
            "what was left of it"
        );
        assert!(after.blocked().contains(&node));
        gate.close(Moment::NEVER);
        assert_eq!(
            gate.save(written).read(Gap::Unknown, now, clocks).pause(now),
            Some(Moment::NEVER),
            "until an operator resumes it"
        );
        gate.close(until);
        assert_eq!(gate.save(until).pause, None, "it is over");
    }

    #[test]
    fn as_many_are_blocked_as_can_be_and_no_more() {
        let mut gate = Gate::default();
        let node = |n: usize| NodeName::try_new(&format!("node-{n}")).expect("valid");
        assert!((0..BLOCKED_MAX).all(|n| gate.block(node(n))));
        assert!(!gate.block(node(BLOCKED_MAX)));
        assert!(gate.block(node(0)), "it was already");
    }

    #[test]
    fn it_follows_what_was_decided_elsewhere_once_on_its_own_clock() {
        let (there, here) = (Moment::from_nanos(1_000), Moment::from_nanos(5));
        let node = NodeName::try_new("a").expect("valid");
        let (mut gates, mut gate) = (Gates::default(), Gate::default());
        let decide = |gates: &mut Gates, decision| gates.decide("x", &decision, there).expect("room");
        decide(&mut gates, Decision::Pause(Some(Duration::from_nanos(7))));
        decide(&mut gates, Decision::Block(node.clone()));
        let closed = gates.of("x").cloned().unwrap_or_default();
        assert_eq!(gate.follow(&closed, there, here), [News::Blocked(node.clone()), News::Paused]);
        assert_eq!(gate.pause(here), Some(Moment::from_nanos(12)));
        assert_eq!(gate.follow(&closed, there, Moment::from_nanos(9)), [], "the pause is no longer for that");
        assert_eq!(gate.pause(here), Some(Moment::from_nanos(12)));
        assert_eq!(gate.follow(&Closed::default(), there, here), [News::Resumed]);
        assert_eq!((gate.pause(here), gate.blocked().len()), (None, 0));
    }
}
