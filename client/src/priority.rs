//! The order among callers that wait. Handles carry a priority, and the line goes by it.

/// The rank of a handle's waiting callers, within one process. See [`crate::Limit::with_priority`].
///
/// Callers of one priority are served in the order in which they came. A higher priority goes before a lower one, with
/// an exception: one in eight callers served is the one that has waited longest, whatever its priority. While the first
/// caller in line waits for the last permits of a large call, only callers of a higher priority go before it.
///
/// Priority concerns waiting only: [`crate::Limit::try_acquire`] never overtakes a line. Between processes, the
/// operator sets priorities in the configuration of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Behind others: work that can wait, such as batch jobs.
    Low,
    /// The default of handles.
    #[default]
    Normal,
    /// Before others: work that a user is waiting for.
    High,
}

impl Priority {
    /// All priorities, highest first.
    pub(crate) const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
}
