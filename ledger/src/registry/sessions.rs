//! The sessions of nodes. Each (node, session) has one identifier in all pools, and belongs to the identity that began
//! it. The name of a node says nothing about trust or size.

use crate::pool::SessionId;
use crate::registry::sweep::Sweep;
use crate::rejection::{AskRejection, Reason};
use crate::share::Owner;
use lessor_protocol::{Moment, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Sessions that are remembered at once, some 200 bytes each. This is ten times the largest fleet that one pool takes
/// by default. At the bound idle sessions make room, and a newcomer is refused only while no session is idle.
pub const SESSIONS_MAX: usize = 100_000;

/// Sessions of one identity: half of all, so that no identity takes all the room.
pub const SESSIONS_OF_IDENTITY_MAX: usize = SESSIONS_MAX / 2;

/// Entries of each part that are looked at for a newcomer when there is no room. Fewer would refuse newcomers while
/// idle sessions sit just out of reach; more would make each newcomer of a flood dearer.
const STEPS_FOR_NEWCOMER: usize = 16;

/// Number of parts of the sessions, each behind a lock of its own.
const PARTS: usize = 16;

/// The known sessions. Exchanges of different sessions mostly look into different parts.
#[derive(Debug)]
pub struct Sessions {
    parts: [Mutex<Part>; PARTS],
    /// The next identifier, which no session has had.
    next: AtomicU64,
    /// Number of known sessions, including a newcomer that is being admitted.
    count: AtomicUsize,
    /// Number of known sessions of each identity.
    owners: Mutex<BTreeMap<Owner, usize>>,
    keep: Keep,
}

/// The reason why a session is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEntered {
    /// As many sessions are known as may be.
    Full,
    /// As many sessions of its identity are known as may be.
    FullOfOwn,
    /// Another identity began the session.
    OfAnother,
}

impl From<NotEntered> for AskRejection {
    fn from(why: NotEntered) -> Self {
        match why {
            NotEntered::Full => {
                let detail = format!(
                    "the allocator has {SESSIONS_MAX} sessions, the maximum; only known sessions go on"
                );
                AskRejection { reason: Reason::LesseesFull, field: None, detail }
            }
            NotEntered::FullOfOwn => {
                let max = SESSIONS_OF_IDENTITY_MAX;
                let detail =
                    format!("this identity has {max} sessions, the maximum; only known sessions go on");
                AskRejection { reason: Reason::LesseesFull, field: None, detail }
            }
            NotEntered::OfAnother => {
                let detail = "another identity began this session: begin one of your own";
                AskRejection::new(Reason::SessionOfAnother, "session", detail)
            }
        }
    }
}

/// Known sessions by node and number. The map is ordered, so that the same calls always do the same.
type Known = BTreeMap<(NodeName, u64), Session>;

#[derive(Debug, Default)]
struct Part {
    known: Known,
    sweep: Sweep<(NodeName, u64)>,
}

/// How long a silent session is remembered. After either time it can make no difference to the cap: it comes back as a
/// new session that starts at zero, and what it had been lent stays charged.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Time while there is room: until no rule counts anything that was lent to the session.
    pub roomy: Duration,
    /// Time at the bound: until nothing that was lent to the session can be live.
    pub full: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    id: SessionId,
    asked: Moment,
    owner: Owner,
}

impl Session {
    /// Returns its identifier if `owner` owns it.
    fn id_for(&self, owner: Owner) -> Result<SessionId, NotEntered> {
        if self.owner == owner { Ok(self.id) } else { Err(NotEntered::OfAnother) }
    }
}

impl Sessions {
    /// Begins without sessions.
    pub fn new(keep: Keep) -> Self {
        let (next, count) = (AtomicU64::new(0), AtomicUsize::new(0));
        Sessions { parts: Default::default(), next, count, owners: Mutex::default(), keep }
    }

    /// Remembers silent sessions for as long as `keep` says, if that is longer than before.
    pub fn keep(&mut self, keep: Keep) {
        self.keep.roomy = self.keep.roomy.max(keep.roomy);
        self.keep.full = self.keep.full.max(keep.full);
    }

    /// Returns the identifier of `session` of `node`, a new one if need be. The session belongs to the `owner` that
    /// brings it first, until it is forgotten.
    ///
    /// # Errors
    /// If there is no room, or the session belongs to another owner.
    pub fn enter(
        &self,
        now: Moment,
        node: &NodeName,
        session: u64,
        owner: Owner,
    ) -> Result<SessionId, NotEntered> {
        let who = (node.clone(), session);
        if let Some(known) = self.part(&who).known.get_mut(&who) {
            let id = known.id_for(owner)?;
            known.asked = known.asked.max(now);
            return Ok(id);
        }
        if self.count() >= SESSIONS_MAX || self.count_of(owner) >= SESSIONS_OF_IDENTITY_MAX {
            self.forget(now, STEPS_FOR_NEWCOMER, self.keep.full);
        }
        let mut part = self.part(&who);
        // Another exchange of the session may have been here meanwhile.
        if let Some(known) = part.known.get(&who) {
            return known.id_for(owner);
        }
        self.count
            .fetch_update(Relaxed, Relaxed, |count| (count < SESSIONS_MAX).then_some(count + 1))
            .map_err(|_| NotEntered::Full)?;
        if let Err(full) = self.count_one(owner) {
            self.count.fetch_sub(1, Relaxed);
            return Err(full);
        }
        let id = SessionId(self.next.fetch_add(1, Relaxed));
        part.known.insert(who, Session { id, asked: now, owner });
        Ok(id)
    }

    /// Returns the identifier of `session` of `node`, if it is known and belongs to `owner`.
    pub fn find(&self, node: &NodeName, session: u64, owner: Owner) -> Option<SessionId> {
        let who = (node.clone(), session);
        self.part(&who).known.get(&who)?.id_for(owner).ok()
    }

    /// Whether `session` of `node` belongs to another owner.
    pub fn is_of_another(&self, node: &NodeName, session: u64, owner: Owner) -> bool {
        let who = (node.clone(), session);
        self.part(&who).known.get(&who).is_some_and(|known| known.owner != owner)
    }

    /// Returns the node of each session in `ids`, as far as it is known. Looks at all known sessions.
    pub fn nodes(&self, ids: &BTreeSet<SessionId>) -> BTreeMap<SessionId, NodeName> {
        let mut nodes = BTreeMap::new();
        for part in &self.parts {
            let part = locked(part);
            let known = part.known.iter().filter(|(_, session)| ids.contains(&session.id));
            nodes.extend(known.map(|((node, _), session)| (session.id, node.clone())));
        }
        nodes
    }

    /// Returns up to `count` sessions that follow the session `after`, and none only if none follows. Sessions of a node
    /// stand beside each other.
    pub fn after(&self, after: Option<&(NodeName, u64)>, count: usize) -> Vec<((NodeName, u64), SessionId)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let of_part = count.div_ceil(PARTS).max(1);
        let mut page = Vec::with_capacity(of_part * PARTS);
        // The first of the last sessions that parts gave: beyond it a part may have more.
        let mut until: Option<(NodeName, u64)> = None;
        for part in &self.parts {
            let (part, others) = (locked(part), page.len());
            let next = part.known.range((from, Bound::Unbounded)).take(of_part);
            page.extend(next.map(|(who, session)| (who.clone(), session.id)));
            if let Some((last, _)) = page.get(others + of_part - 1)
                && until.as_ref().is_none_or(|until| last < until)
            {
                until = Some(last.clone());
            }
        }
        page.retain(|(who, _)| until.as_ref().is_none_or(|until| who <= until));
        page.sort_unstable();
        page.truncate(count);
        page
    }

    /// Looks at the next `steps` sessions of each part, and forgets sessions that no longer matter.
    pub fn sweep(&self, now: Moment, steps: usize) {
        self.forget(now, steps, self.keep.roomy);
    }

    /// Returns the number of known sessions.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns the number of known sessions of `owner`. Sessions of callers without an identity are not counted apart.
    pub fn count_of(&self, owner: Owner) -> usize {
        locked(&self.owners).get(&owner).copied().unwrap_or(0)
    }

    /// Counts one more session of `owner`.
    fn count_one(&self, owner: Owner) -> Result<(), NotEntered> {
        if owner == Owner::NONE {
            return Ok(());
        }
        let mut owners = locked(&self.owners);
        let count = owners.entry(owner).or_default();
        if *count >= SESSIONS_OF_IDENTITY_MAX {
            return Err(NotEntered::FullOfOwn);
        }
        *count += 1;
        Ok(())
    }

    fn part(&self, (node, session): &(NodeName, u64)) -> MutexGuard<'_, Part> {
        let mut hasher = DefaultHasher::new();
        (node.as_str(), session).hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % PARTS as u64).unwrap_or(0);
        locked(&self.parts[place])
    }

    fn forget(&self, now: Moment, steps: usize, keep: Duration) {
        for part in &self.parts {
            let mut part = locked(part);
            let Part { known, sweep } = &mut *part;
            let gone = sweep.run(known, steps, |_, session| now.since(session.asked) > keep);
            self.count.fetch_sub(gone.len(), Relaxed);
            let mut owners = locked(&self.owners);
            for (_, Session { owner, .. }) in gone.iter().filter(|(_, gone)| gone.owner != Owner::NONE) {
                if let Some(count) = owners.get_mut(owner) {
                    *count -= 1;
                    if *count == 0 {
                        owners.remove(owner);
                    }
                }
            }
        }
    }
}

fn locked<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().expect("no thread panicked while it changed these sessions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::seconds;

    const ME: Owner = Owner(1);
    const KEEP: Keep = Keep { roomy: Duration::from_secs(30), full: Duration::from_secs(2) };

    fn node(name: &str) -> NodeName {
        NodeName::try_new(name).expect("valid")
    }

    #[test]
    fn a_session_keeps_its_id_and_a_restarted_node_gets_another() {
        let sessions = Sessions::new(KEEP);
        let first = sessions.enter(seconds(0), &node("a"), 1, ME);
        assert_eq!(sessions.enter(seconds(1), &node("a"), 1, ME), first);
        assert_ne!(sessions.enter(seconds(1), &node("a"), 2, ME), first);
        assert_ne!(sessions.enter(seconds(1), &node("b"), 1, ME), first);
        assert_eq!(sessions.find(&node("a"), 1, ME), first.ok());
        assert_eq!(sessions.find(&node("c"), 1, ME), None);
    }

    #[test]
    fn a_session_belongs_to_the_identity_that_began_it() {
        let (sessions, other) = (Sessions::new(KEEP), Owner(2));
        let first = sessions.enter(seconds(0), &node("a"), 1, ME);
        assert_eq!(sessions.enter(seconds(1), &node("a"), 1, other), Err(NotEntered::OfAnother));
        assert_eq!(sessions.find(&node("a"), 1, other), None);
        assert!(sessions.is_of_another(&node("a"), 1, other) && !sessions.is_of_another(&node("a"), 1, ME));
        assert!(!sessions.is_of_another(&node("a"), 2, other), "it was never begun");
        assert_eq!(sessions.enter(seconds(2), &node("a"), 1, ME), first, "the owner goes on");
        for _ in 0..10 {
            sessions.sweep(seconds(60), 10);
        }
        assert!(sessions.enter(seconds(60), &node("a"), 1, other).is_ok(), "it was forgotten");
    }

    #[test]
    fn the_idle_are_forgotten_once_they_can_no_longer_matter() {
        let sessions = Sessions::new(KEEP);
        sessions.enter(seconds(0), &node("a"), 1, ME).expect("room");
        sessions.enter(seconds(20), &node("b"), 1, ME).expect("room");
        sessions.sweep(seconds(30), 10);
        assert_eq!(sessions.count(), 2);
        sessions.sweep(seconds(31), 10);
        sessions.sweep(seconds(31), 10);
        assert_eq!(sessions.find(&node("a"), 1, ME), None);
        assert!(sessions.find(&node("b"), 1, ME).is_some());
    }

    #[test]
    fn threads_that_bring_the_same_sessions_at_once_get_the_same_ids() {
        let sessions = Sessions::new(KEEP);
        let enter = || -> Vec<_> {
            (0..500).map(|session| sessions.enter(seconds(0), &node("a"), session, ME)).collect()
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(enter);
            (enter(), other.join().expect("it ends"))
        });
        assert_eq!(first, second);
        assert_eq!(sessions.count(), 500);
        assert_eq!(first.into_iter().flatten().collect::<BTreeSet<_>>().len(), 500);
    }

    /// Each part has its own order.
    #[test]
    fn pages_of_sessions_go_on_where_the_one_before_ended() {
        let sessions = Sessions::new(KEEP);
        let all: Vec<(NodeName, u64)> = (0..50).map(|n| (node(&format!("n-{}", n % 7)), n)).collect();
        for (node, session) in &all {
            assert!(sessions.enter(seconds(0), node, *session, ME).is_ok());
        }
        let (mut seen, mut last) = (vec![], None);
        loop {
            let page = sessions.after(last.as_ref(), 8);
            let Some((who, _)) = page.last() else { break };
            last = Some(who.clone());
            seen.extend(page.into_iter().map(|(who, _)| who));
        }
        assert_eq!(seen, all.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    }

    /// The bug: of each of the parts a whole page was copied.
    #[test]
    fn a_page_of_sessions_copies_about_as_many_as_it_has() {
        let sessions = Sessions::new(KEEP);
        for session in 0..4_000 {
            assert!(sessions.enter(seconds(0), &node("a"), session, ME).is_ok());
        }
        let page = sessions.after(None, 160);
        assert!((10..=160).contains(&page.len()) && page.capacity() < 320, "{}", page.capacity());
        assert!(sessions.after(None, 1).len() == 1 && sessions.after(None, 0).is_empty());
    }

    #[test]
    fn at_the_bound_the_idle_make_room_and_the_busy_do_not() {
        let sessions = Sessions::new(KEEP);
        for session in 0..SESSIONS_MAX as u64 {
            assert!(sessions.enter(seconds(0), &node("a"), session, Owner(1 + session % 2)).is_ok());
        }
        assert_eq!(sessions.enter(seconds(1), &node("b"), 1, ME), Err(NotEntered::Full));
        assert!(sessions.enter(seconds(1), &node("a"), 8, ME).is_ok(), "old ones go on");
        assert!(sessions.enter(seconds(3), &node("b"), 1, ME).is_ok());
        assert!(sessions.count() <= SESSIONS_MAX);
    }

    #[test]
    fn one_identity_leaves_half_of_the_room_to_others() {
        let (sessions, other) = (Sessions::new(KEEP), Owner(2));
        for session in 0..SESSIONS_OF_IDENTITY_MAX as u64 {
            assert!(sessions.enter(seconds(0), &node("a"), session, ME).is_ok());
        }
        assert_eq!(sessions.enter(seconds(1), &node("b"), 1, ME), Err(NotEntered::FullOfOwn));
        assert_eq!((sessions.count(), sessions.count_of(ME)), (SESSIONS_MAX / 2, SESSIONS_MAX / 2));
        assert!(sessions.enter(seconds(1), &node("b"), 1, other).is_ok());
        assert!(sessions.enter(seconds(1), &node("a"), 7, ME).is_ok(), "old ones go on");
        assert!(sessions.enter(seconds(3), &node("b"), 2, ME).is_ok(), "the idle make room");
        for _ in 0..SESSIONS_MAX {
            sessions.sweep(seconds(60), 1_000);
            if sessions.count() == 0 {
                break;
            }
        }
        assert_eq!((sessions.count_of(ME), sessions.count_of(other)), (0, 0));
    }
}
