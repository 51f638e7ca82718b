//! What a pool says to the one that it leases from itself, in another allocator, and what it believes of the answer: the
//! ordinary exchange, with this pool as one session. The uplink drives it with the time as an argument.
//!
//! It asks for what its own sessions would have in hand, and for a little that is lent on until the next answer. What they hold
//! is what it holds; what they have spent, it has. Low water and renewals are as for a node.

mod leaving;

use super::Pool;
use super::family::Place;
use super::loan::{Came, Loan};
use super::rare::MaybeMoment;
use super::safe_loan::SafeLoan;
use super::sessions::Sums;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::sizing::need;
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, Refusal, RefusalReason, TERM_MAX, TERM_MIN};
use std::time::Duration;

/// Round trips that what is in hand must outlast before more is asked for, and time for tasks that are late.
const LOW_WATER_RTTS: u32 = 3;
const GUARD: Duration = Duration::from_millis(10);

/// A loan is renewed when this part of its term is left, in percent: what is lent on ends with it at the latest, and so has
/// that part of its term at least.
const RENEW_PERCENT: u32 = 50;

/// What has ended is told so often a term: others may wait for it.
const LANDINGS_PER_TERM: u32 = 4;

/// No rule lets a call take longer.
const CALL_MAX: Duration = Duration::from_secs(400 * 86_400);

/// The term until a grant says one: short, for no session has anything yet.
const INITIAL_TERM: Duration = Duration::from_millis(100);

/// How long to leave the one above alone after something that is no use.
const DISPUTE_PAUSE: Duration = Duration::from_millis(50);

/// The longest that a refusal is believed.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// When to ask again after an error: there is no such limit above, or no room.
const REJECTION_PAUSE: Duration = Duration::from_secs(1);

/// How things stand with the one above.
#[derive(Clone, Debug)]
pub(super) struct Borrower {
    /// When the last ask was written, and what it said.
    asked: Option<(Moment, Ask)>,
    /// Since when there is something to say that was not asked yet.
    due: Option<Moment>,
    /// It may arrive, or be answered, still.
    is_open: bool,
    /// No answer came to the ask before.
    has_failed: bool,
    /// The one above has granted anything, were it nothing, since this last began to count from zero.
    is_known: bool,
    /// It was told not to ask sooner.
    not_before: Moment,
    /// Until when the one above lends nothing, as it said last: it is in quarantine.
    shut_until: Moment,
    /// Since when it leaves, if it does.
    leaves_since: MaybeMoment,
    /// How long an exchange takes.
    rtt: Duration,
    /// How long the loan lasts.
    term: Duration,
    /// For how long to hold permits in advance, here and below.
    horizon: Duration,
    /// What is in hand and out is nothing that the one above knows: it goes by until its end.
    is_unrecognised: bool,
    /// What a call below lacks that waits first, and of which session it is, since the last ask: see [`Pool::notes_large`].
    pub(super) lacks: Option<(Place, u64)>,
    /// What it lends of safe shares, where a session ever wanted one.
    safe_loan: Option<Box<SafeLoan>>,
    /// Of what each guaranteed group has in its root, so much was lent in this session and not given back.
    pub(super) taken: Vec<u64>,
}

/// What an answer was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantOutcome {
    /// It was believed.
    Believed,
    /// It says what cannot be, or what cannot be lent on: a steady flow.
    Unfit,
}

impl Borrower {
    pub(super) fn new() -> Self {
        Borrower {
            asked: None,
            due: None,
            is_open: false,
            has_failed: false,
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

    /// The window by which the one above counts safe shares, as far as it has said.
    pub(super) fn safe_span(&self) -> Option<Duration> {
        self.safe_loan.as_deref().and_then(SafeLoan::span)
    }

    /// No more safe shares are handed out of what was lent.
    fn forget_safe_loan(&mut self) {
        self.safe_loan.iter_mut().for_each(|loan| loan.forget());
    }

    /// How long a lease from here should last, at most `longest`.
    pub(super) fn lends_for(&self, longest: Duration) -> Duration {
        whole_millis(self.term * RENEW_PERCENT / 100).max(TERM_MIN).min(longest)
    }

    /// For how long those below should hold permits in advance, at most: what they hold is held of the one above.
    pub(super) fn horizon(&self) -> Duration {
        self.horizon
    }

    /// How long before its end a loan is renewed.
    fn renews_before(&self, rtt: Duration) -> Duration {
        low_span(rtt).max(self.term * RENEW_PERCENT / 100)
    }

    /// `ask` is written at `now`.
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

    /// The one above knows nothing of it, and nothing is out or in hand of `loan`: it counts from zero.
    fn begins_anew(&mut self, loan: &mut Loan) {
        loan.reset();
        (self.is_unrecognised, self.is_open) = (false, false);
        self.taken.clear();
    }
}

impl Pool {
    /// When to ask the one above: at once if that is not later than `now`, and never if there is nothing to say. An exchange
    /// with it takes `rtt`. Of a pool that leases from none: never.
    pub fn asks_above(&mut self, now: Moment, rtt: Duration) -> Moment {
        let at = self.due_above(now, rtt);
        if let Some(borrower) = &mut self.borrower {
            borrower.due = (at <= self.now).then(|| borrower.due.unwrap_or(self.now));
            borrower.leaves_since = MaybeMoment::NONE;
        }
        at
    }

    /// By when an ask is to be answered that is due `at`, as [`Pool::asks_above`] said last: one that renews what is lent on when it
    /// is due, and any other a term after that.
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
            // A term may end with its window, however soon: what was refused before a way to the one above is not said again at once.
            (false, true) => borrower.asked_at() + borrower.term.max(once),
            (false, false) => Moment::NEVER,
        };
        let renews = match loan.has_finished() {
            true => renews.min(borrower.asked_at() + (borrower.term / LANDINGS_PER_TERM).max(once)),
            false => renews,
        };
        let renews = renews.min(safe);
        let free = loan.free();
        let is_low = (free < wishes.low || free < borrower.lacks()) && wishes.target > free + loan.out();
        let is_low = is_low || self.are_groups_low(free, rtt);
        if !is_low {
            return renews;
        }
        // What was spent since then makes room for more, where it was all there was: a wait that was told did not know of it.
        let reports = loan.is_empty() && loan.has_unreported();
        let soonest = if reports { soonest.min(self.now.max(borrower.asked_at() + once)) } else { soonest };
        soonest.min(renews.max(self.now))
    }

    /// How far away to say that this pool is, where an exchange with the one above takes `rtt`: a lease from there has to
    /// outlast exchanges with those below, too, and half of it is theirs.
    pub fn distance_above(&mut self, rtt: Duration) -> Duration {
        rtt + 2 * self.sessions.distance()
    }

    /// Writes what to say to the one above, and sets aside nothing: it stays true however late it arrives. `None` of a pool
    /// that leases from none.
    pub fn ask_above(&mut self, now: Moment, rtt: Duration) -> Option<Ask> {
        self.advance(now);
        let wishes = self.wishes(rtt);
        let all_in_flight = self.sessions.in_flight();
        let (loan, borrower) = (self.ledgers.loan_mut()?, self.borrower.as_mut()?);
        if borrower.is_unrecognised && loan.is_empty() {
            borrower.begins_anew(loan);
        }
        // A pool that holds less than it might asks for it all the same: the one above knows how much that is by now.
        loan.shed(wishes.target.min(loan.hold()).saturating_sub(loan.out()));
        let want = wishes.target.saturating_sub(loan.free() + loan.out());
        let lacks = borrower.lacks().saturating_sub(loan.free());
        borrower.lacks = None;
        let (spent_total, held) = loan.report(want);
        let largest = if lacks > 0 { held.saturating_add(lacks).min(PERMITS_MAX) } else { 0 };
        let (running, busy) = (loan.report_in_flight(), loan.busy_of(all_in_flight));
        let Wishes { demand_milli, waiting, .. } = wishes;
        let waiting = waiting.min(want);
        let ask =
            Ask { spent_total, held, want, waiting, demand_milli, running, busy, largest, ..Ask::default() };
        (borrower.rtt, borrower.due) = (rtt, None);
        Some(borrower.asks(self.now, ask))
    }

    /// The one above answered the ask that was written last, and first sent at `first_sent`, with `grant`.
    pub fn on_grant_above(&mut self, now: Moment, first_sent: Moment, grant: &Grant) -> GrantOutcome {
        self.advance(now);
        let (now, clocks, longest) = (self.now, self.plan.clocks, self.plan.term());
        let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &mut self.borrower) else {
            return GrantOutcome::Unfit;
        };
        let Some((_, ask)) = borrower.asked.filter(|_| borrower.is_open) else { return GrantOutcome::Unfit };
        (borrower.is_open, borrower.has_failed) = (false, false);
        let is_sane = grant.permits <= ask.want
            && grant.kept <= ask.held
            && grant.term <= TERM_MAX
            && grant.in_flight.is_none_or(|cap| cap.longest <= CALL_MAX);
        let lent = ask.spent_total.saturating_add(ask.held).saturating_add(grant.permits);
        if !is_sane || grant.rate != Rate::Free {
            loan.on_report_answered(lent);
            borrower.not_before = now + REFUSAL_MAX;
            loan.wait_until(borrower.not_before);
            return GrantOutcome::Unfit;
        }
        // A session that is told to come then finds what comes with the next exchange.
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
        self.sessions.go_by_about(self.term, self.ledgers.are_reusable());
        self.audit();
        GrantOutcome::Believed
    }

    /// The one above has said whether it counts what is in flight: then that counts here, too.
    fn count_in_flight(&mut self) {
        let longest = self.ledgers.longest();
        if longest.is_none() && self.longest.is_some() {
            let sessions: Vec<_> = self.sessions.iter().map(|(place, _)| place).collect();
            sessions.into_iter().for_each(|id| self.update_calls(id, |calls, _| calls.forget()));
        }
        self.longest = longest;
    }

    /// The one above lends nothing: what is held goes on until its end.
    pub fn on_refusal_above(&mut self, now: Moment, refusal: Refusal) {
        if is_heard(refusal.reason) {
            self.is_heard_above();
        } else if let Some(loan) = self.ledgers.loan_mut() {
            loan.on_report_lost();
        }
        if let Some(borrower) = &mut self.borrower {
            let is_shut = refusal.reason == RefusalReason::Quarantine;
            borrower.shut_until = if is_shut { now + refusal.retry_after } else { Moment::ORIGIN };
        }
        self.pause_above(now, refusal.retry_after.clamp(DISPUTE_PAUSE, REFUSAL_MAX), refusal.reason.stops());
    }

    /// There is no such limit above, or no room for this pool: nothing that it gives back is missed there.
    pub fn on_rejection_above(&mut self, now: Moment) {
        self.is_heard_above();
        self.pause_above(now, REJECTION_PAUSE, false);
    }

    /// The one above has heard what was said last, and lends nothing.
    fn is_heard_above(&mut self) {
        if let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &self.borrower)
            && let Some((_, ask)) = borrower.asked.filter(|_| borrower.is_open)
        {
            loan.on_report_answered(ask.spent_total + ask.held);
        }
    }

    /// No answer came. It may have been granted something all the same, which the next ask says is not held.
    pub fn on_failure_above(&mut self) {
        if let Some(borrower) = &mut self.borrower {
            (borrower.is_open, borrower.has_failed) = (false, true);
        }
    }

    /// The one above does not know what is held here: that goes on until its end, and then this counts from zero. Not after a pause
    /// the first time: it forgets one that was silent for long.
    pub fn on_unrecognised_above(&mut self, now: Moment) {
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

    /// The clock may have stood still, and then the loan ends later than the one above takes it to: no more of it is lent.
    pub fn hold_back_above(&mut self, now: Moment) {
        self.advance(now);
        self.ledgers.loan_mut().into_iter().for_each(Loan::hold_back);
        self.borrower.iter_mut().for_each(|borrower| borrower.forget_safe_loan());
    }

    /// Whether there is nothing to say to the one above, and no answer to come.
    pub fn rests_above(&self) -> bool {
        let says = |loan: &Loan| loan.has_untold() || loan.has_returned() || loan.is_in_flight();
        let has_said_all = self.ledgers.loan().is_none_or(|loan| loan.is_empty() && !says(loan));
        has_said_all && self.borrower.as_ref().is_none_or(|borrower| !borrower.is_open)
    }

    /// The refusal for a session that holds nothing and is lent nothing, where the one above is in quarantine.
    pub(super) fn refused_above(&self, ask: &Ask, grant: &Grant) -> Option<Refusal> {
        let shut_until = self.borrower.as_ref()?.shut_until;
        let is_for_nothing = (ask.held, grant.permits, grant.rate) == (0, 0, Rate::Free);
        (is_for_nothing && self.now < shut_until)
            .then(|| Refusal { reason: RefusalReason::Quarantine, retry_after: shut_until.since(self.now) })
    }

    /// Whether the one above has lent all that was asked for, and so will again.
    pub(super) fn is_being_lent(&self) -> bool {
        self.ledgers.loan().is_some_and(Loan::is_ample)
    }

    /// Whether what it has left is all that can be had for now. It is not where nothing is in hand, and the one above may have
    /// something: that is asked, and has said of nothing that there is none.
    pub fn knows_left(&self) -> bool {
        let (Some(loan), Some(borrower)) = (self.ledgers.loan(), &self.borrower) else { return true };
        self.left() > 0 || borrower.has_failed || loan.is_told_to_wait()
    }

    fn pause_above(&mut self, now: Moment, pause: Duration, stops: bool) {
        self.advance(now);
        let (Some(loan), Some(borrower)) = (self.ledgers.loan_mut(), &mut self.borrower) else { return };
        (borrower.is_open, borrower.has_failed) = (false, false);
        borrower.not_before = self.now + pause;
        loan.wait_until(borrower.not_before);
        if stops {
            loan.shed(0);
        }
    }

    /// What those below would have, as they said.
    fn wishes(&self, rtt: Duration) -> Wishes {
        Wishes::of(self.sessions.sums(), self.ledgers.loan().map_or(0, Loan::out), rtt)
    }
}

/// Whether what an ask says is known above that is refused so, or of no use there. One that stops does not look at it, and neither does a
/// root that others change meanwhile.
fn is_heard(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::Paused | RefusalReason::Blocked | RefusalReason::Quarantine => true,
        RefusalReason::Stopping | RefusalReason::Other => false,
    }
}

/// What a pool would say to the one above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    demand_milli: u64,
    waiting: u64,
    /// Permits in hand below which it asks.
    pub(super) low: u64,
    /// Permits that it would have, in hand and lent on.
    pub(super) target: u64,
}

impl Wishes {
    /// Those of sessions that say so, while `out` permits are lent to them.
    pub(super) fn of(sums: Sums, out: u64, rtt: Duration) -> Self {
        let Sums { demand_milli, wanted, waiting, .. } = sums;
        let demand_milli = demand_milli.min(PERMITS_MAX);
        // Renewals from below come all the time: for them something has to be here.
        let low = need(demand_milli, low_span(rtt)).max(u64::from(wanted > out));
        let target = wanted.max(out).saturating_add(low.saturating_mul(2)).min(PERMITS_MAX);
        Wishes { demand_milli, waiting, low, target }
    }
}

/// How long what is in hand must last, or more is asked for.
fn low_span(rtt: Duration) -> Duration {
    rtt * LOW_WATER_RTTS + GUARD
}
