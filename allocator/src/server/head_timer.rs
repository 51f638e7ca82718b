//! The timer for the heads of one connection. A connection waits for the next head after each answer, and nearly always
//! gets it at once. So the timer is not reset each time: when it fires, it checks how far the deadline has moved.

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;
use lessor_protocol::lock_anyway::LockAnyway;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// The timer of all waits, made by the first of them.
type SharedSleep = Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>;

/// The timer of one connection. Deadlines must not go back.
#[derive(Debug, Default)]
pub(super) struct HeadTimer(SharedSleep);

/// A wait for one deadline.
struct Wait {
    deadline: Instant,
    bell: SharedSleep,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { deadline, bell: self.0.clone() })
    }

    fn now(&self) -> Instant {
        TokioTimer::new().now()
    }
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline.into();
        let mut bell = self.bell.lock_anyway();
        let bell = bell.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            ready!(bell.as_mut().poll(cx));
            if bell.deadline() >= deadline {
                return Poll::Ready(());
            }
            bell.as_mut().reset(deadline);
        }
    }
}
