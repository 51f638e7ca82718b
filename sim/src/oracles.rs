//! The oracles of a run: one for each limit that nodes ask and, where several of those are below one limit, one for that,
//! which sees what all of them do. The world tells them of everything; each complains for itself.

use crate::oracle::{AskRejection, Asked, Instant, Oracle, Stock, Verdict};
use crate::setup::{Sabotage, Setup};
use lessor_ledger::pool::AskError;
use lessor_ledger::{Carry, Rule};
use lessor_protocol::{Answer, Moment};

/// All of them.
#[derive(Clone, Debug)]
pub struct Oracles {
    /// By limit, see [`Setup::limit`].
    own: Vec<Oracle>,
    /// Of the limit above, if it is above several: the rules of one that is above a single limit are judged with those.
    above: Option<Oracle>,
}

/// How all pools look, and what nodes can still spend.
#[derive(Clone, Debug)]
pub struct Stocks {
    /// Of the limits that nodes ask.
    pub own: Vec<Stock>,
    /// Of the one above several.
    pub above: Option<Stock>,
}

impl Oracles {
    /// Those of `setup`.
    pub fn new(setup: &Setup) -> Self {
        let less = u64::from(setup.sabotage == Sabotage::StricterOracle);
        let (drift, remembered) = (setup.plan.clocks.drift_ppm(), setup.remembered());
        let oracle = |rules: &[Rule]| Oracle::new(rules, drift, less, remembered);
        let (own, above) = setup.rules_apart();
        Oracles { own: vec![oracle(own); setup.limits()], above: above.map(oracle) }
    }

    /// That of `limit`.
    pub fn of(&mut self, limit: usize) -> &mut Oracle {
        &mut self.own[limit]
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Oracle> {
        self.own.iter_mut().chain(&mut self.above)
    }

    /// See [`Oracle::admitted`].
    ///
    /// # Errors
    /// What was wrong.
    pub fn admitted(
        &mut self,
        limit: usize,
        now: Instant,
        node: usize,
        session: u64,
        permits: u64,
        way: u64,
    ) -> Verdict {
        self.own[limit].admitted(now, node, session, permits, way)?;
        self.above.iter_mut().try_for_each(|above| above.counts(now, permits, way))
    }

    /// See [`Oracle::counts`]: `permits` of `limit` were admitted on a part of what is kept back, and of no lease.
    ///
    /// # Errors
    /// What was wrong.
    pub fn passed(&mut self, limit: usize, now: Instant, permits: u64, way: u64) -> Verdict {
        self.own[limit].counts(now, permits, way)
    }

    /// See [`Oracle::landed`].
    pub fn landed(&mut self, limit: usize, permits: u64) {
        self.own[limit].landed(permits);
        self.above.iter_mut().for_each(|above| above.landed(permits));
    }

    /// See [`Oracle::answered`].
    ///
    /// # Errors
    /// What was wrong.
    pub fn answered(
        &mut self,
        limit: usize,
        now: Instant,
        asked: &Asked,
        answer: &Result<Answer, AskError>,
        stocks: &Stocks,
    ) -> Verdict {
        let (lent, lied) = self.own[limit].answered(now, asked, answer, stocks.own[limit])?;
        self.above.iter_mut().for_each(|above| above.lent(now, lent, lied));
        self.stand(now, stocks)
    }

    /// See [`Oracle::books`], of all.
    ///
    /// # Errors
    /// What was wrong.
    pub fn books(&mut self, now: Instant, stocks: &Stocks) -> Verdict {
        let each = self.own.iter_mut().zip(&stocks.own);
        each.into_iter().try_for_each(|(oracle, stock)| oracle.books(now, *stock))?;
        self.stand(now, stocks)
    }

    /// How the limit above stands.
    fn stand(&mut self, now: Instant, stocks: &Stocks) -> Verdict {
        match (&mut self.above, stocks.above) {
            (Some(above), Some(stock)) => above.stands(now, stock),
            _ => Ok(()),
        }
    }

    /// See [`Oracle::exposed`]: nodes can spend `in_hand` of each limit.
    ///
    /// # Errors
    /// What was wrong.
    pub fn exposed(&mut self, now: Instant, in_hand: &[u64]) -> Verdict {
        let mut each = self.own.iter_mut().zip(in_hand);
        each.try_for_each(|(oracle, in_hand)| oracle.exposed(now, *in_hand))?;
        self.above.iter_mut().try_for_each(|above| above.exposed(now, in_hand.iter().sum()))
    }

    /// Books are new: see [`Oracle::books_begin`].
    pub fn books_begin(&mut self, now: Instant, begins: Moment, is_new: &IsNew) {
        for (oracle, is_new) in self.all().zip(is_new.own.iter().chain(&is_new.above)) {
            oracle.books_begin(now, begins, is_new);
        }
    }

    /// See [`Oracle::refills_at`]: of each rule of each, those above several last.
    pub fn refill_at(&mut self, now: Instant, next: &[Vec<Option<Moment>>]) {
        self.all().zip(next).for_each(|(oracle, next)| oracle.refills_at(now, next));
    }

    /// See [`Oracle::books_go_on`].
    pub fn books_go_on(&mut self, now: Instant) {
        self.all().for_each(|oracle| oracle.books_go_on(now));
    }

    /// See [`Oracle::shut`].
    pub fn shut(&mut self, until: Moment) {
        self.all().for_each(|oracle| oracle.shut(until));
    }

    /// See [`Oracle::room`]: of `limit`, and of the one above it.
    pub fn room(&mut self, limit: usize, now: Instant) -> u64 {
        let above = self.above.as_mut().map_or(u64::MAX, |above| above.room(now));
        self.own[limit].room(now).min(above)
    }

    /// See [`Oracle::changed`]. Only a single limit is.
    ///
    /// # Errors
    /// What was wrong.
    pub fn changed(&mut self, now: Instant, rules: &[Rule], carry: Carry, stocks: &Stocks) -> Verdict {
        self.own[0].changed(now, rules, carry, stocks.own[0])
    }

    /// See [`Oracle::topped_up`]. Only a single limit is.
    ///
    /// # Errors
    /// What was wrong.
    pub fn topped_up(&mut self, now: Instant, permits: u64, stocks: &Stocks) -> Result<(), AskRejection> {
        self.own[0].topped_up(now, permits, stocks.own[0])
    }
}

/// For each rule that an oracle sees to whether its books are new.
#[derive(Clone, Debug)]
pub struct IsNew {
    /// Of the limits that nodes ask; the first rule of each is kept by the pool that they ask.
    pub own: Vec<Vec<bool>>,
    /// Of the one above several.
    pub above: Option<Vec<bool>>,
}
