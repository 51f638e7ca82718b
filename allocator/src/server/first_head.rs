//! Bounds the bytes that peers send before their first request is whole, for each address. Nothing is known of such a
//! peer, and its bytes are buffered. A peer whose address has sent too many of them is cut off.

use crate::addresses::{Address, network};
use crate::places::Places;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of one address: what all of its connections send in heads of usual length, a few times over.
const OF_ADDRESS: usize = 16 << 20;

/// Bytes before first requests, of each address.
#[derive(Clone, Debug)]
pub(super) struct FirstHeads(Places<Address>);

/// Bytes of one connection before its first request is whole.
#[derive(Debug)]
pub(super) struct FirstHead {
    all: FirstHeads,
    address: Address,
    bytes: usize,
    is_whole: Arc<AtomicBool>,
}

impl FirstHeads {
    /// Makes an empty count.
    pub(super) fn new() -> Self {
        FirstHeads(Places::new(OF_ADDRESS))
    }

    /// Counts another connection of `address`, until `is_whole` is set.
    pub(super) fn begin(&self, address: Address, is_whole: Arc<AtomicBool>) -> FirstHead {
        FirstHead { all: self.clone(), address: network(address), bytes: 0, is_whole }
    }
}

impl FirstHead {
    /// Whether the first request is whole, so that bytes are not counted any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// Counts `bytes` more. Returns whether the peer may go on.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let may = self.all.0.take(self.address, bytes);
        self.bytes += if may { bytes } else { 0 };
        may
    }
}

impl Drop for FirstHead {
    fn drop(&mut self) {
        self.all.0.give_back(self.address, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_one_address_are_bounded_in_bytes_until_they_are_whole() {
        let heads = FirstHeads::new();
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| Address::Ip(ip.into()));
        let large = 64 << 10;
        let mut held: Vec<FirstHead> = vec![];
        while {
            let mut head = heads.begin(one, Arc::default());
            let may = head.take(large);
            held.push(head);
            may
        } {}
        assert_eq!(held.len(), OF_ADDRESS / large + 1);
        assert!(heads.begin(other, Arc::default()).take(large), "of another address");
        let whole = Arc::<AtomicBool>::default();
        let head = heads.begin(one, whole.clone());
        assert!(!head.is_over());
        whole.store(true, Relaxed);
        assert!(head.is_over());
        held.truncate(OF_ADDRESS / large - 1);
        assert!(heads.begin(one, Arc::default()).take(large), "some are over");
    }
}
