//! A part of a pool or of a session that few have: it takes room once it is changed, and is the usual one until then.

use crate::pacing::Excess;
use crate::packed::Carrier;
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

/// What has a usual value.
pub(super) trait Usual: Clone + 'static {
    /// That value.
    const USUAL: &'static Self;
}

impl Usual for Excess {
    const USUAL: &'static Self = &Excess::NONE;
}

/// A value that is mostly the usual one.
#[derive(Clone)]
pub(super) struct Rare<T>(Option<Box<T>>);

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

impl<T: Usual> Rare<T> {
    /// Carries it, as `carry` does if there is more to it than the usual.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>, carry: fn(&mut T, &mut Carrier<'_>)) {
        let blank = || Box::new(T::USUAL.clone());
        carrier.option(&mut self.0, blank, |carrier, value| carry(value, carrier));
    }
}

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
