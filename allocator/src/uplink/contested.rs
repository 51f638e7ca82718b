//! Limits that allocators of one store do not agree about, and nobody can tell who is right.

use crate::roots::limit_of;
use std::collections::BTreeSet;

/// Limits that go by other rules than this configuration says, though under the same version of it: each was told of once.
#[derive(Debug, Default)]
pub(super) struct Contested {
    version: u64,
    limits: BTreeSet<String>,
}

impl Contested {
    /// The root `cell` goes by other rules, and the configuration here is of this `version`.
    pub(super) fn tell(&mut self, cell: &str, version: u64) {
        if self.version != version {
            *self = Contested { version, limits: BTreeSet::new() };
        }
        let Some(limit) = limit_of(cell).filter(|limit| !self.limits.contains(*limit)) else { return };
        tracing::warn!(
            limit,
            version,
            "the store has other rules of it under the same version, and goes by them: raise store.version to change them"
        );
        self.limits.insert(limit.to_owned());
    }
}
