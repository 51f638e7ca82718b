//! The books of a pool: where every permit that was ever granted has gone. Shown by the admin API and metrics.

/// Totals since the pool was made. `granted = spent + returned + burned + outstanding` after every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Lent.
    pub granted: u64,
    /// Reported spent.
    pub spent: u64,
    /// Came back unspent, or proved unspent after all.
    pub returned: u64,
    /// Presumed spent: the lease ended without a report. A late report moves them to the two above.
    pub burned: u64,
    /// Lent and none of these.
    pub outstanding: u64,
}

impl Books {
    /// Whether every granted permit is accounted for.
    pub fn balance(&self) -> bool {
        self.granted == self.spent + self.returned + self.burned + self.outstanding
    }

    /// The sum of two books.
    pub fn plus(self, other: Books) -> Books {
        Books {
            granted: self.granted + other.granted,
            spent: self.spent + other.spent,
            returned: self.returned + other.returned,
            burned: self.burned + other.burned,
            outstanding: self.outstanding + other.outstanding,
        }
    }
}
