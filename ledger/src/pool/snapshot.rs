//! A pool as a value that is written after each exchange and goes on at the next, in any process: the *root* of a limit
//! that several allocators lease from a store. Unlike a [`super::Checkpoint`] it has each session. `Pool::resume` goes
//! on with either.
//!
//! A snapshot keeps all that decides what is lent. It leaves out answers to asks: an allocator asks a store anew each
//! time.

use super::calls::{SavedCalls, SessionCalls};
use super::family::Place;
use super::feedback::SavedFeedback;
use super::groups::GroupAsk;
use super::rare::Rare;
use super::safe_shares::Taken;
use super::session::{Burn, Session};
use super::{Books, Plan, Pool, SessionId};
use crate::pacing::{Excess, Pacer, SavedExcess};
use crate::rule::{At, Gap, Saved, Since};
use crate::share::{Owner, Share};
use lessor_protocol::{Moment, PERMITS_MAX, TERM_MAX};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// Longest round trip that an ask can say. Sums of longer ones overflow.
const RTT_MAX: Duration = Duration::from_millis(u64::MAX);

/// A pool as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// When it was written.
    written: At,
    /// Nothing is granted before this.
    #[serde(rename = "opens")]
    quarantine_until: At,
    /// Until then leases may be out that were lent by other rules, or by an earlier process.
    #[serde(rename = "outlived")]
    old_rules_until: At,
    /// Until then a session may still spend by what an earlier process told it.
    earlier: At,
    /// Totals of permits granted, spent, returned and burned.
    books: [u64; 4],
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
    /// Billionths of a permit that it may lend while it eases off, and when they were counted.
    pacer: Option<(u64, At)>,
    /// Permits that came back unspent meanwhile.
    #[serde(rename = "back", default, skip_serializing_if = "Option::is_none")]
    came_back: Option<NonZeroU64>,
    /// Since when more has been wanted than comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    excess: Option<SavedExcess>,
    #[serde(rename = "lessees")]
    sessions: Vec<SavedSession>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    safe: Option<SavedSafeShares>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<SavedGroups>,
}

/// The buckets of guaranteed groups, and what allocators said of the groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedGroups {
    /// For each bucket: what it fills up to, the permits in it, and parts of the next permit.
    levels: Vec<[u64; 3]>,
    /// For each allocator: the permits that it took and wants of each group, where that is anything.
    said: Vec<(u64, Vec<[u64; 2]>)>,
}

/// The safe shares that allocators have, and when others may get some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedSafeShares {
    opens: At,
    taken: Vec<SavedSafeShare>,
}

/// The safe shares of one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedSafeShare {
    id: u64,
    permits: u64,
    holders: u64,
    span: Duration,
    free: At,
}

/// One session's part of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedSession {
    id: u64,
    seq: u64,
    answered: At,
    lent: At,
    end: At,
    spent: u64,
    out: u64,
    burned: u64,
    burns: Vec<(At, u64)>,
    demand: u64,
    waiting: u64,
    wanted: u64,
    /// How long its leases last, and its round-trip time.
    term: Duration,
    rtt: Duration,
    /// Calls that it may have in flight, where a rule counts them.
    #[serde(default, rename = "flights", skip_serializing_if = "Option::is_none")]
    calls: Option<SavedCalls>,
}

impl Plan {
    /// Whether a pool of this plan can be a snapshot: no other allocator lends to it, and it has no steady flow.
    pub fn has_snapshots(&self) -> bool {
        let has_flow = self.rules.iter().any(|rule| rule.flow().is_some());
        !has_flow && !self.is_borrowed
    }
}

impl Snapshot {
    /// Returns when it was written, on the clock that it went by.
    pub fn written(&self) -> Moment {
        self.written.as_calendar()
    }

    /// Returns when it was written, as it is written down.
    pub fn written_at(&self) -> At {
        self.written
    }

    /// Whether it has safe shares.
    pub(crate) fn has_safe_shares(&self) -> bool {
        self.safe.is_some()
    }

    /// Returns what the configuration by which it was written guarantees to each group, if it has groups.
    pub(crate) fn guaranteed(&self) -> Option<Vec<u64>> {
        let levels = &self.groups.as_ref()?.levels;
        Some(levels.iter().map(|[most, ..]| *most).collect())
    }

    /// Whether it has guaranteed groups.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }
}

impl Pool {
    /// Returns the pool as it stands at `now`; `None` if it has no snapshots, see [`Plan::has_snapshots`].
    pub fn snapshot(&mut self, now: Moment) -> Option<Snapshot> {
        if !self.plan.has_snapshots() {
            return None;
        }
        self.advance(now);
        let Books { granted, spent, returned, burned, outstanding: _ } = self.books;
        let (pacer, came_back) = match *self.pacer {
            Pacer::Free => (None, None),
            // The credit fits: it is less than what may be lent.
            Pacer::Paced { credit, back, at } => {
                (Some((u64::try_from(credit).unwrap_or(u64::MAX), at.into())), NonZeroU64::new(back))
            }
        };
        let sessions =
            self.sessions.iter().map(|(place, session)| SavedSession::of(place.session(), session));
        Some(Snapshot {
            written: self.now.into(),
            quarantine_until: self.quarantine_until.into(),
            old_rules_until: self.old_rules_until.into(),
            earlier: self.checkpoints.earlier().into(),
            books: [granted, spent, returned, burned],
            rules: self.ledgers.save()?,
            vendor: self.feedback.save(),
            pacer,
            came_back,
            excess: self.excess_demand.excess.save(),
            sessions: sessions.collect(),
            safe: SavedSafeShares::of(self),
            groups: SavedGroups::of(self),
        })
    }

    /// Returns the pool of `snapshot`, as it stands at `now`; `None` if no pool of this plan can have been in that
    /// state.
    pub fn from_snapshot(plan: Arc<Plan>, snapshot: &Snapshot, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: snapshot.written, now, clocks: plan.clocks };
        if !plan.has_snapshots() || snapshot.sessions.len() > plan.lessees_max {
            return None;
        }
        let sessions = snapshot.sessions.iter().map(|session| session.restore(since));
        let mut pool = Pool::resume(
            plan,
            since,
            Resumed {
                books: snapshot.books,
                sessions: sessions.collect::<Option<Vec<_>>>()?,
                rules: &snapshot.rules,
                vendor: &snapshot.vendor,
                quarantine_until: since.moment(snapshot.quarantine_until),
                old_rules_until: since.moment(snapshot.old_rules_until),
                earlier: since.moment(snapshot.earlier),
            },
        )?;
        pool.pacer = match snapshot.pacer {
            Some((credit, at)) => {
                let back = snapshot.came_back.map_or(0, NonZeroU64::get);
                Pacer::Paced { credit: credit.into(), back, at: since.moment(at).min(now) }.into()
            }
            None => Rare::default(),
        };
        if snapshot.excess.is_some() {
            pool.excess_demand.excess = Excess::restore(snapshot.excess, since);
        }
        if let Some(safe) = &snapshot.safe {
            let span = pool.safe_span();
            pool.safe_shares.goes_on(since.moment(safe.opens), safe.restore(since)?.into_iter(), span);
        }
        if let Some(groups) = &snapshot.groups {
            groups.restore(&mut pool);
        }
        pool.advance(now);
        pool.audit();
        Some(pool)
    }

    /// Goes on by `plan` with a pool that was written down, as it stood then; `None` if no pool can have been in that
    /// state.
    pub(super) fn resume(plan: Arc<Plan>, since: Since, resumed: Resumed<'_>) -> Option<Pool> {
        let then = since.moment(since.written);
        if then > since.now {
            return None;
        }
        let mut pool = Pool::new(plan, then);
        for (place, session) in resumed.sessions {
            if !pool.sessions.insert(place, session) {
                return None;
            }
        }
        let sum = |part: fn(&Session) -> u64| pool.sessions.values().map(part).sum::<u64>();
        let (out, burned, spent) = (sum(|it| it.outstanding), sum(|it| it.burned), sum(|it| it.spent));
        let charged = sum(|it| it.calls.charged());
        pool.books = books(resumed.books, out)?;
        let until = pool.sessions.last_expiry().unwrap_or(then);
        // The books still contain sessions that were forgotten.
        let are_books_true = burned <= pool.books.burned
            && spent <= pool.books.spent
            && pool.ledgers.restore(resumed.rules, since, (out, until))
            && pool.ledgers.in_flight() == Some(charged)
            && (pool.longest.is_some() || pool.sessions.in_flight() == 0);
        if !are_books_true {
            return None;
        }
        pool.feedback.restore(resumed.vendor, since);
        pool.quarantine_until = resumed.quarantine_until;
        pool.old_rules_until =
            resumed.old_rules_until.max(if since.gap == Gap::Unknown { until } else { then });
        pool.checkpoints.goes_on(resumed.earlier);
        pool.recount_ahead();
        Some(pool)
    }
}

impl SavedSafeShares {
    /// Writes down the safe shares of `pool`; `None` if there are none, and none to come.
    fn of(pool: &Pool) -> Option<Self> {
        let shares = &pool.safe_shares;
        let taken: Vec<_> = shares.taken().map(|(id, taken)| SavedSafeShare::of(id, taken)).collect();
        let is_closed = shares.opens() > pool.now && pool.plan.sharing.safe.is_some();
        (!taken.is_empty() || is_closed).then(|| SavedSafeShares { opens: shares.opens().into(), taken })
    }

    fn restore(&self, since: Since) -> Option<Vec<(SessionId, Taken)>> {
        let sane =
            |share: &SavedSafeShare| share.permits.max(share.holders) <= PERMITS_MAX && !share.span.is_zero();
        let restored = |share: &SavedSafeShare| {
            let SavedSafeShare { id, permits, holders, span, free } = *share;
            let free_from = since.moment(free);
            // Its session tells its identity when it asks again.
            (SessionId(id), Taken { permits, holders, span, free_from, owner: Owner::NONE })
        };
        self.taken.iter().all(sane).then(|| self.taken.iter().map(restored).collect())
    }
}

impl SavedSafeShare {
    fn of(id: SessionId, taken: Taken) -> Self {
        let Taken { permits, holders, span, free_from, owner: _ } = taken;
        SavedSafeShare { id: id.0, permits, holders, span, free: free_from.into() }
    }
}

impl SavedGroups {
    /// Writes down the groups of `pool`; `None` if each bucket is full and no allocator that is known has said
    /// anything.
    fn of(pool: &Pool) -> Option<Self> {
        let is_known = |id: &SessionId| pool.sessions.contains(Place::own(*id));
        let says = |said: &[GroupAsk]| said.iter().any(|said| *said != GroupAsk::default());
        let said = pool.groups.said().filter(|(id, said)| is_known(id) && says(said));
        let numbers = |said: &[GroupAsk]| said.iter().map(|said| [said.taken, said.want]).collect();
        let said: Vec<_> = said.map(|(id, said)| (id.0, numbers(said))).collect();
        let levels: Vec<_> = pool.groups.guarantees.save().collect();
        let are_full = levels.iter().all(|[most, permits, _]| permits == most);
        let is_as_new = said.is_empty() && are_full;
        (!is_as_new).then_some(SavedGroups { levels, said })
    }

    fn restore(&self, pool: &mut Pool) {
        let Some(groups) = pool.groups.unusual() else { return };
        groups.guarantees.restore(&self.levels);
        let asks =
            |said: &Vec<[u64; 2]>| said.iter().map(|&[taken, want]| GroupAsk { taken, want }).collect();
        let said = self.said.iter().map(|(id, said)| (SessionId(*id), asks(said)));
        groups.goes_on(said.collect());
    }
}

impl SavedSession {
    fn of(id: SessionId, session: &Session) -> Self {
        SavedSession {
            id: id.0,
            seq: session.seq,
            answered: session.answered.into(),
            lent: session.lent.into(),
            end: session.end.into(),
            spent: session.spent,
            out: session.outstanding,
            burned: session.burned,
            burns: session.burns().map(|burn| (burn.at.into(), burn.permits)).collect(),
            demand: session.demand_milli,
            waiting: session.waiting,
            wanted: session.wanted,
            term: session.term,
            rtt: session.rtt,
            calls: session.calls.save(),
        }
    }

    fn restore(&self, since: Since) -> Option<(Place, Session)> {
        let totals = [self.spent, self.out, self.burned, self.demand, self.waiting, self.wanted, self.seq];
        let burns = self.burns.iter().try_fold(0_u64, |sum, (_, permits)| sum.checked_add(*permits))?;
        let is_sane = totals.iter().all(|total| *total <= PERMITS_MAX)
            && burns <= self.burned
            && self.burns.is_sorted_by_key(|(at, _)| *at)
            && self.term <= TERM_MAX
            && self.rtt <= RTT_MAX;
        if !is_sane {
            return None;
        }
        let mut session = Session::new(Share::EVEN, since.moment(self.answered));
        (session.seq, session.spent, session.outstanding) = (self.seq, self.spent, self.out);
        (session.lent, session.end) = (since.moment(self.lent), since.moment(self.end));
        (session.demand_milli, session.waiting, session.wanted) = (self.demand, self.waiting, self.wanted);
        (session.term, session.rtt) = (self.term, self.rtt);
        let burns = self.burns.iter().map(|&(at, permits)| Burn { at: since.moment(at), permits });
        session.restore_burned(self.burned, burns);
        session.calls = match &self.calls {
            Some(calls) => SessionCalls::restore(calls, since)?.into(),
            None => Rare::default(),
        };
        Some((Place::own(SessionId(self.id)), session))
    }
}

/// The state of a pool that was written down, in moments of the clock that it goes on by.
pub(super) struct Resumed<'a> {
    /// Totals of permits granted, spent, returned and burned.
    pub(super) books: [u64; 4],
    pub(super) sessions: Vec<(Place, Session)>,
    pub(super) rules: &'a [Saved],
    pub(super) vendor: &'a SavedFeedback,
    /// See the fields of [`Pool`].
    pub(super) quarantine_until: Moment,
    pub(super) old_rules_until: Moment,
    /// Until then a session may still spend by what an earlier process told it.
    pub(super) earlier: Moment,
}

/// Makes books of these totals and `outstanding` permits; `None` if they do not add up.
fn books([granted, spent, returned, burned]: [u64; 4], outstanding: u64) -> Option<Books> {
    let sum = [spent, returned, burned, outstanding].into_iter().try_fold(0_u64, u64::checked_add)?;
    (sum == granted).then_some(Books { granted, spent, returned, burned, outstanding })
}
