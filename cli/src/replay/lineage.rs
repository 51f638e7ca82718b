//! Which pools are above which: the pools of the limits that a configuration names as parents. Code that charges a
//! pool, or counts charges, asks here. It holds no pools.

use super::contract::PoolId;
use lessor_allocator::Config;
use lessor_allocator::config::{Keyed, key_above, named_for};
use std::collections::BTreeMap;

/// The limits of a configuration, by name or pattern.
#[derive(Debug)]
pub(crate) struct Lineage(BTreeMap<String, Place>);

/// One limit.
#[derive(Debug)]
struct Place {
    parent: Option<String>,
    is_keyed: bool,
}

impl Lineage {
    /// Creates the lineage of `config`.
    pub(crate) fn new(config: &Config) -> Self {
        let place =
            |parent: &Option<String>, keyed| Place { parent: parent.clone(), is_keyed: keyed != Keyed::No };
        let limits = config.limits.iter();
        Lineage(limits.map(|limit| (limit.name.to_string(), place(&limit.parent, limit.keyed))).collect())
    }

    /// Returns the limit for `name`, by its own name or its pattern.
    pub(crate) fn limit(&self, name: &str) -> Option<String> {
        named_for(&self.0, name)
    }

    /// Returns the pool `id` of the limit called `name`, and the pools above it, the next one first. The chain ends
    /// where a key would be needed and there is none.
    ///
    /// # Errors
    /// If a key does not contain the key above it: the problem, beginning with the field.
    pub(crate) fn chain(&self, name: &str, id: PoolId) -> Result<Vec<PoolId>, String> {
        let mut chain = vec![id];
        let mut name = name;
        while let Some(parent) = self.0.get(name).and_then(|place| place.parent.as_deref()) {
            let (_, key) = chain.last().expect("there is one at least");
            let key = match key {
                _ if !self.0[parent].is_keyed => None,
                None => break,
                key => {
                    Some(key_above(name, key.as_ref(), parent).map_err(|problem| format!("key: {problem}"))?)
                }
            };
            chain.push((parent.to_owned(), key));
            name = parent;
        }
        Ok(chain)
    }
}
