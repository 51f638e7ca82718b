//! The time of a store without a clock, which allocators keep: checks what each of them may take it to be.

use super::World;
use crate::oracle::{Verdict, must};
use crate::{MILLI, SECOND};
use lessor_ledger::roots::TimeSource;
use lessor_protocol::Moment;

/// How long an allocator goes by what it has read of the keeper, in nanoseconds.
const HOLDS: u64 = SECOND;

/// An allocator that keeps the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeper {
    /// How much later than real time it took the time to be when it began, as in `paces`.
    pace: i128,
    /// The number of its process, and of the one that kept the time before.
    process: u64,
    before: Option<u64>,
    /// Real time when it began.
    since: u64,
}

impl World {
    /// K9, where allocators keep the time: two that know the same life of it agree within the uncertainty, and neither
    /// takes the time to be later than the other allows.
    pub(super) fn agrees(&self, region: usize, now: Moment) -> Verdict {
        let life = |region: usize| self.regions[region].link.member.life();
        let seen = |region: usize| {
            let at = &self.regions[region];
            let (local, member) = (at.clock.show(self.real), &at.link.member);
            Some((member.time(local)?, member.latest(local)?))
        };
        let Some((_, latest)) = seen(region) else { return Ok(()) };
        for other in (0..self.regions.len()).filter(|other| life(*other) == life(region)) {
            let Some((then, other_latest)) = seen(other) else { continue };
            let apart = now.since(then).max(then.since(now));
            let is_near = apart <= TimeSource::Allocators.uncertainty();
            must("K9", is_near && now <= other_latest && then <= latest, || {
                let ahead = now.since(other_latest).max(then.since(latest));
                format!(
                    "the times of two allocators differ by {apart:?}, and one is {ahead:?} later than possible"
                )
            })?;
        }
        Ok(())
    }

    /// K9: no allocator takes the time to have gone faster than it did since another one said what it was.
    pub(super) fn goes_no_faster(&mut self, region: usize, now: Moment) -> Verdict {
        let Some(life) = self.regions[region].link.member.life() else { return Ok(()) };
        // The keeper goes towards its calendar by less than 10 millionths.
        let drift = if self.setup.drifting { i128::from(self.setup.plan.clocks.drift_ppm()) } else { 10 };
        let passed = i128::from(self.real) * (1_000_000 + drift) / 1_000_000;
        let pace = i128::from(now.as_nanos()) - passed;
        let Some(store) = &mut self.shared else { return Ok(()) };
        let least = store.paces.entry(life).or_insert(pace);
        *least = pace.min(*least);
        let ahead = pace - *least;
        must("K9", ahead <= TimeSource::Allocators.uncertainty().as_nanos().cast_signed(), || {
            format!(
                "an allocator's time is {} µs later than an earlier time of another allocator allows",
                ahead / 1_000
            )
        })?;
        let at = &self.regions[region];
        if !at.link.member.keeps_time() {
            return Ok(());
        }
        let process = at.life << 8 | region as u64;
        let since = self.real;
        let kept = *store.kept.entry(life).or_insert(Keeper { pace, process, before: None, since });
        // The earlier keeper may have read that it still keeps the time, and goes by that for a second.
        let has_not_heard = kept.before == Some(process) && since < kept.since + HOLDS;
        if kept.process == process || has_not_heard {
            return Ok(());
        }
        store.kept.insert(life, Keeper { pace, process, before: Some(kept.process), since });
        must("K9", pace <= kept.pace + i128::from(MILLI), || {
            let ahead = (pace - kept.pace) / 1_000;
            format!("the time of an allocator that takes over leaps {ahead} µs ahead of the former one")
        })
    }
}
