//! Brings a decision of an operator into a shared store: carries the calls of a [`Publish`] to the store and back. All
//! allocators follow the decision from there. Each decision has a connection of its own, to the host that answered the
//! last one, and one is made at a time: all of them swap the same cells.

use super::contested::Contested;
use super::rooted::{Here, do_call};
use super::transport::TransportError;
use crate::cells::Cells;
use crate::config::StoreConfig;
use crate::shared::{Reader, Shared, Turn};
use lessor_ledger::overrides::{
    Decision, Next, OverridesFull, Publish, PublishError, Published, SuspensionsFull,
};
use lessor_protocol::lock_anyway::LockAnyway;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Sleep, sleep, timeout};

/// Longest wait of an operator for a decision and its turn. With [`TELL_MAX`] it is less than the time in which an
/// allocator that ends finishes its requests.
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
    /// No turn came in time: each decision before this one takes long. Nothing was changed.
    #[error(
        "no turn within {PUBLISH_MAX:?}: the store that allocators share answers slowly; nothing was changed"
    )]
    NoTurn,
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

/// Decides about the suspension of `limit` for all allocators, on behalf of `reader`, and applies it here at once.
/// Returns whether the pause or block was there before.
///
/// # Cancel safety
/// If the future is dropped, the decision may have been made.
pub(crate) async fn decide(
    shared: &Shared,
    reader: Option<Reader>,
    limit: &str,
    decision: &Decision,
) -> Result<bool, Unpublished> {
    let mut patience = pin!(sleep(PUBLISH_MAX));
    let _turn = turn(shared, reader, patience.as_mut()).await?;
    let mut connection = connection(shared)?;
    let publish = Publish::suspension(limit, decision.clone());
    let published: Result<_, Unpublished> =
        in_time(patience, carry(&mut connection.cells, shared, publish, || Ok(()))).await;
    Ok(published?.was_so)
}

/// Puts the limit `name` for all allocators, or removes it, on behalf of `reader`, unless `check` objects. `check` is
/// called once the newest overrides are applied here, and again whenever another allocator was faster. The change is
/// applied here at once.
///
/// # Cancel safety
/// If the future is dropped, the change may have been made.
pub(crate) async fn change<E: From<Unpublished>>(
    shared: &Arc<Shared>,
    reader: Option<Reader>,
    name: &str,
    put: Option<Value>,
    check: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut patience = pin!(sleep(PUBLISH_MAX));
    let _turn = turn(shared, reader, patience.as_mut()).await?;
    let mut connection = connection(shared)?;
    let put = carry(&mut connection.cells, shared, Publish::limit(name, put), check);
    let published = in_time(patience, put).await?;
    // The decision is in the store. The head is told of it even if the operator no longer waits.
    let (shared, limit) = (shared.clone(), name.to_owned());
    let telling = tokio::spawn(async move {
        let newest = Publish::newest(published.newest);
        let tell = carry(&mut connection.cells, &shared, newest, || Ok::<_, Infallible>(()));
        if let Ok(Ok(Err(error))) = timeout(TELL_MAX, tell).await {
            tracing::debug!(limit, %error, "the store's head does not say yet that a limit was put or removed");
        }
    });
    // Should that fail, all allocators still read the overrides themselves.
    let _ = telling.await;
    Ok(())
}

/// Waits until no other decision is being made, or until `patience` is over.
async fn turn<'a>(
    shared: &'a Shared,
    reader: Option<Reader>,
    patience: Pin<&mut Sleep>,
) -> Result<Turn<'a>, Unpublished> {
    tokio::select! {
        biased;
        turn = shared.turn_to_decide(reader) => turn.map_err(|_| Unpublished::Crowded),
        () = patience => Err(Unpublished::NoTurn),
    }
}

/// The host of the store that the next decision asks first, as a handle that is not connected.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastHost(Arc<Mutex<Option<Cells>>>);

/// The connection of a decision. Dropping it keeps the host for the next decision, whatever became of this one. Nothing is
/// kept of a cluster: its master may be gone, and each decision would ask the same one again.
struct Connection {
    cells: Cells,
    last: LastHost,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let is_cluster = matches!(self.cells, Cells::Cluster(_));
        *self.last.0.lock_anyway() = (!is_cluster).then(|| self.cells.another());
    }
}

fn connection(shared: &Shared) -> Result<Connection, Unpublished> {
    let StoreConfig::Shared(store) = &shared.config().server.store else {
        return Err(Unpublished::Unreachable("there is none".to_owned()));
    };
    let last = shared.shared_store_status().last_host().clone();
    let known = last.0.lock_anyway().take();
    let cells = known.map_or_else(|| Cells::new(&store.cells), Ok);
    let cells = cells.map_err(|error| Unpublished::Unreachable(error.to_string()))?;
    Ok(Connection { cells, last })
}

/// Outcome of a publication: the outer error is an objection to it.
type Outcome<E> = Result<Result<Published, PublishError>, E>;

/// Returns the outcome, or an error once the `patience` of the operator is over.
async fn in_time<E: From<Unpublished>>(
    patience: Pin<&mut Sleep>,
    outcome: impl Future<Output = Outcome<E>>,
) -> Result<Published, E> {
    tokio::select! {
        biased;
        outcome = outcome => Ok(outcome?.map_err(Unpublished::from)?),
        () = patience => Err(Unpublished::Unreachable(TransportError::TimedOut.to_string()).into()),
    }
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
    use crate::samples::{LIMIT, allocator};
    use lessor_ledger::share::Owner;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    const ONE: Reader = Reader::Identity(Owner(1));
    const OTHER: Reader = Reader::Identity(Owner(2));

    fn shared(url: &str, patience: &str) -> Arc<Shared> {
        shared_of("redis", url, patience)
    }

    fn shared_of(kind: &str, url: &str, patience: &str) -> Arc<Shared> {
        allocator(&format!("[store]\nkind = {kind:?}\nurl = {url:?}\ntimeout = {patience:?}\n{LIMIT}"))
    }

    fn pauses(
        shared: &Arc<Shared>,
        reader: Option<Reader>,
        count: usize,
    ) -> JoinSet<Result<bool, Unpublished>> {
        let mut pauses = JoinSet::new();
        for _ in 0..count {
            let shared = shared.clone();
            pauses.spawn(async move { decide(&shared, reader, "a", &Decision::Pause(None)).await });
        }
        pauses
    }

    /// The bug: each had a connection at once, however many there were.
    #[tokio::test]
    async fn decisions_go_to_the_store_one_after_the_other() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let shared = shared(&format!("redis://{}", silent.local_addr().expect("it is bound")), "50ms");
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
        let failed = pauses(&shared, None, 8).join_all().await;
        assert!(failed.iter().all(|pause| matches!(pause, Err(Unpublished::Unreachable(_)))), "{failed:?}");
        // The end of a connection is seen after the next one has begun.
        assert!((1..=2).contains(&most.load(SeqCst)), "{most:?} connections");
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_that_wait_are_few_and_do_not_wait_for_long() {
        let shared = shared("redis://127.0.0.1:1", "50ms");
        let turn = shared.turn_to_decide(None).await.expect("room");
        let mut waiting = pauses(&shared, None, 100);
        are_refused(&mut waiting, 37).await;
        assert_eq!(waiting.len(), 63);
        let late = waiting.join_all().await;
        assert!(late.iter().all(|pause| matches!(pause, Err(Unpublished::NoTurn))), "{late:?}");
        drop(turn);
        assert!(matches!(pauses(&shared, None, 1).join_all().await[0], Err(Unpublished::Unreachable(_))));
    }

    /// Waits until `count` pauses were refused because too many wait.
    async fn are_refused(pauses: &mut JoinSet<Result<bool, Unpublished>>, count: usize) {
        for _ in 0..count {
            let refused = pauses.join_next().await.expect("there are more").expect("no panic");
            assert!(matches!(refused, Err(Unpublished::Crowded)), "{refused:?}");
        }
    }

    /// The bug: one identity took all places, and the pauses of others were refused. Later each waited for all of that
    /// identity, and got no turn in time.
    #[tokio::test(start_paused = true)]
    async fn one_identity_leaves_places_for_the_decisions_of_others() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let shared = shared(&format!("redis://{}", silent.local_addr().expect("it is bound")), "500ms");
        let turn = shared.turn_to_decide(None).await.expect("room");
        let mut waiting = pauses(&shared, Some(ONE), 64);
        are_refused(&mut waiting, 32).await;
        drop(turn);
        // Each of these has the whole time-out of the store.
        let soon = Duration::from_secs(2);
        let other = timeout(soon, pauses(&shared, Some(OTHER), 1).join_all()).await.expect("it has its turn");
        assert!(matches!(other[0], Err(Unpublished::Unreachable(_))), "{other:?}");
    }

    /// The bug: a decision had three seconds after it had waited three seconds for its turn: longer than an allocator
    /// that ends finishes its requests.
    #[tokio::test(start_paused = true)]
    async fn a_decision_and_its_turn_share_one_patience() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let shared = shared(&format!("redis://{}", silent.local_addr().expect("it is bound")), "10s");
        let first = pauses(&shared, None, 1);
        sleep(Duration::from_secs(1)).await;
        let most = PUBLISH_MAX + Duration::from_millis(10);
        let second = timeout(most, pauses(&shared, None, 1).join_all()).await.expect("it ends in time");
        let second = second[0].as_ref().expect_err("the store is silent");
        let words = second.to_string();
        assert!(words.starts_with("the store that allocators share: "), "{words}");
        let first = first.join_all().await;
        assert!(matches!(first[0], Err(Unpublished::Unreachable(_))), "{first:?}");
    }

    /// The bug: each decision began with the first host, and one that is silent took half of its time-out.
    #[tokio::test]
    async fn a_decision_begins_with_the_host_after_those_that_were_silent() {
        let mut hosts = vec![];
        for _ in 0..5 {
            hosts.push(TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        }
        let address = |host: &TcpListener| host.local_addr().expect("it is bound").to_string();
        let all: Vec<String> = hosts.iter().map(address).collect();
        let url = format!("postgres://u@{}/db?sslmode=disable", all.join(","));
        let shared = shared_of("postgres", &url, "80ms");
        for _ in 0..2 {
            let failed = pauses(&shared, None, 1).join_all().await;
            assert!(matches!(failed[0], Err(Unpublished::Unreachable(_))), "{failed:?}");
        }
        // Four of them take the time-out of the first decision. The connection waits to be accepted.
        timeout(Duration::from_secs(9), hosts[4].accept()).await.expect("it was asked").expect("a stream");
    }

    /// A decision that kept what it knew of a cluster went to the old master after a fail-over, each time anew.
    #[tokio::test]
    async fn nothing_is_kept_of_a_cluster() {
        let (cluster, one) = ("redis://127.0.0.1:1/?cluster=true", "redis://127.0.0.1:1");
        for (url, is_kept) in [(cluster, false), (one, true)] {
            let shared = shared(url, "80ms");
            drop(connection(&shared).expect("a store"));
            assert_eq!(shared.shared_store_status().last_host().0.lock_anyway().is_some(), is_kept, "{url}");
        }
    }
}
