//! The last reports of a pool to the allocator above, when its own allocator stops or its limit was removed.

use crate::pool::Pool;
use crate::pool::loan::Loan;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// How long a leaving pool keeps reporting to an allocator that does not answer.
const LEAVES_FOR: Duration = Duration::from_secs(60);

impl Pool {
    /// Returns when to send a last report to the allocator above: what was spent, and that only permits lent on are
    /// held, until they end. `None` if nothing is left to return or report, if the allocator above does not know the
    /// session, or if it has not answered for too long.
    pub fn leaves_above(&mut self, now: Moment) -> Option<Moment> {
        self.advance(now);
        let (loan, borrower) = (self.ledgers.loan_mut()?, self.borrower.as_mut()?);
        let since = borrower.leaves_since.get().unwrap_or_else(|| {
            // A wait that was told earlier does not delay the last report.
            (borrower.leaves_since, borrower.not_before) = (Some(self.now).into(), self.now);
            self.now
        });
        loan.shed(0);
        let is_too_long = self.now >= since + LEAVES_FOR;
        if borrower.is_unrecognised || is_too_long {
            match loan.is_empty() {
                true if borrower.is_unrecognised => borrower.begins_anew(loan),
                true => {
                    borrower.is_open = false;
                    loan.give_up();
                }
                false => {}
            }
            return None;
        }
        let says = loan.has_returned() || loan.has_untold();
        says.then(|| borrower.not_before.max(self.now))
    }

    /// Writes the last report of [`Pool::leaves_above`]; `None` if the pool leases from no allocator.
    pub fn leave_above(&mut self) -> Option<Ask> {
        let (loan, borrower) = (self.ledgers.loan_mut()?, self.borrower.as_mut()?);
        let ((spent_total, held), running) = (loan.report(0), loan.report_in_flight());
        Some(borrower.asks(self.now, Ask { spent_total, held, running, ..Ask::default() }))
    }

    /// Whether the pool gave up telling the allocator above all that was spent. If it is forgotten then, a new session
    /// has to begin.
    pub fn gave_up_above(&self) -> bool {
        self.ledgers.loan().is_some_and(Loan::gave_up)
    }
}
