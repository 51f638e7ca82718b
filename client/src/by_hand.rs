//! Support for tests: callers that a test polls by hand, without a runtime, limits without an allocator, whose permits
//! the test lends, and a background task that reaches no allocator. Each caller is polled once, and then only after its
//! waker was called.

use crate::limit::Limit;
use crate::local_pool::CLOCK;
use crate::refiller::Refiller;
use crate::session_numbers::SessionNumbers;
use crate::shared::Shared;
use crate::ticks::{HotClock, Ticks};
use crate::transport::{Credentials, Transport};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Longer than any test.
pub(crate) const LEASED: Duration = Duration::from_secs(3_600);

/// An address that nothing listens on.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:1";

/// Makes the state that the handles of a client share, without a client.
pub(crate) fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(Ticks::try_new(HotClock::Exact).expect("this clock needs no thread")))
}

/// Makes the connection to an allocator at `url`, without credentials.
pub(crate) fn transport(url: &str) -> Transport {
    let made = Transport::try_new(url, Duration::from_secs(5), &Credentials::default());
    made.expect("a good address")
}

/// Makes the background task of a client that reaches no allocator.
pub(crate) fn refiller(shared: &Arc<Shared>) -> Refiller {
    refiller_of(shared, NOWHERE, Duration::from_secs(1))
}

/// Makes the background task of a client of the allocator at `url`, which must answer within `timeout`.
pub(crate) fn refiller_of(shared: &Arc<Shared>, url: &str, timeout: Duration) -> Refiller {
    let numbers = (fastrand::Rng::with_seed(1), SessionNumbers::System);
    Refiller::new(shared.clone(), vec![transport(url)], timeout, "a".to_owned(), Default::default(), numbers)
}

/// Makes a handle to a limit that holds nothing.
pub(crate) fn limit(shared: &Arc<Shared>, name: &str) -> Limit {
    Limit::new(shared.pool(name, None), shared.clone())
}

/// Adds `permits` to those that `limit` holds, and wakes its line as the background task does.
pub(crate) fn lend(limit: &Limit, permits: u64) {
    limit.pool().slot().install(permits, 0, CLOCK.now() + LEASED);
    limit.pool().call_first();
}

/// A waker that notes whether it was called.
#[derive(Debug, Default)]
pub(crate) struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    /// Whether the waker was called since the last call of this.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

/// A faulty waker that panics when it is first called.
#[derive(Debug, Default)]
pub(crate) struct Panics(AtomicBool);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        assert!(self.0.swap(true, Ordering::SeqCst), "a waker that panics once, for a test");
    }
}

impl Panics {
    /// Whether the waker was called.
    pub(crate) fn has_panicked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A future, and whether it was woken.
pub(crate) struct Caller<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
    polls: u64,
}

impl<'a, T> Caller<'a, T> {
    /// Makes a caller that was not polled yet.
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Caller { future: Box::pin(future), woken, polls: 0 }
    }

    /// Polls the future until it is done or waits for its waker. Returns `None` if it waits.
    pub(crate) fn run(&mut self) -> Option<T> {
        let waker = Waker::from(self.woken.clone());
        while self.woken.take() {
            self.polls += 1;
            if let Poll::Ready(done) = self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(done);
            }
        }
        None
    }

    /// Whether the waker was called since the last poll.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// How often the future was polled.
    pub(crate) fn polls(&self) -> u64 {
        self.polls
    }
}

/// Runs all `callers` until none is woken. Passes the number and the result of each finished caller to `done`, and
/// removes it.
pub(crate) fn run<T>(callers: &mut Vec<(usize, Caller<'_, T>)>, mut done: impl FnMut(usize, T)) {
    loop {
        let before = callers.len();
        let mut ran = false;
        callers.retain_mut(|(number, caller)| {
            ran |= caller.is_woken();
            let ended = caller.run();
            ended.map(|ended| done(*number, ended)).is_none()
        });
        if !ran && callers.len() == before {
            return;
        }
    }
}
