//! When one node makes its calls: open-loop Poisson arrivals whose rate follows the node's changing share of the
//! fleet's demand. A caller asks for the calls that are due; nothing here reads a clock, and one seed gives one
//! schedule.

use fastrand::Rng;
use std::time::Duration;

/// Calls per second that the whole fleet would like to make, pushes included: five times the 300 per second of the
/// contract. So the contract decides, and idle nodes have something to give up.
const CALLS_PER_S: f64 = 1500.0;

/// The share of pushes in all calls: 180 per second, nine times the contract's 20. A push needs a permit of both limits
/// in the same instant; with less demand, chance alone would leave messages unused.
const PUSH_SHARE: f64 = 180.0 / CALLS_PER_S;

/// Time for which the busiest node stays the busiest.
const SHIFT_EVERY: Duration = Duration::from_secs(4);

/// One call that a node wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A plain call: one permit of the first limit.
    Plain,
    /// A message push: one permit of each limit, together or not at all.
    Push,
}

/// The calls of one node.
#[derive(Debug)]
pub(crate) struct Schedule {
    node: usize,
    nodes: usize,
    seed: u64,
    rng: Rng,
    /// End of the time for which arrivals were drawn.
    drawn_to: Duration,
    /// Distance to the next arrival, in units of expected arrivals: exponential with mean 1.
    until_next: f64,
}

impl Schedule {
    /// Creates the schedule of `node` (from 0) among `nodes`. All nodes of a fleet must be given the same `seed`.
    pub(crate) fn new(node: usize, nodes: usize, seed: u64) -> Self {
        // Each node has its own seed, which also differs from the seeds of the shifts.
        let mut rng = Rng::with_seed(mix(seed, u64::MAX - node as u64));
        Schedule { node, nodes, seed, drawn_to: Duration::ZERO, until_next: exponential(&mut rng), rng }
    }

    /// Returns the calls that came due since the last call of this method, up to `now` (since the start of the
    /// measurement).
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Call> {
        let mut calls = Vec::new();
        while self.drawn_to < now {
            let shift = self.drawn_to.as_nanos() / SHIFT_EVERY.as_nanos();
            let shift = u32::try_from(shift).expect("4 s times 2^32 is longer than any run");
            let until = now.min(SHIFT_EVERY * (shift + 1));
            let rate = CALLS_PER_S * share(self.node, self.nodes, mix(self.seed, shift.into()));
            self.draw(rate * (until - self.drawn_to).as_secs_f64(), &mut calls);
            self.drawn_to = until;
        }
        calls
    }

    /// Draws the arrivals of a stretch in which `expected` are expected.
    fn draw(&mut self, mut expected: f64, calls: &mut Vec<Call>) {
        while expected >= self.until_next {
            expected -= self.until_next;
            self.until_next = exponential(&mut self.rng);
            calls.push(if self.rng.f64() < PUSH_SHARE { Call::Push } else { Call::Plain });
        }
        self.until_next -= expected;
    }
}

/// Returns the share of `node` in the demand during the shift with this seed: Zipf with exponent 1 over a random order
/// of the nodes. Of eight nodes the busiest has 37 %, the idlest 5 %.
fn share(node: usize, nodes: usize, shift_seed: u64) -> f64 {
    let mut order: Vec<usize> = (0..nodes).collect();
    Rng::with_seed(shift_seed).shuffle(&mut order);
    let rank = order.iter().position(|&other| other == node).expect("a node is one of its fleet");
    let weight = |rank: usize| 1.0 / (rank + 1) as f64;
    weight(rank) / (0..nodes).map(weight).sum::<f64>()
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Mixes two numbers into one seed. The odd constant (2^64 / golden ratio) keeps neighbours apart.
fn mix(seed: u64, salt: u64) -> u64 {
    (seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: usize = 8;

    fn fleet(seed: u64) -> Vec<Schedule> {
        (0..NODES).map(|node| Schedule::new(node, NODES, seed)).collect()
    }

    #[test]
    fn the_fleet_asks_for_what_was_said() {
        let minute = Duration::from_secs(60);
        let calls: Vec<Call> = fleet(1).iter_mut().flat_map(|node| node.due(minute)).collect();
        let pushes = calls.iter().filter(|&&call| call == Call::Push).count() as f64;
        // Both are Poisson: five deviations either side.
        assert!((calls.len() as f64 - 90_000.0).abs() < 5.0 * 90_000f64.sqrt(), "{} calls", calls.len());
        assert!((pushes - 10_800.0).abs() < 5.0 * 10_800f64.sqrt(), "{pushes} pushes");
    }

    #[test]
    fn how_often_it_is_asked_does_not_change_a_schedule() {
        let mut once = Schedule::new(3, NODES, 7);
        let mut often = Schedule::new(3, NODES, 7);
        let whole = once.due(Duration::from_secs(10));
        let parts: Vec<Call> = (1..=1000).flat_map(|n| often.due(Duration::from_millis(10 * n))).collect();
        // Sums of fractions differ in their last bit, which may move an arrival over the very end.
        assert!(whole.len().abs_diff(parts.len()) <= 1);
        let shorter = whole.len().min(parts.len());
        assert_eq!(whole[..shorter], parts[..shorter]);
    }

    #[test]
    fn shares_are_skewed_add_up_and_shift() {
        for seed in 0..20 {
            let mut shares: Vec<f64> = (0..NODES).map(|node| share(node, NODES, seed)).collect();
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            shares.sort_by(f64::total_cmp);
            assert!((shares[NODES - 1] / shares[0] - 8.0).abs() < 1e-9);
        }
        let busiest = |shift| {
            (0..NODES).max_by(|&a, &b| {
                let share_of = |node| share(node, NODES, mix(1, shift));
                share_of(a).total_cmp(&share_of(b))
            })
        };
        let seen: std::collections::BTreeSet<_> = (0..30).map(busiest).collect();
        assert!(seen.len() > NODES / 2, "the busiest node changes: {seen:?}");
    }

    #[test]
    fn one_seed_is_one_schedule_and_another_is_another() {
        let due = |seed| Schedule::new(0, NODES, seed).due(Duration::from_secs(5));
        assert_eq!(due(1), due(1));
        assert_ne!(due(1), due(2));
    }
}
