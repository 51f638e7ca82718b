//! The exchange of a pool with the allocator above, from which it leases: the asks it writes and how it applies the
//! answers. The pool is one session there. It asks for what its own sessions want in hand, and for a little more. It
//! reports what they hold as held, and what they have spent as spent. Low water and renewals work as for a node.

mod leaving;

use super::Pool;
use super::family::Place;
use super::loan::{Came, Loan};
use super::rare::MaybeMoment;
use super::safe_loan::SafeLoan;
use super::sessions::SaturatedTotals;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::recovery::DISPUTE_PAUSE;
use lessor_protocol::sizing::{GUARD, low_water_span, need};
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, Refusal, RefusalReason, TERM_MAX, TERM_MIN};
use std::time::Duration;

/// Part of its term, in percent, that is left when a loan is renewed. Leases from the loan end with it at the latest,
/// so they last at least this part of its term.
const RENEW_PERCENT: u32 = 50;

/// Reports of ended calls in a term: other pools may wait for those permits.
const ENDED_CALL_REPORTS_PER_TERM: u32 = 4;

/// Longest call that a grant may state: no rule allows longer ones.
const CALL_MAX: Duration = Duration::from_secs(400 * 86_400);

/// Term until the first grant: short, because no session holds anything yet.
const INITIAL_TERM: Duration = Duration::from_millis(100);

/// Longest time for which a refusal is believed, and the pause after an unfit grant.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// Pause after an error: the allocator above has no such limit, or no room for the pool.
const REJECTION_PAUSE: Duration = Duration::from_secs(1);

/// State of the exchange with the allocator above.
#[derive(Clone, Debug)]
pub(super) struct Borrower {
    /// Last ask, with the moment when it was written.
    asked: Option<(Moment, Ask)>,
    /// When the next ask became due, if it is due and not written yet.
    due: Option<Moment>,
    /// Whether the last ask may still arrive or be answered.
    is_open: bool,
    /// Whether no answer came to the last ask.
    has_failed: bool,
    /// Whether the last answer was a refusal or an error. Until `not_before` it would be the same again.
    is_refused: bool,
    /// Whether the allocator above has answered with a grant since it last did not recognise the pool.
    is_known: bool,
    /// Earliest moment of the next ask, as the last answer said.
    not_before: Moment,
    /// End of the quarantine of the allocator above, as it said last.
    shut_until: Moment,
    /// When the pool began to leave, if it has.
    leaves_since: MaybeMoment,
    /// Round-trip time of an exchange with the allocator above.
    rtt: Duration,
    /// Term of the loan.
    term: Duration,
    /// Time for which this pool and its sessions should hold permits in advance.
    horizon: Duration,
    /// Whether the allocator above does not know the loan, which stays good until its end.
    is_unrecognised: bool,
    /// Largest number of permits that a session's first waiting call lacks, since the last ask: see [`Pool::note_large_call`].
    pub(super) lacks: Option<(Place, u64)>,
    /// Safe shares lent to this pool; made when a session first wants one.
    safe_loan: Option<Box<SafeLoan>>,
    /// Permits of each guaranteed group that the root lent in this session and that were not given back.
    pub(super) taken: Vec<u64>,
}

/// How a grant of the allocator above was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantOutcome {
    /// The pool applied the grant.
    Believed,
    /// The grant answers no open ask, is impossible, or is a steady flow, which cannot be lent on.
    Unfit,
}

impl Borrower {
    pub(super) fn new() -> Self {
        Borrower {
            asked: None,
            due: None,
            is_open: false,
            has_failed: false,
            is_refused: false,
            is_known: false,
            not_before: Moment::ORIGIN,
            shut_until: Moment::ORIGIN,
            leaves_since: MaybeMoment::NONE,
            rtt: Duration::ZERO,
            term: INITIAL_TERM,
            horizon: INITIAL_TERM,
            is_unrecognised: false,
            lacks: None,
            safe_loan: None,
            taken: vec![],
        }
    }

    pub(super) fn safe_loan_mut(&mut self) -> &mut SafeLoan {
        self.safe_loan.get_or_insert_default()
    }

    /// Returns the window by which the allocator above counts safe shares, if it has said.
    pub(super) fn safe_span(&self) -> Option<Duration> {
        self.safe_loan.as_deref().and_then(SafeLoan::span)
    }

    /// Stops handing out safe shares from what was lent.
    fn forget_safe_loan(&mut self) {
        self.safe_loan.iter_mut().for_each(|loan| loan.forget());
    }

    /// Returns how long a lease from this pool should last, at most `longest`.
    pub(super) fn lends_for(&self, longest: Duration) -> Duration {
        whole_millis(self.term * RENEW_PERCENT / 100).max(TERM_MIN).min(longest)
    }

    /// Returns how long sessions below should hold permits in advance at most: they hold permits of the allocator above.
    pub(super) fn horizon(&self) -> Duration {
        self.horizon
    }

    /// Returns how long before its end a loan is renewed.
    fn renews_before(&self, rtt: Duration) -> Duration {
        low_water_span(rtt).max(self.term * RENEW_PERCENT / 100)
    }

    /// Records that `ask` is written at `now`.
    fn asks(&mut self, now: Moment, ask: Ask) -> Ask {
        (self.asked, self.is_open) = (Some((now, ask)), true);
        ask
    }

    fn lacks(&self) -> u64 {
        self.lacks.map_or(0, |(_, lacks)| lacks)
    }

    fn asked_at(&self) -> Moment {
        self.asked.map_or(Moment::ORIGIN, |(at, _)| at)
    }

    /// Starts counting from zero. The allocator above does not know the session, and nothing of `loan` is out or in hand.
    fn begins_anew(&mut self, loan: &mut Loan) {
        loan.reset();
        (self.is_unrecognised, self.is_open) = (false, false);
        self.taken.clear();
    }
}

impl Pool {
    /// Returns when to ask the allocator above, where an exchange takes `rtt`: at once if that is not later than `now`.
    /// [`Moment::NEVER`] if there is nothing to say, or if the pool leases from no allocator.
    pub fn asks_above(&mut self, now: Moment, rtt: Duration) -> Moment {
        let at = self.due_above(now, rtt);
        if let Some(borrower) = &mut self.borrower {
            borrower.due = (at <= self.now).then(|| borrower.due.unwrap_or(self.now));
            borrower.leaves_since = MaybeMoment::NONE;
        }
        at
    }

    /// Returns when an ask that is due `at` ([`Pool::asks_above`]) should be answered at the latest: a term after it
    /// became due, or when the loan must be renewed if that is sooner.
    pub fn late_above(&self, at: Moment, rtt: Duration) -> Moment {
        let (Some(loan), Some(borrower)) = (self.ledgers.loan(), &self.borrower) else {
            return Moment::NEVER;
        };
        let late = borrower.due.unwrap_or(at) + borrower.term;
        if loan.is_empty() { late } else { late.min(loan.end().before(borrower.renews_before(rtt))) }
    }

    fn due_above(&mut self, now: Moment, rtt: Duration) -> Moment {
        self.advance(now);
        let wishes = self.wishes(rtt);
        let (Some(loan), Some(borrower)) = (self.ledgers.loan(), &self.borrower) else {
            return Moment::NEVER;
        };
        let soonest = self.now.max(borrower.not_before);
        let safe = borrower.safe_loan.as_deref().map_or(Moment::NEVER, SafeLoan::due).max(soonest);
        if borrower.is_unrecognised && !loan.is_empty() {
            return loan.end();
        }
        let once = rtt + GUARD;
        let margin = borrower.renews_before(rtt);
        let is_live = !loan.is_empty() || (loan.is_in_flight() && loan.end() > self.now);
        let says_again = !borrower.is_open && (loan.has_returned() || loan.has_untold());
        let tells = loan.has_unreported() || loan.is_in_flight() || says_again;
        let renews = match (is_live, tells) {
            (true, _) => loan.end().before(margin).max(borrower.asked_at() + once),
            // A term that ends with its window may be very short: wait for a round trip at least before reporting again.
            (false, true) => borrower.asked_at() + borrower.term.max(once),
            (false, false) => Moment::NEVER,
        };
        let renews = match loan.has_finished() {
            true => renews.min(borrower.asked_at() + (borrower.term / ENDED_CALL_REPORTS_PER_TERM).max(once)),
            false => renews,
        };
        let renews = if is_live || !borrower.is_refused { renews } else { renews.max(borrower.not_before) };
        let renews = renews.min(safe);
        let free = loan.free();
        let is_low = (free < wishes.low || free < borrower.lacks()) && wishes.target > free + loan.out();
        let is_low = is_low || self.are_groups_low(free, rtt);
        if !is_low {
            return renews;
        }
        // Permits spent since the last ask make room for more where they were all there was. The wait in the last
        // answer did not know of them.
        let has_news = if borrower.is_refused { loan.has_unreported_spends() } else { loan.has_unreported() };
        let reports = loan.is_empty() && has_news;
        let soonest = if reports { soonest.min(self.now.max(borrower.asked_at() + once)) } else { soonest };
        soonest.min(renews.max(self.now))
    }

    /// Returns the round trip to report above, where an exchange takes `rtt`. The loan must outlast exchanges with
    /// sessions below, too, and half of its term is theirs.
    pub fn distance_above(&mut self, rtt: Duration) -> Duration {
        rtt + 2 * self.sessions.distance()
    }

    /// Writes the ask to the allocator above; `None` if the pool leases from none. It sets nothing aside, so the ask
    /// stays true however late it arrives.
    pub fn ask_above(&mut self, now: Moment, rtt: Duration) -> Option<Ask> {
        self.advance(now);
        let wishes = self.wishes(rtt);
        let all_in_flight = self.sessions.in_flight();
        let (loan, borrower) = (self.ledgers.loan_mut()?, self.borrower.as_mut()?);
        if borrower.is_unrecognised && loan.is_empty() {
            borrower.begins_anew(loan);
        }
        // `want` may exceed `hold`: the allocator above knows how much that is by now.
        loan.shed(wishes.target.min(loan.hold()).saturating_sub(loan.out()));
        let want = wishes.target.saturating_sub(loan.free() + loan.out());
        let lacks = borrower.lacks().saturating_sub(loan.free());
        borrower.lacks = None;
        let (spent_total, held) = loan.report(want);
        let largest = if lacks > 0 { held.saturating_add(lacks).min(PERMITS_MAX) } else { 0 };
        let (running, busy) = (loan.report_in_flight(), loan.busy_of(all_in_flight));
        let Wishes { demand_milli, waiting, .. } = wishes;
        let waiting = waiting.min(want);
        let reports = Ask { spent_total, held, running, busy, ..Ask::default() };
        let ask = Ask { want, waiting, demand_milli, largest, lends_on: true, ..reports };
        (borrower.rtt, borrower.due) = (rtt, None);
        Some(borrower.asks(self.now, ask))
    }

    /// Applies `grant`, the answer of the allocator above to the last ask, which was first sent at `first_sent`.
    pub fn on_grant_above(&mut self, now: Moment, first_sent: Moment, grant: &Grant) -> GrantOutcome {
        self.advance(now);
        let (now, clocks, longest) = (self.now, self.plan.clocks, self.plan.term());
        let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &mut self.borrower) else {
            return GrantOutcome::Unfit;
        };
        let Some((_, ask)) = borrower.asked.filter(|_| borrower.is_open) else { return GrantOutcome::Unfit };
        (borrower.is_open, borrower.has_failed, borrower.is_refused) = (false, false, false);
        let is_sane = grant.permits <= ask.want
            && grant.kept <= ask.held
            && grant.term.max(grant.ask_after) <= TERM_MAX
            && grant.in_flight.is_none_or(|cap| cap.longest <= CALL_MAX);
        let lent = ask.spent_total.saturating_add(ask.held).saturating_add(grant.permits);
        if !is_sane || grant.rate != Rate::Free {
            loan.on_report_answered(lent);
            borrower.not_before = now + REFUSAL_MAX;
            loan.wait_until(borrower.not_before);
            return GrantOutcome::Unfit;
        }
        // A session that asks at `chance` finds the permits of the next exchange.
        let chance = now + grant.retry_after.unwrap_or_default().max(grant.ask_after) + borrower.rtt;
        loan.came(Came {
            permits: grant.permits,
            lent,
            unkept: ask.held - grant.kept,
            end: clocks.holder_end(first_sent, grant.term),
            ceiling: grant.ceiling,
            chance,
            is_ample: grant.permits == ask.want,
            cap: grant.in_flight,
        });
        (borrower.not_before, borrower.shut_until) = (now + grant.ask_after, Moment::ORIGIN);
        borrower.is_known = true;
        if !grant.term.is_zero() {
            (borrower.term, borrower.horizon) = (grant.term, grant.horizon);
            self.term = borrower.lends_for(longest);
        }
        self.count_in_flight();
        self.sessions.go_by_about(self.ages_now());
        self.audit();
        GrantOutcome::Believed
    }

    /// Counts calls in flight if the allocator above does, as its last grant says.
    fn count_in_flight(&mut self) {
        let longest = self.ledgers.longest();
        if longest.is_none() && self.longest.is_some() {
            let sessions: Vec<_> = self.sessions.iter().map(|(place, _)| place).collect();
            sessions.into_iter().for_each(|id| self.update_calls(id, |calls, _| calls.forget()));
        }
        self.longest = longest;
    }

    /// Applies a refusal: the allocator above lends nothing, and the loan lasts until its end.
    pub fn on_refusal_above(&mut self, now: Moment, refusal: Refusal) {
        self.advance(now);
        match is_heard(refusal.reason) {
            true => self.is_heard_above(),
            false => self.is_unheard_above(),
        }
        if let Some(borrower) = &mut self.borrower {
            let is_shut = refusal.reason == RefusalReason::Quarantine;
            borrower.shut_until = if is_shut { now + refusal.retry_after } else { Moment::ORIGIN };
        }
        self.pause_above(now, refusal.retry_after.clamp(DISPUTE_PAUSE, REFUSAL_MAX), refusal.reason.stops());
    }

    /// Applies an error: the allocator above has no such limit, or no room for the pool. `is_heard` says whether it misses
    /// nothing that it is not told. Otherwise the pool reports again, because the allocator above may lend again later.
    pub fn on_rejection_above(&mut self, now: Moment, is_heard: bool) {
        self.advance(now);
        match is_heard {
            true => self.is_heard_above(),
            false => self.is_unheard_above(),
        }
        self.pause_above(now, REJECTION_PAUSE, false);
    }

    /// Notes that the allocator above has not taken in the last report, and lends nothing.
    fn is_unheard_above(&mut self) {
        self.ledgers.loan_mut().into_iter().for_each(Loan::on_report_lost);
    }

    /// Notes that the allocator above has read the last report and lends nothing.
    fn is_heard_above(&mut self) {
        if let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &self.borrower)
            && let Some((_, ask)) = borrower.asked.filter(|_| borrower.is_open)
        {
            loan.on_report_answered(ask.spent_total + ask.held);
        }
    }

    /// Notes that no answer came. The ask may still have been granted; the next ask does not claim that grant as held.
    pub fn on_failure_above(&mut self) {
        if let Some(borrower) = &mut self.borrower {
            (borrower.is_open, borrower.has_failed) = (false, true);
        }
    }

    /// Notes that the allocator above does not know the session. The loan lasts until its end, and then the pool counts
    /// from zero. The first time there is no pause: an allocator forgets a session that was silent for long.
    pub fn on_unrecognised_above(&mut self, now: Moment) {
        self.advance(now);
        let mut pause = DISPUTE_PAUSE;
        if let Some(borrower) = &mut self.borrower {
            borrower.is_unrecognised = true;
            if std::mem::take(&mut borrower.is_known) {
                pause = Duration::ZERO;
            }
            borrower.forget_safe_loan();
        }
        self.pause_above(now, pause, false);
    }

    /// Stops lending from the loan: if the clock stood still, the loan ends later here than for the allocator above.
    pub fn hold_back_above(&mut self, now: Moment) {
        self.advance(now);
        self.ledgers.loan_mut().into_iter().for_each(Loan::hold_back);
        self.borrower.iter_mut().for_each(|borrower| borrower.forget_safe_loan());
    }

    /// Whether the pool has nothing to tell the allocator above, and expects no answer.
    pub fn rests_above(&self) -> bool {
        let says = |loan: &Loan| loan.has_untold() || loan.has_returned() || loan.is_in_flight();
        let has_said_all = self.ledgers.loan().is_none_or(|loan| loan.is_empty() && !says(loan));
        has_said_all && self.borrower.as_ref().is_none_or(|borrower| !borrower.is_open)
    }

    /// Returns the refusal for a session that holds nothing and is lent nothing, while the allocator above is in quarantine.
    pub(super) fn refused_above(&self, ask: &Ask, grant: &Grant) -> Option<Refusal> {
        let shut_until = self.borrower.as_ref()?.shut_until;
        let is_for_nothing = (ask.held, grant.permits, grant.rate) == (0, 0, Rate::Free);
        (is_for_nothing && self.now < shut_until)
            .then(|| Refusal { reason: RefusalReason::Quarantine, retry_after: shut_until.since(self.now) })
    }

    /// Whether the allocator above met the last ask in full, and so will probably do so again.
    pub(super) fn is_being_lent(&self) -> bool {
        self.ledgers.loan().is_some_and(Loan::is_ample)
    }

    /// Whether the permits left are all that can be had now. Not so while none is in hand and the allocator above may
    /// have some: it is asked, and has not said that there are none.
    pub fn knows_left(&self) -> bool {
        let (Some(loan), Some(borrower)) = (self.ledgers.loan(), &self.borrower) else { return true };
        self.left() > 0 || borrower.has_failed || loan.is_told_to_wait()
    }

    fn pause_above(&mut self, now: Moment, pause: Duration, stops: bool) {
        self.advance(now);
        let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &mut self.borrower) else { return };
        (borrower.is_open, borrower.has_failed, borrower.is_refused) = (false, false, true);
        borrower.not_before = self.now + pause;
        loan.wait_until(borrower.not_before);
        if stops {
            loan.shed(0);
        }
    }

    /// Returns what the sessions below want, where an exchange with the allocator above takes `rtt`.
    fn wishes(&self, rtt: Duration) -> Wishes {
        Wishes::of(self.sessions.sums(), self.ledgers.loan().map_or(0, Loan::out), rtt)
    }
}

/// Whether the allocator above has read, or has no use for, the report of an ask refused for `reason`. An allocator
/// that stops does not read an ask, and neither does a root that others change meanwhile. In quarantine no ask is read,
/// though it may be a limit above that waits, while the books know the session.
fn is_heard(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::Paused | RefusalReason::Blocked => true,
        RefusalReason::Quarantine | RefusalReason::Stopping | RefusalReason::Other => false,
    }
}

/// What a pool wants from the allocator above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    demand_milli: u64,
    waiting: u64,
    /// Permits in hand below which the pool asks.
    pub(super) low: u64,
    /// Permits that the pool wants, in hand and lent on together.
    pub(super) target: u64,
}

impl Wishes {
    /// Returns the wishes of sessions with these `sums`, while `out` permits are lent to them.
    pub(super) fn of(sums: SaturatedTotals, out: u64, rtt: Duration) -> Self {
        let SaturatedTotals { demand_milli, wanted, waiting, .. } = sums;
        let demand_milli = demand_milli.min(PERMITS_MAX);
        // Sessions renew all the time, so some permits must be in hand.
        let low = need(demand_milli, low_water_span(rtt)).max(u64::from(wanted > out));
        let target = wanted.max(out).saturating_add(low.saturating_mul(2)).min(PERMITS_MAX);
        Wishes { demand_milli, waiting, low, target }
    }
}
