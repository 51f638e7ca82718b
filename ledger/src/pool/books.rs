//! The books of a pool: where every permit that was ever granted has gone. Shown by the admin API and metrics.

use super::Pool;
use crate::rule::Flow;
use std::collections::BTreeSet;

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

impl Pool {
    /// The books balance and every rule is within its limit, or there is a bug here.
    pub(super) fn audit(&self) {
        debug_assert!(self.books.balance(), "{:?}", self.books);
        debug_assert_eq!(
            self.books.outstanding,
            self.lessees.values().map(|lessee| lessee.outstanding).sum::<u64>()
        );
        let out = || self.lessees.values().map(|lessee| (lessee.end, lessee.outstanding));
        self.ledgers.audit(self.books.outstanding, out);
        if self.longest.is_some() {
            let in_flight = self.lessees.values().map(|lessee| lessee.flights.charged()).sum();
            debug_assert_eq!(self.ledgers.in_flight(), Some(in_flight), "{:?}", self.ledgers);
        }
        debug_assert!(self.flow.as_ref().is_none_or(Flow::is_sound), "{:?}", self.flow);
        let mirrors = self.lessees.iter().filter(|(place, _)| place.is_mirror());
        let mirrors = mirrors.map(|(place, mirror)| (mirror.reviewed, *place));
        debug_assert!(self.mirrors.iter().copied().eq(mirrors.collect::<BTreeSet<_>>()));
        debug_assert_eq!(self.ends.len(), self.lessees.values().filter(|lessee| lessee.is_live()).count());
    }
}
