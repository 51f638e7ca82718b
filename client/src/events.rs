//! Events of a client: the background tasks send them, callers may listen. Nothing waits for a listener, and nothing depends
//! on one.

use lessor_protocol::Fallback;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Events that are kept for a slow listener. More would be memory without use. A listener that is slower misses the oldest,
/// and is told how many.
const KEPT: usize = 256;

/// Something that happened to a [`crate::Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The allocator does not answer, nor does any other that the client knows. What is leased is spent until it ends.
    Unreachable,
    /// It answers again, or another one does.
    Reachable,
    /// The client goes on at another allocator, for the one that it asked before was no use: see [`crate::Builder::or`].
    Moved {
        /// The one before, as `http://host:port`, or `unix:/path`.
        from: Arc<str>,
        /// The one that has answered.
        to: Arc<str>,
    },
    /// It cannot be reached and the lease of a limit is over: from now on calls are answered as its fallback says.
    FallbackEntered {
        /// The limit.
        limit: Arc<str>,
        /// What it does until [`Event::FallbackLeft`].
        fallback: Fallback,
    },
    /// The allocator answers again, and the limit lends as ever.
    FallbackLeft {
        /// The limit.
        limit: Arc<str>,
        /// What it did.
        fallback: Fallback,
    },
    /// An operator has paused the limit, or blocked this node.
    Paused {
        /// The limit.
        limit: Arc<str>,
        /// When to look again.
        retry_after: Duration,
    },
    /// It lends again.
    Resumed {
        /// The limit.
        limit: Arc<str>,
    },
    /// The limit goes on by other rules, is new, or is gone. It may be a pattern.
    Changed {
        /// The limit.
        limit: Arc<str>,
    },
    /// The vendor has refused a call, or has less left than this process holds: see [`crate::Limit::observe`]. Told with the
    /// next ask, once for all that was seen until then.
    VendorDisagreed {
        /// The limit.
        limit: Arc<str>,
    },
    /// This listener was too slow, and so many events are gone.
    Missed(u64),
    /// The client was shut down, or its runtime is gone. Nothing follows.
    Closed,
}

/// Hears what happens to a client, from [`crate::Client::events`].
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// The next event, once it happens; `None` after [`Event::Closed`], which is the last one, whatever handles are left.
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

    /// The next event if there is one that was not heard yet.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Where events are told, until the last one was.
#[derive(Debug)]
pub(crate) struct Teller(Mutex<Option<broadcast::Sender<Event>>>);

impl Teller {
    pub(crate) fn new() -> Self {
        Teller(Mutex::new(Some(broadcast::Sender::new(KEPT))))
    }

    /// Sends `event` to all listeners, if there are any.
    pub(crate) fn tell(&self, event: Event) {
        if let Some(sender) = &*self.sender() {
            // An error means that there is no listener.
            let _ = sender.send(event);
        }
    }

    /// Tells that the client is closed, and nothing after that.
    pub(crate) fn close(&self) {
        self.tell(Event::Closed);
        self.sender().take();
    }

    /// Hears what is told from now on.
    pub(crate) fn listen(&self) -> Events {
        // After the last event: of a sender that is gone at once.
        let last = || broadcast::Sender::new(1).subscribe();
        Events(self.sender().as_ref().map_or_else(last, broadcast::Sender::subscribe))
    }

    fn sender(&self) -> MutexGuard<'_, Option<broadcast::Sender<Event>>> {
        // A handle: no panic can have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(events.try_next(), None, "what was before it listened is not for it");
        (0..KEPT + 3).for_each(|_| teller.tell(Event::Reachable));
        assert_eq!(events.try_next(), Some(Event::Missed(3)));
        assert_eq!(std::iter::from_fn(|| events.try_next()).count(), KEPT);
    }
}
