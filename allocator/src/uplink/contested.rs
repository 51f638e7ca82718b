//! Limits that allocators of one store do not agree about, where no allocator can tell which one is right.

use lessor_ledger::roots::{RootError, limit_of};
use std::collections::BTreeSet;

/// Limits that go by other rules than this configuration says, though under the same version of it, and limits that are below another
/// one, which it does not say: each was told of once.
#[derive(Debug, Default)]
pub(super) struct Contested {
    version: u64,
    limits: BTreeSet<String>,
    below: BTreeSet<String>,
}

impl Contested {
    /// The root `cell` goes by other rules, and the configuration here is of this `version`.
    pub(super) fn tell(&mut self, cell: &str, version: u64) {
        self.reset_for(version);
        let Some(limit) = limit_of(cell).filter(|limit| !self.limits.contains(*limit)) else { return };
        tracing::warn!(
            limit,
            version,
            "the store has other rules of it under the same version, and goes by them: raise store.version to change them"
        );
        self.limits.insert(limit.to_owned());
    }

    /// Nothing is lent of `limit` for that reason, and the configuration here is of this `version`.
    pub(super) fn tell_of_above(&mut self, limit: &str, version: u64, why: &RootError) {
        self.reset_for(version);
        if self.below.insert(limit.to_owned()) {
            tracing::warn!(limit, version, %why, "nothing is leased from the store");
        }
    }

    fn reset_for(&mut self, version: u64) {
        if self.version != version {
            *self = Contested { version, ..Contested::default() };
        }
    }
}
