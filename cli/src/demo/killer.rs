//! Kills the allocators of a demo one after the other, as a failing machine does: with SIGKILL, in the middle of their
//! work. Each is restarted at once. The vendor judges the consequences.

use super::served::Served;
use crate::failure::Failure;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running killer, until it is told to end.
#[derive(Debug)]
pub(crate) struct Killer {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(Vec<Served>, u64), Failure>>,
    /// Closed once the task is over.
    over: oneshot::Receiver<()>,
}

impl Killer {
    /// Kills the first of `served` after `every`, then the next one, and so on.
    pub(crate) fn begin(served: Vec<Served>, every: Duration) -> Self {
        let ((end, ended), (working, over)) = (oneshot::channel(), oneshot::channel());
        let task = tokio::spawn(async move {
            let killed = work(served, every, ended).await;
            drop(working);
            killed
        });
        Killer { end, task, over }
    }

    /// Waits until an allocator does not come back. Without a killer it waits for ever. Cancel-safe.
    pub(crate) async fn broke(this: &mut Option<Self>) {
        match this {
            // No message is ever sent: the channel closes.
            Some(killer) => _ = (&mut killer.over).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the allocators, which are not killed any more, and the number of kills.
    ///
    /// # Errors
    /// If one did not come back.
    pub(crate) async fn end(self) -> Result<(Vec<Served>, u64), Failure> {
        // A task that is over receives nothing.
        let _ = self.end.send(());
        self.task.await.unwrap_or_else(|error| {
            Err(Failure::Run(format!("the task that kills allocators failed: {error}")))
        })
    }
}

async fn work(
    mut served: Vec<Served>,
    every: Duration,
    mut ended: oneshot::Receiver<()>,
) -> Result<(Vec<Served>, u64), Failure> {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is immediate.
    ticks.tick().await;
    let mut kills = 0;
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => return Ok((served, kills)),
            failure = any_ended(&mut served) => return Err(failure),
            _ = ticks.tick() => {}
        }
        let next = usize::try_from(kills).unwrap_or(0) % served.len();
        served[next].restart().await?;
        kills += 1;
    }
}

/// Waits until an allocator ends although the demo did not kill it, and returns the failure. Cancel-safe.
async fn any_ended(served: &mut [Served]) -> Failure {
    let mut each: Vec<_> = served.iter_mut().map(|served| Box::pin(served.ended())).collect();
    poll_fn(|cx| {
        let ready = each.iter_mut().find_map(|ended| match ended.as_mut().poll(cx) {
            Poll::Ready(failure) => Some(failure),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
