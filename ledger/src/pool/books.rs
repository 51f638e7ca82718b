//! The books of a pool: where every permit that was ever granted has gone. Shown by the admin API and metrics.

use super::Pool;
use super::sessions::audit::is_due;
use crate::rule::Flow;

/// Totals since the pool was made. `granted = spent + returned + burned + outstanding` after every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Permits lent.
    pub granted: u64,
    /// Permits reported spent.
    pub spent: u64,
    /// Permits that came back unspent, or proved unspent after they burned.
    pub returned: u64,
    /// Permits presumed spent, because the lease ended without a report. A late report moves them to `spent` or `returned`.
    pub burned: u64,
    /// Permits lent and none of these.
    pub outstanding: u64,
}

impl Books {
    /// Whether every granted permit is accounted for.
    pub fn balance(&self) -> bool {
        self.granted == self.spent + self.returned + self.burned + self.outstanding
    }

    /// Returns the sum of two books.
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
    /// Asserts, where an audit is due, that the books balance and every rule is within its limit.
    pub(super) fn audit(&self) {
        if !is_due(self.now, self.sessions.len()) {
            return;
        }
        debug_assert!(self.books.balance(), "{:?}", self.books);
        debug_assert_eq!(
            self.books.outstanding,
            self.sessions.values().map(|session| session.outstanding).sum::<u64>()
        );
        let out = || self.sessions.values().map(|session| (session.end, session.outstanding));
        self.ledgers.audit(self.books.outstanding, out);
        if self.longest.is_some() {
            let in_flight = self.sessions.values().map(|session| session.calls.charged()).sum();
            debug_assert_eq!(self.ledgers.in_flight(), Some(in_flight), "{:?}", self.ledgers);
        }
        debug_assert!(self.flow.as_deref().is_none_or(Flow::is_sound), "{:?}", self.flow);
        self.sessions.audit(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_books_that_balance_balances() {
        let one = Books { granted: 10, spent: 4, returned: 3, burned: 2, outstanding: 1 };
        let other = Books { granted: 26, spent: 5, returned: 6, burned: 7, outstanding: 8 };
        assert!(one.balance() && other.balance() && !Books { spent: 5, ..one }.balance());
        assert_eq!(one.plus(other), Books { granted: 36, spent: 9, returned: 9, burned: 9, outstanding: 9 });
    }
}
