//! Events of a client. The background tasks send them and callers may listen. Nothing waits for a listener, and nothing
//! depends on one.

use lessor_protocol::Fallback;
use lessor_protocol::lock_anyway::LockAnyway;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Events kept for a slow listener. More would be memory without use. A listener that falls further behind misses the
/// oldest events and gets their number.
const KEPT: usize = 256;

/// Something that happened to a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// No allocator that the client knows answers, or one that answers turns the client away: with 401, 403 or 429. What
    /// is leased can be spent until it ends.
    Unreachable,
    /// An allocator answers again.
    Reachable,
    /// The client moved to another allocator because the previous one failed or was stopping, see
    /// [`crate::Builder::or`].
    Moved {
        /// The previous allocator, as `http://host:port`, `https://host:port` or `unix:/path`.
        from: Arc<str>,
        /// The allocator that has answered, in the same form.
        to: Arc<str>,
    },
    /// No allocator can be reached and the lease of a limit is over: calls are answered as its fallback says.
    FallbackEntered {
        /// The limit.
        limit: Arc<str>,
        /// The fallback that applies until [`Event::FallbackLeft`].
        fallback: Fallback,
    },
    /// An allocator answers again. Mostly the limit is leased as usual.
    FallbackLeft {
        /// The limit.
        limit: Arc<str>,
        /// The fallback that applied.
        fallback: Fallback,
    },
    /// An operator has paused the limit, or blocked this node.
    Paused {
        /// The limit.
        limit: Arc<str>,
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// The limit lends again.
    Resumed {
        /// The limit.
        limit: Arc<str>,
    },
    /// The rules of a limit changed, or the limit is new or gone.
    Changed {
        /// The limit, which may be a pattern.
        limit: Arc<str>,
    },
    /// The vendor has refused a call, or has fewer permits left than this process holds, see [`crate::Limit::observe`].
    /// Sent with the next ask, once for all that was observed until then.
    VendorDisagreed {
        /// The limit.
        limit: Arc<str>,
    },
    /// This listener was too slow and missed this many events.
    Missed(u64),
    /// The client was shut down, or its runtime is gone. No event follows.
    Closed,
}

/// A subscription to the events of a client, from [`crate::Client::events`].
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// Waits for the next event. Returns `None` after [`Event::Closed`], which is the last event even if handles are
    /// left.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Returns the next event that was not read yet, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Sends the events of a client; empty after the last one.
#[derive(Debug)]
pub(crate) struct Teller(Mutex<Option<broadcast::Sender<Event>>>);

impl Teller {
    pub(crate) fn new() -> Self {
        Teller(Mutex::new(Some(broadcast::Sender::new(KEPT))))
    }

    /// Sends `event` to all listeners, if there are any.
    pub(crate) fn tell(&self, event: Event) {
        // Sent without the lock: the waker of a listener is foreign code, and may subscribe.
        let sender = self.0.lock_anyway().clone();
        if let Some(sender) = sender {
            // An error means that there is no listener.
            let _ = sender.send(event);
        }
    }

    /// Sends [`Event::Closed`], and nothing after it.
    pub(crate) fn close(&self) {
        let sender = self.0.lock_anyway().take();
        if let Some(sender) = sender {
            let _ = sender.send(Event::Closed);
        }
    }

    /// Subscribes to events from now on.
    pub(crate) fn listen(&self) -> Events {
        // After the last event: the receiver of a sender that is dropped at once.
        let last = || broadcast::Sender::new(1).subscribe();
        Events(self.0.lock_anyway().as_ref().map_or_else(last, broadcast::Sender::subscribe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_is_too_slow_is_told_how_much_it_missed() {
        let teller = Teller::new();
        teller.tell(Event::Unreachable);
        let mut events = teller.listen();
        assert_eq!(events.try_next(), None, "a listener hears no earlier event");
        (0..KEPT + 3).for_each(|_| teller.tell(Event::Reachable));
        assert_eq!(events.try_next(), Some(Event::Missed(3)));
        assert_eq!(std::iter::from_fn(|| events.try_next()).count(), KEPT);
    }
}
