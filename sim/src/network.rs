//! Links between each node and the allocator. They delay, lose, repeat and hold back messages, and get cut, each
//! direction by itself. The world asks when a message arrives, if ever.

use crate::faults::{Fault, Faults, Struck};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a node to the allocator.
    There,
    /// From the allocator to a node.
    Back,
}

/// How long messages take when nothing is wrong, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The least time one way.
    pub one_way: u64,
    /// The most that is added to each message, so messages overtake each other.
    pub jitter: u64,
}

/// All links.
#[derive(Clone, Debug)]
pub struct Network {
    /// By node: the latency of its link.
    near: Vec<Latency>,
    /// The latency of the links behind those of the nodes: the links of regions.
    far: Latency,
    /// By node: the real time until which the link is cut, there and back.
    cut: Vec<[u64; 2]>,
}

impl Network {
    /// Makes a link for each node, with the latency in `near`, and links for `regions` regions behind them.
    pub fn new(near: Vec<Latency>, far: Latency, regions: usize) -> Self {
        let cut = vec![[0; 2]; near.len() + regions];
        Network { near, far, cut }
    }

    /// Cuts a link until `until`.
    pub fn cut(&mut self, node: usize, there: bool, back: bool, until: u64) {
        let [cut_there, cut_back] = &mut self.cut[node];
        *cut_there = if there { until.max(*cut_there) } else { *cut_there };
        *cut_back = if back { until.max(*cut_back) } else { *cut_back };
    }

    /// Restores all links.
    pub fn mend(&mut self) {
        self.cut.fill([0; 2]);
    }

    /// Returns when a call of a store, or its answer, arrives, if ever. It takes between `least` and twice that; `None`
    /// stands for the latency of far links.
    #[expect(clippy::too_many_arguments, reason = "all that a message depends on")]
    pub fn post(
        &self,
        real: u64,
        node: usize,
        way: Way,
        least: Option<u64>,
        faults: &Faults,
        struck: &mut Struck,
        rng: &mut fastrand::Rng,
    ) -> Option<u64> {
        let mut strikes = |fault| {
            let struck_now = faults.strikes(fault, rng);
            *struck.entry(fault).or_default() += u64::from(struck_now);
            struck_now
        };
        let (lost, late) = (strikes(Fault::Loss), strikes(Fault::LongDelay));
        if self.cut[node][way as usize] > real || lost {
            return None;
        }
        let least = least.unwrap_or(self.far.one_way);
        Some(real + least + rng.u64(0..=least) + if late { rng.u64(0..4_000_000_000) } else { 0 })
    }

    /// Returns when copies of a message sent at `real` arrive: none, one, or two.
    pub fn send(
        &self,
        real: u64,
        node: usize,
        way: Way,
        faults: &Faults,
        struck: &mut Struck,
        rng: &mut fastrand::Rng,
    ) -> Vec<u64> {
        let mut strikes = |fault| {
            let struck_now = faults.strikes(fault, rng);
            if struck_now {
                *struck.entry(fault).or_default() += 1;
            }
            struck_now
        };
        let (lost, again, late) =
            (strikes(Fault::Loss), strikes(Fault::Duplicate), strikes(Fault::LongDelay));
        if self.cut[node][way as usize] > real || lost {
            return vec![];
        }
        let Latency { one_way, jitter } = self.near.get(node).copied().unwrap_or(self.far);
        let mut arrival = |late: u64| real + one_way + rng.u64(0..=jitter) + rng.u64(0..=late);
        // Late enough to outlive a lease, and sometimes a window.
        let mut arrivals = vec![arrival(if late { 3_000_000_000 } else { 0 })];
        if again {
            arrivals.push(arrival(4_000_000_000));
        }
        arrivals
    }
}
