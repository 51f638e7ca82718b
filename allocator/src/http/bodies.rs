//! Memory of request bodies that are being read, bounded over all connections. A body that arrives in pieces is kept
//! until it is whole, which may take its peer seconds: thousands of large ones at once would exhaust memory. Short and
//! long bodies have separate room, and each address has a share of either.

use super::body::BODY_MAX;
use crate::addresses::{Address, network};
use crate::places::Places;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Room for all long bodies, in bytes: 48 of the largest. A body in one piece, as nearly all are, takes none of it.
const LONG_ROOM: usize = 48 << 20;

/// Largest short body, in bytes.
const SHORT_MAX: usize = 16 << 10;

/// Room for all short bodies, in bytes: a thousand of the largest. Long bodies that trickle keep none of them out.
const SHORT_ROOM: usize = SHORT_MAX << 10;

/// Room for all bodies of peers that have not proven an identity yet, in bytes: 64 of the largest.
const STRANGERS_ROOM: usize = SHORT_MAX << 6;

/// Memory that all bodies take.
#[derive(Debug)]
pub(crate) struct Bodies {
    short: Room,
    long: Room,
    /// The largest body, in bytes.
    largest: usize,
}

/// Room for bodies of one kind.
#[derive(Clone, Debug)]
struct Room {
    max: usize,
    taken: Arc<AtomicUsize>,
    /// Bytes held for each address.
    addresses: Places<Address>,
}

/// Memory that one body takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    short: Room,
    long: Room,
    address: Option<Address>,
    is_long: bool,
    bytes: usize,
    /// The largest that the body may become, in bytes.
    pub(super) largest: usize,
}

impl Bodies {
    /// Makes empty room. An address gets `per_address / connections_max` of it, as it does of the connections.
    pub(crate) fn new(connections_max: usize, per_address: usize) -> Self {
        let room = |max, largest| Room::new(max, largest, connections_max, per_address);
        Bodies { short: room(SHORT_ROOM, SHORT_MAX), long: room(LONG_ROOM, BODY_MAX), largest: BODY_MAX }
    }

    /// Makes empty room as [`Bodies::new`] does, for short bodies of peers that have not proven an identity yet.
    pub(crate) fn of_strangers(connections_max: usize, per_address: usize) -> Self {
        let room = |max, largest| Room::new(max, largest, connections_max, per_address);
        Bodies { short: room(STRANGERS_ROOM, SHORT_MAX), long: room(0, 0), largest: SHORT_MAX }
    }

    /// Returns the size of the largest body, in bytes.
    pub(super) fn largest(&self) -> usize {
        self.largest
    }

    /// Begins a body from `address`, if that is known. It takes no room yet.
    pub(super) fn begin(&self, address: Option<Address>) -> Held {
        let (short, long) = (self.short.clone(), self.long.clone());
        let largest = self.largest;
        Held { short, long, address: address.map(network), is_long: false, bytes: 0, largest }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.short.taken.load(Relaxed) + self.long.taken.load(Relaxed)
    }
}

impl Room {
    /// Makes empty room of `max` bytes, for bodies of up to `largest`. An address gets `per_address / connections_max` of
    /// it.
    fn new(max: usize, largest: usize, connections_max: usize, per_address: usize) -> Self {
        let part = max as u128 * per_address as u128 / connections_max.max(1) as u128;
        // Every address has room for one body of the largest size.
        let part = usize::try_from(part).unwrap_or(max).clamp(largest, max);
        Room { max, taken: Arc::default(), addresses: Places::new(part) }
    }

    /// Takes `bytes` more for `address`. Returns whether there was room.
    fn take(&self, address: Option<Address>, bytes: usize) -> bool {
        if address.is_some_and(|address| !self.addresses.take(address, bytes)) {
            return false;
        }
        let sum = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.max);
        // The counter guards no other memory.
        let is_taken = self.taken.fetch_update(Relaxed, Relaxed, sum).is_ok();
        if let (false, Some(address)) = (is_taken, address) {
            self.addresses.give_back(address, bytes);
        }
        is_taken
    }

    fn give_back(&self, address: Option<Address>, bytes: usize) {
        self.taken.fetch_sub(bytes, Relaxed);
        if let Some(address) = address {
            self.addresses.give_back(address, bytes);
        }
    }
}

impl Held {
    /// Raises the room of this body to `bytes`, which is no less than before. Returns whether there was room.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let is_long = bytes > SHORT_MAX;
        let room = if is_long { &self.long } else { &self.short };
        let is_taken = match is_long == self.is_long {
            true => room.take(self.address, bytes.saturating_sub(self.bytes)),
            // A short body has become a long one: its short room is free again.
            false => {
                let is_taken = room.take(self.address, bytes);
                if is_taken {
                    self.short.give_back(self.address, self.bytes);
                }
                is_taken
            }
        };
        if is_taken {
            (self.is_long, self.bytes) = (is_long, bytes);
        }
        is_taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let room = if self.is_long { &self.long } else { &self.short };
        room.give_back(self.address, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1 << 10;

    fn address(n: u8) -> Option<Address> {
        Some(Address::Ip([10, 0, 0, n].into()))
    }

    /// Counts the bodies of `held` that could grow to `bytes`.
    fn grown(held: &mut [Held], bytes: usize) -> usize {
        held.iter_mut().filter_map(|body| body.grow_to(bytes).then_some(())).count()
    }

    #[test]
    fn long_bodies_leave_room_for_short_ones() {
        let bodies = Bodies::new(MANY, MANY);
        let mut long: Vec<Held> = (0..100).map(|_| bodies.begin(address(1))).collect();
        assert_eq!(grown(&mut long, 1 << 20), LONG_ROOM >> 20);
        let mut short: Vec<Held> = (0..1_100).map(|_| bodies.begin(address(1))).collect();
        assert!(!short[0].grow_to(SHORT_MAX + 1));
        assert_eq!((grown(&mut short, SHORT_MAX), bodies.held()), (1 << 10, LONG_ROOM + SHORT_ROOM));
        drop((long, short));
        assert_eq!(bodies.held(), 0);
    }

    /// The bug: one address took all room for long bodies, and no other one could send any.
    #[test]
    fn the_bodies_of_one_address_leave_room_for_those_of_others() {
        let bodies = Bodies::new(MANY, MANY - MANY / 4);
        for (bytes, room) in [(BODY_MAX, LONG_ROOM), (SHORT_MAX, SHORT_ROOM)] {
            let many = |from| (0..2_000).map(|_| bodies.begin(from)).collect::<Vec<Held>>();
            let (mut one, mut other, mut unix) =
                (many(address(1)), many(address(2)), many(Some(Address::Unix)));
            assert_eq!(grown(&mut one, bytes), room / 4 * 3 / bytes);
            assert_eq!(grown(&mut other, bytes), room / 4 / bytes);
            drop(one);
            assert_eq!(
                grown(&mut unix, bytes),
                room / 4 * 3 / bytes,
                "those of Unix sockets have one address"
            );
            drop((other, unix));
            assert_eq!((bodies.held(), bodies.long.addresses.holders()), (0, 0));
        }
    }

    #[test]
    fn a_body_that_becomes_long_leaves_its_place_to_another_short_one() {
        let bodies = Bodies::new(4, 1);
        let mut one = bodies.begin(address(1));
        assert!(one.grow_to(SHORT_MAX) && one.grow_to(SHORT_MAX + 1) && one.grow_to(BODY_MAX));
        assert_eq!(bodies.short.taken.load(Relaxed), 0);
        let mut short: Vec<Held> = (0..300).map(|_| bodies.begin(address(1))).collect();
        assert_eq!(grown(&mut short, SHORT_MAX), (SHORT_ROOM / 4) / SHORT_MAX);
        drop((one, short));
        assert_eq!(bodies.held(), 0);
        // The share of an address has room for at least one body.
        assert!(Bodies::new(usize::MAX, 1).begin(address(1)).grow_to(BODY_MAX));
    }
}
