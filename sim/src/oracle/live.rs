//! What the oracle expects of a limit that is changed, topped up or paused while leases are out. It knows from the
//! books how much was out then, and from the rules what each kind of change may cost.

use super::promise::Promise;
use super::{Asked, Instant, Oracle, Stock, Verdict, Violation, kept, must};
use lessor_ledger::carry_over::carried;
use lessor_ledger::pool::{Books, PoolView};
use lessor_ledger::share::{Believe, Trust};
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Moment, Observed};
use std::time::Duration;

/// The pause where the vendor does not say how long.
const WAIT_UNTOLD: Duration = Duration::from_secs(1);

impl Oracle {
    /// Records that the limit goes on by `rules`. Permits that were out stay valid until their lease ends.
    pub fn changed(&mut self, now: Instant, rules: &[Rule], carry: CarryOver, stock: Stock) -> Verdict {
        // Books in quarantine do not know what is out, so the leases of the sessions count.
        let is_open = stock.view.quarantine.is_zero();
        let out = if is_open { stock.view.books.outstanding } else { self.unspent(now) };
        let until = self.leases_end(now);
        self.goes_on_by(now, rules, carry, (out, until));
        self.books(now, stock)
    }

    /// Records that the limit goes on by `rules`, with `out` permits lent until a moment.
    pub fn goes_on_by(
        &mut self,
        now: Instant,
        rules: &[Rule],
        carry: CarryOver,
        (out, until): (u64, Instant),
    ) {
        let drift_ppm = self.measure.drift_ppm as u64;
        let before = std::mem::take(&mut self.promises);
        if !before.is_empty() && before.iter().all(Promise::is_cap) {
            self.reused_until = self.reused_until.max(until.real);
        }
        let before: Vec<(Rule, Promise)> = self.rules.iter().copied().zip(before).collect();
        let go_on = |(_, promise): &(Rule, Promise), rule: &Rule| {
            // No change forgets calls in flight, or the rates lent of a flow.
            let is_fixture = matches!(rule, Rule::Concurrency(_) | Rule::LeakyBucket(_));
            let mut promise = (carry != CarryOver::Reset || is_fixture).then(|| promise.clone())?;
            promise.changes(now, rule, carry, out, until, drift_ppm).then_some(promise)
        };
        let carried = carried(&before, rules, go_on, |promise| promise.clone().room(now));
        let amid = |rule| Promise::amid(now, rule, (out, until), self.in_flight, drift_ppm);
        let promises = rules.iter().zip(carried);
        self.promises = promises.map(|(rule, promise)| promise.unwrap_or_else(|| amid(rule))).collect();
        self.rules = rules.to_vec();
        self.ceiling = kept(rules);
        self.over = self.over.max(out.saturating_sub(self.ceiling));
    }

    /// Records a top-up: `permits` more may be admitted, once.
    pub fn topped_up(&mut self, now: Instant, permits: u64, stock: Stock) -> Verdict {
        // What is out beyond a lowered limit is lent again if it comes back, as long as the top-up lasts.
        self.topped_up += permits + std::mem::take(&mut self.over);
        self.may_use(now, permits);
        self.books(now, stock)
    }

    /// Allows `permits` beyond what was promised so far, once.
    pub(crate) fn may_use(&mut self, now: Instant, permits: u64) {
        let drift_ppm = self.measure.drift_ppm;
        self.promises.iter_mut().for_each(|promise| promise.allows(now, permits, drift_ppm));
    }

    /// Records that nothing may be lent before `until`, on the allocator's clock.
    pub fn shut(&mut self, until: Moment) {
        self.paused_until = until;
    }

    /// Records whether the one above said that the limit is paused.
    pub(crate) fn is_paused_above(&mut self, is_paused: bool) {
        let Books { granted, returned, .. } = self.books;
        let lent = self.paused_above.unwrap_or(granted - returned);
        self.paused_above = is_paused.then_some(lent);
    }

    /// Returns until when the vendor wants to be left alone.
    pub(crate) fn vendor_until(&self) -> Moment {
        self.vendor_until
    }

    /// Records until when the vendor wants to be left alone, as restored books know it.
    pub(crate) fn vendor_waits(&mut self, now: Instant, until: Option<Moment>) {
        let until = until.filter(|until| *until > Moment::ORIGIN);
        self.vendor_until = until.map_or(Moment::ORIGIN, |until| until.max(now.allocator));
        self.vendor_pauses = until.is_none().then_some(Duration::ZERO);
    }

    /// K8: `session` reported what it heard of the vendor, which turned the first view of the pool into the second. The
    /// pool lends no more for it, pauses as long as told where refusals are believed, and not at all for what was
    /// reported before. In all it pauses no longer than `trust` allows.
    pub fn hears(
        &mut self,
        now: Instant,
        session: u64,
        observed: &Observed,
        trust: &Trust,
        [before, after]: [PoolView; 2],
    ) -> Verdict {
        let by = self.measure;
        let session = self.session(session);
        session.may_say_again(now, by);
        let is_news = observed.number > session.heard;
        let is_refused = observed.refused_total > session.refused_total;
        let of_vendor = |view: PoolView| (view.withheld, view.vendor_pause);
        let changes = of_vendor(after) != of_vendor(before);
        // Books that do not know the session may miss the report. Books that remember a liar may know a higher number
        // of its reports.
        let is_newest = !session.lies || observed.number > session.told;
        let is_sure = session.is_remembered(now, by) && observed.number > session.told;
        let pauses =
            is_sure && trust.believe >= Believe::Pause && observed.refused_total > session.refusals_told;
        session.refusals_told = session.refusals_told.max(observed.refused_total);
        session.told = session.told.max(observed.number);
        if is_news && (changes || (session.is_known(now, by) && is_newest)) {
            session.heard = observed.number;
            session.refused_total = session.refused_total.max(observed.refused_total);
        }
        let told = observed.wait.map(|wait| if wait.is_zero() { WAIT_UNTOLD } else { wait });
        let told = told.unwrap_or_default().min(trust.longest);
        let most = if is_news && is_refused { told.max(before.vendor_pause) } else { before.vendor_pause };
        must("K8", after.vendor_pause <= most, || {
            format!("a pause of {:?} after {before:?} for {observed:?} at {now:?}", after.vendor_pause)
        })?;
        self.pauses_in_all(now, trust.longest, if pauses { told } else { Duration::ZERO }, [before, after])?;
        must("K8", is_news || !changes, || {
            format!("{observed:?}, reported again, turned {before:?} into {after:?}")
        })
    }

    /// K8: the pool pauses for `told`, as far as pauses of `longest` in all allow. A pause is followed by as much time
    /// without one.
    fn pauses_in_all(
        &mut self,
        now: Instant,
        longest: Duration,
        told: Duration,
        [before, after]: [PoolView; 2],
    ) -> Verdict {
        let rested = now.allocator.since(self.vendor_until);
        // Restored books may pause for `longest` from their start on, and rest for as long.
        if rested >= longest * 2 {
            self.vendor_pauses = Some(Duration::ZERO);
        }
        if !after.vendor_pause.is_zero() {
            self.vendor_until = self.vendor_until.max(now.allocator + after.vendor_pause);
        }
        let Some(pauses) = self.vendor_pauses else { return Ok(()) };
        let pauses = pauses.saturating_sub(rested);
        let least = told.saturating_sub(before.vendor_pause).min(longest.saturating_sub(pauses));
        let longer = after.vendor_pause.saturating_sub(before.vendor_pause);
        if !longer.is_zero() {
            self.vendor_pauses = Some(pauses + longer);
        }
        must("K8", longer >= least && pauses + longer <= longest, || {
            format!(
                "the vendor asked for a pause of {told:?} after pauses of {pauses:?}, which made {before:?} {after:?}"
            )
        })
    }

    /// K2: nothing was lent, but the report in `asked` may count. Returns the permits that the books count as spent by
    /// it.
    pub(super) fn refused(&mut self, asked: &Asked, stock: Stock) -> Result<u64, Violation> {
        let counted = stock.view.books.spent - self.books.spent;
        let total = asked.ask.spent_total;
        let session = self.session(asked.session);
        must("K2", counted == 0 || session.reported + counted == total, || {
            format!("{counted} were settled by {asked:?}, which was refused, after {session:?}")
        })?;
        session.is_refused(asked.seq, &asked.ask);
        if counted > 0 {
            session.left(asked.seq, total);
        }
        Ok(counted)
    }

    /// Returns the most permits that live leases may still spend.
    fn unspent(&self, now: Instant) -> u64 {
        let live = self.sessions.values().filter(|session| now.allocator < session.end);
        live.map(|session| session.lent.saturating_sub(session.spent)).sum()
    }

    /// Returns when all leases that are out now have ended.
    pub(super) fn leases_end(&self, now: Instant) -> Instant {
        let ends = self.sessions.values().map(|session| session.end);
        let allocator = ends.max().unwrap_or(now.allocator).max(now.allocator);
        // No clock runs slower than nine tenths of real time.
        let real = now.real + nanos(allocator.since(now.allocator)) / 8 * 9 + 1_000_000;
        Instant { real, allocator }
    }
}
