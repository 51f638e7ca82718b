//! How a run went over time: a few hundred looks at the pool, at the permits lent, and at the nodes that got them. The
//! world takes the looks and a plot shows them. The size depends on the number of looks and nodes, never on the length
//! of the run.

/// Looks in a run: about as many as a plot has columns that can be told apart.
pub const LOOKS: u64 = 400;

/// All looks of a run.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The looks in order of time.
    pub looks: Vec<Look>,
    /// Permits granted to each node since the last look.
    granted: Vec<u64>,
}

/// The state of a run at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Real time in nanoseconds.
    pub real: u64,
    /// Permits that can be lent.
    pub available: u64,
    /// Permits lent and not yet spent: in hand, and on their way.
    pub outstanding: u64,
    /// Permits granted to each node since the last look.
    pub granted: Vec<u64>,
}

impl Curve {
    /// Makes an empty curve of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Curve { looks: vec![], granted: vec![0; nodes] }
    }

    /// Records that `node` was granted `permits`.
    pub fn granted(&mut self, node: usize, permits: u64) {
        self.granted[node] += permits;
    }

    /// Takes a look at `real`.
    pub fn look(&mut self, real: u64, available: u64, outstanding: u64) {
        let granted = self.granted.clone();
        self.granted.fill(0);
        self.looks.push(Look { real, available, outstanding, granted });
    }
}
