//! Who comes first among callers that wait. Handles carry one, the line goes by it.

/// The rank of a handle's waiting callers, within one process. See [`crate::Limit::with_priority`].
///
/// Callers of one priority are served in the order in which they came. A higher one goes before a lower one, but not
/// for ever. Of eight that are served, one is the caller that has waited longest, whatever its priority. While the
/// first in line waits for the last permits of a large call, only callers of a higher priority go before it.
///
/// It decides about waiting alone: [`crate::Limit::try_acquire`] never overtakes a line. Between processes, priorities
/// are the operator's to say, in the limit's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Behind others: what can wait, such as batch jobs.
    Low,
    /// What handles have by themselves.
    #[default]
    Normal,
    /// Before others: what a user is looking at.
    High,
}

impl Priority {
    /// All of them, the first served first.
    pub(crate) const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
}
