//! The sessions of nodes. Each (node, session) has one identifier, which all pools know it by. The name of a node says nothing
//! about trust or size.

use crate::pool::SessionId;
use crate::registry::sweep::Sweep;
use lessor_protocol::{Moment, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Sessions that are remembered at once, some 200 bytes each. Ten times the largest fleet that one pool takes.
/// At the bound idle sessions make room, and a newcomer is refused only while no session is idle.
pub const SESSIONS_MAX: usize = 100_000;

/// Entries that a newcomer pays for looking at when there is no room. Fewer would refuse newcomers while idle
/// sessions sit just out of reach, more would make each of a flood of newcomers dearer.
const STEPS_FOR_NEWCOMER: usize = 16;

/// The sessions that are known.
#[derive(Debug)]
pub struct Sessions {
    /// Ordered, so that the same calls always do the same.
    known: BTreeMap<(NodeName, u64), Session>,
    sweep: Sweep<(NodeName, u64)>,
    /// The next identifier, never given to a session yet.
    next: u64,
    keep: Keep,
}

/// How long a session that says nothing is remembered. Beyond either it can make no difference to the cap: it
/// comes back as a stranger, starts at zero, and what it had been lent stays charged.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// While there is room: until no rule counts anything that was lent to it.
    pub roomy: Duration,
    /// At the bound: until nothing that was lent to it can be live.
    pub full: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    id: SessionId,
    asked: Moment,
}

impl Sessions {
    /// No sessions.
    pub fn new(keep: Keep) -> Self {
        Sessions { known: BTreeMap::new(), sweep: Sweep::default(), next: 0, keep }
    }

    /// Remembers for as long as `keep` from now on, if that is longer.
    pub fn keep(&mut self, keep: Keep) {
        self.keep.roomy = self.keep.roomy.max(keep.roomy);
        self.keep.full = self.keep.full.max(keep.full);
    }

    /// The identifier of `session` of `node`, new if need be; `None` if there is no room.
    pub fn enter(&mut self, now: Moment, node: &NodeName, session: u64) -> Option<SessionId> {
        let who = (node.clone(), session);
        if let Some(known) = self.known.get_mut(&who) {
            known.asked = now;
            return Some(known.id);
        }
        if self.known.len() >= SESSIONS_MAX {
            self.forget(now, STEPS_FOR_NEWCOMER, self.keep.full);
            if self.known.len() >= SESSIONS_MAX {
                return None;
            }
        }
        let id = SessionId(self.next);
        self.next += 1;
        self.known.insert(who, Session { id, asked: now });
        Some(id)
    }

    /// The identifier of `session` of `node`, if it is known.
    pub fn find(&self, node: &NodeName, session: u64) -> Option<SessionId> {
        self.known.get(&(node.clone(), session)).map(|known| known.id)
    }

    /// Which node each of `ids` is a session of, as far as it is known. Looks at all that are.
    pub fn nodes(&self, ids: &BTreeSet<SessionId>) -> BTreeMap<SessionId, NodeName> {
        let known = self.known.iter().filter(|(_, session)| ids.contains(&session.id));
        known.map(|((node, _), session)| (session.id, node.clone())).collect()
    }

    /// Up to `count` of them after another one, those of a node one after the other.
    pub fn after(&self, after: Option<&(NodeName, u64)>, count: usize) -> Vec<((NodeName, u64), SessionId)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.known.range((from, Bound::Unbounded)).take(count);
        page.map(|(who, session)| (who.clone(), session.id)).collect()
    }

    /// Looks at the next `steps` sessions, and forgets those that can no longer matter.
    pub fn sweep(&mut self, now: Moment, steps: usize) {
        self.forget(now, steps, self.keep.roomy);
    }

    /// How many are known.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    fn forget(&mut self, now: Moment, steps: usize, keep: Duration) {
        self.sweep.run(&mut self.known, steps, |_, session| now.since(session.asked) > keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Keep = Keep { roomy: Duration::from_secs(30), full: Duration::from_secs(2) };

    fn seconds(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn node(name: &str) -> NodeName {
        NodeName::try_new(name).expect("valid")
    }

    #[test]
    fn a_session_keeps_its_id_and_a_restarted_node_gets_another() {
        let mut sessions = Sessions::new(KEEP);
        let first = sessions.enter(seconds(0), &node("a"), 1);
        assert_eq!(sessions.enter(seconds(1), &node("a"), 1), first);
        assert_ne!(sessions.enter(seconds(1), &node("a"), 2), first);
        assert_ne!(sessions.enter(seconds(1), &node("b"), 1), first);
        assert_eq!(sessions.find(&node("a"), 1), first);
        assert_eq!(sessions.find(&node("c"), 1), None);
    }

    #[test]
    fn the_idle_are_forgotten_once_they_can_no_longer_matter() {
        let mut sessions = Sessions::new(KEEP);
        sessions.enter(seconds(0), &node("a"), 1);
        sessions.enter(seconds(20), &node("b"), 1);
        sessions.sweep(seconds(30), 10);
        assert_eq!(sessions.count(), 2);
        sessions.sweep(seconds(31), 10);
        sessions.sweep(seconds(31), 10);
        assert_eq!(sessions.find(&node("a"), 1), None);
        assert!(sessions.find(&node("b"), 1).is_some());
    }

    #[test]
    fn at_the_bound_the_idle_make_room_and_the_busy_do_not() {
        let mut sessions = Sessions::new(KEEP);
        for session in 0..SESSIONS_MAX as u64 {
            assert!(sessions.enter(seconds(0), &node("a"), session).is_some());
        }
        assert_eq!(sessions.enter(seconds(1), &node("b"), 1), None);
        assert!(sessions.enter(seconds(1), &node("a"), 7).is_some(), "old ones go on");
        assert!(sessions.enter(seconds(3), &node("b"), 1).is_some());
        assert!(sessions.count() <= SESSIONS_MAX);
    }
}
