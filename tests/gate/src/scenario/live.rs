//! Fleets with limits that operators change, pause or remove.

use super::restarts::written;
use super::{alone, sliding};
use lessor_ledger::rule::{Concurrency, FixedWindow};
use lessor_ledger::{CarryOver, Rule};
use lessor_sim::adversary::Lie;
use lessor_sim::live::{Act, Live};
use lessor_sim::network::Latency;
use lessor_sim::setup::Setup;
use lessor_sim::{MILLI, SECOND};
use std::time::Duration;

pub(super) fn paused(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let limit = dice.u64(100..=1_000);
    let mut setup = alone(setup, sliding(limit, Duration::from_secs(1)), 2.0);
    let pause = |at: u64| [(at, Act::Pause(3 * SECOND)), (at + 2 * SECOND, Act::Resume)];
    let acts = (1..5).flat_map(|n| pause(n * 4 * SECOND - dice.u64(..SECOND)));
    setup.live = acts.map(|(at, act)| Live { at, act }).collect();
    setup
}

pub(super) fn paused_restarts(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let live = paused(setup.clone(), dice).live;
    let setup = Setup { live, ..written(setup, dice) };
    Setup { lasts: 20 * SECOND, ..setup }
}

pub(super) fn lowered(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let per = Duration::from_millis(dice.u64(600..=1_500));
    let mut setup = alone(setup, sliding(dice.u64(500..=2_000), per), 0.3);
    setup.latency = Latency { one_way: MILLI / 10, jitter: MILLI / 10 };
    setup.adversaries = vec![Lie::Hoard];
    let rules = vec![sliding(dice.u64(1..=5), per)];
    setup.live = vec![Live { at: 3 * SECOND, act: Act::Change(CarryOver::AsIs, rules) }];
    setup
}

pub(super) fn capped(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let window = sliding(dice.u64(200..=1_000), Duration::from_secs(1));
    let mut setup = alone(setup, window, 2.0);
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    let mut cap = |longest| {
        let cap = Concurrency::try_new(dice.u64(5..=50), Duration::from_millis(longest));
        vec![window, Rule::Concurrency(cap.expect("numbers in range"))]
    };
    // Calls of the first cap may go on after the second one is gone, almost until the last one comes.
    let steps = [(2, cap(8_000)), (16, cap(500)), (22, vec![window]), (26, cap(1_000))];
    setup.live =
        steps.map(|(at, rules)| Live { at: at * SECOND, act: Act::Change(CarryOver::AsIs, rules) }).into();
    setup.lasts = 40 * SECOND;
    setup
}

pub(super) fn removed(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let rule = sliding(dice.u64(100..=1_000), Duration::from_millis(dice.u64(1_500..=4_000)));
    let mut setup = alone(setup, rule, 3.0);
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    for second in 1..7 {
        let at = 3 * second * SECOND + dice.u64(..SECOND);
        let back = at + dice.u64(10 * MILLI..SECOND);
        setup.live.push(Live { at, act: Act::Remove });
        setup.live.push(Live { at: back, act: Act::Change(CarryOver::AsIs, vec![rule]) });
    }
    setup.lasts = 24 * SECOND;
    setup
}

pub(super) fn new_windows(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let long = sliding(dice.u64(500..=2_000), Duration::from_secs(dice.u64(30..=60)));
    let mut setup = alone(setup, long, 5.0);
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    let edge = |limit, per| {
        let rule = FixedWindow::try_new(limit, Duration::from_millis(per));
        Rule::FixedWindow(rule.expect("numbers in range"))
    };
    for round in 1..40 {
        let short = edge(dice.u64(100..=500), dice.u64(100..=400));
        let change = |at, rule| Live { at, act: Act::Change(CarryOver::AsIs, vec![rule]) };
        setup.live.push(change(1_200 * round * MILLI, short));
        setup.live.push(change((1_200 * round + 600) * MILLI, long));
    }
    setup.lasts = 50 * SECOND;
    setup
}
