//! Tells listeners that something happened to a limit. Handlers and reloads tell, and each listener hears at its own
//! pace. A listener that does not keep up is told that it lags, and no other task ever waits for it.

use lessor_protocol::Moment;
use lessor_protocol::push::{Event, Kind};
use std::collections::VecDeque;
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

/// Those who listen.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    sent: AtomicUsize,
    /// The newest last.
    past: Mutex<VecDeque<(Moment, Event)>>,
    listeners_max: usize,
}

/// One who listens.
#[derive(Debug)]
pub(crate) struct Listener(broadcast::Receiver<Event>);

impl Events {
    /// Has no listener yet; of `connections_max` connections some may listen.
    pub(crate) fn new(connections_max: usize) -> Self {
        Events {
            sender: broadcast::Sender::new(QUEUE_MAX),
            sent: AtomicUsize::new(0),
            past: Mutex::default(),
            listeners_max: (connections_max / LISTENER_PART).max(1),
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

    /// The last events, the newest last.
    pub(crate) fn recent(&self) -> Vec<(Moment, Event)> {
        self.past().iter().cloned().collect()
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<(Moment, Event)>> {
        // A list of what was: no panic elsewhere can have left it half changed.
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens from now on; `None` if as many do as may.
    pub(crate) fn listen(&self) -> Option<Listener> {
        (self.listeners() < self.listeners_max).then(|| Listener(self.sender.subscribe()))
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
    /// The next event; `None` if there will be none. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
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
        let events = Events::new(4);
        let mut slow = events.listen().expect("room");
        let event = Event::of(Kind::ToppedUp, "a");
        (0..=QUEUE_MAX).for_each(|_| events.tell(Moment::ORIGIN, &event));
        assert_eq!(slow.next().await.map(|event| event.kind), Some(Kind::Lagged));
        assert_eq!(slow.next().await, Some(event), "and goes on with what is left");
        assert_eq!(events.recent().len(), PAST_MAX);
    }

    #[tokio::test]
    async fn half_of_all_connections_may_listen() {
        let events = Events::new(4);
        let (_one, two) = (events.listen().expect("room"), events.listen().expect("room"));
        assert!(events.listen().is_none());
        drop(two);
        assert!(events.listen().is_some());
    }
}
