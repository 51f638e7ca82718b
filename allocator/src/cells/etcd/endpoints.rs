//! Chooses the member to ask: the first usable one, from a given one on. All members of the URL must be of one cluster.

use super::Shared;
use super::line::Line;
use crate::cells::CellsError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

/// Connects to the first usable member, from `first` on and around.
pub(super) async fn connect(shared: &Arc<Shared>, first: usize) -> Result<Line, CellsError> {
    let count = shared.place.hosts.len();
    let mut failed = None;
    for endpoint in (first..first + count).map(|endpoint| endpoint % count) {
        match Line::open(shared, endpoint).await {
            Ok(line) => {
                are_one(shared, &line).await?;
                return Ok(line);
            }
            // The other members are unfit as well, or soon will be.
            Err(error @ CellsError::Unfit(_)) => return Err(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| shared.no_answer()))
}

/// Checks once that the members that answer are of one cluster. If a wrong one is asked later, its timeline differs.
async fn are_one(shared: &Arc<Shared>, line: &Line) -> Result<(), CellsError> {
    if shared.are_one.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut others = JoinSet::new();
    for endpoint in (0..shared.place.hosts.len()).filter(|endpoint| *endpoint != line.endpoint) {
        let shared = Arc::clone(shared);
        others.spawn(async move { Line::open(&shared, endpoint).await });
    }
    while let Some(opened) = others.join_next().await {
        match opened {
            Ok(Ok(other)) if other.cluster != line.cluster => {
                let named = |line: &Line| {
                    format!("{} is of {:016x}", shared.place.hosts[line.endpoint], line.cluster)
                };
                let (one, other) = (named(line), named(&other));
                return Err(CellsError::Unfit(format!("store.url names two clusters: {one}, {other}")));
            }
            Ok(Err(error @ CellsError::Unfit(_))) => return Err(error),
            // A member that is down is not checked.
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
    }
    shared.are_one.store(true, Ordering::Relaxed);
    Ok(())
}
