//! Forecasts how long the permits left in a sliding window last. Charges end meanwhile, each at its time.

use super::{SUB_WINDOWS, SlidingLedger, Slot};
use crate::rule::{Account, Draw, THOUSAND_SECONDS};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

impl SlidingLedger {
    /// Returns how long until the first permit is missing if nodes take `draw`.
    ///
    /// Looks one window ahead. After that, permits come back as they are taken, so nodes that have enough until then
    /// always have enough. Of a log with more than [`SUB_WINDOWS`] entries, the later ones are taken to come back
    /// evenly: an exchange should not wait for a forecast that is exact to the spend.
    pub(super) fn lasts_for(&self, draw: Draw) -> Option<Duration> {
        let window = Duration::from_nanos(self.window);
        let (mut left, mut freed) = (self.available(), 0);
        let is_due = |slot: &Slot, lasts| self.end_of(slot.index).since(self.now) <= lasts;
        let mut slots = self.settled.iter().take(SUB_WINDOWS as usize).peekable();
        loop {
            let lasts = draw.lasts(left).filter(|lasts| *lasts < window)?;
            let before = left;
            while let Some(slot) = slots.next_if(|slot| is_due(slot, lasts)) {
                (left, freed) = (left + slot.permits, freed + slot.permits);
            }
            if slots.peek().is_none() && freed < self.settled_sum {
                return self.lasts_evenly(draw, left, self.settled_sum - freed);
            }
            if left == before {
                return Some(lasts);
            }
        }
    }

    /// Continues a forecast where `rest` of the charges comes back evenly after the entries that were looked at. Those
    /// leave `left` permits.
    fn lasts_evenly(&self, draw: Draw, left: u64, rest: u64) -> Option<Duration> {
        let end = |slot: Option<&Slot>| slot.map_or(self.now, |slot| self.end_of(slot.index));
        let (from, until) = (end(self.settled.get(SUB_WINDOWS as usize - 1)), end(self.settled.back()));
        let over = u128::from(nanos(until.since(from))).max(1);
        let milli = u128::from(rest) * THOUSAND_SECONDS.as_nanos() / over;
        let milli = u64::try_from(milli).unwrap_or(u64::MAX);
        if draw.demand_milli <= milli {
            return None;
        }
        // None of `rest` comes back before the first of its entries ends.
        let early = u128::from(milli) * from.since(self.now).as_nanos() / THOUSAND_SECONDS.as_nanos();
        let early = u64::try_from(early).unwrap_or(u64::MAX);
        let lasts = draw.and_at_once(early).less(milli).lasts(left)?;
        (self.now + lasts < Moment::max(until, self.now)).then_some(lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::SlidingWindow;
    use lessor_protocol::ClockBounds;

    /// 100 a second for 20 s, of 10,000 in 30 s: 8,000 are left, and from 10 s on 100 a second come back.
    #[test]
    fn a_long_log_lasts_as_long_as_a_window() {
        let (per, step) = (Duration::from_secs(30), Duration::from_millis(10));
        let (now, clocks) = (Moment::from_nanos(1_000_000_000_000), ClockBounds::default());
        let window = SlidingWindow::try_new(10_000, per, Duration::ZERO).expect("valid");
        for mut ledger in [SlidingLedger::new(&window, clocks, now), SlidingLedger::log(&window, clocks, now)]
        {
            for index in 1..=2_000 {
                ledger.advance(now + step * index);
                ledger.charge(1);
                ledger.settle(1, now + step * index);
            }
            for (demand, seconds) in [(1_000, Some(8.0)), (500, Some(17.5)), (400, Some(23.3)), (300, None)] {
                let lasts = ledger.lasts(Draw { at_once: 0, demand_milli: demand * 1_000 });
                let off = lasts.zip(seconds).map(|(lasts, seconds)| (lasts.as_secs_f64() - seconds).abs());
                assert!(lasts.is_some() == seconds.is_some(), "{demand}: {lasts:?}");
                assert!(off.unwrap_or_default() < 0.2, "{demand}: {lasts:?}");
            }
        }
    }
}
