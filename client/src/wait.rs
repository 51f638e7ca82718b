//! Waiting for permits of one pool. Nothing is booked for anybody: the first in line is woken and takes for itself, so
//! leaving the line, at any moment, costs and loses nothing.

use crate::line::Ticket;
use crate::local_pool::{CLOCK, LocalPool};
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::tally::End;
use lessor_protocol::Moment;
use lessor_protocol::trace::TARGET;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use tracing::Instrument as _;
use tracing::field::Empty;

/// A place in line; dropping it leaves the line and, if it was the first, calls whoever is first then.
struct Place<'a> {
    pool: &'a LocalPool,
    ticket: Ticket,
    permits: u64,
    since: Moment,
    end: End,
}

impl<'a> Place<'a> {
    fn join(pool: &'a LocalPool, priority: Priority, permits: u64) -> Option<Self> {
        let (mut line, way) = pool.line();
        let ticket = line.join(priority)?;
        way.join(permits);
        Some(Place { pool, ticket, permits, since: CLOCK.now(), end: End::Left })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (mut line, way) = self.pool.line();
        let was_first = line.leave(self.ticket, self.end == End::Admitted);
        way.leave(self.permits);
        drop(line);
        if was_first {
            self.pool.call_first();
        }
        // Last, lest anybody waits for whatever exports metrics.
        self.pool.tally().waited(CLOCK.now().since(self.since), self.end);
    }
}

/// Wakes the first in line when the next permit is due.
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Set to go off in `wait`. Whether it did already.
    fn is_over(&mut self, wait: Duration, cx: &mut Context<'_>) -> bool {
        let sleep = self.0.insert(Box::pin(tokio::time::sleep(wait)));
        sleep.as_mut().poll(cx).is_ready()
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
    priority: Priority,
    permits: u64,
    attempt: impl FnMut() -> Option<T>,
) -> Result<T, Refusal> {
    // Within whatever the caller does. Of the key nothing is said.
    let span = tracing::debug_span!(
        target: TARGET, "wait", otel.status_code = Empty, limit = &*pool.name().limit, permits,
    );
    let taken = stand_in_line(pool, priority, permits, attempt).instrument(span.clone()).await;
    if taken.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    taken
}

async fn stand_in_line<T>(
    pool: &LocalPool,
    priority: Priority,
    permits: u64,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T, Refusal> {
    let mut place = Place::join(pool, priority, permits).ok_or_else(|| pool.turn_away(permits))?;
    pool.nudge();
    let mut alarm = Alarm(None);
    poll_fn(|cx| {
        if let Some(refusal) = pool.refuse_for_good(permits) {
            place.end = End::Refused;
            return Poll::Ready(Err(refusal));
        }
        // The waker is known before the attempt: permits that come just after it wake this caller again. The
        // lock is released before it: an attempt on several limits may have to call the first of another line.
        let first = pool.line().0.wait(place.ticket, cx.waker());
        if !first {
            return Poll::Pending;
        }
        loop {
            if let Some(taken) = attempt() {
                place.end = End::Admitted;
                return Poll::Ready(Ok(taken));
            }
            // Nobody calls when the next permit of a steady flow is due: whoever is first knows when that is.
            match pool.early_by(permits, CLOCK.now()) {
                Some(wait) if alarm.is_over(wait, cx) => {}
                Some(_) | None => return Poll::Pending,
            }
        }
    })
    .await
}
