//! Chooses the member to ask: the first usable one, from a given one on. All members of the URL must be of one cluster.

use super::Shared;
use super::line::Line;
use crate::cells::CellsError;
use crate::cells::hosts::Tries;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

/// Connects to the first usable member, from `first` on and around. If there is none, or the caller stops waiting,
/// `first` becomes the one to begin with next time.
pub(super) async fn connect(shared: &Arc<Shared>, first: &mut usize) -> Result<Line, CellsError> {
    let mut tries = Tries::new(shared.place.hosts.len(), shared.config.timeout);
    while let Some((endpoint, patience, late)) = tries.next(first) {
        match Line::open(shared, endpoint, patience, late).await {
            Ok(line) => {
                *first = endpoint;
                are_one(shared, &line).await?;
                return Ok(line);
            }
            Err(error) => tries.failed(error)?,
        }
    }
    Err(tries.error())
}

/// Checks once that the members that answer are of one cluster. If a wrong one is asked later, its timeline differs.
async fn are_one(shared: &Arc<Shared>, line: &Line) -> Result<(), CellsError> {
    if shared.are_one.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut others = JoinSet::new();
    for endpoint in (0..shared.place.hosts.len()).filter(|endpoint| *endpoint != line.endpoint) {
        let shared = Arc::clone(shared);
        let patience = shared.config.timeout / 4;
        others.spawn(async move { Line::open(&shared, endpoint, patience, shared.config.no_answer()).await });
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
