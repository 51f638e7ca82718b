//! Events about limits, for listeners. Handlers and reloads publish them, and each listener hears them at its own pace.
//! A listener that does not keep up is told that it lags, and no other task ever waits for it.

use crate::addresses::{Address, Addresses};
use crate::places::{Place, Places};
use lessor_ledger::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::push::{Event, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::broadcast;

/// Most events that wait for the slowest listener. Operators act rarely. A script that changes more limits at once
/// makes every node ask for all of them, which costs no more.
const QUEUE_MAX: usize = 256;

/// Events that are remembered, for people who look after the fact. Each has a few hundred bytes at most, for the names
/// in it.
const PAST_MAX: usize = 200;

/// One in this many connections may listen: the others are for exchanges, which matter more.
const LISTENER_PART: usize = 2;

/// One in this many listeners may have the same identity, from however many addresses.
const IDENTITY_PART: usize = 2;

/// Most events per second that nodes cause by what they heard of a vendor, in all and for one identity. A node hears of
/// the others at its next ask. A flood of events would make a whole fleet ask all the time, and fill the log.
pub(crate) const BY_NODES_MAX: u64 = 128;
const BY_IDENTITY_MAX: u64 = 32;

/// The listeners, and the last events.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    sent: AtomicUsize,
    /// Listeners begun so far.
    begun: AtomicUsize,
    /// The last events, newest last.
    past: Mutex<VecDeque<(Moment, Event)>>,
    by_nodes: Mutex<ByNodes>,
    listeners_max: usize,
    addresses: Addresses,
    identities: Places<Owner>,
}

/// Events caused by nodes in one second.
#[derive(Debug, Default)]
struct ByNodes {
    second: u64,
    told: u64,
    of_identities: BTreeMap<Owner, u64>,
    /// Events that were not published since the last one that was.
    omitted: u64,
}

/// Why there is no room for another listener, with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The bound of all listeners is reached.
    All(usize),
    /// The bound of its address is reached.
    Address(usize),
    /// The bound of its identity is reached.
    Identity(usize),
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    receiver: broadcast::Receiver<Event>,
    _at_address: Option<Place<Address>>,
    _of_identity: Option<Place<Owner>>,
    number: usize,
}

impl Events {
    /// Makes room for listeners: a part of `connections_max` in all, the same part of `per_address` for each address,
    /// and a part of all listeners for each identity.
    pub(crate) fn new(connections_max: usize, per_address: usize) -> Self {
        let listeners_max = (connections_max / LISTENER_PART).max(1);
        Events {
            sender: broadcast::Sender::new(QUEUE_MAX),
            sent: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            past: Mutex::default(),
            by_nodes: Mutex::default(),
            listeners_max,
            addresses: Addresses::new((per_address / LISTENER_PART).max(1)),
            identities: Places::new((listeners_max / IDENTITY_PART).max(1)),
        }
    }

    /// Publishes an event of `now` to all listeners.
    pub(crate) fn tell(&self, now: Moment, event: &Event) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut past = self.past.lock_anyway();
        if past.len() == PAST_MAX {
            past.pop_front();
        }
        past.push_back((now, event.clone()));
        drop(past);
        // An error says that there is no listener.
        let _ = self.sender.send(event.clone());
    }

    /// Whether to publish an event that a node of `owner` causes at `now`. If so, returns the number of omitted events
    /// since the last one.
    pub(crate) fn admits(&self, now: Moment, owner: Owner) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        let mut by_nodes = self.by_nodes.lock_anyway();
        if by_nodes.second != second {
            *by_nodes = ByNodes { second, omitted: by_nodes.omitted, ..ByNodes::default() };
        }
        let of_identity = by_nodes.of_identities.get(&owner).copied().unwrap_or(0);
        let is_flood = owner != Owner::NONE && of_identity >= BY_IDENTITY_MAX;
        if is_flood || by_nodes.told >= BY_NODES_MAX {
            by_nodes.omitted = by_nodes.omitted.saturating_add(1);
            return None;
        }
        by_nodes.told += 1;
        by_nodes.of_identities.insert(owner, of_identity + 1);
        Some(std::mem::take(&mut by_nodes.omitted))
    }

    /// Returns the last events, newest last.
    pub(crate) fn recent(&self) -> Vec<(Moment, Event)> {
        self.past.lock_anyway().iter().cloned().collect()
    }

    /// Begins to listen at `address`, if that is known, for `owner`.
    ///
    /// # Errors
    /// If the bound of all listeners, of the address or of the identity is reached.
    pub(crate) fn listen(&self, address: Option<Address>, owner: Owner) -> Result<Listener, Full> {
        if self.listeners() >= self.listeners_max {
            return Err(Full::All(self.listeners_max));
        }
        let at = |address| self.addresses.place(address).ok_or(Full::Address(self.addresses.max()));
        let at_address = address.map(at).transpose()?;
        // Without identities all listeners would share one bound.
        let of = |owner| self.identities.place(owner).ok_or(Full::Identity(self.identities.max()));
        let of_identity = Some(owner).filter(|owner| *owner != Owner::NONE).map(of).transpose()?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let receiver = self.sender.subscribe();
        Ok(Listener { receiver, _at_address: at_address, _of_identity: of_identity, number })
    }

    /// Number of listeners.
    pub(crate) fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    /// Number of published events.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// Number of listeners begun before this one.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Waits for the next event; `None` if there will be none. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Event::of_all(Kind::Lagged)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_does_not_keep_up_is_told_that_it_lags() {
        let events = Events::new(4, 3);
        let mut slow = events.listen(None, Owner::NONE).expect("room");
        let event = Event::of(Kind::ToppedUp, "a");
        (0..=QUEUE_MAX).for_each(|_| events.tell(Moment::ORIGIN, &event));
        assert_eq!(slow.next().await.map(|event| event.kind), Some(Kind::Lagged));
        assert_eq!(slow.next().await, Some(event), "and goes on with what is left");
        assert_eq!(events.recent().len(), PAST_MAX);
    }

    /// The bug: one node could publish 17,000 pauses in a second to a fleet, and wrote each into the log.
    #[test]
    fn one_identity_brings_few_events_about_and_leaves_room_for_those_of_others() {
        let events = Events::new(4, 3);
        let second = |second: u64| Moment::from_nanos(second * 1_000_000_000);
        let admitted = |at, owner| (0..1_000).filter_map(|_| events.admits(second(at), Owner(owner))).count();
        assert_eq!((admitted(1, 7), admitted(1, 9)), (32, 32));
        assert_eq!(admitted(1, 0), 64, "of peers that prove no identity: as many as are left");
        assert_eq!(admitted(1, 11), 0);
        assert_eq!(events.admits(second(2), Owner(7)), Some(936 + 1_000), "so many were not told");
        assert_eq!(events.admits(second(2), Owner(7)), Some(0));
    }

    #[tokio::test]
    async fn half_of_all_connections_may_listen() {
        let events = Events::new(4, 3);
        let listen = || events.listen(None, Owner::NONE);
        let (_one, two) = (listen().expect("room"), listen().expect("room"));
        assert_eq!(listen().err(), Some(Full::All(2)));
        drop(two);
        assert!(listen().is_ok());
    }

    /// The bug: one address held all places of listeners, and no other heard anything.
    #[tokio::test]
    async fn one_address_leaves_places_for_others_that_listen() {
        let events = Events::new(8, 6);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().ok().map(Address::Ip));
        let listen = |address| events.listen(address, Owner::NONE);
        let held: Vec<Listener> = (0..8).filter_map(|_| listen(one).ok()).collect();
        assert_eq!((held.len(), listen(one).err()), (3, Some(Full::Address(3))));
        assert!(listen(other).is_ok());
        drop(held);
        assert!(listen(one).is_ok());
    }

    /// The bug: one identity held all places of listeners, from several addresses, and no other heard anything.
    #[tokio::test]
    async fn one_identity_leaves_places_for_others_that_listen() {
        let events = Events::new(16, 12);
        let address = |n: u8| Some(Address::Ip([10, 0, 0, n].into()));
        let held: Vec<Listener> = (0..8).filter_map(|n| events.listen(address(n), Owner(1)).ok()).collect();
        assert_eq!((held.len(), events.listen(address(9), Owner(1)).err()), (4, Some(Full::Identity(4))));
        assert_eq!(events.listeners(), 4, "one that is refused takes no place");
        let _other: Vec<Listener> = (0..3).filter_map(|n| events.listen(address(n), Owner(3)).ok()).collect();
        assert!(events.listen(address(9), Owner::NONE).is_ok(), "of no identity");
        drop(held);
        assert!(events.listen(address(9), Owner(1)).is_ok());
    }
}
