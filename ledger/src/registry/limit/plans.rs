//! What follows from the rules of a limit, such as the plan of its pools: one for the limit, and another for each key
//! that has rules of its own.

use crate::Rule;
use crate::pool::Plan;
use crate::registry::LimitConfig;
use lessor_protocol::{ClockBounds, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One `T` for a limit, and another for each key that has rules of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ByKey<T> {
    pub(super) of_limit: T,
    pub(super) of_keys: BTreeMap<Key, T>,
}

/// The plans of the pools of a limit.
pub(super) type Plans = ByKey<Arc<Plan>>;

impl<T> ByKey<T> {
    /// Makes a `T` of the rules of `config`, and another of those of each key.
    pub(super) fn made(config: &LimitConfig, make: impl Fn(&[Rule]) -> T) -> Self {
        let of_keys = config.overrides.iter().map(|(key, rules)| (key.clone(), make(rules)));
        ByKey { of_limit: make(&config.rules), of_keys: of_keys.collect() }
    }

    /// Returns what pools of `key` go by.
    pub(super) fn get(&self, key: Option<&Key>) -> &T {
        key.and_then(|key| self.of_keys.get(key)).unwrap_or(&self.of_limit)
    }

    /// Iterates over all of them, the limit's first.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.of_limit).chain(self.of_keys.values())
    }
}

impl Plans {
    /// Returns the plans of the pools of `config`.
    pub(super) fn of(config: &LimitConfig, clocks: ClockBounds) -> Self {
        let is_borrowed = config.upstream.is_some();
        Plans::made(config, |rules| {
            Arc::new(Plan {
                rules: if is_borrowed { vec![] } else { rules.to_vec() },
                is_borrowed,
                is_root: false,
                clocks,
                ease_off: config.ease_off && !is_borrowed,
                lessees_max: config.lessees_max,
                sharing: config.sharing.clone(),
            })
        })
    }
}
