//! The parts of a call on several limits: limits and costs, in an array, a slice or a vector.

use crate::limit::Limit;
use std::borrow::Borrow;

/// The parts of a call: limits, each with the number of permits that the call costs. Arrays, slices and vectors of
/// limits, or of references to limits, are parts.
pub trait Parts: sealed::Sealed {
    /// One value for each part, in order: an array for an array, a vector for a slice or a vector.
    type Each<T>: AsRef<[T]> + AsMut<[T]>;

    /// Number of parts.
    fn count(&self) -> usize;

    /// Returns the limit of a part, and its cost in permits.
    ///
    /// # Panics
    /// If there is no such part.
    fn at(&self, part: usize) -> (&Limit, u64);

    /// Calls `make` with the index of each part and collects the results.
    fn each<T>(&self, make: impl FnMut(usize) -> T) -> Self::Each<T>;
}

impl<L: Borrow<Limit>, const N: usize> Parts for [(L, u64); N] {
    type Each<T> = [T; N];

    fn count(&self) -> usize {
        N
    }

    fn at(&self, part: usize) -> (&Limit, u64) {
        (self[part].0.borrow(), self[part].1)
    }

    fn each<T>(&self, make: impl FnMut(usize) -> T) -> [T; N] {
        std::array::from_fn(make)
    }
}

impl<L: Borrow<Limit>> Parts for &[(L, u64)] {
    type Each<T> = Vec<T>;

    fn count(&self) -> usize {
        self.len()
    }

    fn at(&self, part: usize) -> (&Limit, u64) {
        (self[part].0.borrow(), self[part].1)
    }

    fn each<T>(&self, make: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.len()).map(make).collect()
    }
}

impl<L: Borrow<Limit>> Parts for Vec<(L, u64)> {
    type Each<T> = Vec<T>;

    fn count(&self) -> usize {
        self.len()
    }

    fn at(&self, part: usize) -> (&Limit, u64) {
        (self[part].0.borrow(), self[part].1)
    }

    fn each<T>(&self, make: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.len()).map(make).collect()
    }
}

mod sealed {
    /// Keeps other crates from implementing [`super::Parts`].
    pub trait Sealed {}

    impl<T, const N: usize> Sealed for [T; N] {}
    impl<T> Sealed for &[T] {}
    impl<T> Sealed for Vec<T> {}
}
