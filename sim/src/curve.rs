//! How a run went over time: a few hundred looks at the pool, at what is lent, and at who got it. The world takes
//! them, a plot shows them. Its size depends on the number of looks and nodes, never on how long the run is.

/// Looks in a run: about as many as a plot has columns that can be told apart.
pub const LOOKS: u64 = 400;

/// All looks of a run.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// In the order of time.
    pub looks: Vec<Look>,
    /// Granted to each node since the last look.
    granted: Vec<u64>,
}

/// One look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Real nanoseconds.
    pub real: u64,
    /// Permits that can be lent.
    pub available: u64,
    /// Permits that are lent and not yet spent: in hand, and on their way.
    pub outstanding: u64,
    /// Granted to each node since the last look.
    pub granted: Vec<u64>,
}

impl Curve {
    /// Nothing yet, of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Curve { looks: vec![], granted: vec![0; nodes] }
    }

    /// `node` was granted `permits`.
    pub fn granted(&mut self, node: usize, permits: u64) {
        self.granted[node] += permits;
    }

    /// A look at `real`.
    pub fn look(&mut self, real: u64, available: u64, outstanding: u64) {
        let granted = self.granted.clone();
        self.granted.fill(0);
        self.looks.push(Look { real, available, outstanding, granted });
    }
}
