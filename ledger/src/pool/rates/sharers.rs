//! The sessions that share a steady flow, as sums and orders that change when one session changes: by identity, by the
//! hand-over of turns, and by when a silent session leaves. A pool with a flow keeps them from the second session on,
//! see [`super::super::sessions::Sessions`]. A session that asks is not among them: it shares with them.

use super::demands::{Demand, Demands};
use super::identities::{Identities, Identity};
use super::tally::Tally;
use super::waiting::{Waiter, Waiting};
use crate::pool::agenda::Agenda;
use crate::pool::ages::Age;
use crate::pool::family::Place;
use crate::pool::session::Session;
use crate::rule::{Part, SHARES, Speed};
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::PERMIT;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The sessions that share a flow.
#[derive(Clone, Debug)]
pub(in crate::pool) struct Sharers {
    speed: Speed,
    /// The moment up to which silent sessions have left.
    now: Moment,
    /// What is counted of each session of the pool, and when the session is looked at again at the latest.
    counted: BTreeMap<Place, (Counted, Option<Moment>)>,
    reviews: Agenda,
    /// The sharing sessions of each identity that has any.
    members: BTreeMap<Owner, Members>,
    /// For each session with a part: when the pool knows that it has handed the part over.
    hand_overs: Agenda,
    /// The last turn of each session that had any, by identity.
    turns: BTreeMap<Owner, Tally<LastTurn>>,
    /// All identities, while there are several.
    identities: Option<Box<Identities>>,
}

/// When a session hands over the part that it had last, or did, and how long it had that part.
pub(super) type LastTurn = (Moment, Duration);

/// What one session counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    owner: Owner,
    member: Option<Member>,
    hands_over: Option<Moment>,
    last_turn: Option<LastTurn>,
}

/// A session that shares the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    demand: u64,
    weight: u64,
    largest: u64,
    charged: Part,
    /// When it began to wait for its turn, if it waits and asks when it is expected to.
    waits_since: Option<Moment>,
}

/// The sharing sessions of one identity.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    sums: FlowSums,
    /// The largest call of each.
    largest: Tally<u64>,
    demands: Demands<Place>,
    waiting: Waiting,
}

/// Sums over sharing sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowSums {
    pub(super) count: u64,
    pub(super) weight: u128,
    /// Shares of the rate that they demand.
    pub(super) demand: u128,
    /// Their largest calls.
    pub(super) largest: u128,
    /// Parts charged for them: room in permits, and shares of the rate.
    pub(super) cap: u128,
    pub(super) share: u128,
}

impl FlowSums {
    pub(super) fn plus(self, more: FlowSums) -> FlowSums {
        FlowSums {
            count: self.count + more.count,
            weight: self.weight + more.weight,
            demand: self.demand + more.demand,
            largest: self.largest + more.largest,
            cap: self.cap + more.cap,
            share: self.share + more.share,
        }
    }

    pub(super) fn less(self, fewer: FlowSums) -> FlowSums {
        FlowSums {
            count: self.count - fewer.count,
            weight: self.weight - fewer.weight,
            demand: self.demand - fewer.demand,
            largest: self.largest - fewer.largest,
            cap: self.cap - fewer.cap,
            share: self.share - fewer.share,
        }
    }

    /// Returns the part that is charged for them.
    pub(super) fn charged(self) -> Part {
        let fits = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        Part { cap: fits(self.cap), share: fits(self.share) }
    }
}

/// Returns the weight by which a session shares.
pub(super) fn weight_of(session: &Session) -> u64 {
    session.share.weight.max(1)
}

/// Returns the demand of `session` as a share of a flow of this `speed`: `demand_milli` permits per 1,000 s, and within a
/// term the permits that `waiting` callers wait for. A smaller share than [`Speed::least_share`] serves no call.
pub(super) fn demand_of(speed: Speed, session: &Session, demand_milli: u64, waiting: u64) -> u64 {
    let queue = u128::from(waiting) * PERMIT / u128::from(nanos(session.term).max(1));
    let demand_milli = demand_milli.saturating_add(u64::try_from(queue).unwrap_or(u64::MAX));
    speed.share_of(demand_milli).min(SHARES).max(speed.least_share(session.turn.largest))
}

impl Member {
    fn sums(&self) -> FlowSums {
        FlowSums {
            count: 1,
            weight: self.weight.into(),
            demand: self.demand.into(),
            largest: self.largest.into(),
            cap: self.charged.cap.into(),
            share: self.charged.share.into(),
        }
    }

    fn demand(&self, place: Place) -> Demand<Place> {
        Demand::for_rate(place, self.demand, self.weight)
    }

    fn waiter(&self, place: Place) -> Option<Waiter> {
        Some(Waiter { since: self.waits_since?, place, largest: self.largest })
    }
}

impl Members {
    /// Returns their demands.
    pub(super) fn demands(&self) -> &Demands<Place> {
        &self.demands
    }

    /// Returns the sessions that wait.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn insert(&mut self, place: Place, member: Member) {
        self.sums = self.sums.plus(member.sums());
        self.largest.add(member.largest);
        self.demands.insert(member.demand(place));
        member.waiter(place).into_iter().for_each(|waiter| self.waiting.insert(waiter));
    }

    fn remove(&mut self, place: Place, member: Member) {
        self.sums = self.sums.less(member.sums());
        self.largest.remove(member.largest);
        self.demands.remove(&member.demand(place));
        member.waiter(place).iter().for_each(|waiter| self.waiting.remove(waiter));
    }
}

impl Sharers {
    /// Creates an empty set, for a flow of this `speed`.
    pub(in crate::pool) fn new(speed: Speed, now: Moment) -> Self {
        Sharers {
            speed,
            now,
            counted: BTreeMap::new(),
            reviews: Agenda::default(),
            members: BTreeMap::new(),
            hand_overs: Agenda::default(),
            turns: BTreeMap::new(),
            identities: None,
        }
    }

    /// Returns the sharing sessions of `owner`, if it has any.
    pub(super) fn members(&self, owner: Owner) -> Option<&Members> {
        self.members.get(&owner)
    }

    /// Returns all identities.
    pub(super) fn identities(&self) -> Cow<'_, Identities> {
        self.identities.as_deref().map_or_else(|| Cow::Owned(self.all_identities()), Cow::Borrowed)
    }

    /// Makes the orders and sums over identities anew, while there are few identities.
    fn all_identities(&self) -> Identities {
        let mut all = Identities::default();
        self.members.keys().for_each(|owner| all.change(None, self.identity(*owner)));
        all
    }

    /// Returns the identity `owner`, if any of its sessions shares.
    pub(super) fn identity(&self, owner: Owner) -> Option<Identity> {
        let members = self.members.get(&owner)?;
        let largest = members.largest.last().unwrap_or(0);
        let waits = members.waiting.sum().count > 0;
        Some(Identity { owner, sums: members.sums, largest, waits, last_turn: self.last_turn(owner) })
    }

    /// Whether a session of another identity than `owner` shares.
    pub(super) fn has_other_owners(&self, owner: Owner) -> bool {
        self.members.len() > usize::from(self.members.contains_key(&owner))
    }

    /// Returns the last turn of any session of `owner` that the pool knows, the asking one included.
    pub(super) fn last_turn(&self, owner: Owner) -> LastTurn {
        let last = self.turns.get(&owner).and_then(Tally::last);
        last.unwrap_or((Moment::ORIGIN, Duration::ZERO))
    }

    /// Returns when the pool knows of the next hand-over, and how many sessions have a part, the asking one included.
    pub(in crate::pool) fn hand_overs(&self) -> (Option<Moment>, usize) {
        (self.hand_overs.first().map(|(at, _)| at), self.hand_overs.len())
    }

    /// Lets time pass until `now`. Returns the first session that may leave by then.
    pub(in crate::pool) fn next_review(&mut self, now: Moment) -> Option<Place> {
        self.now = self.now.max(now);
        self.reviews.first().filter(|(at, _)| *at <= now).map(|(_, place)| place)
    }

    /// Counts the session at `place` as it stands. A session counts until `active` after its last ask.
    pub(in crate::pool) fn count(&mut self, place: Place, session: &Session, active: Duration) {
        let (after, leaves) = self.read(session, active);
        let (before, looks) = self.counted.get(&place).copied().unwrap_or_default();
        let is_due = looks.is_some_and(|at| at <= self.now);
        let next = match (looks.filter(|_| !is_due), leaves) {
            // Each ask puts the review off, and the review finds that out.
            (Some(looks), Some(leaves)) => Some(looks.min(leaves)),
            (looks, leaves) => looks.or(leaves),
        };
        if (before, looks) == (after, next) {
            return;
        }
        moved(&mut self.reviews, place, looks, next);
        self.change(place, before, after);
        self.counted.insert(place, (after, next));
    }

    /// Forgets the session at `place`.
    pub(in crate::pool) fn forget(&mut self, place: Place) {
        let Some((before, looks)) = self.counted.remove(&place) else { return };
        moved(&mut self.reviews, place, looks, None);
        self.change(place, before, Counted::default());
    }

    /// Returns what `session` counts for, and when that may change without an ask.
    fn read(&self, session: &Session, active: Duration) -> (Counted, Option<Moment>) {
        let turn = &*session.turn;
        let charged = turn.lent.charged();
        let wants = session.demand_milli > 0 || session.waiting > 0 || turn.waits_since.is_some();
        let until = Some(session.answered + active).filter(|until| wants && self.now <= *until);
        let shares = session.age != Age::Asking && (charged.cap > 0 || until.is_some());
        let waits_since = turn.waits_since.filter(|_| self.now <= turn.expected);
        let member = Member {
            demand: demand_of(self.speed, session, session.demand_milli, session.waiting),
            weight: weight_of(session),
            largest: turn.largest,
            charged,
            waits_since,
        };
        let last_turn = (turn.hands_over, turn.hands_over.since(turn.began));
        let counted = Counted {
            owner: session.share.owner,
            member: shares.then_some(member),
            hands_over: turn.hand_over(session.rtt),
            last_turn: (last_turn != (Moment::ORIGIN, Duration::ZERO)).then_some(last_turn),
        };
        let until = until.filter(|_| charged.cap == 0);
        let leaves = until.into_iter().chain(waits_since.map(|_| turn.expected)).min();
        (counted, leaves.filter(|_| shares).map(|at| at + Duration::from_nanos(1)))
    }

    /// Replaces what the session at `place` counts for.
    fn change(&mut self, place: Place, before: Counted, after: Counted) {
        moved(&mut self.hand_overs, place, before.hands_over, after.hands_over);
        let what = |counted: Counted| (counted.owner, counted.member, counted.last_turn);
        if what(before) == what(after) {
            return;
        }
        // The session stays with one identity, or moves to another.
        let other = Some(after.owner).filter(|owner| *owner != before.owner);
        let identities = |sharers: &Self| {
            [sharers.identity(before.owner), other.and_then(|owner| sharers.identity(owner))]
        };
        let were = if self.identities.is_some() { identities(self) } else { [None; 2] };
        self.uncount(place, before);
        if let Some(member) = after.member {
            self.members.entry(after.owner).or_default().insert(place, member);
        }
        if let Some(last) = after.last_turn {
            self.turns.entry(after.owner).or_default().add(last);
        }
        let are_several = self.members.len() > 1;
        self.identities = match self.identities.take().filter(|_| are_several) {
            Some(mut all) => {
                were.into_iter().zip(identities(self)).for_each(|(was, is)| all.change(was, is));
                Some(all)
            }
            None => are_several.then(|| Box::new(self.all_identities())),
        };
    }

    /// Removes what the session at `place` counted for.
    fn uncount(&mut self, place: Place, before: Counted) {
        if let Some(member) = before.member
            && let Some(members) = self.members.get_mut(&before.owner)
        {
            members.remove(place, member);
            if members.sums.count == 0 {
                self.members.remove(&before.owner);
            }
        }
        if let Some(last) = before.last_turn
            && let Some(turns) = self.turns.get_mut(&before.owner)
        {
            turns.remove(last);
            if turns.is_empty() {
                self.turns.remove(&before.owner);
            }
        }
    }

    /// Asserts in debug builds that all that is counted is true of `sessions`, each with how long it counts after an
    /// ask.
    pub(in crate::pool) fn audit<'a>(&self, sessions: impl Iterator<Item = (Place, &'a Session, Duration)>) {
        let (mut all, mut places) = (Sharers::new(self.speed, self.now), BTreeSet::new());
        for (place, session, active) in sessions {
            all.count(place, session, active);
            let known = |sharers: &Sharers| sharers.counted.get(&place).copied().unwrap_or_default();
            let ((own, looks), (counted, leaves)) = (known(self), known(&all));
            debug_assert_eq!(own, counted, "{session:?}");
            debug_assert!(leaves.is_none_or(|leaves| looks.is_some_and(|looks| looks <= leaves)));
            places.insert(place);
        }
        debug_assert!(self.counted.keys().all(|place| places.contains(place)));
        let looks = self.counted.iter().filter_map(|(place, (_, looks))| Some(((*looks)?, *place)));
        debug_assert!(self.reviews.is_of(looks), "{self:?}");
        debug_assert_eq!((&self.hand_overs, &self.turns), (&all.hand_overs, &all.turns));
        debug_assert_eq!(self.identities.is_some(), self.members.len() > 1);
        self.identities().audit(&all.identities());
        debug_assert!(self.members.keys().eq(all.members.keys()));
        for (one, other) in self.members.values().zip(all.members.values()) {
            debug_assert_eq!((one.sums, &one.largest), (other.sums, &other.largest));
            debug_assert_eq!(one.demands.sum(), other.demands.sum());
            debug_assert_eq!(one.waiting.sum(), other.waiting.sum());
        }
    }
}

/// Moves the entry of `place` in `agenda`.
fn moved(agenda: &mut Agenda, place: Place, before: Option<Moment>, after: Option<Moment>) {
    if before != after {
        before.into_iter().for_each(|at| agenda.remove(at, place));
        after.into_iter().for_each(|at| agenda.insert(at, place));
    }
}
