//! Connections whose peers have proven no identity. Where all places are taken, they make room for newcomers, the oldest first: so a
//! flood of strangers keeps out no peer that is known. Where no identity is asked for, none makes room.

use lessor_protocol::{Clock, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long a peer has for it: the handshake, and its first request.
const WITHIN: Duration = Duration::from_secs(1);

static CLOCK: Clock = Clock::since_boot();

/// Whether the peer of a connection has proven an identity. Once it has, that stays so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proven(Arc<AtomicBool>);

impl Proven {
    /// It has.
    pub(crate) fn set(&self) {
        // Nothing else is read by what this says.
        self.0.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The connections of one address that is listened on, by number, of which the peers may not have proven anything.
#[derive(Debug)]
pub(super) struct Unproven {
    /// Whether identities are asked for.
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
    /// None yet, of peers that `asks` says are to prove an identity.
    pub(super) fn new(asks: bool) -> Self {
        Unproven { asks, next: 0, connections: BTreeMap::new() }
    }

    /// The number of the next connection.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A connection that `task` serves has begun.
    pub(super) fn begin(&mut self, number: u64, proven: Proven, task: AbortHandle) {
        if self.asks {
            self.connections.insert(number, Connection { began: CLOCK.now(), proven, task });
        }
    }

    /// The connection of that number has ended; `None` of one whose task did not get to its end.
    pub(super) fn end(&mut self, number: Option<u64>) {
        match number {
            Some(number) => _ = self.connections.remove(&number),
            None => self.connections.retain(|_, connection| !connection.task.is_finished()),
        }
    }

    /// The oldest, if it has had its time.
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

    /// Whether one of them would make room.
    pub(super) fn can_make_room(&mut self) -> bool {
        self.oldest().is_some()
    }

    /// Ends the oldest, if it has had its time.
    pub(super) fn make_room(&mut self) {
        if let Some(connection) = self.oldest().and_then(|number| self.connections.remove(&number)) {
            connection.task.abort();
        }
    }
}
