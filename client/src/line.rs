//! The callers that wait for permits of one pool, first come, first served. Nothing is booked for anybody: the
//! first in line is woken and takes for itself, so leaving the line, at any moment, costs and loses nothing.

use crate::local_pool::LocalPool;
use crate::refusal::Refusal;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

/// Most callers in one line. A longer one is memory spent on calls that will hardly be served in time.
const LINE_MAX: usize = 100_000;

/// The callers in line, in order.
#[derive(Debug, Default)]
pub(crate) struct Line {
    places: VecDeque<Caller>,
    next_id: u64,
}

#[derive(Debug)]
struct Caller {
    id: u64,
    waker: Option<Waker>,
}

impl Line {
    pub(crate) fn first_waker(&self) -> Option<Waker> {
        self.places.front().and_then(|caller| caller.waker.clone())
    }

    pub(crate) fn all_wakers(&self) -> Vec<Waker> {
        self.places.iter().filter_map(|caller| caller.waker.clone()).collect()
    }

    /// Notes how to wake `id`, and tells whether it is the first.
    fn wait(&mut self, id: u64, waker: &Waker) -> bool {
        if let Some(caller) = self.places.iter_mut().find(|caller| caller.id == id) {
            match &mut caller.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        self.places.front().is_some_and(|caller| caller.id == id)
    }
}

/// A place in line; dropping it leaves the line and calls whoever is first then.
struct Place<'a> {
    pool: &'a LocalPool,
    id: u64,
    permits: u64,
}

impl<'a> Place<'a> {
    fn join(pool: &'a LocalPool, permits: u64) -> Option<Self> {
        let (mut line, queued) = pool.line();
        if line.places.len() >= LINE_MAX {
            return None;
        }
        let id = line.next_id;
        line.next_id += 1;
        line.places.push_back(Caller { id, waker: None });
        queued.fetch_add(permits, Ordering::Relaxed);
        Some(Place { pool, id, permits })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (mut line, queued) = self.pool.line();
        line.places.retain(|caller| caller.id != self.id);
        queued.fetch_sub(self.permits, Ordering::Relaxed);
        drop(line);
        self.pool.call_first();
    }
}

/// Waits in the line of `pool` until `attempt`, made only while first in it, gives something.
///
/// `attempt` answers `None` to wait on.
///
/// # Cancel safety
/// Dropping the future leaves the line. Nothing was booked, so nothing is lost.
pub(crate) async fn wait_in_line<T>(
    pool: &LocalPool,
    permits: u64,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T, Refusal> {
    let place = Place::join(pool, permits).ok_or_else(|| pool.not_now())?;
    pool.nudge();
    poll_fn(|cx| {
        if let Some(refusal) = pool.for_good(permits) {
            return Poll::Ready(Err(refusal));
        }
        // The waker is known before the attempt: permits that come just after it wake this caller again. The
        // lock is released before it: an attempt on several limits may have to call the first of another line.
        let first = pool.line().0.wait(place.id, cx.waker());
        match if first { attempt() } else { None } {
            Some(taken) => Poll::Ready(Ok(taken)),
            None => Poll::Pending,
        }
    })
    .await
}
