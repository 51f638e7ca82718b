//! Random numbers that no other process can foresee, from the operating system. Clients and allocators draw the numbers
//! of their sessions here: a process that knows one can speak in its name. Allocators also
//! tell runs, stores and timelines apart by such numbers. Code that takes its random numbers as an argument never calls
//! it.

use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasher as _, RandomState};

/// Draws a uniformly distributed number that only this process knows.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(length) if length == bytes.len() => u64::from_ne_bytes(bytes),
        // A sandbox may forbid the call. The keys of a hash map come from the same source by another way.
        Ok(_) | Err(_) => RandomState::new().hash_one(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_number_comes_twice_and_all_bits_vary() {
        let numbers: Vec<u64> = (0..1_000).map(|_| number()).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        let ones = (0..64).map(|bit| numbers.iter().filter(|number| *number >> bit & 1 == 1).count());
        // By chance one bit in 10^14 is outside.
        assert!(ones.into_iter().all(|ones| (375..=625).contains(&ones)));
    }
}
