//! One exchange, from its ask to its answer: time passes, the ask is checked, what it reports is settled here and
//! above, a grant is sized and charged, and the answer is remembered. An exchange that only reports, and a goodbye,
//! take parts of that path.

use super::ages::Age;
use super::calls::SessionCalls;
use super::family::{Above, Place, claims_nothing};
use super::session::{Session, Settlement, Told};
use super::{AskError, Goodbye, Holder, Pool, SessionId};
use crate::share::Owner;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::{Answer, Ask, Grant, Moment, PERMITS_MAX, RateClaim, Refusal, RefusalReason};
use std::time::Duration;

/// Shortest lease, in round trips of its holder: one has passed when the lease arrives, and the renewal must be
/// answered before the lease ends. A larger value would burn more permits when a distant node dies.
const RTTS_PER_TERM: u32 = 4;

impl Pool {
    /// Settles what `ask` reports, extends what it holds and lends more, in one exchange.
    ///
    /// A `seq` that was answered gets the same grant again, with what is left of its term.
    ///
    /// # Errors
    /// If the ask cannot be true or is out of order. Nothing changes then.
    pub fn renew(&mut self, now: Moment, holder: Holder, seq: u64, ask: Ask) -> Result<Answer, AskError> {
        self.renew_below(&mut [], now, holder, seq, ask)
    }

    /// [`Pool::renew`] of a pool that has others `above` it: what it lends is charged to all of them.
    ///
    /// # Errors
    /// As [`Pool::renew`]. Nothing changes then, anywhere.
    pub fn renew_below(
        &mut self,
        above: &mut [Above<'_>],
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Result<Answer, AskError> {
        self.advance_all(above, now);
        let quarantine_until = above
            .iter()
            .map(|above| above.pool.quarantine_until)
            .max()
            .map_or(self.quarantine_until, |until| until.max(self.quarantine_until));
        if self.now < quarantine_until {
            let retry_after = quarantine_until.since(self.now);
            return Ok(Answer::Refusal(Refusal { reason: RefusalReason::Quarantine, retry_after }));
        }
        let refused = self.refused_by_vendor(above).or_else(|| self.refused_for_shares(above));
        if let Some(refusal) = refused {
            return self.settle_below(above, now, holder, seq, ask, refusal);
        }
        let place = Place::own(holder.id);
        self.sessions.attend(place);
        if let Some(answer) = self.replay(place, seq)? {
            return Ok(answer);
        }
        let newcomer = !self.sessions.contains(place);
        if newcomer {
            self.admit(holder, &ask)?;
            // The session may still spend until a deadline that an earlier process told it: all pools assume the latest
            // that any of them knows.
            let earlier = above.iter().map(|above| above.pool.checkpoints.earlier()).max();
            self.sessions
                .update(place, |session| session.end = session.end.max(earlier.unwrap_or(session.end)));
        }
        let mirror = Place::below(self.number, holder.id);
        self.reset_sessions(place, above, mirror, &ask);
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, ask.rate);
        self.update_holder(place, holder);
        for Above { pool, share } in above.iter_mut() {
            pool.sessions.attend(mirror);
            if newcomer {
                pool.orphan_running_calls(mirror);
            }
            pool.mirror(mirror, &self.sessions[place], &ask, &settlement);
            pool.settle_rate(mirror, ask.rate);
            pool.update_holder(mirror, Holder { share: *share, ..holder });
        }
        let grant = self.lend(place, above, mirror, &ask, newcomer);
        let refused = self.refused_above(&ask, &grant);
        let refused =
            refused.or_else(|| above.iter().find_map(|above| above.pool.refused_above(&ask, &grant)));
        let answer = refused.map_or(Answer::Grant(grant), Answer::Refusal);
        // By the pools above, the session wants no more than the pools below can lend it.
        let mut lendable = if above.is_empty() { ask } else { self.lendable_of(place, ask) };
        self.record(place, seq, &ask, &answer);
        self.audit();
        let mut above = above.iter_mut().peekable();
        while let Some(Above { pool, .. }) = above.next() {
            let claimed = lendable;
            if above.peek().is_some() {
                lendable = pool.lendable_of(mirror, claimed);
            }
            pool.record(mirror, seq, &claimed, &answer);
            pool.audit();
        }
        Ok(answer)
    }

    /// Settles what `ask` reports and takes back what it returns, while nothing is lent. Extends nothing, and answers
    /// `refusal`.
    ///
    /// # Errors
    /// As [`Pool::renew`]. A session that is not known is refused whatever it says, and not admitted.
    pub fn settle_only(
        &mut self,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskError> {
        self.settle_below(&mut [], now, holder, seq, ask, refusal)
    }

    /// [`Pool::settle_only`] of a pool that has others `above` it.
    ///
    /// # Errors
    /// As [`Pool::settle_only`].
    pub fn settle_below(
        &mut self,
        above: &mut [Above<'_>],
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskError> {
        self.advance_all(above, now);
        let (answer, place) = (Answer::Refusal(refusal), Place::own(holder.id));
        // In quarantine, reports on leases of lost books change nothing. A pool above that waits has no mirror, while
        // these books know the session. An old grant is not told again.
        if !self.is_open() || !self.sessions.contains(place) || self.replay(place, seq)?.is_some() {
            return Ok(answer);
        }
        let mirror = Place::below(self.number, holder.id);
        self.reset_sessions(place, above, mirror, &ask);
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, ask.rate);
        self.update_holder(place, holder);
        let is_for_all = refusal.reason != RefusalReason::Blocked;
        self.end_turn_of(place);
        self.record(place, seq, &if is_for_all { ask } else { claims_nothing(ask) }, &answer);
        self.audit();
        for Above { pool, share } in above.iter_mut().filter(|above| above.pool.mirrors(mirror)) {
            pool.mirror(mirror, &self.sessions[place], &ask, &settlement);
            pool.settle_rate(mirror, ask.rate);
            pool.update_holder(mirror, Holder { share: *share, ..holder });
            pool.end_turn_of(mirror);
            pool.record(mirror, seq, &claims_nothing(ask), &answer);
            pool.audit();
        }
        Ok(answer)
    }

    /// Ends the session. Returns the permits that come back unspent, at most what `goodbye` gives back. The rest stays
    /// charged until its lease ends.
    ///
    /// # Errors
    /// As [`Pool::renew`]. A session that is not known returns no permits.
    pub fn leave(&mut self, now: Moment, id: SessionId, seq: u64, goodbye: Goodbye) -> Result<u64, AskError> {
        self.leave_below(&mut [], now, id, seq, goodbye)
    }

    /// [`Pool::leave`] of a pool that has others `above` it.
    ///
    /// # Errors
    /// As [`Pool::leave`].
    pub fn leave_below(
        &mut self,
        above: &mut [Above<'_>],
        now: Moment,
        id: SessionId,
        seq: u64,
        goodbye: Goodbye,
    ) -> Result<u64, AskError> {
        self.advance_all(above, now);
        let place = Place::own(id);
        let has_left = self.sessions.get(place).is_none_or(|session| session.has_left);
        if has_left || self.replay(place, seq)?.is_some() {
            return Ok(0);
        }
        let before = self.books.returned;
        let Goodbye { spent_total, running, shadow_refused, .. } = goodbye;
        let ask = Ask { spent_total, running, shadow_refused, ..Ask::default() };
        let mirror = Place::below(self.number, id);
        self.reset_sessions(place, above, mirror, &ask);
        // The session may spend what it does not give back until its lease ends.
        let ask = Ask { held: self.sessions[place].unreturned(goodbye), ..ask };
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, RateClaim::None);
        self.fall_silent(place, seq);
        self.leave_safe_share(id);
        for Above { pool, .. } in above.iter_mut().filter(|above| above.pool.mirrors(mirror)) {
            pool.mirror(mirror, &self.sessions[place], &ask, &settlement);
            pool.settle_rate(mirror, RateClaim::None);
            pool.fall_silent(mirror, seq);
            pool.audit();
        }
        self.audit();
        Ok(self.books.returned - before)
    }

    /// Lets time pass for this pool and all above it alike, up to the latest moment that any of them has seen.
    fn advance_all(&mut self, above: &mut [Above<'_>], now: Moment) {
        let now = above.iter().map(|above| above.pool.now).fold(now.max(self.now), Moment::max);
        self.advance(now);
        above.iter_mut().for_each(|above| above.pool.advance(now));
    }

    /// Advances the pool to `now`. Leases expire in order, and the rules are advanced to the end of each lease before it burns.
    pub(super) fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        let mut ended = 0;
        let mut last = None;
        // A burned lease is not live, so none comes twice. If one did, the filter would end the loop.
        while let Some((end, place)) = self.sessions.expired(self.now).filter(|next| last != Some(*next)) {
            self.expire_calls(end);
            self.expire(place, end);
            last = Some((end, place));
            ended += 1;
        }
        self.expire_calls(self.now);
        self.sessions.age(self.now);
        self.ledgers.advance(self.now);
        if let Some(flow) = &mut self.flow {
            flow.advance(self.now);
        }
        if let Some(groups) = self.groups.unusual() {
            groups.guarantees.advance(self.now);
        }
        if self.safe_shares.rest_until() <= self.now {
            let span = self.safe_span();
            self.safe_shares.advance(self.now, span);
        }
        if self.now < self.old_rules_until {
            self.recount_ahead();
        }
        self.forget_mirrors();
        self.bound_mirrors(ended);
    }

    /// Burns the lease of `place`, which ended at `end` without a report: its permits are presumed spent.
    fn expire(&mut self, place: Place, end: Moment) {
        let burned = self.sessions.update(place, Session::burn);
        self.ledgers.burn(burned, end);
        self.books.outstanding -= burned;
        self.books.burned += burned;
        self.end_rate(place, end);
        self.orphan_calls(place, burned, end);
        debug_assert!(!self.sessions[place].is_live(), "{:?}", self.sessions[place]);
    }

    pub(super) fn recount_ahead(&mut self) {
        let sessions = &self.sessions;
        self.ledgers.recount_ahead(|| sessions.values().map(|session| (session.end, session.outstanding)));
    }

    /// Forgets orphaned calls that expire by `now`.
    pub(super) fn expire_calls(&mut self, now: Moment) {
        while let Some(place) = self.sessions.with_expired_calls(now) {
            self.update_calls(place, |calls, _| calls.expire(now));
        }
    }

    /// Orphans the calls in flight of `place`, and `burned` permits that may be in flight too. All were spent by `end`
    /// at the latest.
    pub(super) fn orphan_calls(&mut self, place: Place, burned: u64, end: Moment) {
        self.update_calls(place, |calls, longest| calls.end(burned, end, longest));
    }

    /// Changes the calls in flight of `place`, where they are counted, and charges the difference to the ledgers.
    pub(super) fn update_calls(&mut self, place: Place, change: impl FnOnce(&mut SessionCalls, Duration)) {
        let Some(longest) = self.longest else { return };
        let (before, after) = self.sessions.update(place, |session| {
            let before = session.calls.charged();
            change(&mut session.calls, longest);
            (before, session.calls.charged())
        });
        self.ledgers.change_in_flight(before, after);
    }

    /// Returns the answer that `seq` was given before, with what is left of its term.
    fn replay(&self, place: Place, seq: u64) -> Result<Option<Answer>, AskError> {
        let Some(session) = self.sessions.get(place) else {
            return Ok(None);
        };
        if session.has_left {
            return Err(AskError::Left);
        }
        if seq < session.seq {
            return Err(AskError::Stale { seq, last: session.seq });
        }
        if seq != session.seq {
            return Ok(None);
        }
        let gone = self.now.since(session.answered);
        Ok(Some(match session.told.answer() {
            Answer::Grant(grant) => {
                Answer::Grant(Grant { term: whole_millis(grant.term.saturating_sub(gone)), ..grant })
            }
            refusal @ Answer::Refusal(_) => refusal,
        }))
    }

    fn admit(&mut self, holder: Holder, ask: &Ask) -> Result<(), AskError> {
        let Ask { spent_total, held, running, shadow_refused, .. } = *ask;
        let runs = running.is_some_and(|running| running > 0);
        if spent_total > 0 || held > 0 || runs || shadow_refused > 0 {
            return Err(AskError::LeaseUnknown { spent_total, held });
        }
        let owner = holder.share.owner;
        if self.full_at(owner).is_some() {
            // Forgetting spare sessions makes room at once.
            self.forget_spare(self.now);
            if let Some(max) = self.full_at(owner) {
                return Err(AskError::Full { max });
            }
        }
        self.sessions.insert(Place::own(holder.id), self.newcomer(holder.share));
        Ok(())
    }

    /// Returns the bound on sessions that is reached, if any: for the pool's own sessions, or for the sessions of
    /// `owner`. An identity leaves the last tenth to others. Sessions of pools below are bounded there.
    fn full_at(&self, owner: Owner) -> Option<usize> {
        let max = self.plan.lessees_max;
        let of_identity = Owner::most_of(max);
        let is_full = owner != Owner::NONE && self.sessions.of(owner) >= of_identity;
        (self.sessions.own() >= max).then_some(max).or(is_full.then_some(of_identity))
    }

    /// Settles what `ask` reports: in the session, in every rule and in the books.
    fn settle(&mut self, place: Place, ask: &Ask) -> Result<Settlement, AskError> {
        let session = &self.sessions[place];
        let Some(settlement) = session.settlement(ask) else {
            return Err(AskError::Totals {
                spent_total: ask.spent_total,
                held: ask.held,
                spent: session.spent,
                out: session.outstanding + session.burned,
            });
        };
        // A node may make up its total: it can be any number.
        let more = ask.shadow_refused.saturating_sub(session.said.shadow_refused);
        self.shadow_refused = self.shadow_refused.saturating_add(more).min(PERMITS_MAX);
        if ask.shadow_refused > session.said.shadow_refused {
            self.sessions.update(place, |session| session.said.shadow_refused = ask.shadow_refused);
        }
        self.settle_by(place, ask, &settlement);
        Ok(settlement)
    }

    /// Applies `settlement`, which `ask` reports, to the session, to every rule and to the books.
    pub(super) fn settle_by(&mut self, place: Place, ask: &Ask, settlement: &Settlement) {
        let (ledgers, now) = (&mut self.ledgers, self.now);
        let (share, proven, room) = self.sessions.update(place, |session| {
            session.age = Age::Asking;
            let proven = session.prove();
            // Permits that the session could have in flight and no longer holds.
            let room = session.outstanding - settlement.kept + session.calls.charged();
            ledgers.release_ahead(session.outstanding, session.end);
            session.settle(settlement);
            session.note_turnover(now);
            ledgers.charge_ahead(session.outstanding, session.end);
            (*session.share, proven, room)
        });
        self.ledgers.settle(settlement.spent, self.now);
        self.ledgers.release(settlement.returned);
        let returned = settlement.returned + settlement.credited;
        self.group_returned(share.group, returned);
        self.identity_has_said(share.owner, returned, proven);
        self.pacer.unusual().into_iter().for_each(|pacer| pacer.returned(settlement.returned));
        for credit in &settlement.credits {
            self.ledgers.credit(credit.permits, credit.at);
        }
        self.books.outstanding -= settlement.spent + settlement.returned;
        self.books.burned -= settlement.spent_late + settlement.credited;
        self.books.spent += settlement.spent + settlement.spent_late;
        self.books.returned += returned;
        self.update_calls(place, |calls, longest| calls.report(ask, settlement, room, now, longest));
    }

    /// Updates the session's share, its round-trip time and the term of its leases from the exchange.
    fn update_holder(&mut self, place: Place, holder: Holder) {
        let term = self.term.max(holder.rtt.saturating_mul(RTTS_PER_TERM)).min(self.plan.sharing.term_max);
        if *self.sessions[place].share != holder.share {
            self.sessions.share(place, holder.share);
        }
        self.sessions.note(place, |session| {
            (session.term, session.rtt) = (whole_millis(term), holder.rtt);
        });
    }

    fn record(&mut self, place: Place, seq: u64, ask: &Ask, answer: &Answer) {
        let (now, kept) = (self.now, answer.grant().map_or(ask.held, |grant| grant.kept));
        let told = Told::of(answer);
        self.note_large_call(place, ask, answer.grant().map_or(0, |grant| grant.permits));
        self.sessions.update(place, |session| {
            session.seq = seq;
            session.told = told;
            (session.answered, session.age) = (now, Age::Fresh);
            session.demand_milli = ask.demand_milli;
            session.waiting = ask.waiting;
            session.held = ask.held;
            session.wanted = kept.saturating_add(ask.want);
        });
    }
}
