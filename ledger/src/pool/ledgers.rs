//! All rules of one limit as one: a permit is charged to every one of them, or to none. Each pool keeps one
//! [`Ledgers`]; it knows nothing of sessions, and never lends what one of its rules cannot.

use super::Plan;
use super::ages::FAR;
use super::loan::Loan;
use crate::carry_over::carried;
use crate::pacing::LOW_WATER_PERCENT;
use crate::packed::Carrier;
use crate::rule::{
    Account, BucketLedger, Calls, Draw, FixedLedger, Ledger, Pace, Saved, Since, SlidingLedger,
};
use crate::sizing::MILLION;
use crate::{CarryOver, Rule};
use lessor_protocol::moment::span_of;
use lessor_protocol::sizing::PERMIT;
use lessor_protocol::{ClockBounds, Moment};
use std::cmp::Reverse;
use std::time::Duration;

/// Where the permits of a pool come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Some of them leave a window, come from the allocator above, or are soon lost in a full bucket.
    Windows,
    /// Token buckets only, none of which fills in [`FAR`].
    Buckets,
    /// Calls that end: permits are spent again.
    EndedCalls,
}

/// The ledgers of a pool, one for each rule.
#[derive(Clone, Debug)]
pub(super) struct Ledgers {
    rules: Vec<Ledger>,
    /// Loan of the pool, if it leases from an allocator above.
    loan: Option<Box<Loan>>,
}

impl Ledgers {
    /// Creates ledgers with full buckets and empty windows at `now`.
    pub(super) fn new(rules: &[Rule], clocks: ClockBounds, now: Moment) -> Self {
        Ledgers { rules: rules.iter().map(|rule| Ledger::new(rule, clocks, now)).collect(), loan: None }
    }

    /// Creates the ledgers of `plan`, with an empty loan if the pool leases from an allocator above.
    pub(super) fn of(plan: &Plan, now: Moment) -> Self {
        let loan = plan.is_borrowed.then(|| Box::new(Loan::new(now)));
        Ledgers { loan, ..Ledgers::new(&plan.rules, plan.clocks, now) }
    }

    /// Returns the loan of the pool, if it leases.
    pub(super) fn loan(&self) -> Option<&Loan> {
        self.loan.as_deref()
    }

    /// Returns the loan for changes.
    pub(super) fn loan_mut(&mut self) -> Option<&mut Loan> {
        self.loan.as_deref_mut()
    }

    fn all(&self) -> impl Iterator<Item = &dyn Account> {
        let loan = self.loan.as_deref().into_iter().map(|loan| loan as &dyn Account);
        self.rules.iter().map(|ledger| ledger.account() as &dyn Account).chain(loan)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut dyn Account> {
        let loan = self.loan.as_deref_mut().into_iter().map(|loan| loan as &mut dyn Account);
        self.rules.iter_mut().map(|ledger| ledger.account_mut() as &mut dyn Account).chain(loan)
    }

    /// Iterates over accounts that count calls in flight.
    fn calls(&self) -> impl Iterator<Item = &dyn Calls> {
        let loan = self.loan.as_deref().into_iter().map(|loan| loan as &dyn Calls);
        self.rules.iter().filter_map(Ledger::calls).chain(loan)
    }

    /// Iterates over ledgers that charge a lease to the next window, too.
    fn ahead(&self) -> impl Iterator<Item = &FixedLedger> {
        self.rules.iter().filter_map(Ledger::ahead)
    }

    fn ahead_mut(&mut self) -> impl Iterator<Item = &mut FixedLedger> {
        self.rules.iter_mut().filter_map(Ledger::ahead_mut)
    }

    /// Empties the accounts, which may have forgotten what was lent before `quarantined`. Returns when all of them may
    /// lend again. Rules that refill do so from `since` on, if that is later.
    pub(super) fn forget(&mut self, quarantined: Moment, since: Moment) -> Moment {
        let opens = self.all_mut().map(|ledger| {
            let opens = ledger.forget(quarantined);
            // An account that opens at once has no window to wait for: it refills.
            if opens == quarantined && since > opens { ledger.forget(since) } else { opens }
        });
        let opens = opens.max();
        opens.unwrap_or(quarantined)
    }

    /// Advances all accounts to `now`; only between lease ends, see [`Ledgers::burn`].
    pub(super) fn advance(&mut self, now: Moment) {
        self.rules.iter_mut().for_each(|ledger| ledger.advance(now));
        self.loan_mut().into_iter().for_each(|loan| loan.advance(now));
    }

    /// Burns the `permits` of a lease that ended without a report at `end`, by which they were spent at the latest.
    pub(super) fn burn(&mut self, permits: u64, end: Moment) {
        for ledger in self.all_mut() {
            ledger.advance(end);
            ledger.burn(permits, end);
        }
    }

    /// Returns the permits that every rule can lend now.
    pub(super) fn available(&self) -> u64 {
        let by_rule = self.rules.iter().map(Ledger::available);
        by_rule.chain(self.loan().map(Account::available)).min().unwrap_or(0)
    }

    /// Lends `permits`, at most what is available.
    pub(super) fn charge(&mut self, permits: u64) {
        debug_assert!(self.all().all(|ledger| permits <= ledger.available()), "{permits} of {self:?}");
        self.rules.iter_mut().for_each(|ledger| ledger.charge(permits));
        self.loan_mut().into_iter().for_each(|loan| loan.charge(permits));
    }

    /// Settles lent `permits` as spent, at `at` at the latest.
    pub(super) fn settle(&mut self, permits: u64, at: Moment) {
        self.rules.iter_mut().for_each(|ledger| ledger.settle(permits, at));
        self.loan_mut().into_iter().for_each(|loan| loan.settle(permits, at));
    }

    /// Releases lent `permits` that came back unspent.
    pub(super) fn release(&mut self, permits: u64) {
        self.rules.iter_mut().for_each(|ledger| ledger.release(permits));
        self.loan_mut().into_iter().for_each(|loan| loan.release(permits));
    }

    /// Credits `permits` that burned at `at` and proved unspent after all.
    pub(super) fn credit(&mut self, permits: u64, at: Moment) {
        for ledger in self.all_mut() {
            ledger.credit(permits, at);
        }
    }

    /// Changes the permits in flight from `before` to `after`.
    pub(super) fn change_in_flight(&mut self, before: u64, after: u64) {
        let loan = self.loan.as_deref_mut().into_iter().map(|loan| loan as &mut dyn Calls);
        for calls in self.rules.iter_mut().filter_map(Ledger::calls_mut).chain(loan) {
            calls.begin(after.saturating_sub(before));
            calls.finish(before.saturating_sub(after));
        }
    }

    /// Returns the permits in flight, by each rule that counts them; `None` if the rules disagree.
    pub(super) fn in_flight(&self) -> Option<u64> {
        let mut counts = self.calls().map(|calls| calls.in_flight());
        let first = counts.next().unwrap_or(0);
        counts.all(|count| count == first).then_some(first)
    }

    /// Returns the longest time that a call may take, if a rule counts calls in flight. Each such rule bounds all calls.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.calls().filter_map(|calls| calls.longest()).min()
    }

    /// Returns where permits come from. `rules` are those of the pool.
    pub(super) fn source(&self, rules: &[Rule]) -> Source {
        let keeps = |rule: &Rule| matches!(rule, Rule::TokenBucket(bucket) if bucket.keeps(FAR));
        match self.loan() {
            _ if self.are_reusable() => Source::EndedCalls,
            None if rules.iter().all(keeps) => Source::Buckets,
            None | Some(_) => Source::Windows,
        }
    }

    /// Whether a permit can be spent again when its call ends: all rules cap calls in flight, and nothing else.
    pub(super) fn are_reusable(&self) -> bool {
        let loan = self.loan().is_none_or(Loan::is_reusable);
        loan && self.rules.iter().all(|ledger| ledger.calls().is_some())
    }

    /// Returns when `permits` can be lent if nothing is lent or given back meanwhile and all leases burn; `None` if
    /// never. `ends` are the ends of these leases with the permits out on each, soonest first.
    pub(super) fn ready_at<Ends: Iterator<Item = (Moment, u64)>>(
        &self,
        now: Moment,
        permits: u64,
        ends: impl Fn() -> Ends,
    ) -> Option<Moment> {
        let ready = self.all().map(|ledger| ledger.ready_at(permits, &mut ends()));
        ready.reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(now)).map(|ready| ready.max(now))
    }

    /// Returns the permits that every rule can lend within `span`: those left, and those that come back by themselves.
    pub(super) fn within(&self, span: Duration) -> u64 {
        let by_rule =
            self.rules.iter().map(|ledger| ledger.available().saturating_add(ledger.arriving(span)));
        let by_loan = self.loan().map(|loan| loan.available().saturating_add(loan.arriving(span)));
        by_rule.chain(by_loan).min().unwrap_or(0)
    }

    /// Returns the time until a permit is first wanted that some account cannot lend, if nodes take `draw`; `None` if
    /// that is not expected.
    pub(super) fn lasts(&self, draw: Draw) -> Option<Duration> {
        self.all().filter_map(|ledger| ledger.lasts(draw)).min()
    }

    /// Whether a permit that is held unspent is missing later too, to some rule.
    pub(super) fn count_from_spend(&self) -> bool {
        self.rules.iter().any(Ledger::counts_from_spend)
    }

    /// Whether permits left unspent at the end of a lease are there again once its session reports them. A bucket may
    /// have been full meanwhile.
    pub(super) fn take_back(&self) -> bool {
        self.rules.iter().all(|ledger| ledger.bucket().is_none())
    }

    /// Returns when the first bucket is full of permits there and lent, and mints nothing until a spend is reported.
    pub(super) fn full_at(&self) -> Option<Moment> {
        self.rules.iter().filter_map(|ledger| ledger.bucket()?.full_at()).min()
    }

    /// Returns the permits that all rules lend in `span` on average, for as long as all are wanted.
    pub(super) fn sustained(&self, span: Duration) -> u64 {
        let by_rule = self.rules.iter().map(|ledger| ledger.sustained(span));
        by_rule.chain(self.loan().map(|loan| loan.sustained(span))).min().unwrap_or(0)
    }

    /// Returns what all rules lend in `span` on average, for as long as all is wanted, in parts of a permit.
    pub(super) fn average(&self, span: Duration) -> u128 {
        // Millionths: a limit of one permit a day lends a few in a million terms. A cap on what is in flight lends at least
        // itself in any span.
        let average =
            u128::from(self.sustained(span.saturating_mul(MILLION))) * (PERMIT / u128::from(MILLION));
        average.max(u128::from(self.sustained(span)) * PERMIT)
    }

    /// Returns how long the rules take to lend `permits` on average, when all are wanted.
    pub(super) fn span(&self, permits: u64) -> Duration {
        // Long enough that rounding does not show for one permit a year.
        const LONG: Duration = Duration::from_secs(100 * 366 * 86_400);
        span_of(LONG.as_nanos() * u128::from(permits) / u128::from(self.sustained(LONG).max(1)))
    }

    /// Iterates over the ledgers of `rules` that are below their low-water mark, with `kept` permits kept back. Where
    /// one has little left, others may have much.
    fn low(&self, rules: &[Rule], kept: u64) -> impl Iterator<Item = &Ledger> {
        let is_low = move |(ledger, rule): &(&Ledger, &Rule)| {
            let left = ledger.available().saturating_sub(kept);
            let most = rule.ceiling().saturating_sub(kept);
            u128::from(left) * 100 < u128::from(most) * u128::from(LOW_WATER_PERCENT)
        };
        self.rules.iter().zip(rules).filter(is_low).map(|(ledger, _)| ledger)
    }

    /// Returns the pace at which what is left lasts, where one of `rules` is low and eases off.
    pub(super) fn low_pace(&self, rules: &[Rule], kept: u64) -> Option<Pace> {
        self.low(rules, kept).filter_map(|ledger| ledger.account().pace()).reduce(Pace::slower)
    }

    /// Whether one of `rules` that is lent evenly is low.
    pub(super) fn evens_out_low(&self, rules: &[Rule], kept: u64) -> bool {
        let mut sliding = self.low(rules, kept).filter_map(Ledger::sliding);
        sliding.any(|ledger| ledger.evens_out().is_some())
    }

    /// Returns for how long more must be wanted than comes back before permits are lent evenly, and how long a plan for
    /// that holds. `None` where no rule is lent evenly.
    pub(super) fn evens_out(&self) -> Option<(Duration, Duration)> {
        self.rules.iter().filter_map(Ledger::sliding).filter_map(SlidingLedger::evens_out).max()
    }

    /// Returns the slowest pace of the rules that are lent evenly, with `kept` permits kept back.
    pub(super) fn even_pace(&self, kept: u64) -> Option<Pace> {
        let sliding = self.rules.iter().filter_map(Ledger::sliding);
        let even = sliding.filter(|ledger| ledger.evens_out().is_some());
        even.map(|ledger| ledger.even_pace(kept)).reduce(Pace::slower)
    }

    /// Returns the instant that no lease may outlive, unless its permits are charged ahead.
    pub(super) fn lease_end(&self) -> Option<Moment> {
        self.rules.iter().filter_map(Ledger::lease_end).chain(self.loan().and_then(Account::lease_end)).min()
    }

    /// Returns [`Ledgers::lease_end`] of a root, whose leases also end by the next refill at intervals.
    pub(super) fn lease_end_in_doubt(&self) -> Option<Moment> {
        let at_refill =
            self.rules.iter().filter_map(Ledger::bucket).filter_map(BucketLedger::lease_end_in_doubt);
        at_refill.chain(self.lease_end()).min()
    }

    /// Returns the instant that no lease may outlive even if its permits are charged ahead.
    pub(super) fn lease_end_ahead(&self) -> Option<Moment> {
        let by_rule = self.rules.iter().filter_map(|ledger| match ledger.ahead() {
            Some(ledger) => ledger.lease_end_ahead(),
            None => ledger.lease_end(),
        });
        by_rule.chain(self.loan().and_then(Account::lease_end)).min()
    }

    /// Whether a rule charges a lease to the next window, too.
    pub(super) fn count_ahead(&self) -> bool {
        self.ahead().next().is_some()
    }

    /// Returns the permits that a lease until `end` may hold, for a session that holds `own`: permits, and until when.
    pub(super) fn room_ahead(&self, end: Moment, own: (u64, Moment)) -> u64 {
        self.ahead().map(|ledger| ledger.room_ahead(end, own)).min().unwrap_or(u64::MAX)
    }

    /// Charges `permits` ahead: they may be spent until `end`.
    pub(super) fn charge_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead_mut().for_each(|ledger| ledger.charge_ahead(permits, end));
    }

    /// Releases `permits` charged ahead until `end`: they are spent by now, or never will be.
    pub(super) fn release_ahead(&mut self, permits: u64, end: Moment) {
        self.ahead_mut().for_each(|ledger| ledger.release_ahead(permits, end));
    }

    /// Whether no account can be told from a new one.
    pub(super) fn is_fresh(&self) -> bool {
        self.all().all(|ledger| ledger.is_fresh())
    }

    /// Whether no account still keeps permits back for what was lent.
    pub(super) fn keep_nothing_back(&self) -> bool {
        self.all().all(|ledger| ledger.has_all())
    }

    /// Returns how long after its settlement a permit may still matter.
    pub(super) fn memory(&self) -> Duration {
        self.all().map(|ledger| ledger.memory()).max().unwrap_or_default()
    }

    /// Switches from the rules `from` to the rules `to`. Each takes over a balance, see [`carried`], as `carry_over` says.
    /// A rule that finds none is new, and is charged the `out` permits, whose leases end by `until`.
    pub(super) fn change(
        &mut self,
        (from, to): (&[Rule], &[Rule]),
        (clocks, now): (ClockBounds, Moment),
        carry_over: CarryOver,
        (out, until): (u64, Moment),
    ) {
        let before: Vec<(Rule, Ledger)> = from.iter().copied().zip(std::mem::take(&mut self.rules)).collect();
        let go_on = |(_, ledger): &(Rule, Ledger), rule: &Rule| {
            // A reset keeps calls in flight, which cannot be forgotten.
            let is_kept = carry_over != CarryOver::Reset || ledger.calls().is_some();
            let mut ledger = is_kept.then(|| ledger.clone())?;
            ledger.account_mut().change(rule, clocks, carry_over).then_some(ledger)
        };
        let carried = to.iter().zip(carried(&before, to, go_on, lends));
        let ledgers = carried.map(|(rule, ledger)| {
            ledger.unwrap_or_else(|| {
                let mut ledger = Ledger::new(rule, clocks, now);
                ledger.account_mut().adopt(out, until);
                ledger
            })
        });
        self.rules = ledgers.collect();
    }

    /// Replaces each ledger by that of `unused` if it has less. Nothing is out of either.
    pub(super) fn begin_as(&mut self, unused: &Ledgers) {
        for (own, unused) in self.rules.iter_mut().zip(&unused.rules) {
            if unused.account().available() < own.account().available() {
                own.clone_from(unused);
            }
        }
    }

    /// Allows `permits` more to be lent once.
    pub(super) fn top_up(&mut self, permits: u64) {
        for ledger in &mut self.rules {
            ledger.account_mut().top_up(permits);
        }
    }

    /// Returns the most that any ledger may be charged, see [`RuleAccount::most`](crate::rule::RuleAccount::most).
    pub(super) fn most(&self) -> u64 {
        self.rules.iter().map(|ledger| ledger.account().most()).max().unwrap_or(0)
    }

    /// Returns the permits charged beyond what a rule allows, the most of any rule.
    pub(super) fn excess(&self) -> u64 {
        self.rules.iter().map(Ledger::excess).chain(self.loan().map(Account::excess)).max().unwrap_or(0)
    }

    /// Notes that the true time is at most `latest`, see [`BucketLedger::doubt`].
    pub(super) fn doubt(&mut self, latest: Moment) {
        self.rules.iter_mut().filter_map(Ledger::bucket_mut).for_each(|bucket| bucket.doubt(latest));
    }

    /// Returns the books as they are written down; `None` if the pool leases from another allocator.
    pub(super) fn save(&self) -> Option<Vec<Saved>> {
        self.loan.is_none().then(|| self.rules.iter().map(|ledger| ledger.account().save()).collect())
    }

    /// Restores `saved` books, with `out` permits that may be spent until an instant; `false` if that is impossible.
    pub(super) fn restore(&mut self, saved: &[Saved], since: Since, out: (u64, Moment)) -> bool {
        let is_each = self.rules.len() == saved.len() && self.loan.is_none();
        let mut each = self.rules.iter_mut().zip(saved);
        is_each && each.all(|(ledger, saved)| ledger.account_mut().restore(saved, since, out))
    }

    /// Carries all ledgers, of which nothing is out; `false` if that is impossible.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) -> bool {
        self.loan.is_none() && self.rules.iter_mut().all(|ledger| ledger.carry(carrier))
    }

    /// Returns until when the ledgers lend as much as now and are as much like new ones, see [`Ledger::rests_until`].
    pub(super) fn rests_until(&self) -> Moment {
        self.rules.iter().map(Ledger::rests_until).min().unwrap_or(Moment::NEVER)
    }

    /// Recounts what may be spent beyond each window, by the `ends` of outstanding leases.
    pub(super) fn recount_ahead<Ends: Iterator<Item = (Moment, u64)>>(&mut self, ends: impl Fn() -> Ends) {
        for ledger in self.ahead_mut() {
            ledger.recount_ahead(&mut ends());
        }
    }

    /// Asserts, in debug builds, that every rule is within its limit and counts all `outstanding` permits and their ends.
    pub(super) fn audit<Ends: Iterator<Item = (Moment, u64)>>(
        &self,
        outstanding: u64,
        ends: impl Fn() -> Ends,
    ) {
        for ledger in self.ahead() {
            debug_assert!(ledger.is_ahead_of(&mut ends()), "{ledger:?}");
        }
        for ledger in self.all() {
            debug_assert!(ledger.is_sound(), "{ledger:?}");
            debug_assert_eq!(ledger.outstanding(), outstanding, "{ledger:?}");
        }
    }
}

/// Orders ledgers by what they lend: the permits there now, and then when there is another one.
fn lends(ledger: &Ledger) -> (u64, Reverse<Moment>) {
    let account = ledger.account();
    let available = account.available();
    let next = account.ready_at(available + 1, &mut std::iter::empty());
    (available, Reverse(next.unwrap_or(Moment::NEVER)))
}
