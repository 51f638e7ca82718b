//! A pool below others: `user` under `tenant` under `vendor`. A permit is charged to all of them or to none. Limits pass
//! the pools above one with each exchange; a pool keeps no pointer to another.
//!
//! Every ancestor keeps, for each lessee of a pool below it, a lessee of its own that mirrors it. The mirror has the same permits
//! out until the same end, and the same demand. So each ancestor has the ends of all leases below it in its one queue. It is
//! advanced piecewise over each of these ends, in order, whichever session asks. It shares what it has among all lessees below
//! it, and its books say what its children lent. A child that burns a lease does so at the instant at which all mirrors did.

use super::session::Settlement;
use super::{AskError, Goodbye, Holder, Pool, Session, SessionId};
use crate::share::Share;
use lessor_protocol::{Answer, Ask, Grant, InFlight, Moment, RateClaim, Refusal, RefusalReason};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose lease it is: that of a session with this pool, or with one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The number of the pool below; 0 for the pool itself.
    below: u64,
    session: SessionId,
}

impl Place {
    /// That of a session which asks this very pool.
    pub(super) fn own(session: SessionId) -> Self {
        Place { below: 0, session }
    }

    /// The session.
    pub(super) fn session(self) -> SessionId {
        self.session
    }

    /// Whether it mirrors the lease of a pool below.
    pub(super) fn is_mirror(self) -> bool {
        self.below > 0
    }
}

/// Tells pools apart to those above them. Nothing but their order depends on it.
static MADE: AtomicU64 = AtomicU64::new(1);

/// The number of a new pool.
pub(super) fn number() -> u64 {
    MADE.fetch_add(1, Ordering::Relaxed)
}

/// A pool above another, nearest first, and what the one who asks counts for there.
#[derive(Debug)]
pub struct Above<'a> {
    /// The pool.
    pub pool: &'a mut Pool,
    /// From that limit's configuration.
    pub share: Share,
}

impl Pool {
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
        let opens = above
            .iter()
            .map(|above| above.pool.opens)
            .max()
            .map_or(self.opens, |opens| opens.max(self.opens));
        if self.now < opens {
            let retry_after = opens.since(self.now);
            return Ok(Answer::Refusal(Refusal { reason: RefusalReason::Quarantine, retry_after }));
        }
        if let Some(refusal) = self.refused_by_vendor(above) {
            return self.settle_below(above, now, holder, seq, ask, refusal);
        }
        let place = Place::own(holder.id);
        if let Some(answer) = self.replay(place, seq)? {
            return Ok(answer);
        }
        let newcomer = !self.lessees.contains_key(&place);
        if newcomer {
            self.admit(holder, &ask)?;
            // It may go by a deadline that an earlier life told it, as any of them knows: all take it to go by the latest.
            let earlier = above.iter().map(|above| above.pool.records.earlier()).max();
            let lessee = self.lessees.get_mut(&place).expect("it was admitted");
            lessee.end = lessee.end.max(earlier.unwrap_or(lessee.end));
        }
        let mirror = Place { below: self.number, session: holder.id };
        self.count_anew(place, above, mirror, &ask);
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, ask.rate);
        self.meet(place, holder);
        for Above { pool, share } in above.iter_mut() {
            if newcomer {
                pool.begin_anew(mirror);
            }
            pool.mirror(mirror, &self.lessees[&place], &ask, &settlement);
            pool.settle_rate(mirror, ask.rate);
            pool.meet(mirror, Holder { share: *share, ..holder });
        }
        let grant = self.lend(place, above, mirror, &ask, newcomer);
        let answer = Answer::Grant(grant);
        self.record(place, seq, &ask, answer);
        self.audit();
        for Above { pool, .. } in above.iter_mut() {
            pool.record(mirror, seq, &ask, answer);
            pool.audit();
        }
        Ok(answer)
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
        // In doubt, what is said of leases of lost books changes nothing; and an old grant is not told again.
        let is_open = self.now >= self.opens && above.iter().all(|above| self.now >= above.pool.opens);
        if !is_open || !self.lessees.contains_key(&place) || self.replay(place, seq)?.is_some() {
            return Ok(answer);
        }
        let mirror = Place { below: self.number, session: holder.id };
        self.count_anew(place, above, mirror, &ask);
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, ask.rate);
        self.meet(place, holder);
        self.record(place, seq, &ask, answer);
        self.audit();
        for Above { pool, share } in above.iter_mut().filter(|above| above.pool.mirrors(mirror)) {
            pool.mirror(mirror, &self.lessees[&place], &ask, &settlement);
            pool.settle_rate(mirror, ask.rate);
            pool.meet(mirror, Holder { share: *share, ..holder });
            pool.record(mirror, seq, &ask, answer);
            pool.audit();
        }
        Ok(answer)
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
        let has_left = self.lessees.get(&place).is_none_or(|lessee| lessee.has_left);
        if has_left || self.replay(place, seq)?.is_some() {
            return Ok(0);
        }
        let before = self.books.returned;
        let Goodbye { spent_total, running, .. } = goodbye;
        let ask = Ask { spent_total, running, ..Ask::default() };
        let mirror = Place { below: self.number, session: id };
        self.count_anew(place, above, mirror, &ask);
        // What it does not give back it may spend until its lease ends.
        let ask = Ask { held: self.lessees[&place].unreturned(goodbye), ..ask };
        let settlement = self.settle(place, &ask)?;
        self.settle_rate(place, RateClaim::None);
        self.fall_silent(place, seq);
        self.leave_seat(id);
        for Above { pool, .. } in above.iter_mut().filter(|above| above.pool.mirrors(mirror)) {
            pool.mirror(mirror, &self.lessees[&place], &ask, &settlement);
            pool.settle_rate(mirror, RateClaim::None);
            pool.fall_silent(mirror, seq);
            pool.audit();
        }
        self.audit();
        Ok(self.books.returned - before)
    }

    /// Lets time pass for all of them alike, up to the latest that any of them has seen.
    fn advance_all(&mut self, above: &mut [Above<'_>], now: Moment) {
        let now = above.iter().map(|above| above.pool.now).fold(now.max(self.now), Moment::max);
        self.advance(now);
        above.iter_mut().for_each(|above| above.pool.advance(now));
    }

    /// Whether it knows the mirror `place`. One that was forgotten had nothing out: no settlement concerns it.
    fn mirrors(&self, place: Place) -> bool {
        self.lessees.contains_key(&place)
    }

    /// Does to the mirror of `lessee`, of a pool below, what `settlement` of `ask` did to it. A mirror that was forgotten had
    /// nothing out, and nothing that burned comes back here any more: it begins anew.
    fn mirror(&mut self, place: Place, lessee: &Session, ask: &Ask, settlement: &Settlement) {
        if !self.mirrors(place) {
            let mut newcomer = self.newcomer(lessee.share);
            // It goes by the same deadline here.
            newcomer.end = newcomer.end.max(lessee.end);
            newcomer.spent = lessee.spent.saturating_sub(settlement.spent + settlement.spent_late);
            self.add_mirror(place, newcomer);
        }
        let mirror = &self.lessees[&place];
        let known = mirror.known_part(settlement);
        self.settle_by(place, ask, &known);
    }

    /// The session is a new one to the pool below, which may have forgotten it sooner than what is in flight here ends.
    pub(super) fn begin_anew(&mut self, place: Place) {
        if self.lessees.contains_key(&place) {
            let now = self.now;
            self.change_flights(place, |flights, longest| flights.begin_anew(now, longest));
        }
    }

    fn fall_silent(&mut self, place: Place, seq: u64) {
        if let Some(lessee) = self.lessees.get_mut(&place) {
            (lessee.seq, lessee.demand_milli, lessee.waiting, lessee.wanted) = (seq, 0, 0, 0);
            lessee.has_left = true;
            // It will say no more of what is in flight: that was spent by now.
            self.end_flights(place, 0, self.now);
        }
        self.foresee_silence();
    }
}

/// The least of what two pools grant to the same ask.
pub(super) fn least(a: Grant, b: Grant) -> Grant {
    let is_scarce = |grant: Grant| !grant.ask_after.is_zero();
    Grant {
        kept: a.kept.min(b.kept),
        permits: a.permits.min(b.permits),
        term: a.term.min(b.term),
        horizon: a.horizon.min(b.horizon),
        ceiling: a.ceiling.min(b.ceiling),
        ask_after: a.ask_after.max(b.ask_after),
        retry_after: match (is_scarce(a), is_scarce(b)) {
            // None of one that is scarce means never.
            (true, true) => a.retry_after.zip(b.retry_after).map(|(a, b)| a.max(b)),
            (false, _) => b.retry_after,
            (true, false) => a.retry_after,
        },
        rate: a.rate,
        in_flight: match (a.in_flight, b.in_flight) {
            (Some(a), Some(b)) => Some(InFlight {
                longest: a.longest.max(b.longest),
                hold: a.hold.zip(b.hold).map(|(a, b)| a.min(b)),
            }),
            // Where something else is promised too, nothing is spent again.
            (cap, None) | (None, cap) => cap.map(|cap| InFlight { hold: None, ..cap }),
        },
    }
}
