//! What must hold, checked by an observer that sees everything and shares no code with what it checks. The world
//! reports every admission, answer and install. The first violation ends the run, and names what was broken:
//!
//! | name | what must hold | where |
//! | --- | --- | --- |
//! | S1–S3 | no window is over its limit, no bucket below empty, in real time | [`Oracle::admitted`] |
//! | S4 | no interval of a steady flow has more than the burst and what flows in it | [`Oracle::admitted`] |
//! | S5 | no more is in flight than the limit, calls of dead processes included | [`Oracle::admitted`] |
//! | S6 | S1 holds where the vendor counts, up to the margin later | [`Oracle::admitted`] |
//! | S7 | no admission after the allocator, or the one above its region, ended the lease | [`Oracle::admitted`] |
//! | S8 | no admission in a session that is over or another node's, nor beyond its grants | [`Oracle::admitted`] |
//! | S9 | all permits that could be spent at this instant are within the limit | [`Oracle::exposed`] |
//! | K1 | books balance, and change by exactly what was granted and reported | [`Oracle::answered`] |
//! | K2 | the books know of every permit that is gone; honest sessions are believed | [`Oracle::answered`] |
//! | K3 | permits available and outstanding are within the ceiling and top-ups | [`Oracle::books`] |
//! | K4 | no count falls: granted, spent, returned, and all that is no longer out | [`Oracle::books`] |
//! | K5 | what a node saw is on disk | no check of its own: S1–S9 judge what follows a restart |
//! | K7 | nothing is lent while the limit is paused | [`Oracle::answered`] |
//! | K8 | a vendor's word reduces lending only, and a refusal pauses once, as long as told | [`Oracle::hears`] |
//! | K6 F3 | shares by identity | not judged here; `fairness.rs` has a test |
//! | V1 V6 | after silence all permits can be granted, and no session is remembered | `world/phases.rs` |
//! | V2 | in calm, callers are served within a bound | `world/phases.rs` |
//! | V3 | no caller waits although permits suffice, nor longer than its patience | `world.rs`, after every step |
//! | V4 | after quarantine, a waiting caller's pool lends within one refresh | `world/phases.rs` |
//! | V5 F1 F2 | use, even shares, turns beside sessions that come and go | `fairness.rs` in `tests/tests/simulated/simulation` |
//! | V7 | an allocator whose clock was wrong shuts no limit in a shared store | `world/phases.rs` |
//! | V8 | soon after all trouble, all allocators of a store follow what operators decided last | `world/decisions.rs` |
//! | K9 | an allocator that shares a store never takes the time to be later than it is | `world/shared.rs` |
//! | K9 | where allocators keep the time, none is ahead of the time another one took it to be | `world/kept_time.rs` |
//! | K10 | safe shares that nodes may go by at a time are within the reserve | `world/safe.rs` |
//! | P1 P2 | one answer to one ask, none to an older one | [`Oracle::answered`] |
//! | P3 | a new process is a new session | [`Oracle::begins`] |
//! | P4 | a replay is the same to the last event | `tests/tests/simulated/simulation.rs` |
//! | P5 | an answer of another epoch, which is not used, answers no ask | `world/tasks.rs`, `world/regions.rs` |

mod live;
mod lives;
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

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Whether more was admitted than promised.
    pub is_over: bool,
    /// The name of the invariant.
    pub name: &'static str,
    /// What was wrong, in words.
    pub what: String,
}

/// The result of a check.
pub type Verdict = Result<(), Violation>;

/// Returns `Ok` if the invariant `name` `holds`, or else its violation.
pub(crate) fn must(name: &'static str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { is_over: false, name, what: what() }) }
}

/// An ask that reached a pool.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The session that asks.
    pub session: u64,
    /// The number of the ask.
    pub seq: u64,
    /// The ask itself.
    pub ask: Ask,
    /// Whether the node that wrote it tells the truth.
    pub is_honest: bool,
    /// Whether the session still waits for the answer.
    pub is_awaited: bool,
    /// Whether the session's host lends on, and so reports as spent also what its nodes never reported.
    pub lends_on: bool,
    /// How long its lender may hold permits itself; without bound if the lender leases from no other.
    pub horizon: Duration,
}

/// The pool after an answer, and the permits that all nodes can still spend.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// The pool.
    pub view: PoolView,
    /// Permits in the hands of nodes.
    pub in_hand: u64,
    /// What the clock of the pool's host shows.
    pub at: Moment,
}

impl Stock {
    /// Returns the permits that nodes of the pool's host could spend at once: what it has left is lent on.
    pub(crate) fn spendable(&self) -> u64 {
        self.view.available + self.in_hand
    }

    /// Returns the books of `own`, with what can be lent of them where `above` is charged too.
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

/// The omniscient ledger of one pool.
#[derive(Clone, Debug)]
pub struct Oracle {
    promises: Vec<Promise>,
    rules: Vec<Rule>,
    measure: Measure,
    ceiling: u64,
    sessions: BTreeMap<u64, Session>,
    /// Permits of calls that have begun and not ended, if any calls take time.
    in_flight: u64,
    /// Real time until which permits lent under a cap alone may be out. Such permits are spent again and again.
    reused_until: u64,
    /// Permits admitted on leases of these books.
    admitted: u64,
    /// The books after the last answer.
    books: Books,
    /// Until then, on the allocator's clock, leases of lost books may be spent.
    opens: Moment,
    /// Until then, on a region's clock, leases may be spent that the region lent before it died.
    inherited_until: Moment,
    /// Permits that were out when the books were restored.
    block: u64,
    /// Permits of all top-ups.
    topped_up: u64,
    /// By how much the permits out have exceeded a lowered limit.
    over: u64,
    /// Nothing may be lent before this, on the allocator's clock.
    paused_until: Moment,
    /// Permits lent and not returned when the one above said that the limit is paused. No more may be lent on than
    /// nodes give back.
    paused_above: Option<u64>,
    /// Nothing may be lent before this, on the allocator's clock: the vendor said so.
    vendor_until: Moment,
    /// Total of such pauses up to `vendor_until`, less the time without a pause between them; `None` if it is unknown.
    vendor_pauses: Option<Duration>,
}

impl Oracle {
    /// Makes an oracle for `rules` on clocks within `drift_ppm`, each of which allows `less` permits fewer than it
    /// says. A session that says nothing may be forgotten after `remembered`.
    pub fn new(rules: &[Rule], drift_ppm: u32, less: u64, remembered: Duration) -> Self {
        Oracle {
            promises: rules.iter().map(|rule| Promise::new(rule, less, drift_ppm.into())).collect(),
            rules: rules.to_vec(),
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
            paused_above: None,
            vendor_until: Moment::ORIGIN,
            vendor_pauses: Some(Duration::ZERO),
        }
    }

    /// P3: `node` begins a session, which no node had before.
    ///
    /// # Panics
    /// If a node had that session before.
    pub fn begins(&mut self, node: usize, session: u64) {
        let before = self.sessions.insert(session, Session::new(node));
        assert!(before.is_none(), "P3: node {node} begins session {session}, which was {before:?}");
    }

    /// Records that the node of session `before` goes on in session `next`, and spends there what it was lent.
    pub fn goes_on(&mut self, before: u64, next: u64) {
        let ends = self.session(before);
        let begins = ends.moves_on();
        ends.is_over = true;
        self.sessions.insert(next, begins);
    }

    /// Records that `session` counts from zero again, after it reported all and held nothing.
    pub fn forgets(&mut self, session: u64) {
        self.session(session).has_forgotten = true;
    }

    /// Records that `node`, which lies, begins a session. It may claim at any time that it has forgotten all.
    ///
    /// # Panics
    /// As [`Oracle::begins`].
    pub(crate) fn begins_to_lie(&mut self, node: usize, session: u64) {
        self.begins(node, session);
        self.session(session).lies = true;
    }

    /// Records that the process of `session` is gone, or begins another session.
    pub fn ends(&mut self, session: u64) {
        self.session(session).is_over = true;
    }

    /// S1–S3, S5–S8: `node` admitted a call of `permits` in `session`, which reaches the vendor `way` later.
    pub fn admitted(&mut self, now: Instant, node: usize, session: u64, permits: u64, way: u64) -> Verdict {
        // Permits spent in quarantine were lent by books that are gone.
        self.admitted += if now.allocator >= self.opens.max(self.inherited_until) { permits } else { 0 };
        self.counts(now, permits, way)?;
        self.session(session).spends(now, node, permits)
    }

    /// Records that a call of `permits` has ended, as the vendor sees it.
    pub fn landed(&mut self, permits: u64) {
        self.in_flight -= permits;
        self.promises.iter_mut().for_each(|promise| promise.land(permits));
    }

    /// Records that `permits` that `session` had in use are in its hands again: they were not used up.
    pub(crate) fn handed_back(&mut self, session: u64, permits: u64) {
        // Permits of lost books were never counted.
        self.admitted = self.admitted.saturating_sub(permits);
        let session = self.session(session);
        session.spent = session.spent.saturating_sub(permits);
    }

    /// Records that `session` has reserved `rest` permits beyond what its call costs.
    pub fn reserved(&mut self, session: u64, rest: u64) {
        self.session(session).unneeded += rest;
    }

    /// Records that `back` of the reserved permits came back to `session`.
    pub fn came_back(&mut self, session: u64, back: u64) -> Verdict {
        let session = self.session(session);
        must("S8", back <= session.unneeded, || {
            format!("{back} reserved permits came back, but only {} were unneeded", session.unneeded)
        })?;
        session.unneeded -= back;
        Ok(())
    }

    /// Counts `permits` as far as there is room, for a rival that promises nothing. Returns the permits beyond.
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

    /// P1, P2, K1, K2, and the books: the pool answered `asked`. Returns the permits it lent anew, and those that a
    /// liar reported as spent.
    pub fn answered(
        &mut self,
        now: Instant,
        asked: &Asked,
        answer: &Result<Answer, Reason>,
        stock: Stock,
    ) -> Result<(u64, u64), Violation> {
        let (by, session) = (self.measure, self.session(asked.session));
        // Checked before this ask makes the session known again.
        session.may_say_again(now, by);
        let (mut lent, mut spent) = (0, 0);
        if let Ok(Answer::Grant(grant)) = answer {
            let Asked { seq, ask, .. } = *asked;
            let (by, paused_until) = (self.measure, self.paused_until);
            let (vendor_until, most_out) = (self.vendor_until, self.paused_above.unwrap_or(u64::MAX));
            let session = self.session(asked.session);
            if !session.is_replay(now, seq, grant, by) {
                spent = session.is_lent(now, seq, &ask, asked.is_awaited, grant, by)?;
                lent = grant.permits;
                must("S7", grant.term.is_zero() || grant.horizon <= asked.horizon, || {
                    format!("{grant:?} by a lender that may itself hold permits for {:?}", asked.horizon)
                })?;
                let is_paused = now.allocator < vendor_until || !stock.view.vendor_pause.is_zero();
                must("K7", lent == 0 || !is_paused, || {
                    format!("{grant:?} while the limit is paused for the vendor: {:?}", stock.view)
                })?;
                let Books { granted, returned, .. } = stock.view.books;
                must("K7", lent == 0 || granted - returned <= most_out, || {
                    format!("{grant:?} although the one above said that the limit is paused")
                })?;
                must("K7", now.allocator >= paused_until, || {
                    format!("{grant:?} while the limit is paused until {paused_until:?}")
                })?;
                // Permits reserved in vain count as spent once their lease has ended.
                let most = session.spent + session.unneeded;
                must("K2", ask.spent_total <= most || !asked.is_honest || asked.lends_on, || {
                    format!("an honest session reports more than it spent: {ask:?}, {session:?}")
                })?;
            }
        }
        // A limit that was removed still counts what it is told, and answers that it is unknown.
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

    /// Checks a goodbye with its total, which changed the books if they took it.
    pub fn left(&mut self, now: Instant, asked: &Asked, stock: Stock) -> Verdict {
        let reported = self.session(asked.session).reported;
        let total = asked.ask.spent_total;
        let spent = stock.view.books.spent - self.books.spent;
        // A goodbye that came twice, or from an unknown session, changes nothing.
        if stock.view.books != self.books && reported + spent == total {
            self.session(asked.session).left(asked.seq, total);
        }
        self.changed_by(0, spent, stock.view.books)?;
        must("K2", spent == 0 || reported + spent == total, || {
            format!("a goodbye with total {total}, after {reported} reported, settled {spent}")
        })?;
        self.books(now, stock)
    }

    /// K1: an answer changes the books by exactly what it granted and what was reported.
    fn changed_by(&self, lent: u64, spent: u64, books: Books) -> Verdict {
        let before = self.books;
        must("K1", books.granted == before.granted + lent && books.spent == before.spent + spent, || {
            format!("{lent} were granted and {spent} reported, but {before:?} became {books:?}")
        })
    }

    /// K1–K4, S9: checks the books as they are now.
    pub fn books(&mut self, now: Instant, Stock { view, in_hand, .. }: Stock) -> Verdict {
        let (books, before) = (view.books, self.books);
        hold_after(books, before)?;
        self.books = books;
        self.over = self.over.min(books.outstanding.saturating_sub(self.ceiling));
        // Permits that were out when a limit was lowered stay valid, and top-ups come on top. A restored pool counts as
        // lent what its block may have lent, of which pools above do not know.
        let block = if books.burned < self.block { self.block } else { 0 };
        let most = self.ceiling.saturating_add(self.topped_up + self.over + block);
        let within = view.available == 0 || view.available + books.outstanding <= most;
        must("K3", within, || format!("{} available and {books:?} of {}", view.available, self.ceiling))?;
        for promise in &mut self.promises {
            promise.seen(now, view.available, books.outstanding == 0);
        }
        // In quarantine nothing of these books is out yet; permits in hand were lent by earlier books.
        let is_open = view.quarantine.is_zero() && now.allocator >= self.inherited_until;
        must("K2", in_hand <= books.outstanding || !is_open, || {
            format!("nodes can spend {in_hand}, the pool knows of {books:?}")
        })?;
        must("K2", self.admitted + in_hand <= books.granted - books.returned || !is_open, || {
            format!("{} were spent and {in_hand} are in hand, the pool knows of {books:?}", self.admitted)
        })?;
        self.exposed(now, in_hand + view.available)
    }

    /// S1–S3, S5, S6: `permits` were admitted on no lease of these books, but on one of a limit below or a safe share.
    pub fn counts(&mut self, now: Instant, permits: u64, way: u64) -> Verdict {
        self.in_flight += permits;
        self.judged(now).try_for_each(|promise| promise.admit(now, permits, way))
    }

    /// Returns the promises that hold now: only caps while permits lent under a cap alone are out.
    fn judged(&mut self, now: Instant) -> impl Iterator<Item = &mut Promise> {
        let all = now.real >= self.reused_until;
        self.promises.iter_mut().filter(move |promise| all || promise.is_cap())
    }

    /// Records that a limit below lent `permits`, and that a liar there reported `lied` as spent.
    pub fn lent(&mut self, now: Instant, permits: u64, lied: u64) {
        for promise in &mut self.promises {
            promise.lent(now, permits);
            promise.lied(now, lied);
        }
    }

    /// S9 for a limit above others: checks what could be spent as things are now.
    pub fn stands(&mut self, now: Instant, Stock { view, in_hand, .. }: Stock) -> Verdict {
        for promise in &mut self.promises {
            promise.seen(now, view.available, view.books.outstanding == 0);
        }
        self.exposed(now, in_hand + view.available)
    }

    /// S9, before any of it is spent: all `permits` could be spent at this instant.
    pub fn exposed(&mut self, now: Instant, permits: u64) -> Verdict {
        let room = self.room(now);
        must("S9", permits <= room, || format!("{permits} could be spent now, where {room} are promised"))
    }

    /// Returns the permits that may be admitted at this instant.
    pub fn room(&mut self, now: Instant) -> u64 {
        self.judged(now).map(|promise| promise.room(now)).min().unwrap_or(u64::MAX)
    }

    fn session(&mut self, session: u64) -> &mut Session {
        self.sessions.get_mut(&session).expect("the world tells of every session when it begins")
    }
}

/// Returns the most permits that can be available and out together. S4 alone judges steady flows.
fn kept(rules: &[Rule]) -> u64 {
    let kept = rules.iter().filter(|rule| rule.flow().is_none());
    kept.map(Rule::ceiling).min().unwrap_or(u64::MAX)
}

/// K1, K4: `books` balance, and no count fell since they were as `before`.
pub(crate) fn hold_after(books: Books, before: Books) -> Verdict {
    must("K1", books.granted == books.spent + books.returned + books.burned + books.outstanding, || {
        format!("books that do not balance: {books:?}")
    })?;
    let gone = |books: Books| books.granted - books.outstanding;
    let rises = books.granted >= before.granted
        && books.spent >= before.spent
        && books.returned >= before.returned
        && gone(books) >= gone(before);
    must("K4", rises, || format!("a count fell: {before:?} became {books:?}"))
}
