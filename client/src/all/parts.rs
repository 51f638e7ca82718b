//! What a call on several limits is made of: limits and costs, in an array, a slice or a vector.

use crate::limit::Limit;
use std::borrow::Borrow;

/// Limits, each with how many of its permits a call costs. Arrays, slices and vectors are parts, of limits or of references
/// to them.
pub trait Parts: sealed::Sealed {
    /// One value for each part, in their order: an array for an array, a vector for the others.
    type Each<T>: AsRef<[T]> + AsMut<[T]>;

    /// How many parts there are.
    fn count(&self) -> usize;

    /// The limit of a part, and its cost.
    ///
    /// # Panics
    /// If there are fewer parts.
    fn at(&self, part: usize) -> (&Limit, u64);

    /// What `make` makes for each part.
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
    /// Only the parts that are here.
    pub trait Sealed {}

    impl<T, const N: usize> Sealed for [T; N] {}
    impl<T> Sealed for &[T] {}
    impl<T> Sealed for Vec<T> {}
}
