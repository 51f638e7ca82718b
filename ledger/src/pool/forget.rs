//! When sessions, and whole pools, can make no difference any more. Sweeps check this, and so does an ask that comes to a full
//! pool. What is forgotten had nothing out, and no rule counts what it burned.

use super::family::Place;
use super::session::Session;
use super::{Holder, Pool};
use crate::rule::Flow;
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// A session is remembered at least this long. One that is forgotten must start again from zero, which costs its
/// node an exchange: not each time that a user pauses for a few seconds. Longer would keep more pools of keys.
const REMEMBERED_MIN: Duration = Duration::from_secs(10);

/// Sessions of one identity that a pool takes in however short memory is: keys in use go on with other nodes, too.
const ADMITTED_IN_NEED: usize = 4;

/// Mirrors that are looked at for each one that comes or burns, where there are too many with nothing live. With more than one,
/// a flood cannot outrun it; each more makes a new one dearer.
const LOOKS_FOR_MIRROR: usize = 8;

impl Pool {
    /// Forgets sessions that can make no difference any more, and tells whether the whole pool can be told from
    /// a new one: if not, it may be dropped.
    pub fn is_forgettable(&mut self, now: Moment) -> bool {
        self.is_done(now) && self.ledgers.is_fresh()
    }

    /// Whether nothing that it lent matters any more. Where a bucket begins with less than it holds, a new pool has less than this one.
    pub fn is_replaceable(&mut self, now: Moment) -> bool {
        self.is_done(now) && self.ledgers.have_all()
    }

    /// Forgets sessions that can make no difference any more, and tells whether nothing but its rules can tell it from a new one.
    fn is_done(&mut self, now: Moment) -> bool {
        self.advance(now);
        self.forget_idle(self.memory(), self.brief_memory());
        // A session gets its last grant again for its last ask, and waits for what an earlier life told: of a new pool not.
        let is_quiet =
            self.now >= self.quarantine_until.max(self.checkpoints.earlier()) && self.sessions.is_empty();
        is_quiet && self.safe_shares.are_free() && self.is_fresh_beside_rules()
    }

    /// How long a session is worth remembering: until no rule counts its burned permits any more.
    pub fn memory(&self) -> Duration {
        self.ledgers.memory().max(self.brief_memory())
    }

    /// The same of a session that has used nothing, however long the windows are: asks for made-up keys that spend nothing are
    /// forgotten within seconds.
    pub(super) fn brief_memory(&self) -> Duration {
        self.active().max(REMEMBERED_MIN)
    }

    /// Forgets own sessions with nothing live that have said nothing for `memory`, or for `brief` if they have used nothing. A late
    /// copy of an old ask is then a stranger's: it starts at zero or is refused, and what it is lent is charged.
    pub(super) fn forget_idle(&mut self, memory: Duration, brief: Duration) {
        let ago = |span| self.now.as_nanos().checked_sub(nanos(span)).map(Moment::from_nanos);
        let (long_ago, lately) = (ago(memory), ago(brief));
        long_ago.into_iter().for_each(|then| self.sessions.forget_idle(then));
        lately.into_iter().for_each(|then| self.sessions.forget_unused(then));
    }

    /// Forgets own sessions with nothing live that ask no more: all they lose is the credit of a late report.
    pub fn forget_spare(&mut self, now: Moment) {
        self.advance(now);
        self.forget_idle(self.active(), self.active());
    }

    /// Whether the session of `holder` is known, or comes in however short memory is.
    pub fn is_open_in_need(&self, holder: Holder) -> bool {
        let owner = holder.share.owner;
        let known = if owner == Owner::NONE { self.sessions.own() } else { self.sessions.of(owner) };
        known < ADMITTED_IN_NEED || self.sessions.contains(Place::own(holder.id))
    }

    /// Forgets the mirrors whose time has come. Of one that is blank all that matters is its demand, for as long as it shares:
    /// its session is known to the pool below, whose next ask makes it anew.
    pub(super) fn forget_mirrors(&mut self) {
        while let Some((reviewed, place)) = self.sessions.next_review()
            && reviewed <= self.now
        {
            self.review(place, Some((self.active(), self.memory())));
        }
    }

    /// Forgets mirrors with nothing live while there are too many such sessions, the pool's own included: as many as it may have
    /// of its own. What those burned stays spent here. Mirrors with something live hold permits of this pool, which bounds them.
    /// So `many` have come, or have nothing live any more.
    pub(super) fn bound_mirrors(&mut self, many: usize) {
        for _ in 0..LOOKS_FOR_MIRROR * many {
            let Some((_, first)) = self.sessions.next_review() else { break };
            if self.sessions.len() - self.sessions.live() <= self.plan.lessees_max {
                break;
            }
            self.review(first, None);
        }
    }

    /// Adds the mirror `place`.
    pub(super) fn add_mirror(&mut self, place: Place, mut mirror: Session) {
        self.bound_mirrors(1);
        mirror.reviewed = self.now + self.active();
        self.sessions.insert(place, mirror);
    }

    /// Forgets the mirror `place` if nothing of it is live or in flight. With `spans`, it also has to have been silent for the
    /// first of them if it is blank, and for the second if not. One that is not forgotten is looked at later.
    fn review(&mut self, place: Place, spans: Option<(Duration, Duration)>) {
        let active = self.active();
        let mirror = &self.sessions[place];
        let silent = mirror.end.max(mirror.answered);
        let forgotten = match spans {
            None => self.now,
            Some((blank, _)) if mirror.is_blank() => mirror.end.max(mirror.answered + blank),
            Some((_, memory)) => silent + memory,
        };
        let forgotten = mirror.calls.next_expiry().map_or(forgotten, |expires| expires.max(forgotten));
        if forgotten <= self.now && !mirror.is_live() {
            self.sessions.remove(place);
        } else {
            let reviewed = forgotten.max(self.now + active);
            self.sessions.update(place, |mirror| mirror.reviewed = reviewed);
        }
    }

    /// Whether nothing that it knows tells it from a new one.
    pub(super) fn is_fresh(&self) -> bool {
        self.ledgers.is_fresh() && self.is_fresh_beside_rules()
    }

    fn is_fresh_beside_rules(&self) -> bool {
        let is_fresh = self.flow.as_deref().is_none_or(Flow::is_fresh);
        is_fresh && self.vendor_is_content() && self.rests_above()
    }
}
