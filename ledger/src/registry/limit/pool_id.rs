//! Identifies a pool of a limit by its key, and by its name where the limit stands for many names. Limits keep their
//! pools by this identifier. It is checked where it is made, and knows nothing of what is in the pool.

use lessor_protocol::{Key, LimitName};

/// The identifier of a pool of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId {
    /// The name, if the limit stands for many.
    pub name: Option<LimitName>,
    /// The key, if the limit is keyed.
    pub key: Option<Key>,
}

impl From<Option<Key>> for PoolId {
    fn from(key: Option<Key>) -> Self {
        PoolId { name: None, key }
    }
}
