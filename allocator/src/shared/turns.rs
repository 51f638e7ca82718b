//! Turns of requests whose answers take long to make. One is made at a time, so that many such requests take neither
//! every processor nor the memory from exchanges. Decisions have turns of their own: to go into a shared store, and to be
//! written to the audit log. Readers take turns with each other, however many requests of one wait.

use super::Shared;
use crate::addresses::Address;
use crate::places::{Place, Places};
use lessor_ledger::share::Owner;
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Most requests that have a turn or wait for one. Each that waits holds its connection and its head. Far more than
/// operators and their tools need.
const WAITING_MAX: usize = 64;

/// Most of them of one reader, so that it leaves places for others.
const OF_READER_MAX: usize = WAITING_MAX / 2;

/// Turns that come one after the other.
#[derive(Debug)]
pub(super) struct Turns {
    one: Semaphore,
    places: Semaphore,
    readers: Places<Reader>,
    /// The line of each reader. The first request of each line waits for the turn.
    lines: Mutex<BTreeMap<Reader, Weak<Semaphore>>>,
}

/// The peer that reads a long answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reader {
    /// An identity, at whatever addresses.
    Identity(Owner),
    /// An address, where no identity is required.
    Address(Address),
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // An error of a semaphore says that it was closed, which none ever is.
    _one: Option<SemaphorePermit<'a>>,
    _first_of_reader: Option<OwnedSemaphorePermit>,
    _place: Option<SemaphorePermit<'a>>,
    _of_reader: Option<Place<Reader>>,
}

/// The error that too many requests wait for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyWait {
    /// Too many of all readers.
    #[error("{WAITING_MAX} requests with long answers wait, the maximum: send this one again")]
    OfAll,
    /// Too many of this reader.
    #[error(
        "{OF_READER_MAX} requests with long answers of this identity or address wait, the maximum: send this one again"
    )]
    OfReader,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            one: Semaphore::new(1),
            places: Semaphore::new(WAITING_MAX),
            readers: Places::new(OF_READER_MAX),
            lines: Mutex::default(),
        }
    }
}

impl Turns {
    /// Waits for the next turn, for `reader` if it is known.
    async fn next(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        let place = self.place(reader)?;
        let first = match reader {
            Some(reader) => self.line(reader).acquire_owned().await.ok(),
            None => None,
        };
        Ok(Turn { _one: self.one.acquire().await.ok(), _first_of_reader: first, ..place })
    }

    /// Takes a place without a turn, for `reader` if it is known.
    fn place(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        let of_reader = reader.map(|reader| self.readers.place(reader).ok_or(TooManyWait::OfReader));
        let of_reader = of_reader.transpose()?;
        let place = self.places.try_acquire().map_err(|_| TooManyWait::OfAll)?;
        Ok(Turn { _one: None, _first_of_reader: None, _place: Some(place), _of_reader: of_reader })
    }

    /// Waits for the next turn, however many others do.
    async fn next_in_any_case(&self) -> Turn<'_> {
        let one = self.one.acquire().await.ok();
        Turn { _one: one, _first_of_reader: None, _place: None, _of_reader: None }
    }

    fn line(&self, reader: Reader) -> Arc<Semaphore> {
        // Nothing here panics half way.
        let mut lines = self.lines.lock_anyway();
        lines.retain(|_, line| line.strong_count() > 0);
        let known = lines.get(&reader).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let line = Arc::new(Semaphore::new(1));
            lines.insert(reader, Arc::downgrade(&line));
            line
        })
    }
}

impl Shared {
    /// Waits until no other request makes a long answer, on behalf of `reader`. Cancel-safe. What the answer shows is to
    /// be read afterwards: requests that wait hold none of it.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_show(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        self.show.next(reader).await
    }

    /// Waits until no other request reads the metrics. Long answers for operators do not hold it up. Cancel-safe.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_scrape(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        self.scrape.next(reader).await
    }

    /// Waits until no other decision of an operator is being brought into the shared store, on behalf of `reader`.
    /// Cancel-safe.
    ///
    /// # Errors
    /// If too many wait already.
    pub(crate) async fn turn_to_decide(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        self.decide.next(reader).await
    }

    /// Waits as [`Shared::turn_to_show`], however many others do: the change that the answer is about was made.
    pub(crate) async fn turn_after_change(&self) -> Turn<'_> {
        self.show.next_in_any_case().await
    }

    /// Takes a place for a decision of an operator, on behalf of `reader`, for as long as the decision is made and
    /// written down.
    ///
    /// # Errors
    /// If too many decisions are being made.
    pub(crate) fn place_to_decide(&self, reader: Option<Reader>) -> Result<Turn<'_>, TooManyWait> {
        self.record.place(reader)
    }

    /// Waits until no other decision is being written to the audit log.
    pub(crate) async fn turn_to_record(&self) -> Turn<'_> {
        self.record.next_in_any_case().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    /// The bug: one reader took all places, and others were refused until it was answered.
    #[test]
    fn one_reader_leaves_places_for_others() {
        let turns = Turns::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<Pin<Box<dyn Future<Output = _>>>> = vec![];
        let mut made = vec![];
        let mut ask = |reader| {
            let mut next: Pin<Box<dyn Future<Output = _>>> = Box::pin(turns.next(reader));
            match next.as_mut().poll(&mut context) {
                Poll::Pending => {
                    waiting.push(next);
                    Ok(())
                }
                Poll::Ready(Ok(turn)) => {
                    // Its answer is made for as long as the test lasts.
                    made.push(turn);
                    Ok(())
                }
                Poll::Ready(Err(full)) => Err(full),
            }
        };
        let [one, other] = [1, 2].map(|owner| Some(Reader::Identity(Owner(owner))));
        let at = Some(Reader::Address(Address::Unix));
        for _ in 0..OF_READER_MAX {
            assert_eq!(ask(one), Ok(()));
        }
        assert_eq!(ask(one), Err(TooManyWait::OfReader));
        for reader in [other, at].repeat(OF_READER_MAX / 2) {
            assert_eq!(ask(reader), Ok(()));
        }
        assert_eq!((ask(other), ask(None)), (Err(TooManyWait::OfAll), Err(TooManyWait::OfAll)));
        drop(waiting);
        assert_eq!(turns.readers.holders(), 1, "only the one whose answer is made");
    }

    /// The bug: one line for all, so that requests of others waited until those of one reader were answered.
    #[test]
    fn readers_take_turns_with_each_other() {
        let turns = Turns::default();
        let mut context = Context::from_waker(Waker::noop());
        let [one, other] = [1, 2].map(|owner| Some(Reader::Identity(Owner(owner))));
        let asked = [one, one, one, other, other, one];
        let mut waiting: Vec<(_, Pin<Box<dyn Future<Output = _>>>)> = vec![];
        for reader in asked {
            waiting.push((reader, Box::pin(turns.next(reader))));
        }
        let mut made = vec![];
        while !waiting.is_empty() {
            let ready = waiting.iter_mut().enumerate().find_map(|(place, (_, next))| {
                match next.as_mut().poll(&mut context) {
                    Poll::Ready(turn) => Some((place, turn)),
                    Poll::Pending => None,
                }
            });
            // All others are in line before the turn ends.
            let (place, turn) = ready.expect("one of them has the turn");
            for (_, next) in waiting.iter_mut().skip(place + 1) {
                assert!(next.as_mut().poll(&mut context).is_pending());
            }
            made.push(waiting.remove(place).0);
            drop(turn);
        }
        assert_eq!(made, [one, other, one, other, one, one]);
    }
}
