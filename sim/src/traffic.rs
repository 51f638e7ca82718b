//! Open-loop demand: calls arrive at each node by themselves, at rates that change as the workload says. The world
//! draws the next arrival of a node from its rate; a refused caller changes nothing about the next one.

use crate::SECOND;

lessor_protocol::words! {
    /// The shape of demand. `--demand` is its average in total.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Workload {
        /// The same rate everywhere, always.
        Steady = "steady",
        /// The n-th node has 1/n of the first one's rate.
        Zipf = "zipf",
        /// Zipf, and each node's rate jumps ×5 or ÷5 about every three seconds; the sum is kept.
        ZipfJumps = "zipf-jumps",
        /// All nodes together ×5 for about a second, then ÷5.
        Bursts = "bursts",
        /// Half of the nodes are steady; one of the others has half of all demand, another one every five seconds.
        HotSpot = "hot-spot",
        /// Silence, and all nodes at once at each boundary.
        Herd = "herd",
        /// One node calls, the others only exist.
        Single = "single",
        /// One node in a hundred calls, the others only exist.
        Idle = "idle",
        /// A real day, a minute of it each second.
        Trace = "trace",
        /// Steady, but the last node wants a fifth of what the others want.
        Modest = "modest",
    }
}

/// Mean time in nanoseconds between two jumps of one node's rate, and between two shapes of bursts.
const JUMP_NS: f64 = 3e9;
const BURST_NS: f64 = 1e9;
/// Most nodes that jump one at a time: with more, several jump at once, because each jump sets the rates of all nodes.
const JUMPS_APART_MAX: usize = 100;
/// How long a hot spot stays, in nanoseconds.
const HOT_SPOT: u64 = 5 * SECOND;
/// The part of the time between two boundaries in which a herd passes: one in this many.
const HERD_PART: u64 = 50;

/// The boundaries at which a herd comes.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// Real time of the next boundary, in nanoseconds.
    pub next: u64,
    /// Nanoseconds between two boundaries.
    pub every: u64,
}

/// Rates by node.
#[derive(Clone, Debug)]
pub struct Traffic {
    workload: Workload,
    demand: f64,
    /// Calls a second, by node.
    rates: Vec<f64>,
    /// By node, the power of five by which its rate has jumped: −1, 0 or 1.
    power: Vec<i32>,
    changes: u64,
    hot: Option<usize>,
    rng: fastrand::Rng,
}

impl Traffic {
    /// Makes `demand` calls a second in total over `nodes` nodes.
    pub fn new(workload: Workload, demand: f64, nodes: usize, rng: fastrand::Rng) -> Self {
        let (rates, power) = (vec![0.0; nodes], vec![0; nodes]);
        Traffic { workload, demand, rates, power, changes: 0, hot: None, rng }
    }

    /// Returns the calls a second, by node.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Returns the node that the hot spot is on.
    pub fn hot(&self) -> Option<usize> {
        self.hot
    }

    /// Changes the shape and the demand from now on.
    pub(crate) fn turn_into(&mut self, workload: Workload, demand: f64) {
        (self.workload, self.demand, self.changes, self.hot) = (workload, demand, 0, None);
    }

    /// Sets the rates from `real` on and returns when they change again. Herds come at `beat`.
    pub fn change(&mut self, real: u64, beat: Beat) -> u64 {
        let nodes = self.rates.len();
        let count = self.changes;
        self.changes += 1;
        let (weights, total, lasts): (Vec<f64>, f64, u64) = match self.workload {
            Workload::Steady => (vec![1.0; nodes], 1.0, u64::MAX),
            Workload::Zipf => (self.zipf(), 1.0, u64::MAX),
            Workload::ZipfJumps => {
                let jumps = nodes.div_ceil(JUMPS_APART_MAX);
                for _ in 0..if count > 0 { jumps } else { 0 } {
                    let node = self.rng.usize(..nodes);
                    let up = self.rng.bool();
                    self.power[node] = (self.power[node] + if up { 1 } else { -1 }).clamp(-1, 1);
                }
                (self.zipf(), 1.0, self.exponential(JUMP_NS * jumps as f64 / nodes as f64))
            }
            Workload::Bursts => {
                let total = if count.is_multiple_of(2) { 0.2 } else { 5.0 };
                (vec![1.0; nodes], total, self.exponential(BURST_NS))
            }
            Workload::HotSpot => (self.hot_spot(count), 1.0, HOT_SPOT),
            Workload::Herd if count.is_multiple_of(2) => (vec![1.0; nodes], 0.0, beat.next - real),
            Workload::Herd => (vec![1.0; nodes], HERD_PART as f64, beat.every / HERD_PART),
            Workload::Single => (one_in(nodes, nodes), 1.0, u64::MAX),
            Workload::Idle => (one_in(nodes, 100), 1.0, u64::MAX),
            Workload::Trace => (vec![1.0; nodes], curve(real / SECOND), SECOND),
            Workload::Modest => {
                let mut weights = vec![1.0; nodes];
                weights[nodes - 1] = 0.2;
                (weights, 1.0, u64::MAX)
            }
        };
        let sum: f64 = weights.iter().sum();
        for (rate, weight) in self.rates.iter_mut().zip(weights) {
            *rate = self.demand * total * weight / sum;
        }
        real.saturating_add(lasts)
    }

    /// Returns the nanoseconds until the next call at `node`.
    pub fn gap(&mut self, node: usize) -> u64 {
        let rate = self.rates[node];
        if rate <= 0.0 { u64::MAX } else { self.exponential(1e9 / rate) }
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        // At least a nanosecond, or time would not go on.
        (-(1.0 - self.rng.f64()).ln() * mean) as u64 + 1
    }

    fn zipf(&self) -> Vec<f64> {
        self.power.iter().enumerate().map(|(node, &power)| 5f64.powi(power) / (node + 1) as f64).collect()
    }

    fn hot_spot(&mut self, count: u64) -> Vec<f64> {
        let nodes = self.rates.len();
        let steady = nodes / 2;
        let hot = steady + count as usize % (nodes - steady);
        self.hot = Some(hot);
        let weight = |node| if node == hot { steady.max(1) as f64 } else { f64::from(node < steady) };
        (0..nodes).map(weight).collect()
    }
}

/// Returns weights in which every `part`-th of `nodes` calls, from the first on.
fn one_in(nodes: usize, part: usize) -> Vec<f64> {
    (0..nodes).map(|node| f64::from(node.is_multiple_of(part))).collect()
}

/// Returns the daily curve in `minute`, as a part of its mean.
fn curve(minute: u64) -> f64 {
    static CURVE: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
    let curve = CURVE.get_or_init(|| {
        let text = include_str!("traffic/requests-per-minute.csv");
        let counts: Vec<f64> = text
            .lines()
            .skip(1)
            .map(|line| line.rsplit(',').next().and_then(|n| n.parse().ok()).expect("a count"))
            .collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        counts.iter().map(|count| count / mean).collect()
    });
    curve[minute as usize % curve.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_comes_at_each_boundary_and_is_gone_soon() {
        let mut herd = Traffic::new(Workload::Herd, 100.0, 4, fastrand::Rng::with_seed(1));
        let beat = |next| Beat { next, every: SECOND };
        assert_eq!(herd.change(0, beat(SECOND / 3)), SECOND / 3);
        assert!(herd.rates().iter().all(|&rate| rate < 1e-6));
        assert_eq!(herd.change(SECOND / 3, beat(SECOND / 3 * 4)), SECOND / 3 + SECOND / 50);
        assert!((herd.rates().iter().sum::<f64>() - 50.0 * 100.0).abs() < 1e-6);
    }
}
