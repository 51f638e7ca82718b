//! Forgetting sessions, mirrors and whole pools that make no difference any more. Sweeps do this, and so does an ask
//! that comes to a full pool. A forgotten session has nothing live; at most it loses the credit of a late report.

use super::ages::FAR;
use super::family::Place;
use super::session::Session;
use super::{Holder, Pool};
use crate::rule::Flow;
use crate::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Shortest time for which a session is remembered. A forgotten session must start from zero, which costs its node an
/// exchange; a user's pause of a few seconds should not. A longer time would keep more pools of keys.
const REMEMBERED_MIN: Duration = Duration::from_secs(10);

/// Sessions of one identity that a pool admits even when memory is short: keys in use must work on other nodes, too.
const ADMITTED_IN_NEED: usize = 4;

/// Mirrors reviewed for each one that comes or burns, while too many have nothing live. With more than one, a flood
/// cannot outrun the reviews; a larger number makes each new mirror dearer.
const LOOKS_FOR_MIRROR: usize = 8;

impl Pool {
    /// Forgets sessions that can make no difference any more. Returns whether the pool cannot be told from a new one,
    /// so that it may be dropped.
    pub fn is_forgettable(&mut self, now: Moment) -> bool {
        self.is_done(now) && self.ledgers.is_fresh()
    }

    /// Forgets sessions that can make no difference any more. Returns whether nothing that the pool lent matters any
    /// more. A new pool may have less than this one: a bucket may begin with less than it holds.
    pub fn is_replaceable(&mut self, now: Moment) -> bool {
        self.is_done(now) && self.ledgers.keep_nothing_back()
    }

    /// Forgets sessions that can make no difference any more. Returns whether nothing but its rules can tell the pool
    /// from a new one.
    fn is_done(&mut self, now: Moment) -> bool {
        self.advance(now);
        self.forget_idle(self.memory(), self.brief_memory());
        // With this pool, a session gets its last grant again for a repeated ask, and goes by deadlines of an earlier
        // process. With a new pool it would not.
        let is_quiet =
            self.now >= self.quarantine_until.max(self.checkpoints.earlier()) && self.sessions.is_empty();
        is_quiet && self.safe_shares.are_free() && self.is_fresh_beside_rules()
    }

    /// Returns how long a session is remembered: until no rule counts its burned permits any more.
    pub fn memory(&self) -> Duration {
        self.ledgers.memory().max(self.brief_memory())
    }

    /// Returns how long a session that has used nothing is remembered, whatever the windows. So asks for made-up keys
    /// that spend nothing are forgotten within seconds.
    pub(super) fn brief_memory(&self) -> Duration {
        self.active().max(REMEMBERED_MIN)
    }

    /// Forgets own sessions with nothing live that have said nothing for `memory`, or for `brief` if they have used nothing. A
    /// late copy of an old ask then comes from an unknown session: it starts at zero or is refused, and its grant is charged.
    pub(super) fn forget_idle(&mut self, memory: Duration, brief: Duration) {
        let ago = |span| self.now.as_nanos().checked_sub(nanos(span)).map(Moment::from_nanos);
        let (long_ago, lately) = (ago(memory), ago(brief));
        long_ago.into_iter().for_each(|then| self.sessions.forget_idle(then));
        lately.into_iter().for_each(|then| self.sessions.forget_unused(then));
    }

    /// Forgets own sessions with nothing live that no longer ask: all they lose is the credit of a late report.
    pub fn forget_spare(&mut self, now: Moment) {
        self.advance(now);
        let shares = self.sessions.ages().active(FAR);
        self.forget_idle(shares, shares);
    }

    /// Whether the session of `holder` is known, or is admitted even when memory is short.
    pub fn is_open_in_need(&self, holder: Holder) -> bool {
        let owner = holder.share.owner;
        let known = if owner == Owner::NONE { self.sessions.own() } else { self.sessions.of(owner) };
        known < ADMITTED_IN_NEED || self.sessions.contains(Place::own(holder.id))
    }

    /// Forgets mirrors whose review is due. Only the demand of a blank mirror matters, while it shares: the pool below
    /// knows its session, whose next ask makes the mirror anew.
    pub(super) fn forget_mirrors(&mut self) {
        while let Some((reviewed, place)) = self.sessions.next_review()
            && reviewed <= self.now
        {
            self.review(place, Some((self.active(), self.memory())));
        }
    }

    /// Forgets mirrors with nothing live while there are more such sessions, own ones included, than the pool may have
    /// of its own. `many` have just come or burned. What forgotten mirrors burned stays spent here. Live mirrors hold
    /// permits of this pool, which bounds them.
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

    /// Forgets the mirror `place` if nothing of it is live or in flight. With `spans`, it must also have been silent
    /// for the first span if it is blank, and for the second otherwise. A mirror that is kept is reviewed later.
    fn review(&mut self, place: Place, spans: Option<(Duration, Duration)>) {
        let active = self.active();
        let mirror = &self.sessions[place];
        let shares = self.sessions.ages().active(mirror.rtt);
        let silent = mirror.end.max(mirror.answered);
        let forgotten = match spans {
            None => self.now,
            Some((blank, _)) if mirror.is_blank() => mirror.end.max(mirror.answered + blank.max(shares)),
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

    /// Whether nothing that the pool knows tells it from a new one.
    pub(super) fn is_fresh(&self) -> bool {
        self.ledgers.is_fresh() && self.is_fresh_beside_rules()
    }

    fn is_fresh_beside_rules(&self) -> bool {
        let is_fresh = self.flow.as_deref().is_none_or(Flow::is_fresh);
        is_fresh && self.vendor_is_content() && self.rests_above()
    }
}
