//! Which pool of a limit: that of a key, and where the limit stands for many names, of a name. Limits keep their pools
//! by it; it is checked where it is made, and knows nothing of what is in the pool.

use lessor_protocol::{Key, LimitName};

/// Which pool of a limit.
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
