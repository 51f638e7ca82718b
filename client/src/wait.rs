//! Waiting for permits of one pool. No permit is booked for a caller: the first in line is woken and takes for itself.
//! So leaving the line at any moment costs and loses nothing.

use crate::line::Ticket;
use crate::local_pool::{CLOCK, LocalPool};
use crate::priority::Priority;
use crate::refusal::Refusal;
use crate::tally::End;
use lessor_protocol::Moment;
use lessor_protocol::trace::TARGET;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use tracing::field::Empty;

/// A place in line. Dropping it leaves the line and, if another caller may be first now, wakes that caller.
pub(crate) struct Place<'a> {
    pool: &'a LocalPool,
    ticket: Ticket,
    permits: u64,
    /// When the caller first stood in line; `None` if it stood aside all the time.
    since: Option<Moment>,
    is_aside: bool,
    pub(crate) end: End,
}

impl<'a> Place<'a> {
    /// Joins behind all of its priority; `None` if the line has its maximum length.
    pub(crate) fn join(pool: &'a LocalPool, priority: Priority, permits: u64) -> Option<Self> {
        let (mut line, slow_path) = pool.line();
        let ticket = line.join(priority, permits)?;
        slow_path.join(permits);
        pool.first_wants(line.first_permits());
        Some(Place { pool, ticket, permits, since: Some(CLOCK.now()), is_aside: false, end: End::Left })
    }

    /// As [`Place::join`], but stands aside: the place is kept, and keeps no other caller waiting.
    pub(crate) fn join_aside(pool: &'a LocalPool, priority: Priority, permits: u64) -> Self {
        let ticket = pool.line().0.join_aside(priority);
        Place { pool, ticket, permits, since: None, is_aside: true, end: End::Left }
    }

    pub(crate) fn pool(&self) -> &'a LocalPool {
        self.pool
    }

    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    /// Notes how to wake the caller, and returns whether it is first. The waker is known from then on.
    fn wait(&self, waker: &Waker) -> bool {
        let (is_first, _replaced) = self.pool.line().0.wait(self.ticket, waker);
        is_first
    }

    /// Whether the caller is first in line, or would be if it did not stand aside.
    pub(crate) fn is_first(&self) -> bool {
        self.pool.line().0.would_be_first(self.ticket)
    }

    /// Whether the caller stands in line, and so keeps callers behind it waiting.
    pub(crate) fn stands(&self) -> bool {
        !self.is_aside
    }

    /// Stands in line from now on, and notes how to wake the caller. Returns whether it stood aside before.
    pub(crate) fn stand(&mut self, waker: &Waker) -> bool {
        if !self.is_aside {
            self.wait(waker);
            return false;
        }
        self.is_aside = false;
        self.since.get_or_insert_with(|| CLOCK.now());
        let (mut line, slow_path) = self.pool.line();
        line.come_back(self.ticket, waker, self.permits);
        slow_path.join(self.permits);
        self.pool.first_wants(line.first_permits());
        drop(line);
        self.pool.nudge();
        true
    }

    /// Keeps the place, and lets callers behind it pass until [`Place::stand`].
    pub(crate) fn step_aside(&mut self) {
        if self.is_aside {
            return;
        }
        self.is_aside = true;
        let (mut line, slow_path) = self.pool.line();
        let (was_first, waker) = line.step_aside(self.ticket);
        slow_path.leave(self.permits);
        self.pool.first_wants(line.first_permits());
        drop(line);
        if was_first {
            self.pool.call_first();
        }
        drop(waker);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (mut line, slow_path) = self.pool.line();
        let (calls, waker) = line.leave(self.ticket, self.end == End::Admitted);
        if !self.is_aside {
            slow_path.leave(self.permits);
        }
        self.pool.first_wants(line.first_permits());
        drop(line);
        if calls {
            self.pool.call_first();
        }
        // A waker is foreign code: it may drop another place of this line.
        drop(waker);
        // Last, so that no caller waits for the exporter of metrics.
        if let Some(since) = self.since {
            self.pool.tally().waited(CLOCK.now().since(since), self.end);
        }
    }
}

/// A timer that wakes the first in line when the next permit is due. It runs on the client's own runtime, because the
/// caller's may have no timer.
pub(crate) struct Alarm(Option<JoinHandle<()>>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Alarm(None)
    }

    /// Wakes the caller after `wait`, and not earlier.
    pub(crate) fn set(&mut self, pool: &LocalPool, wait: Duration, cx: &Context<'_>) {
        self.stop();
        let waker = cx.waker().clone();
        self.0 = pool.runtime().map(|runtime| {
            runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                waker.wake();
            })
        });
    }

    fn stop(&mut self) {
        if let Some(set) = self.0.take() {
            set.abort();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits in the line of `pool` until `attempt`, which is called only while first in line, returns `Some`.
///
/// # Cancel safety
/// Dropping the future leaves the line. Nothing was booked, so nothing is lost.
pub(crate) async fn wait_in_line<T>(
    pool: &LocalPool,
    priority: Priority,
    permits: u64,
    attempt: impl FnMut() -> Option<T>,
) -> Result<T, Refusal> {
    in_span(pool, permits, stand_in_line(pool, priority, permits, attempt)).await
}

/// Runs `waiting` in a span within the caller's current span. The span does not name the key.
pub(crate) async fn in_span<T>(
    pool: &LocalPool,
    permits: u64,
    waiting: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let span = tracing::debug_span!(
        target: TARGET, "wait", otel.status_code = Empty, limit = &*pool.name().limit, permits,
    );
    let taken = waiting.instrument(span.clone()).await;
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
    let mut alarm = Alarm::new();
    poll_fn(|cx| {
        // The waker is known before anything is looked at, so a later change wakes this caller again. The lock is
        // released before the attempt.
        let is_first = place.wait(cx.waker());
        if let Some(refusal) = pool.refuse_for_good(permits) {
            place.end = End::Refused;
            return Poll::Ready(Err(refusal));
        }
        if !is_first {
            return Poll::Pending;
        }
        if let Some(taken) = attempt() {
            place.end = End::Admitted;
            return Poll::Ready(Ok(taken));
        }
        if !place.is_first() {
            // A caller that came first meanwhile may have found too few while the attempt set permits aside.
            pool.call_first();
        } else if let Some(wait) = pool.early_by(permits, CLOCK.now()) {
            // No waker is called when the next permit of a steady flow is due, so the first in line sets a timer.
            alarm.set(pool, wait, cx);
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests;
