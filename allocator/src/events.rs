//! Tells listeners that something happened to a limit. Handlers and reloads tell, and each listener hears at its own
//! pace. A listener that does not keep up is told that it lags, and no other task ever waits for it.

use crate::addresses::{Address, Addresses};
use crate::places::{Place, Places};
use lessor_ledger::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::push::{Event, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Events that wait for the slowest listener. What operators do is rare; a script that changes more limits at once has
/// every node look at all of them, which costs no more.
const QUEUE_MAX: usize = 256;

/// Events that are remembered, for people who come to look after something has happened. Names of limits, keys and nodes
/// make each a few hundred bytes at most.
const PAST_MAX: usize = 200;

/// Of the connections that may be open, at most this part listens: the others are for asks, which matter.
const LISTENER_PART: usize = 2;

/// Of those that may listen, at most this part has one identity, from however many addresses.
const IDENTITY_PART: usize = 2;

/// Events of one second that nodes bring about by what they heard of a vendor, and those of one identity. What a node does not hear of
/// here, it hears at its next ask: a flood of them would have each of a fleet ask all the time, and fill the log.
const BY_NODES_MAX: u64 = 128;
const BY_IDENTITY_MAX: u64 = 32;

/// Those who listen.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    sent: AtomicUsize,
    /// Listeners so far.
    begun: AtomicUsize,
    /// The newest last.
    past: Mutex<VecDeque<(Moment, Event)>>,
    by_nodes: Mutex<ByNodes>,
    listeners_max: usize,
    addresses: Addresses,
    identities: Places<Owner>,
}

/// What nodes brought about in one second.
#[derive(Debug, Default)]
struct ByNodes {
    second: u64,
    told: u64,
    of_identities: BTreeMap<Owner, u64>,
    /// What was not told since something was.
    omitted: u64,
}

/// Why there is no room for one more that listens, with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// As many listen as may in all.
    All(usize),
    /// As many listen at its address as may.
    Address(usize),
    /// As many listen that have its identity as may.
    Identity(usize),
}

/// One who listens.
#[derive(Debug)]
pub(crate) struct Listener {
    receiver: broadcast::Receiver<Event>,
    _at_address: Option<Place<Address>>,
    _of_identity: Option<Place<Owner>>,
    number: usize,
}

impl Events {
    /// Has no listener yet; of `connections_max` connections some may listen, and as large a part of those that one address may have.
    /// An identity has a part of those that may listen.
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

    /// Tells everybody who listens what happened at `now`.
    pub(crate) fn tell(&self, now: Moment, event: &Event) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut past = self.past();
        if past.len() == PAST_MAX {
            past.pop_front();
        }
        past.push_back((now, event.clone()));
        drop(past);
        // An error says that there is no listener.
        let _ = self.sender.send(event.clone());
    }

    /// Whether one more is to be told that a node of `owner` brings about at `now`: then, how many were not since the last one.
    pub(crate) fn admits(&self, now: Moment, owner: Owner) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        let mut by_nodes = self.by_nodes.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The last events, the newest last.
    pub(crate) fn recent(&self) -> Vec<(Moment, Event)> {
        self.past().iter().cloned().collect()
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<(Moment, Event)>> {
        // A list of what was: no panic elsewhere can have left it half changed.
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens from now on at `address`, if it is known, for `owner`.
    ///
    /// # Errors
    /// If as many do as may: in all, there, or of that identity.
    pub(crate) fn listen(&self, address: Option<Address>, owner: Owner) -> Result<Listener, Full> {
        if self.listeners() >= self.listeners_max {
            return Err(Full::All(self.listeners_max));
        }
        let at = |address| self.addresses.place(address).ok_or(Full::Address(self.addresses.max()));
        let at_address = address.map(at).transpose()?;
        // Without identities all listeners would have one.
        let of = |owner| self.identities.place(owner).ok_or(Full::Identity(self.identities.max()));
        let of_identity = Some(owner).filter(|owner| *owner != Owner::NONE).map(of).transpose()?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let receiver = self.sender.subscribe();
        Ok(Listener { receiver, _at_address: at_address, _of_identity: of_identity, number })
    }

    /// How many listen.
    pub(crate) fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    /// How many events were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// The how many-th it is.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The next event; `None` if there will be none. Cancel-safe.
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

    /// The bug: one node told a fleet of 17,000 pauses in a second, and wrote each into the log.
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

    /// The bug: one address listened as often as all may, and no other heard anything.
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

    /// The bug: one identity listened from several addresses as often as all may, and no other one heard anything.
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
