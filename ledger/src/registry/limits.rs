//! The limits of a registry by name, each behind a lock of its own, so that exchanges with different limits go on side
//! by side. A thread that holds a limit locks only limits above it, and circles are refused first, so no two threads
//! wait for each other. A caller that has the registry alone needs no lock.

use super::{DEPTH_MAX, key_above};
use crate::named::{all_named_for, named_for};
use crate::registry::LimitConfig;
use crate::registry::limit::{Limit, PoolId};
use crate::rejection::{AskRejection, Reason};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Limits by name or pattern.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<String, Mutex<Limit>>);

impl Limits {
    /// Returns the limit called `name`, without a lock.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Limit> {
        self.0.get_mut(name).map(alone)
    }

    /// Returns the limit of an ask for `name`, without a lock: the one of that name, or else of the longest pattern
    /// that it fits.
    pub(super) fn get_mut_for(&mut self, name: &str) -> Option<&mut Limit> {
        self.get_mut(&named_for(&self.0, name)?)
    }

    /// Locks the limit called `name`.
    ///
    /// # Panics
    /// If a thread panicked in the middle of a change to it.
    pub(super) fn lock(&self, name: &str) -> Option<MutexGuard<'_, Limit>> {
        self.0.get(name).map(locked)
    }

    /// Locks the limit of an ask for `name`, see [`Limits::get_mut_for`] and [`Limits::lock`].
    pub(super) fn lock_for(&self, name: &str) -> Option<MutexGuard<'_, Limit>> {
        // Most asks are for a limit of that very name.
        match self.lock(name).filter(|_| !name.ends_with('*')) {
            None => self.lock(&named_for(&self.0, name)?),
            limit => limit,
        }
    }

    /// Returns the name or pattern of the limit for `name`, see [`named_for`].
    pub(super) fn named_for(&self, name: &str) -> Option<String> {
        named_for(&self.0, name)
    }

    /// Returns the names and patterns of all limits that `name` fits, see [`all_named_for`].
    pub(super) fn all_named_for(&self, name: &str) -> impl Iterator<Item = String> {
        all_named_for(&self.0, name)
    }

    /// Returns the pool `id` of the limit called `name` and the pools above it, the lowest first.
    ///
    /// # Errors
    /// If a key has no parent, or parents are missing or lead in a circle.
    pub(super) fn chain(&self, name: &str, id: PoolId) -> Result<Vec<(String, PoolId)>, AskRejection> {
        let mut chain = vec![];
        let mut next = Some((name.to_owned(), id));
        while let Some((name, id)) = next {
            // Operators at allocators that did not reach each other may have put limits that do not fit together.
            if chain.len() > DEPTH_MAX || chain.iter().any(|(other, _)| *other == name) {
                let detail =
                    format!("parents lead in a circle, or over more than {DEPTH_MAX} limits, at {name:?}");
                return Err(AskRejection::new(Reason::Invalid, "limit", detail));
            }
            let config = self.lock(&name).map(|limit| limit.shared_config());
            next = config.map(|config| self.above(&config, &id)).transpose()?.flatten();
            chain.push((name, id));
        }
        Ok(chain)
    }

    /// Returns the limit above the one of `config`, and its pool that is above `id`.
    pub(super) fn above(
        &self,
        config: &LimitConfig,
        id: &PoolId,
    ) -> Result<Option<(String, PoolId)>, AskRejection> {
        let name = config.name.as_str();
        let Some(parent) = config.parent.clone() else { return Ok(None) };
        let is_keyed = self.lock(&parent).map(|above| above.is_keyed()).ok_or_else(|| {
            let detail = format!("the parent of {name:?} is {parent:?}, which is no limit here");
            // A region takes an unknown limit for one that has taken in its reports.
            AskRejection::new(Reason::Invalid, "limit", detail)
        })?;
        if !is_keyed {
            return Ok(Some((parent, PoolId::default())));
        }
        let key = key_above(name, id.key.as_ref(), &parent)
            .map_err(|detail| AskRejection::new(Reason::Invalid, "key", detail))?;
        Ok(Some((parent, PoolId::from(Some(key)))))
    }

    /// Locks one limit after the other, by name.
    pub(super) fn locked(&self) -> impl Iterator<Item = (&str, MutexGuard<'_, Limit>)> {
        self.0.iter().map(|(name, limit)| (name.as_str(), locked(limit)))
    }

    /// Returns all limits by name, without a lock.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut Limit)> {
        self.0.iter_mut().map(|(name, limit)| (name, alone(limit)))
    }

    /// Returns all limits, without a lock.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.0.values_mut().map(alone)
    }

    /// Returns the names and patterns of all limits.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Whether there is a limit called `name`.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the number of limits.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no limit.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `limit`, in place of one of that name.
    pub(super) fn insert(&mut self, name: String, limit: Limit) {
        self.0.insert(name, Mutex::new(limit));
    }

    /// Takes the limit called `name` out.
    pub(super) fn remove(&mut self, name: &str) -> Option<Limit> {
        let limit = self.0.remove(name)?;
        Some(limit.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the limits that `stays` accepts.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&mut Limit) -> bool) {
        self.0.retain(|_, limit| stays(alone(limit)));
    }
}

/// Returns the limit even if a panic left its books half written. What operators decided is no part of the books, and
/// still needed.
fn alone(limit: &mut Mutex<Limit>) -> &mut Limit {
    limit.get_mut().unwrap_or_else(PoisonError::into_inner)
}

fn locked(limit: &Mutex<Limit>) -> MutexGuard<'_, Limit> {
    limit.lock().expect("no thread panicked while it changed these books")
}
