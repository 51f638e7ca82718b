//! Turns of requests whose answers take long to make. One is made at a time, so that many such requests take neither
//! every processor nor the memory from exchanges. Decisions that go into a shared store have turns of their own.

use super::Shared;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most requests that have a turn or wait for one. Each that waits holds its connection and its head. Far more than
/// operators and their tools need.
const WAITING_MAX: usize = 64;

/// Turns that come one after the other.
#[derive(Debug)]
pub(super) struct Turns {
    one: Semaphore,
    places: Semaphore,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // An error of a semaphore says that it was closed, which none ever is.
    _one: Option<SemaphorePermit<'a>>,
    _place: Option<SemaphorePermit<'a>>,
}

/// The error that too many requests wait for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} requests with long answers wait, the maximum: send this one again")]
pub(crate) struct TooManyWait;

impl Default for Turns {
    fn default() -> Self {
        Turns { one: Semaphore::new(1), places: Semaphore::new(WAITING_MAX) }
    }
}

impl Turns {
    async fn next(&self) -> Result<Turn<'_>, TooManyWait> {
        let place = self.places.try_acquire().map_err(|_| TooManyWait)?;
        Ok(Turn { _one: self.one.acquire().await.ok(), _place: Some(place) })
    }
}

impl Shared {
    /// Waits until no other request makes a long answer. Cancel-safe. What the answer shows is to be read afterwards:
    /// requests that wait hold none of it.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_show(&self) -> Result<Turn<'_>, TooManyWait> {
        self.show.next().await
    }

    /// Waits until no other request reads the metrics. Long answers for operators do not hold it up. Cancel-safe.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_scrape(&self) -> Result<Turn<'_>, TooManyWait> {
        self.scrape.next().await
    }

    /// Waits until no other decision of an operator is being brought into the shared store. Cancel-safe.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_decide(&self) -> Result<Turn<'_>, TooManyWait> {
        self.decide.next().await
    }

    /// Waits as [`Shared::turn_to_show`], however many others do: the change that the answer is about was made.
    pub(crate) async fn turn_after_change(&self) -> Turn<'_> {
        Turn { _one: self.show.one.acquire().await.ok(), _place: None }
    }
}
