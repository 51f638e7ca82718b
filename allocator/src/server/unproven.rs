//! Connections whose peers have proven no identity. Where all places are taken, they make room for newcomers, the
//! oldest first, so that a flood of strangers keeps out no known peer. Where no identity is required, none makes room.

use lessor_protocol::{CLOCK, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long a peer has to prove an identity, by its handshake and first request, before its connection may make room.
const WITHIN: Duration = Duration::from_secs(1);

/// Set once the peer of a connection has proven an identity, and never reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proven(Arc<AtomicBool>);

impl Proven {
    /// Records that the peer has proven an identity.
    pub(crate) fn set(&self) {
        // The flag guards no other memory.
        self.0.store(true, Relaxed);
    }

    /// Whether the peer has proven an identity.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The connections of one door, by number, whose peers may not have proven an identity.
#[derive(Debug)]
pub(super) struct Unproven {
    /// Whether identities are required.
    asks: bool,
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    began: Moment,
    proven: Proven,
    task: AbortHandle,
}

impl Unproven {
    /// Makes an empty set. `asks` says whether peers have to prove an identity.
    pub(super) fn new(asks: bool) -> Self {
        Unproven { asks, next: 0, connections: BTreeMap::new() }
    }

    /// Returns the number of the next connection.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Records that `task` serves a new connection.
    pub(super) fn begin(&mut self, number: u64, proven: Proven, task: AbortHandle) {
        if self.asks {
            self.connections.insert(number, Connection { began: CLOCK.now(), proven, task });
        }
    }

    /// Records that a connection has ended; `None` if its task did not get to its end.
    pub(super) fn end(&mut self, number: Option<u64>) {
        match number {
            Some(number) => _ = self.connections.remove(&number),
            None => self.connections.retain(|_, connection| !connection.task.is_finished()),
        }
    }

    /// Returns the oldest unproven connection, if its time is over.
    fn oldest(&mut self) -> Option<u64> {
        while let Some(first) = self.connections.first_entry() {
            if !first.get().proven.is_set() {
                let has_had_its_time = CLOCK.now().since(first.get().began) >= WITHIN;
                return has_had_its_time.then(|| *first.key());
            }
            first.remove();
        }
        None
    }

    /// Whether an unproven connection can be ended.
    pub(super) fn can_make_room(&mut self) -> bool {
        self.oldest().is_some()
    }

    /// Ends the oldest unproven connection, if its time is over.
    pub(super) fn make_room(&mut self) {
        if let Some(connection) = self.oldest().and_then(|number| self.connections.remove(&number)) {
            connection.task.abort();
        }
    }
}
