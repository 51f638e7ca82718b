//! Fleets with limits below a scarce one.

use super::restarts::{restarts, writing};
use super::{alone, sliding};
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, TokenBucket};
use lessor_sim::faults::Fault;
use lessor_sim::setup::Setup;
use lessor_sim::{MILLI, SECOND};
use std::time::Duration;

pub(super) fn above(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let limit = dice.u64(10..=500);
    if dice.u32(..4) == 0 {
        // Far shorter than the leases of those below.
        let rule = FixedWindow::try_new(limit, Duration::from_millis(dice.u64(50..=300)));
        let scarce = Rule::FixedWindow(rule.expect("numbers in range"));
        return below(setup, Duration::from_secs(60), limit, scarce, dice);
    }
    let per = Duration::from_millis(dice.u64(200..=5_000));
    let bucket = TokenBucket::try_new(limit, limit, per, limit).expect("numbers in range");
    let scarce = if dice.bool() { Rule::TokenBucket(bucket) } else { sliding(limit, per) };
    let own = if dice.bool() { per / 10 } else { per * 10 };
    below(setup, own, limit, scarce, dice)
}

pub(super) fn above_restarts(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    // Longer than any lease, so that spends before the loss count when the limits below open again.
    let (limit, per) = (dice.u64(10..=500), Duration::from_secs(dice.u64(6..=12)));
    let mut setup = restarts(below(setup, per / 20, limit, sliding(limit, per), dice), dice);
    setup.faults.every.insert(Fault::AllocatorRestart, (40 * SECOND, MILLI));
    setup.lasts = 200 * SECOND;
    setup
}

pub(super) fn written_above(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (limit, per) = (dice.u64(50..=400), Duration::from_millis(dice.u64(1_000..=5_000)));
    let mut setup = writing(below(setup, per, limit, sliding(limit, per), dice), dice);
    setup.lasts = 60 * SECOND;
    setup
}

/// Makes one to three limits with windows of `own`, and with far more permits than the `limit` of the `scarce` one
/// above.
fn below(setup: Setup, own: Duration, limit: u64, scarce: Rule, dice: &mut fastrand::Rng) -> Setup {
    let mut setup = alone(setup, scarce, 3.0);
    setup.plan.rules.insert(0, sliding(100 * limit, own));
    setup.above = 1;
    setup.siblings = dice.usize(0..=2);
    setup
}
