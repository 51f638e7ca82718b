//! The rules of one pool, each with its books. The family keeps two of these for each pool in which a call waits. Books
//! know neither callers nor other pools.

use super::carry_over;
use super::{Exact, exact};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;

/// The rules, each with its books.
#[derive(Debug)]
pub(super) struct Books(Vec<(Rule, Box<dyn Exact>)>);

impl Books {
    /// Creates the books of `rules`, fresh at `now`.
    pub(super) fn new(rules: &[Rule], now: Moment) -> Self {
        Books(rules.iter().map(|rule| (*rule, exact(rule, now))).collect())
    }

    fn each(&mut self, mut act: impl FnMut(&mut dyn Exact)) {
        for (_, books) in &mut self.0 {
            act(&mut **books);
        }
    }

    /// Lets time pass up to `now`.
    pub(super) fn advance(&mut self, now: Moment) {
        self.each(|books| books.advance(now));
    }

    /// Takes `permits` at `at`, from every rule.
    pub(super) fn take(&mut self, at: Moment, permits: u64) {
        self.advance(at);
        self.each(|books| books.take(permits));
    }

    /// Takes back `permits` unused: for each rule as many as it still counts.
    pub(super) fn refund(&mut self, permits: u64) {
        self.each(|books| books.refund(permits));
    }

    /// Adds `permits` once.
    pub(super) fn top_up(&mut self, permits: u64) {
        self.each(|books| books.top_up(permits));
    }

    /// Replaces the books of each rule by those in `unused`, which has the same rules, if these have less.
    pub(super) fn begin_as(&mut self, unused: &Books) {
        for ((_, own), (_, unused)) in self.0.iter_mut().zip(&unused.0) {
            if unused.available() < own.available() {
                *own = unused.copy();
            }
        }
    }

    /// Goes on by `rules` from `now` on.
    pub(super) fn set(&mut self, rules: &[Rule], carry_over: CarryOver, now: Moment) {
        self.0 = carry_over::carried(&self.0, rules, carry_over, now);
    }

    /// Returns the most that a call could take now.
    pub(super) fn available(&self) -> u64 {
        self.0.iter().map(|(_, books)| books.available()).min().unwrap_or(0)
    }

    /// Returns the most that a call could ever take.
    pub(super) fn ceiling(&self) -> u64 {
        self.0.iter().map(|(rule, _)| rule.ceiling()).min().unwrap_or(0)
    }

    /// Returns when the last of the rules is ready for `permits`. Each rule admits at every instant from its own on, so
    /// all of them admit from the last on. A rule with a top-up is the exception, see [`Books::ready_from`].
    pub(super) fn ready_at(&self, permits: u64) -> Option<Moment> {
        let mut latest = Moment::ORIGIN;
        for (_, books) in &self.0 {
            latest = latest.max(books.ready_at(permits)?);
        }
        Some(latest)
    }

    /// Returns when all rules are ready from `at` on, when what a top-up allowed may be over.
    pub(super) fn ready_from(&self, at: Moment, permits: u64) -> Option<Moment> {
        let mut later = self.copy();
        later.advance(at);
        later.ready_at(permits)
    }

    /// Whether the permits that can be taken may become fewer by themselves.
    pub(super) fn lapse(&self) -> bool {
        self.0.iter().any(|(_, books)| books.lapses())
    }

    /// Whether the books cannot be told from new ones.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.iter().all(|(_, books)| books.is_fresh())
    }

    /// Returns a copy of the books.
    pub(super) fn copy(&self) -> Books {
        Books(self.0.iter().map(|(rule, books)| (*rule, books.copy())).collect())
    }
}
