//! The way of a limit that an operator puts or removes to the store that several allocators share: all of them follow it from
//! there. What it says is in one cell, and the head says that it is new.

use super::decide::{DECIDE_MAX, LOST_PAUSE, Undecided};
use super::dice;
use crate::cells::{Cell, Cells, CellsError, Swap, Swapped};
use crate::config::StoreConfig;
use crate::shared::Shared;
use lessor_ledger::overrides::{LimitOverrides, Version};
use lessor_ledger::roots::{HEAD, Head, OVERRIDES};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest that the operator waits for the head to say it: all look for it themselves now and then.
const SAY_MAX: Duration = Duration::from_millis(500);

/// For all allocators the limit called `name` is `put` from now on, or is no more, if `check` does not object. `check` is asked
/// once the newest is followed here, and again whenever another allocator was faster. The change is followed here at once. If
/// the future is dropped it is unknown whether the change was made.
pub(crate) async fn change<E: From<Undecided>>(
    shared: &Shared,
    name: &str,
    put: Option<Value>,
    check: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let late = |_| Undecided::late();
    let (mut cells, newest) =
        timeout(DECIDE_MAX, change_at_last(shared, name, put, check)).await.map_err(late)??;
    // It is in the store, and is said whether or not the operator still waits for it.
    let limit = name.to_owned();
    let saying = tokio::spawn(async move {
        if let Ok(Err(error)) = timeout(SAY_MAX, say(&mut cells, newest)).await {
            tracing::debug!(limit, %error, "the store's head does not say yet that a limit was put or removed");
        }
    });
    // All look for it themselves, should that have broken.
    let _ = saying.await;
    Ok(())
}

async fn change_at_last<E: From<Undecided>>(
    shared: &Shared,
    name: &str,
    put: Option<Value>,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<(Cells, Version), E> {
    let StoreConfig::Shared(store) = &shared.config().server.store else {
        return Err(Undecided::Unreachable("there is none".to_owned()).into());
    };
    let broken = |error: CellsError| Undecided::from(error);
    let mut cells = Cells::new(&store.cells).map_err(broken)?;
    loop {
        let there = cells.time().await.map_err(broken)?;
        let (timeline, found) = cells.load(&[HEAD.to_owned(), OVERRIDES.to_owned()]).await.map_err(broken)?;
        let mut found = found.into_iter();
        let (head, cell) = (found.next().flatten(), found.next().flatten());
        let Some(head) = head else {
            // It is about to be made.
            sleep(LOST_PAUSE).await;
            continue;
        };
        let mut head = Head::read(&head.value).map_err(Undecided::Unreachable)?;
        let known = match &cell {
            Some(cell) => LimitOverrides::read(&cell.value).map_err(Undecided::Unreachable)?,
            None => LimitOverrides::default(),
        };
        shared.follow_overrides(&known);
        let (mut decided, newest) = {
            let known = shared.shared_store_status().overrides();
            (known.known().clone(), known.newest().or_newer(head.newest()))
        };
        check()?;
        decided.decide(name, newest, put.clone()).map_err(Undecided::from)?;
        let next = Cell { version: dice(), value: decided.write() };
        let expected = cell.map(|cell| cell.version);
        let swap = Swap { name: OVERRIDES.to_owned(), expected, next: Some(next) };
        match cells.swap(&timeline, &[swap]).await.map_err(broken)?.into_iter().next() {
            Some(Swapped::Done) => {
                shared.follow_overrides(&decided);
                // A limit that is new may have been closed before there was one.
                head.keep_suspensions(&shared.shared_store_status().suspensions());
                shared.follow_suspensions(head.suspensions(), there);
                let newest = shared.shared_store_status().overrides().newest().or_newer(newest);
                return Ok((cells, newest));
            }
            Some(Swapped::Other(_)) | None => sleep(LOST_PAUSE).await,
        }
    }
}

/// The head says that this is known.
async fn say(cells: &mut Cells, newest: Version) -> Result<(), CellsError> {
    loop {
        let (timeline, found) = cells.load(&[HEAD.to_owned()]).await?;
        let Some(cell) = found.into_iter().next().flatten() else { return Ok(()) };
        let Ok(mut head) = Head::read(&cell.value) else { return Ok(()) };
        if head.newest() == head.newest().or_newer(newest) {
            return Ok(());
        }
        head.keep_newest(newest);
        let next = Cell { version: dice(), value: head.write() };
        let swap = Swap { name: HEAD.to_owned(), expected: Some(cell.version), next: Some(next) };
        if cells.swap(&timeline, &[swap]).await?.first() == Some(&Swapped::Done) {
            return Ok(());
        }
        sleep(LOST_PAUSE).await;
    }
}
