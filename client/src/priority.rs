//! Who comes first among callers that wait. Handles carry one, the line goes by it.

/// The rank of a handle's waiting callers, within one process. See [`crate::Limit::with_priority`].
///
/// Callers of one priority are served in the order in which they came. A higher one goes before a lower one, but not
/// for ever: of eight that are served one is whoever has waited longest, whatever his priority. Nobody goes before
/// the first in line while he waits for the last permits of a large call, but those of a higher priority.
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
    /// Before others: what somebody is looking at.
    High,
}

impl Priority {
    /// All of them, the first served first.
    pub(crate) const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
}
