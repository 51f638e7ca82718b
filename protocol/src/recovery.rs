//! What a borrower does when its ask is answered with an error. The borrower is a node, or an allocator that leases
//! from another.

use crate::wire::code;
use std::time::Duration;

/// Pause of a borrower whose answer was useless: it was impossible, or the allocator does not know a lease. It is also
/// the shortest pause after most refusals. An allocator that always answers so must not be asked at network speed.
pub const DISPUTE_PAUSE: Duration = Duration::from_millis(50);

/// The reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The allocator does not know the lease: use up the permits held of this pool, then count from zero.
    Unrecognised,
    /// The allocator and the node do not agree on this session: begin another session, which owns nothing, and start
    /// every pool over.
    BeginSession,
    /// This pool cannot lend. Calls are refused; an operator may mend it, so ask again now and then.
    LookAgain,
}

/// Returns the reaction to an error with the word `code`. An unknown word may come from a later allocator.
pub fn recovery(code: &str) -> Recovery {
    match code {
        code::LEASE_UNKNOWN => Recovery::Unrecognised,
        code::TOTALS_WRONG | code::STALE_SEQUENCE | code::SESSION_OF_ANOTHER => Recovery::BeginSession,
        _ => Recovery::LookAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_known_begins_nothing() {
        assert_eq!(recovery(code::STALE_SEQUENCE), Recovery::BeginSession);
        assert_eq!(recovery("of a later version"), Recovery::LookAgain);
    }
}
