//! The oracles of a run: one for each limit that nodes ask, and one for the limit above several of them, which sees
//! what all of them do. The world reports everything to all; each judges for itself.

use crate::limits::Limits;
use crate::oracle::{Asked, Instant, Oracle, Stock, Verdict, Violation, must};
use crate::setup::{Sabotage, Setup};
use crate::topology::Topology;
use lessor_ledger::rejection::Reason;
use lessor_ledger::rule::{RefillStyle, TokenBucket};
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::{Answer, Moment};

/// All oracles of a run.
#[derive(Clone, Debug)]
pub struct Oracles {
    /// One for each pool that nodes ask, see [`Setup::lender`].
    own: Vec<Oracle>,
    /// The oracle of the limit above several; rules above a single limit are judged with its own. Where regions lend
    /// on, the oracle of the allocator above them, which has all rules, and regions for sessions.
    above: Option<Oracle>,
    /// What `above` judges.
    root: Root,
}

/// What is above the pools that nodes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// A limit at the same allocator, if any.
    Limit,
    /// An allocator from which regions lease.
    Allocator,
    /// Roots in a store.
    Store,
}

/// All pools, and the permits that nodes can still spend.
#[derive(Clone, Debug)]
pub struct Stocks {
    /// The pools of limits that nodes ask.
    pub own: Vec<Stock>,
    /// The pool above several, or above regions.
    pub above: Option<Stock>,
    /// Whether `above` knows of all permits that are out.
    pub is_trusted: bool,
}

impl Oracles {
    /// Makes the oracles of `setup`.
    pub fn new(setup: &Setup) -> Self {
        let less = u64::from(setup.sabotage == Sabotage::StricterOracle);
        let (drift, remembered) = (setup.plan.clocks.drift_ppm(), setup.remembered());
        let oracle = |rules: &[Rule]| Oracle::new(rules, drift, less, remembered);
        let (own, above) = setup.rules_apart();
        let is_alone = setup.above == 0 && setup.safe_lasts().is_none();
        let answers_in_passing =
            is_alone && matches!(setup.topology, Topology::Allocator) && Limits::are_keyed(setup);
        let own = if answers_in_passing { oracle(own).in_passing() } else { oracle(own) };
        let own = vec![own; setup.lenders()];
        match setup.topology {
            Topology::Allocator => Oracles { own, above: above.map(oracle), root: Root::Limit },
            // A region reports what may have been lent to it, though perhaps nothing was.
            Topology::Regions(_) => {
                let root = |rules| {
                    if Limits::are_keyed(setup) { oracle(rules).in_passing() } else { oracle(rules) }
                };
                Oracles { own, above: above.map(root), root: Root::Allocator }
            }
            Topology::Store(_) => {
                let rules = |rules: &[Rule]| rules.iter().map(at_any_phase).collect::<Vec<Rule>>();
                Oracles { own, above: above.map(|above| oracle(&rules(above))), root: Root::Store }
            }
        }
    }

    /// Returns the oracle of `lender`.
    pub fn of(&mut self, lender: usize) -> &mut Oracle {
        &mut self.own[lender]
    }

    /// Returns the oracle of the allocator above regions.
    ///
    /// # Panics
    /// If there is none.
    pub fn root(&mut self) -> &mut Oracle {
        self.above.as_mut().expect("regions lease from it")
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
        lender: usize,
        [own, now]: [Instant; 2],
        node: usize,
        session: u64,
        permits: u64,
        way: u64,
    ) -> Verdict {
        self.own[lender].admitted(own, node, session, permits, way)?;
        let root = self.root;
        self.above.iter_mut().try_for_each(|above| match root {
            Root::Allocator => above.admitted_below(now, lender, permits, way),
            Root::Limit | Root::Store => above.counts(now, permits, way),
        })
    }

    /// See [`Oracle::handed_back`].
    pub(crate) fn handed_back(&mut self, lender: usize, session: u64, permits: u64) {
        self.own[lender].handed_back(session, permits);
        if self.root == Root::Allocator {
            self.above.iter_mut().for_each(|above| above.unspent_below(permits));
        }
    }

    /// See [`Oracle::counts`]: `permits` of `limit` were admitted on a safe share, without a lease.
    ///
    /// # Errors
    /// What was wrong.
    pub fn passed(&mut self, limit: usize, [own, now]: [Instant; 2], permits: u64, way: u64) -> Verdict {
        self.own[limit].counts(own, permits, way)?;
        // Only limits of one allocator, or in a store, have safe shares.
        self.above.iter_mut().try_for_each(|above| above.counts(now, permits, way))
    }

    /// See [`Oracle::landed`].
    pub fn landed(&mut self, limit: usize, permits: u64) {
        self.own[limit].landed(permits);
        self.above.iter_mut().for_each(|above| above.landed(permits));
    }

    /// See [`Oracle::answered`]. Returns the permits lent anew.
    ///
    /// # Errors
    /// What was wrong.
    pub fn answered(
        &mut self,
        limit: usize,
        now: Instant,
        asked: &Asked,
        answer: &Result<Answer, Reason>,
        stocks: &Stocks,
    ) -> Result<u64, Violation> {
        let stock = stocks.own[limit];
        let own = Instant { allocator: stock.at, ..now };
        let (lent, lied) = self.own[limit].answered(own, asked, answer, stock)?;
        // The allocator above has lent already what regions lend on.
        if self.root == Root::Limit {
            self.above.iter_mut().for_each(|above| above.lent(now, lent, lied));
        }
        self.stand(now, stocks)?;
        Ok(lent)
    }

    /// Checks an answer of the allocator above to a region: see [`Oracle::answered`].
    ///
    /// # Errors
    /// What was wrong.
    pub(crate) fn root_answered(
        &mut self,
        now: Instant,
        asked: &Asked,
        answer: &Result<Answer, Reason>,
        stocks: &Stocks,
    ) -> Verdict {
        let stock = stocks.above.expect("regions lease from it");
        self.root().answered(now, asked, answer, stock).map(drop)
    }

    /// See [`Oracle::left`].
    ///
    /// # Errors
    /// What was wrong.
    pub fn left(&mut self, lender: usize, now: Instant, asked: &Asked, stocks: &Stocks) -> Verdict {
        let stock = stocks.own[lender];
        self.own[lender].left(Instant { allocator: stock.at, ..now }, asked, stock)
    }

    /// See [`Oracle::region_lost`].
    pub(crate) fn region_lost(&mut self, region: usize, now: Instant, stocks: &Stocks) {
        let stock = stocks.own[region];
        self.own[region].region_lost(Instant { allocator: stock.at, ..now }, stock.view);
    }

    /// Checks all books: see [`Oracle::books`].
    ///
    /// # Errors
    /// What was wrong.
    pub fn books(&mut self, now: Instant, stocks: &Stocks) -> Verdict {
        let each = self.own.iter_mut().zip(&stocks.own);
        each.into_iter()
            .try_for_each(|(oracle, stock)| oracle.books(Instant { allocator: stock.at, ..now }, *stock))?;
        self.stand(now, stocks)
    }

    /// Checks the limit above as it is now.
    fn stand(&mut self, now: Instant, stocks: &Stocks) -> Verdict {
        match (&mut self.above, stocks.above) {
            (Some(above), Some(stock)) => match self.root {
                Root::Allocator => above.books(now, stock),
                Root::Limit => above.stands(now, stock),
                Root::Store => {
                    let out = stock.view.books.outstanding;
                    must("K2", stock.in_hand <= out || !stocks.is_trusted, || {
                        format!("nodes can spend {}, the roots know of {out}", stock.in_hand)
                    })?;
                    above.stands(now, stock)
                }
            },
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

    /// Records that books are new: see [`Oracle::books_begin`].
    pub(crate) fn books_begin(&mut self, now: Instant, begins: Moment, is_new: &IsNew) {
        for (oracle, is_new) in self.all().zip(is_new.own.iter().chain(&is_new.above)) {
            oracle.books_begin(now, begins, is_new);
        }
    }

    /// See [`Oracle::refills_at`]. `next` has the rules of each oracle, `above` last.
    pub(crate) fn refill_at(&mut self, now: Instant, next: &[Vec<Option<Moment>>]) {
        self.all().zip(next).for_each(|(oracle, next)| oracle.refills_at(now, next));
    }

    /// See [`Oracle::books_go_on`].
    pub(crate) fn books_go_on(&mut self, now: Instant) {
        self.all().for_each(|oracle| oracle.books_go_on(now));
    }

    /// Returns until when the vendor of each limit wants to be left alone.
    pub(crate) fn vendor_until(&self) -> Vec<Moment> {
        self.own.iter().map(Oracle::vendor_until).collect()
    }

    /// See [`Oracle::shut`].
    pub fn shut(&mut self, until: Moment) {
        match (self.root, &mut self.above) {
            // Regions lend on what they have until they hear of the pause.
            (Root::Allocator, Some(above)) => above.shut(until),
            _ => self.all().for_each(|oracle| oracle.shut(until)),
        }
    }

    /// Returns the room of `limit` and of the one above it: see [`Oracle::room`].
    pub fn room(&mut self, limit: usize, now: Instant) -> u64 {
        let above = self.above.as_mut().map_or(u64::MAX, |above| above.room(now));
        self.own[limit].room(now).min(above)
    }

    /// See [`Oracle::changed`]. Only a single limit changes, or the one that regions lease.
    ///
    /// # Errors
    /// What was wrong.
    pub fn changed(&mut self, now: Instant, rules: &[Rule], carry: CarryOver, stocks: &Stocks) -> Verdict {
        let (oracle, stock) = self.operated(stocks);
        oracle.changed(now, rules, carry, stock)
    }

    /// Returns the oracle of the limit that operators change, and its pool.
    fn operated(&mut self, stocks: &Stocks) -> (&mut Oracle, Stock) {
        match (self.root, &mut self.above, stocks.above) {
            (Root::Allocator, Some(above), Some(stock)) => (above, stock),
            _ => (&mut self.own[0], stocks.own[0]),
        }
    }

    /// Records that the roots go on by `rules`, with permits that are `out` until a moment: see [`Oracle::changed`].
    pub(crate) fn root_changed(&mut self, now: Instant, rules: &[Rule], out: (u64, Instant)) {
        let rules: Vec<Rule> = rules.iter().map(at_any_phase).collect();
        self.root().goes_on_by(now, &rules, CarryOver::AsIs, out);
    }

    /// See [`Oracle::topped_up`]. Applies to the limit of [`Oracles::changed`].
    ///
    /// # Errors
    /// What was wrong.
    pub fn topped_up(&mut self, now: Instant, permits: u64, stocks: &Stocks) -> Result<(), Violation> {
        let (oracle, stock) = self.operated(stocks);
        oracle.topped_up(now, permits, stock)
    }
}

/// Returns a rule that `rule` implies whenever its intervals begin: no observer can tell that of roots that begin anew.
fn at_any_phase(rule: &Rule) -> Rule {
    let any = match rule {
        Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval => {
            // Any time span meets at most one refill more than the intervals it contains.
            let holds = rule.capacity() + rule.debt() + rule.refill();
            TokenBucket::try_new(holds, rule.refill(), rule.per(), holds).map(Rule::TokenBucket)
        }
        Rule::SlidingWindow(_)
        | Rule::SlidingLog(_)
        | Rule::FixedWindow(_)
        | Rule::TokenBucket(_)
        | Rule::LeakyBucket(_)
        | Rule::Concurrency(_) => Ok(*rule),
    };
    any.expect("numbers in range")
}

/// Whether the books of each rule are new, for each oracle.
#[derive(Clone, Debug)]
pub struct IsNew {
    /// The limits that nodes ask. The first rule of each is kept by the pool that they ask.
    pub own: Vec<Vec<bool>>,
    /// The limit above several.
    pub above: Option<Vec<bool>>,
}
