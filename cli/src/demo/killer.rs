//! Kills the allocator of a demo all along, as a machine does that fails: with SIGKILL, in the middle of whatever it does.
//! It is started again at once. Who judges what comes of it is the vendor.

use super::served::Served;
use crate::failure::Failure;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// At work, until it is told to end.
#[derive(Debug)]
pub(crate) struct Killer {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(Served, u64), Failure>>,
    /// Closed once the task is over.
    over: oneshot::Receiver<()>,
}

impl Killer {
    /// Kills `served` for the first time after `every`.
    pub(crate) fn begin(served: Served, every: Duration) -> Self {
        let ((end, ended), (working, over)) = (oneshot::channel(), oneshot::channel());
        let task = tokio::spawn(async move {
            let killed = work(served, every, ended).await;
            drop(working);
            killed
        });
        Killer { end, task, over }
    }

    /// Waits until the allocator did not come back; for ever if nobody kills it. Cancel-safe.
    pub(crate) async fn broke(this: &mut Option<Self>) {
        match this {
            // Nothing is ever sent: it is closed.
            Some(killer) => _ = (&mut killer.over).await,
            None => std::future::pending().await,
        }
    }

    /// The allocator, which lives from now on, and how often it was killed.
    ///
    /// # Errors
    /// If it did not come back.
    pub(crate) async fn end(self) -> Result<(Served, u64), Failure> {
        // A task that is over hears nothing any more.
        let _ = self.end.send(());
        self.task
            .await
            .unwrap_or_else(|error| Err(Failure::Run(format!("who kills the allocator broke: {error}"))))
    }
}

async fn work(
    mut served: Served,
    every: Duration,
    mut ended: oneshot::Receiver<()>,
) -> Result<(Served, u64), Failure> {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first one is at once.
    ticks.tick().await;
    let mut kills = 0;
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => return Ok((served, kills)),
            failure = served.ended() => return Err(failure),
            _ = ticks.tick() => {}
        }
        served.restart().await?;
        kills += 1;
    }
}
