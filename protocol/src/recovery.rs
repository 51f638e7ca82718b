//! What a borrower does about an error that answers its ask: a node, and an allocator that leases from another one.

use crate::wire::code;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The lease is not known: use up what is held of this pool and count from zero then.
    Unrecognised,
    /// The allocator and the node do not agree on this session: begin another, which owns nothing, and start every pool of
    /// it over.
    BeginSession,
    /// Nothing can be had from this pool. Calls are refused; an operator may mend it, so look again now and then.
    LookAgain,
}

/// What to do about an error with the word `code`. A word that is not known here may come from a later allocator.
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
