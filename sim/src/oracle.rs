//! What must hold, checked by an observer that sees everything and shares no code with what it checks. The world tells
//! it of every admission, answer and install; its first complaint ends the run, and has the name of what was broken:
//!
//! | name | what must hold | where |
//! | --- | --- | --- |
//! | S1–S3 | no window over its limit, no bucket below empty, in real time | [`Oracle::admitted`] |
//! | S4 | a steady flow: no interval sees more than the burst and what flows in it | [`Oracle::admitted`] |
//! | S5 | no more in flight than the limit, of processes that have died too | [`Oracle::admitted`] |
//! | S6 | the same where the vendor counts, up to the margin later | [`Oracle::admitted`] |
//! | S7 | no admission once the allocator takes the lease for over, or the one above its region does | [`Oracle::admitted`] |
//! | S8 | none in a session that is over or another node's, nor beyond what it was lent | [`Oracle::admitted`] |
//! | S9 | all that could be spent at this instant would be within the limit | [`Oracle::exposed`] |
//! | K1 | books balance, and change by exactly what was granted and said | [`Oracle::answered`] |
//! | K2 | the books know of every permit that is gone; the honest are believed | [`Oracle::answered`] |
//! | K3 | what is available and outstanding is within the ceiling, and what it was topped up with | [`Oracle::books`] |
//! | K4 | no count falls: granted, spent, returned, and all that is not out any more | [`Oracle::books`] |
//! | K5 | what a node saw is on disk | not yet: books live in memory, S1–S9 judge the quarantine |
//! | K7 | nothing is lent while the limit is paused | [`Oracle::answered`] |
//! | K8 | a vendor's word makes nothing but less, for no longer than told, and once | [`Oracle::hears`] |
//! | K6 F3 | shares by principal | no principals yet |
//! | V1 V6 | after silence all can be granted, and no session is remembered | `world/phases.rs` |
//! | V2 | in calm, callers are served within a bound | there too |
//! | V3 | no caller waits beside permits that suffice, nor longer than its patience | `world.rs`, after every step |
//! | V4 | after quarantine, who waits is granted something within one refresh | `world/phases.rs` |
//! | V5 F1 F2 | use, even shares, turns beside those that come and go | `tests/simulation/fairness.rs` |
//! | V7 | an allocator whose clock was wrong shuts no limit in a shared store | there too |
//! | V8 | soon after all trouble, all allocators of a store follow what operators decided last | `world/decisions.rs` |
//! | K9 | an allocator that shares a store takes it to be no later than that | `world/shared.rs` |
//! | K9 | where allocators keep the time, none takes it to have gone faster than it did since another one did | there too |
//! | K10 | safe shares that nodes may go by at a time are no more than the reserve | `world/safe.rs` |
//! | P1 P2 | one answer to one ask, none to an older one; epochs are the HTTP layer's | [`Oracle::answered`] |
//! | P3 | a new process is a new session | [`Oracle::begins`] |
//! | P4 | a replay is the same to the last event | `tests/simulation/main.rs` |

mod live;
mod promise;
mod regions;
mod session;
#[cfg(test)]
mod tests;

use lessor_ledger::Rule;
use lessor_ledger::pool::{Books, PoolView};
use lessor_ledger::rejection::Reason;
use lessor_protocol::{Answer, Ask, Moment};
use promise::Promise;
use session::{Measure, Session};
use std::collections::BTreeMap;
use std::time::Duration;

/// One instant, in real time and on the allocator's clock.
#[derive(Clone, Copy, Debug)]
pub struct Instant {
    /// Nanoseconds of real time.
    pub real: u64,
    /// What the allocator's clock shows.
    pub allocator: Moment,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Whether more was admitted than promised.
    pub is_over: bool,
    /// The name of what was broken.
    pub name: &'static str,
    /// In words.
    pub what: String,
}

/// Says yes, or what is wrong.
pub type Verdict = Result<(), Violation>;

/// `true`, or what `name` stands for is broken.
pub(crate) fn must(name: &'static str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { is_over: false, name, what: what() }) }
}

/// An ask that reached the pool.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose session.
    pub session: u64,
    /// Its number.
    pub seq: u64,
    /// What it says.
    pub ask: Ask,
    /// Whether it was written by a node that tells the truth.
    pub is_honest: bool,
    /// Whether its session still waits for the answer.
    pub is_awaited: bool,
    /// Whether its host lends on: it counts as spent what no node told it, and what those were lent that went.
    pub lends_on: bool,
    /// For how long its lender may hold permits itself: for ever if it leases them from none.
    pub horizon: Duration,
}

/// How the pool looks after an answer, and what all nodes can still spend.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// The pool.
    pub view: PoolView,
    /// Permits in the hands of nodes.
    pub in_hand: u64,
    /// What the clock of its host shows.
    pub at: Moment,
}

impl Stock {
    /// The books of `own`, and what can be lent of them where `above` is charged too.
    pub fn least(own: PoolView, above: PoolView) -> PoolView {
        PoolView {
            available: own.available.min(above.available),
            sessions: own.sessions.max(above.sessions),
            over: own.over.max(above.over),
            quarantine: own.quarantine.max(above.quarantine),
            ..own
        }
    }
}

/// The omniscient ledger.
#[derive(Clone, Debug)]
pub struct Oracle {
    promises: Vec<Promise>,
    measure: Measure,
    ceiling: u64,
    sessions: BTreeMap<u64, Session>,
    /// Permits of calls that have begun and not ended, if any calls take time.
    in_flight: u64,
    /// Until then permits may be spent again and again that were lent under nothing but a cap.
    reused_until: u64,
    /// Permits admitted on leases of these books.
    admitted: u64,
    /// The books as they last were.
    books: Books,
    /// Until then, on the allocator's clock, leases of lost books may be spent.
    opens: Moment,
    /// Until then, on a region's clock, leases may be spent that it lent before it died.
    inherited_until: Moment,
    /// What was out when the books were read again.
    block: u64,
    /// Permits that it was ever topped up with.
    topped_up: u64,
    /// By how much what was out has exceeded a limit that was lowered.
    over: u64,
    /// Nothing may be lent before this, on the allocator's clock.
    paused_until: Moment,
}

impl Oracle {
    /// Sees to `rules` on clocks within `drift_ppm`, each of which allows `less` than it says.
    /// A session that says nothing may be forgotten after `remembered`.
    pub fn new(rules: &[Rule], drift_ppm: u32, less: u64, remembered: Duration) -> Self {
        Oracle {
            promises: rules.iter().map(|rule| Promise::new(rule, less, drift_ppm.into())).collect(),
            measure: Measure { life: 1, remembered, drift_ppm: drift_ppm.into(), in_passing: false },
            ceiling: kept(rules),
            sessions: BTreeMap::new(),
            in_flight: 0,
            reused_until: 0,
            admitted: 0,
            books: Books::default(),
            opens: Moment::ORIGIN,
            inherited_until: Moment::ORIGIN,
            topped_up: 0,
            block: 0,
            over: 0,
            paused_until: Moment::ORIGIN,
        }
    }

    /// P3: `node` begins a session, which no node ever had.
    ///
    /// # Panics
    /// If a node had that session before.
    pub fn begins(&mut self, node: usize, session: u64) {
        let before = self.sessions.insert(session, Session::new(node));
        assert!(before.is_none(), "P3: node {node} begins session {session}, which was {before:?}");
    }

    /// `session` counts from zero again, having told all and holding nothing.
    pub fn forgets(&mut self, session: u64) {
        self.session(session).has_forgotten = true;
    }

    /// `node`, which lies, begins a session: that may say at any time that it has forgotten all.
    ///
    /// # Panics
    /// As [`Oracle::begins`].
    pub fn begins_to_lie(&mut self, node: usize, session: u64) {
        self.begins(node, session);
        self.session(session).lies = true;
    }

    /// The process that `session` belonged to is gone, or begins another.
    pub fn ends(&mut self, session: u64) {
        self.session(session).is_over = true;
    }

    /// S1–S3, S5–S8: `node` admitted a call of `permits` in `session`, which reaches the vendor `way` later.
    pub fn admitted(&mut self, now: Instant, node: usize, session: u64, permits: u64, way: u64) -> Verdict {
        // What is spent in quarantine was lent by books that are gone.
        self.admitted += if now.allocator >= self.opens.max(self.inherited_until) { permits } else { 0 };
        self.counts(now, permits, way)?;
        self.session(session).spends(now, node, permits)
    }

    /// A call of `permits` has ended, as the vendor sees it.
    pub fn landed(&mut self, permits: u64) {
        self.in_flight -= permits;
        self.promises.iter_mut().for_each(|promise| promise.land(permits));
    }

    /// `session` has `permits` again that it had in use: they were not used up.
    pub fn handed_back(&mut self, session: u64, permits: u64) {
        // Those of lost books were never counted.
        self.admitted = self.admitted.saturating_sub(permits);
        let session = self.session(session);
        session.spent = session.spent.saturating_sub(permits);
    }

    /// `session` has reserved `rest` permits beyond what its call costs.
    pub fn reserved(&mut self, session: u64, rest: u64) {
        self.session(session).unneeded += rest;
    }

    /// Of those, `session` has `back` again.
    pub fn came_back(&mut self, session: u64, back: u64) -> Verdict {
        let session = self.session(session);
        must("S8", back <= session.unneeded, || {
            format!("{back} came back, of {} that were not needed", session.unneeded)
        })?;
        session.unneeded -= back;
        Ok(())
    }

    /// For those who promise nothing: counts `permits` as far as there is room, and says how many were too many.
    pub fn tally(&mut self, now: Instant, permits: u64) -> u64 {
        let within = permits.min(self.room(now));
        self.in_flight += permits;
        if within > 0 {
            self.promises.iter_mut().for_each(|promise| promise.lent(now, within));
            let admitted = self.promises.iter_mut().try_for_each(|promise| promise.admit(now, within, 0));
            admitted.expect("there is room");
        }
        permits - within
    }

    /// P1, P2, K1, K2, and the books: the pool answered `asked`. Returns what it lent anew, and what a liar
    /// said that it spent.
    pub fn answered(
        &mut self,
        now: Instant,
        asked: &Asked,
        answer: &Result<Answer, Reason>,
        stock: Stock,
    ) -> Result<(u64, u64), Violation> {
        let (by, session) = (self.measure, self.session(asked.session));
        // Before it is known again by this ask.
        session.may_say_again(now, by);
        let (mut lent, mut spent) = (0, 0);
        if let Ok(Answer::Grant(grant)) = answer {
            let Asked { seq, ask, .. } = *asked;
            let (by, paused_until) = (self.measure, self.paused_until);
            let session = self.session(asked.session);
            if !session.is_replay(now, seq, grant, by) {
                spent = session.is_lent(now, seq, &ask, asked.is_awaited, grant, by)?;
                lent = grant.permits;
                must("S7", grant.term.is_zero() || grant.horizon <= asked.horizon, || {
                    format!("{grant:?} of one that may hold for {:?}", asked.horizon)
                })?;
                must("K7", lent == 0 || stock.view.vendor_pause.is_zero(), || {
                    format!("{grant:?} while the vendor asks to be left alone: {:?}", stock.view)
                })?;
                must("K7", now.allocator >= paused_until, || {
                    format!("{grant:?} while the limit is paused until {paused_until:?}")
                })?;
                // What was reserved in vain is spent once its lease has ended.
                let most = session.spent + session.unneeded;
                must("K2", ask.spent_total <= most || !asked.is_honest || asked.lends_on, || {
                    format!("an honest session says more than it spent: {ask:?}, {session:?}")
                })?;
            }
        }
        // A limit that was removed believes what it is told, and does not say so.
        if let Ok(Answer::Refusal(_)) | Err(Reason::LimitUnknown) = answer {
            spent = self.refused(asked, stock)?;
        }
        if let Err(error) = answer
            && asked.is_honest
            && asked.is_awaited
        {
            let by = self.measure;
            self.session(asked.session).is_disputed(now, *error, by)?;
        }
        self.promises.iter_mut().for_each(|promise| promise.lent(now, lent));
        let lied = if asked.is_honest { 0 } else { spent };
        self.promises.iter_mut().for_each(|promise| promise.lied(now, lied));
        self.changed_by(lent, spent, stock.view.books)?;
        self.books(now, stock)?;
        Ok((lent, lied))
    }

    /// The same for a goodbye with a total of `spent_total`, which changed the books if it was `heard`.
    pub fn left(&mut self, now: Instant, asked: &Asked, stock: Stock) -> Verdict {
        let reported = self.session(asked.session).reported;
        let total = asked.ask.spent_total;
        let spent = stock.view.books.spent - self.books.spent;
        // A goodbye that came twice, or from a session that is not known, changes nothing.
        if stock.view.books != self.books && reported + spent == total {
            self.session(asked.session).left(asked.seq, total);
        }
        self.changed_by(0, spent, stock.view.books)?;
        must("K2", spent == 0 || reported + spent == total, || {
            format!("a goodbye with {total} after {reported} counts as {spent} spent")
        })?;
        self.books(now, stock)
    }

    /// K1: by an answer the books change by exactly what it granted and what was said.
    fn changed_by(&self, lent: u64, spent: u64, books: Books) -> Verdict {
        let before = self.books;
        must("K1", books.granted == before.granted + lent && books.spent == before.spent + spent, || {
            format!("{lent} were granted and {spent} said spent, yet {before:?} became {books:?}")
        })
    }

    /// K1–K4, S9: how things stand now.
    pub fn books(&mut self, now: Instant, Stock { view, in_hand, .. }: Stock) -> Verdict {
        let (books, before) = (view.books, self.books);
        must("K1", books.granted == books.spent + books.returned + books.burned + books.outstanding, || {
            format!("books that do not balance: {books:?}")
        })?;
        let gone = |books: Books| books.granted - books.outstanding;
        let rises = books.granted >= before.granted
            && books.spent >= before.spent
            && books.returned >= before.returned
            && gone(books) >= gone(before);
        must("K4", rises, || format!("a count fell: {before:?} became {books:?}"))?;
        self.books = books;
        // A limit that was lowered may be exceeded by what was out then: that stays valid, and what is added comes on top.
        // A pool that was restored counts as lent what may have been lent of its block, which those above it do not know.
        let block = if books.burned < self.block { self.block } else { 0 };
        let most = self.ceiling.saturating_add(self.topped_up + self.over + block);
        let within = view.available == 0 || view.available + books.outstanding <= most;
        must("K3", within, || format!("{} available and {books:?} of {}", view.available, self.ceiling))?;
        for promise in &mut self.promises {
            promise.seen(now, view.available, books.outstanding == 0);
        }
        // In quarantine nothing of these books is out yet, and what nodes hold was lent by others.
        let is_open = view.quarantine.is_zero() && now.allocator >= self.inherited_until;
        must("K2", in_hand <= books.outstanding || !is_open, || {
            format!("nodes can spend {in_hand}, the pool knows of {books:?}")
        })?;
        must("K2", self.admitted + in_hand <= books.granted - books.returned || !is_open, || {
            format!("{} were spent and {in_hand} are in hand, the pool knows of {books:?}", self.admitted)
        })?;
        self.exposed(now, in_hand + view.available)
    }

    /// S1–S3, S5, S6 of `permits` that were admitted on no lease of its own: on one of a limit below, whose sessions are
    /// theirs, or on a part of what is kept back.
    pub fn counts(&mut self, now: Instant, permits: u64, way: u64) -> Verdict {
        self.in_flight += permits;
        self.judged(now).try_for_each(|promise| promise.admit(now, permits, way))
    }

    /// The promises that hold now: none but caps as long as permits are out that a cap alone let be spent again.
    fn judged(&mut self, now: Instant) -> impl Iterator<Item = &mut Promise> {
        let all = now.real >= self.reused_until;
        self.promises.iter_mut().filter(move |promise| all || promise.is_cap())
    }

    /// One of those below it lent `permits`, and heard a liar say that it spent `lied`.
    pub fn lent(&mut self, now: Instant, permits: u64, lied: u64) {
        for promise in &mut self.promises {
            promise.lent(now, permits);
            promise.lied(now, lied);
        }
    }

    /// S9 of it: how things stand now.
    pub fn stands(&mut self, now: Instant, Stock { view, in_hand, .. }: Stock) -> Verdict {
        for promise in &mut self.promises {
            promise.seen(now, view.available, view.books.outstanding == 0);
        }
        self.exposed(now, in_hand + view.available)
    }

    /// S9, before it comes to it: all `permits` could be spent at this instant.
    pub fn exposed(&mut self, now: Instant, permits: u64) -> Verdict {
        let room = self.room(now);
        must("S9", permits <= room, || format!("{permits} could be spent now, where {room} are promised"))
    }

    /// The allocator lost its books, or dropped ones that it took for new. The pool is one that looks like `view`.
    pub fn books_lost(&mut self, now: Instant, view: PoolView) {
        self.measure.life += 1;
        // What is restored begins with what was out.
        (self.admitted, self.books, self.block) = (0, view.books, view.books.outstanding);
        // A pool that is dropped and made anew, for it cannot be told from a new one, opens no later for that.
        if !view.quarantine.is_zero() {
            self.opens = now.allocator + view.quarantine;
        }
    }

    /// The books go on as they were written down, be it that all is in flight or a flow is lent. What the books after the last
    /// loss are owed is unknown.
    pub fn books_go_on(&mut self, now: Instant) {
        if self.opens <= now.allocator {
            self.opens = Moment::ORIGIN;
        }
    }

    /// The books of those rules that `is_new` says it of are new: buckets in them began, or will begin, at `begins` on the
    /// allocator's clock.
    pub fn books_begin(&mut self, now: Instant, begins: Moment, is_new: &[bool]) {
        let made = self.promises.iter_mut().zip(is_new).filter(|(_, is_new)| **is_new);
        made.for_each(|(promise, _)| promise.begin(now, begins.as_nanos()));
    }

    /// After a gap of unknown length the buckets of those rules that refill at intervals do so `next`, on the allocator's clock.
    pub fn refills_at(&mut self, now: Instant, next: &[Option<Moment>]) {
        let known =
            self.promises.iter_mut().zip(next).filter_map(|(promise, next)| Some((promise, (*next)?)));
        known.for_each(|(promise, next)| promise.refill_at(now, next.as_nanos()));
    }

    /// When, on the allocator's clock, the last quarantine was over, if nothing was lent since.
    pub fn opens_unlent(&self) -> Option<Moment> {
        (self.opens > Moment::ORIGIN && self.books.granted == 0).then_some(self.opens)
    }

    /// Permits that may be admitted at this instant.
    pub fn room(&mut self, now: Instant) -> u64 {
        self.judged(now).map(|promise| promise.room(now)).min().unwrap_or(u64::MAX)
    }

    fn session(&mut self, session: u64) -> &mut Session {
        self.sessions.get_mut(&session).expect("the world tells of every session when it begins")
    }
}

/// The most that can be available and out together. Of a steady flow permits are only counted, and S4 sees to it.
fn kept(rules: &[Rule]) -> u64 {
    let kept = rules.iter().filter(|rule| rule.flow().is_none());
    kept.map(Rule::ceiling).min().unwrap_or(u64::MAX)
}
