//! The fleets in which a mistake is looked for: any that the generator draws, or, if such a fleet rarely gets where it
//! matters, one that is led there. The rest of the setup stays as it was drawn.

mod apart;
mod family;
mod live;
mod names;
mod restarts;

pub use names::Scenario;

use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket, WarmUp, Windows,
};
use lessor_protocol::ClockBounds;
use lessor_protocol::moment::nanos;
use lessor_sim::edges::EDGES;
use lessor_sim::faults::Fault;
use lessor_sim::network::Latency;
use lessor_sim::setup::Setup;
use lessor_sim::traffic::Workload;
use lessor_sim::world::sustained;
use lessor_sim::{MILLI, SECOND, soak};
use std::time::Duration;

impl Scenario {
    /// Runs the fleet that `seed` draws in this scenario.
    ///
    /// # Errors
    /// Returns what the oracle said, in words.
    pub fn run(self, seed: u64) -> Result<(), String> {
        soak::run(self.draw(seed)).map(drop).map_err(|failure| failure.what)
    }
}

fn full_window(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    // A term is 2 s at most, and a thousandth of these windows is not much less.
    let per = Duration::from_secs(dice.u64(300..=1_200));
    let rule = SlidingWindow::try_new(dice.u64(100..=1_000), per, Duration::ZERO);
    let mut setup = alone(setup, Rule::SlidingWindow(rule.expect("numbers in range")), 3.0);
    // With clocks as bad as the swarm's, the drift would hide rounding errors.
    setup.plan.clocks = ClockBounds::default();
    setup.latency = Latency { one_way: MILLI / 10, jitter: MILLI / 10 };
    setup.lasts = 3 * per.as_secs() * SECOND;
    setup
}

fn tiny_bucket(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let rule = bucket(dice.u64(1..=3), dice.u64(SECOND / 2..=3 * SECOND));
    // As many calls in a term as there are permits: each permit is spent while its lease lasts, and not at once.
    let mut setup = alone(setup, rule, 30.0);
    setup.plan.clocks = ClockBounds::default();
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    setup.faults.chance.insert(Fault::Loss, 0.3);
    setup.lasts = 1_000 * SECOND;
    setup
}

fn late_asks(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    // Long enough for terms that outlast some of the delays, and many boundaries in a run.
    let rule = FixedWindow::try_new(dice.u64(1_000..=5_000), Duration::from_secs(15));
    let mut setup = alone(setup, Rule::FixedWindow(rule.expect("numbers in range")), 0.9);
    setup.faults.chance.clear();
    setup.faults.chance.insert(Fault::LongDelay, 0.1);
    setup.lasts = 300 * SECOND;
    setup
}

fn late_reports(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let mut setup = late_asks(setup, dice);
    let windows = Windows::FirstUse { per: Duration::from_secs(15) };
    let rule = FixedWindow::of(dice.u64(1_000..=5_000), windows).expect("numbers in range");
    setup.plan.rules = vec![Rule::FixedWindow(rule)];
    setup.demand = 0.9 * sustained(&setup.plan.rules);
    setup
}

fn far_vendor(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let per = Duration::from_millis(dice.u64(500..=2_000));
    let rule = SlidingWindow::try_new(dice.u64(50..=500), per, per / 4);
    alone(setup, Rule::SlidingWindow(rule.expect("numbers in range")), 3.0)
}

fn short_window(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let per = Duration::from_millis(dice.u64(50..=200));
    let rule = FixedWindow::try_new(dice.u64(10..=200), per).expect("numbers in range");
    let mut setup = alone(setup, Rule::FixedWindow(rule), 0.8);
    setup.latency = Latency { one_way: dice.u64(MILLI..=20 * MILLI), jitter: 10 * MILLI };
    setup.faults.chance.clear();
    setup.faults.chance.insert(Fault::Loss, 0.2);
    setup
}

fn flow(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let interval = dice.u64(5 * MILLI..=100 * MILLI);
    // All nodes have a part of the flow, or take turns.
    let burst = if dice.bool() { 1 } else { dice.u64(2..=20) };
    let rule = LeakyBucket::try_new(burst, 1, Duration::from_nanos(interval)).expect("numbers in range");
    let mut setup = alone(setup, Rule::LeakyBucket(rule), 3.0);
    setup.workload = if dice.bool() { Workload::Steady } else { Workload::ZipfJumps };
    setup.nodes = dice.usize(2..=6);
    setup.latency = Latency { one_way: MILLI, jitter: 10 * MILLI };
    setup.faults.chance.clear();
    setup.faults.chance.insert(Fault::Loss, 0.2);
    setup.faults.every.insert(Fault::NodeCrash, (2 * SECOND, 100 * MILLI));
    setup.lasts = 60 * SECOND;
    setup
}

fn flow_parts(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (burst, interval) = (dice.u64(10..=40), dice.u64(MILLI..=5 * MILLI));
    let rule = LeakyBucket::try_new(burst, 1, Duration::from_nanos(interval)).expect("numbers in range");
    let mut setup = alone(setup, Rule::LeakyBucket(rule), 3.0);
    setup.workload = Workload::ZipfJumps;
    setup.nodes = dice.usize(2..=4);
    setup.latency = Latency { one_way: MILLI, jitter: 10 * MILLI };
    setup.faults.chance.clear();
    setup.faults.chance.insert(Fault::Loss, 0.4);
    setup.lasts = 60 * SECOND;
    setup
}

fn odd_bucket(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (capacity, refill) = (dice.u64(20..=200), dice.u64(100..=200));
    let second = Duration::from_secs(1);
    let rule = TokenBucket::try_new(capacity, refill, second, capacity).expect("numbers in range");
    let rule = match dice.u32(..4) {
        0 => rule.with_refill_style(RefillStyle::Interval),
        1 => rule.with_debt(dice.u64(1..=capacity)),
        _ => WarmUp::try_new(second / dice.u32(1..=4), 5).and_then(|warm_up| rule.with_warm_up(warm_up)),
    };
    let mut setup = alone(setup, Rule::TokenBucket(rule.expect("numbers in range")), 3.0);
    setup.workload = if dice.bool() { Workload::Steady } else { Workload::Bursts };
    // Few nodes pause together now and then.
    setup.nodes = setup.nodes.min(2);
    setup.lasts = 60 * SECOND;
    setup
}

fn odd_window(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let limit = dice.u64(10..=1_000);
    let edge = EDGES[dice.usize(..EDGES.len())];
    let is_first_use = dice.bool();
    let windows = if is_first_use {
        Windows::FirstUse { per: Duration::from_millis(dice.u64(100..=2_000)) }
    } else {
        Windows::Calendar(edge.calendar())
    };
    let rule = FixedWindow::of(limit, windows).expect("numbers in range");
    let mut setup = alone(setup, Rule::FixedWindow(rule), 3.0);
    if !is_first_use {
        // Demand for the whole limit before and after an instant at which its windows meet, or at which those of UTC
        // do.
        setup.demand = 200.0;
        let midnight = edge.at.next_multiple_of(86_400);
        let at = if dice.bool() { edge.at } else { midnight };
        setup.start = at * SECOND - dice.u64(5 * SECOND..15 * SECOND);
    }
    setup
}

fn reserving(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let per = Duration::from_millis(dice.u64(100..=600));
    let mut setup = alone(setup, sliding(dice.u64(10..=60), per), 5.0);
    (setup.cost_max, setup.reserves) = (6, 100);
    setup.nodes = dice.usize(2..=5);
    setup.faults.chance = [(Fault::Loss, 0.3), (Fault::LongDelay, 0.1)].into();
    setup.lasts = 100 * SECOND;
    setup
}

fn sliding(limit: u64, per: Duration) -> Rule {
    Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("numbers in range"))
}

/// Returns `setup` with links that suit its leases: leases of nodes far away outlast the silence of a run.
fn near(mut setup: Setup) -> Setup {
    let most = nanos(setup.term()) / 8;
    let Latency { one_way, jitter } = setup.latency;
    setup.latency = Latency { one_way: one_way.min(most), jitter: jitter.min(most) };
    setup
}

/// Returns `setup` with `rule` alone and steady callers that want `load` times what it gives, one permit a call. Faults
/// that strike at random moments and the calm after them are gone.
fn alone(mut setup: Setup, rule: Rule, load: f64) -> Setup {
    setup.plan.rules = vec![rule];
    if setup.plan.sharing.safe.take().is_some() {
        // The safe shares were of other rules.
        setup.plan.sharing.reserve = 0;
    }
    (setup.above, setup.siblings) = (0, 0);
    setup.demand = (load * sustained(&setup.plan.rules)).clamp(0.5, 3_000.0);
    setup.workload = Workload::Steady;
    (setup.cost_max, setup.reserves, setup.in_vain) = (1, 0, 0);
    setup.adversaries.clear();
    setup.live.clear();
    setup.faults.every.clear();
    setup.then_calm = false;
    setup.lasts = 20 * SECOND;
    setup
}

/// Makes a cap on calls in flight, in full use by calls of a few seconds.
fn cap(setup: Setup, seconds: std::ops::RangeInclusive<u64>, dice: &mut fastrand::Rng) -> Setup {
    let rule = Concurrency::try_new(dice.u64(2..=20), Duration::from_secs(dice.u64(seconds)));
    alone(setup, Rule::Concurrency(rule.expect("numbers in range")), 10.0)
}

/// Makes a bucket that is full again after `full` nanoseconds.
fn bucket(capacity: u64, full: u64) -> Rule {
    let rule = TokenBucket::try_new(capacity, capacity, Duration::from_nanos(full), capacity);
    Rule::TokenBucket(rule.expect("numbers in range"))
}
