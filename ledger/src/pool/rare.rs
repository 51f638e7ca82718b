//! A part of a pool or of a session that few have: it takes room once it is changed, and is the usual one until then.

use super::session::{Burn, Said};
use crate::pacing::{Excess, Pacer};
use crate::packed::Carrier;
use crate::share::Share;
use lessor_protocol::Moment;
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

/// A moment or none, in the room of a moment: none is [`Moment::NEVER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaybeMoment(Moment);

impl MaybeMoment {
    pub(super) const NONE: Self = MaybeMoment(Moment::NEVER);

    pub(super) fn get(self) -> Option<Moment> {
        Some(self.0).filter(|at| *at != Moment::NEVER)
    }
}

impl From<Option<Moment>> for MaybeMoment {
    fn from(at: Option<Moment>) -> Self {
        MaybeMoment(at.unwrap_or(Moment::NEVER))
    }
}

/// What has a usual value.
pub(super) trait Usual: Clone + 'static {
    /// That value.
    const USUAL: &'static Self;
}

impl Usual for Excess {
    const USUAL: &'static Self = &Excess::NONE;
}

impl Usual for Pacer {
    const USUAL: &'static Self = &Pacer::Free;
}

impl Usual for Share {
    const USUAL: &'static Self = &Share::EVEN;
}

impl Usual for Said {
    const USUAL: &'static Self = &Said::NOTHING;
}

impl Usual for VecDeque<Burn> {
    const USUAL: &'static Self = &VecDeque::new();
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

impl<T: Usual + PartialEq> Rare<T> {
    /// That `value`, in no room if it is the usual one.
    pub(super) fn of(value: T) -> Self {
        if value == *T::USUAL { Rare(None) } else { Rare::from(value) }
    }
}

impl<T: Usual> Rare<T> {
    /// It is the usual one again.
    pub(super) fn reset(&mut self) {
        self.0 = None;
    }

    /// What is not the usual one, to be changed.
    pub(super) fn unusual(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Carries it, as `carry` does if there is more to it than the usual.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>, carry: fn(&mut T, &mut Carrier<'_>)) {
        let blank = || Box::new(T::USUAL.clone());
        carrier.option(&mut self.0, blank, |carrier, value| carry(value, carrier));
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
