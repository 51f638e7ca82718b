//! Looks: tasks that watch something for as long as the server runs, such as its memory, its tokens and certificates.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Pause before a look begins again after a panic, so that one that always panics is no burden and no flood of errors.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The looks of a server. They end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Looks(JoinSet<()>);

impl Looks {
    /// Looks after `what` until the server ends. A look that ends in a panic begins again: without it revoked tokens
    /// would stay valid, or the memory would have no bound.
    pub(super) fn spawn<F>(&mut self, what: &'static str, look: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.spawn(async move {
            while ended_in_a_panic(look()).await {
                tracing::error!(
                    what,
                    "the look at this ended in a panic, and begins again in a second: this is a bug"
                );
                sleep(AGAIN_AFTER).await;
            }
        });
    }

    /// Ends all looks.
    pub(super) async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }
}

/// Waits for the end of `look`. Returns whether it was a panic.
async fn ended_in_a_panic(look: impl Future<Output = ()>) -> bool {
    let mut look = pin!(look);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| look.as_mut().poll(context))) {
        Ok(poll) => poll.map(|()| false),
        Err(_) => Poll::Ready(true),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    /// The bug: after a panic nothing looked at the memory, or at the tokens, any more.
    #[tokio::test(start_paused = true)]
    async fn a_look_that_ends_in_a_panic_begins_again() {
        let (begun, third) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let mut looks = Looks::default();
        let (counted, notified) = (begun.clone(), third.clone());
        looks.spawn("a test", move || {
            let (counted, notified) = (counted.clone(), notified.clone());
            async move {
                assert!(counted.fetch_add(1, Relaxed) >= 2, "a bug");
                notified.notify_one();
                pending().await
            }
        });
        timeout(AGAIN_AFTER * 10, third.notified()).await.expect("it begins again");
        assert_eq!(begun.load(Relaxed), 3);
        looks.shutdown().await;
        assert_eq!((begun.load(Relaxed), Arc::strong_count(&third)), (3, 1), "it has ended");
    }

    #[tokio::test]
    async fn a_look_that_has_nothing_to_look_at_ends() {
        let mut looks = Looks::default();
        looks.spawn("nothing", || async {});
        assert!(looks.0.join_next().await.is_some_and(|ended| ended.is_ok()));
    }
}
