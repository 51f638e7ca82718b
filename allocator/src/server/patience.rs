//! A time-out of writes: if a peer does not read what is written in time, writing fails and the connection ends.
//! Reading has limits of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long a peer may take to read all that is there for it. The largest answers are a few hundred kilobytes, so a
/// longer wait would serve no peer that reads. It would let peers that do not read hold connections and answers that
/// others need.
pub(super) const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Lets a write that takes longer than [`WRITE_WAIT`] fail.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Runs from the first write that had to wait until everything is written: a peer that takes a byte now and then
    /// gains no time by it.
    ends: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Returns `written` if it is ready, and an error once the time-out is over.
    pub(super) fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let ends = self.ends.get_or_insert_with(|| Box::pin(sleep(WRITE_WAIT)));
        ready!(ends.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read what it is sent")))
    }
}
