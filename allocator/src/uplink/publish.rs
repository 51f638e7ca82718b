//! Brings a decision of an operator into a shared store: carries the calls of a [`Publish`] to the store and back. All
//! allocators follow the decision from there. Each decision has a connection of its own, and one is made at a time:
//! all of them swap the same cells.

use super::contested::Contested;
use super::rooted::{Here, do_call};
use super::transport::TransportError;
use crate::cells::Cells;
use crate::config::StoreConfig;
use crate::shared::{Shared, Turn};
use lessor_ledger::overrides::{
    Decision, Next, OverridesFull, Publish, PublishError, Published, SuspensionsFull,
};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest wait of an operator for a decision, and before that for its turn.
const PUBLISH_MAX: Duration = Duration::from_secs(3);

/// Longest wait of an operator until the head says so, too: all allocators read the overrides themselves now and then.
const TELL_MAX: Duration = Duration::from_millis(500);

/// Why a decision was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unpublished {
    /// There is no room for another suspension.
    #[error(transparent)]
    SuspensionsFull(SuspensionsFull),
    /// There is no room for another limit.
    #[error(transparent)]
    OverridesFull(OverridesFull),
    /// Too many decisions wait. Nothing was changed.
    #[error(
        "too many decisions wait for the store that allocators share: nothing was changed, send this one again"
    )]
    Crowded,
    /// The store does not answer, or not well. It may or may not hold the decision.
    #[error("the store that allocators share: {0}")]
    Unreachable(String),
}

impl From<PublishError> for Unpublished {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::SuspensionsFull(full) => Unpublished::SuspensionsFull(full),
            PublishError::OverridesFull(full) => Unpublished::OverridesFull(full),
            PublishError::Store(_) | PublishError::Unreadable(_) | PublishError::Mismatch => {
                Unpublished::Unreachable(error.to_string())
            }
        }
    }
}

/// Decides about the suspension of `limit` for all allocators, and applies it here at once. Returns whether the pause
/// or block was there before.
///
/// # Cancel safety
/// If the future is dropped, the decision may have been made.
pub(crate) async fn decide(shared: &Shared, limit: &str, decision: &Decision) -> Result<bool, Unpublished> {
    let _turn = turn(shared).await?;
    let mut cells = cells(shared)?;
    let publish = Publish::suspension(limit, decision.clone());
    let published: Result<_, Unpublished> = in_time(carry(&mut cells, shared, publish, || Ok(()))).await;
    Ok(published?.was_so)
}

/// Puts the limit `name` for all allocators, or removes it, unless `check` objects. `check` is called once the newest
/// overrides are applied here, and again whenever another allocator was faster. The change is applied here at once.
///
/// # Cancel safety
/// If the future is dropped, the change may have been made.
pub(crate) async fn change<E: From<Unpublished>>(
    shared: &Arc<Shared>,
    name: &str,
    put: Option<Value>,
    check: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let _turn = turn(shared).await?;
    let mut cells = cells(shared)?;
    let published = in_time(carry(&mut cells, shared, Publish::limit(name, put), check)).await?;
    // The decision is in the store. The head is told of it even if the operator no longer waits.
    let (shared, limit) = (shared.clone(), name.to_owned());
    let telling = tokio::spawn(async move {
        let tell = carry(&mut cells, &shared, Publish::newest(published.newest), || Ok::<_, Infallible>(()));
        if let Ok(Ok(Err(error))) = timeout(TELL_MAX, tell).await {
            tracing::debug!(limit, %error, "the store's head does not say yet that a limit was put or removed");
        }
    });
    // Should that fail, all allocators still read the overrides themselves.
    let _ = telling.await;
    Ok(())
}

/// Waits until no other decision is being made.
async fn turn(shared: &Shared) -> Result<Turn<'_>, Unpublished> {
    let turn = timeout(PUBLISH_MAX, shared.turn_to_decide()).await;
    turn.map_err(|_| Unpublished::Crowded)?.map_err(|_| Unpublished::Crowded)
}

fn cells(shared: &Shared) -> Result<Cells, Unpublished> {
    let StoreConfig::Shared(store) = &shared.config().server.store else {
        return Err(Unpublished::Unreachable("there is none".to_owned()));
    };
    Cells::new(&store.cells).map_err(|error| Unpublished::Unreachable(error.to_string()))
}

/// Outcome of a publication: the outer error is an objection to it.
type Outcome<E> = Result<Result<Published, PublishError>, E>;

/// Returns the outcome, or an error once the operator no longer waits.
async fn in_time<E: From<Unpublished>>(outcome: impl Future<Output = Outcome<E>>) -> Result<Published, E> {
    let late = |_| Unpublished::Unreachable(TransportError::TimedOut.to_string());
    Ok(timeout(PUBLISH_MAX, outcome).await.map_err(late)??.map_err(Unpublished::from)?)
}

/// Carries the calls of `publish` to the store and back until it is done, or `check` objects.
async fn carry<E>(
    cells: &mut Cells,
    shared: &Shared,
    mut publish: Publish,
    mut check: impl FnMut() -> Result<(), E>,
) -> Outcome<E> {
    let mut contested = Contested::default();
    let mut here = Here { shared, due: None, contested: &mut contested };
    if let StoreConfig::Shared(store) = &shared.config().server.store {
        publish = publish.by_time_of(store.time_source());
    }
    let mut next = publish.begin();
    loop {
        next = match next {
            Next::Call(call) => publish.on_answer(do_call(cells, call).await, &mut here),
            Next::Pause(span) => {
                sleep(span).await;
                publish.go_on(&mut here)
            }
            Next::Check => {
                check()?;
                publish.go_on(&mut here)
            }
            Next::Done(published) => return Ok(published),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    fn shared(url: &str) -> Arc<Shared> {
        let text = format!(
            "[store]\nkind = \"redis\"\nurl = {url:?}\ntimeout = \"50ms\"\n\
             [[limit]]\nname = \"a\"\nrules = [{{ kind = \"fixed_window\", limit = 1, per = \"1s\" }}]"
        );
        Arc::new(Shared::new(Config::parse(&text).expect("valid"), true))
    }

    fn pauses(shared: &Arc<Shared>, count: usize) -> JoinSet<Result<bool, Unpublished>> {
        let mut pauses = JoinSet::new();
        for _ in 0..count {
            let shared = shared.clone();
            pauses.spawn(async move { decide(&shared, "a", &Decision::Pause(None)).await });
        }
        pauses
    }

    /// The bug: each had a connection at once, however many there were.
    #[tokio::test]
    async fn decisions_go_to_the_store_one_after_the_other() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let shared = shared(&format!("redis://{}", silent.local_addr().expect("it is bound")));
        let most = Arc::new(AtomicUsize::new(0));
        let counted = most.clone();
        let server = tokio::spawn(async move {
            let open = Arc::new(());
            loop {
                let (mut stream, _) = silent.accept().await.expect("a listener");
                let open = open.clone();
                counted.fetch_max(Arc::strong_count(&open) - 1, SeqCst);
                tokio::spawn(async move {
                    let _open = open;
                    while stream.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
        let failed = pauses(&shared, 20).join_all().await;
        assert!(failed.iter().all(|pause| matches!(pause, Err(Unpublished::Unreachable(_)))), "{failed:?}");
        // The end of a connection is seen after the next one has begun.
        assert!((1..=2).contains(&most.load(SeqCst)), "{most:?} connections");
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_that_wait_are_few_and_do_not_wait_for_long() {
        let shared = shared("redis://127.0.0.1:1");
        let turn = shared.turn_to_decide().await.expect("room");
        let mut waiting = pauses(&shared, 100);
        for _ in 0..37 {
            let refused = waiting.join_next().await.expect("they were refused").expect("no panic");
            assert!(matches!(refused, Err(Unpublished::Crowded)), "{refused:?}");
        }
        assert_eq!(waiting.len(), 63);
        let refused = waiting.join_all().await;
        assert!(refused.iter().all(|pause| matches!(pause, Err(Unpublished::Crowded))), "{refused:?}");
        drop(turn);
        assert!(matches!(pauses(&shared, 1).join_all().await[0], Err(Unpublished::Unreachable(_))));
    }
}
