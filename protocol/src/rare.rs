//! A value that rarely differs from its usual one and takes memory only then. A process may know a million keys, so
//! each field of a pool or session exists a million times.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

/// A type with a usual value.
pub trait Usual: Clone + 'static {
    /// The usual value.
    const USUAL: &'static Self;
}

impl<T: Clone + 'static> Usual for VecDeque<T> {
    const USUAL: &'static Self = &VecDeque::new();
}

impl<K: Clone + 'static, V: Clone + 'static> Usual for BTreeMap<K, V> {
    const USUAL: &'static Self = &BTreeMap::new();
}

/// A value that is mostly the usual one. Mutable access allocates memory for it, even if nothing changes.
#[derive(Clone)]
pub struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Rare(None)
    }
}

impl<T> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Rare(Some(Box::new(value)))
    }
}

impl<T: Usual + PartialEq> Rare<T> {
    /// Creates it from `value`, without memory if `value` is the usual one.
    pub fn of(value: T) -> Self {
        if value == *T::USUAL { Rare(None) } else { Rare::from(value) }
    }
}

impl<T> Rare<T> {
    /// Makes it the usual value again.
    pub fn reset(&mut self) {
        self.0 = None;
    }

    /// Returns the allocated value, if there is one, to be written and read as a whole.
    pub fn room(&mut self) -> &mut Option<Box<T>> {
        &mut self.0
    }

    /// Whether no memory is allocated, because the value was not changed since it was usual.
    pub fn is_usual(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the allocated value, to be changed. `None` if the value is the usual one, which stays.
    pub fn unusual(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Usual + PartialEq> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Usual + Eq> Eq for Rare<T> {}

impl<T: Usual> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::USUAL)
    }
}

impl<T: Usual> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::USUAL.clone()))
    }
}

impl<T: Usual + Debug> Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Usual for u64 {
        const USUAL: &'static Self = &7;
    }

    #[test]
    fn what_is_usual_takes_room_once_it_is_changed() {
        let mut rare = Rare::<u64>::default();
        assert_eq!((*rare, rare.is_usual(), rare.unusual()), (7, true, None));
        assert_eq!(format!("{rare:?}"), "7");
        *rare += 1;
        assert_eq!((*rare, rare.is_usual(), rare.unusual()), (8, false, Some(&mut 8)));
        assert_eq!(size_of::<Rare<[u64; 9]>>(), size_of::<usize>());
    }
}
