//! The way of what an operator decides to the head of a store that several allocators share: all of them follow it from there.

use super::transport::TransportError;
use crate::cells::{Cell, Cells, CellsError, Swap, Swapped};
use crate::config::StoreConfig;
use crate::shared::Shared;
use lessor_ledger::overrides::{Decision, OverridesFull, SuspensionsFull};
use lessor_ledger::roots::{HEAD, Head};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest that an operator waits.
pub(super) const DECIDE_MAX: Duration = Duration::from_secs(3);

/// Pause after another allocator was faster: each allocator signs the head four times a second.
pub(super) const LOST_PAUSE: Duration = Duration::from_millis(5);

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecided {
    /// There is no room.
    #[error(transparent)]
    Full(#[from] SuspensionsFull),
    /// There is no room for another limit.
    #[error(transparent)]
    LimitsFull(#[from] OverridesFull),
    /// The store does not answer, or not well. Whether it holds what was decided is not known.
    #[error("the store that allocators share: {0}")]
    Unreachable(String),
}

impl Undecided {
    /// The operator has waited for long enough.
    pub(super) fn late() -> Self {
        Undecided::Unreachable(TransportError::TimedOut.to_string())
    }
}

impl From<CellsError> for Undecided {
    fn from(error: CellsError) -> Self {
        Undecided::Unreachable(error.to_string())
    }
}

/// Decides about `limit` for all allocators, and follows that here at once: whether it was so before, see
/// [`Suspensions::decide`](lessor_ledger::overrides::Suspensions::decide). A future that is dropped may have decided it.
pub(crate) async fn decide(shared: &Shared, limit: &str, decision: &Decision) -> Result<bool, Undecided> {
    let late = |_| Undecided::late();
    timeout(DECIDE_MAX, decide_at_last(shared, limit, decision)).await.map_err(late)?
}

async fn decide_at_last(shared: &Shared, limit: &str, decision: &Decision) -> Result<bool, Undecided> {
    let StoreConfig::Shared(store) = &shared.config().server.store else {
        return Err(Undecided::Unreachable("there is none".to_owned()));
    };
    let mut cells = Cells::new(&store.cells)?;
    loop {
        let now = cells.time().await?;
        let (timeline, found) = cells.load(&[HEAD.to_owned()]).await?;
        let Some(cell) = found.into_iter().next().flatten() else {
            // It is about to be made.
            sleep(LOST_PAUSE).await;
            continue;
        };
        let mut head = Head::read(&cell.value).map_err(Undecided::Unreachable)?;
        let was_so = head.suspensions_mut().decide(limit, decision, now)?;
        let next = Cell { version: super::dice(), value: head.write() };
        let swap = Swap { name: HEAD.to_owned(), expected: Some(cell.version), next: Some(next) };
        match cells.swap(&timeline, &[swap]).await?.into_iter().next() {
            Some(Swapped::Done) => {
                shared.follow_suspensions(head.suspensions(), now);
                return Ok(was_so);
            }
            Some(Swapped::Other(_)) | None => sleep(LOST_PAUSE).await,
        }
    }
}
