//! What the background task does when the allocator that it asks is no use: it goes on at the next one, if there is another.
//!
//! What is held was lent by the one that is left, which takes it for spent. So it is spent until it ends, told to nobody, and
//! extended by nobody; the next one is asked as a session that owns nothing.

use super::{Refiller, in_parts};
use crate::events::Event;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::MOVES;
use crate::timing::patience;
use crate::transport::ExchangeError;
use lessor_protocol::wire::{LeasesRequest, LeasesResponse};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An allocator that was left, and has not been replaced by one that answers yet.
#[derive(Debug)]
pub(super) struct Left {
    /// Its place.
    from: usize,
    /// What was wrong with it.
    reason: String,
}

impl Refiller {
    /// What the allocator that is asked says to `request`. While there is another to ask, it is not waited for as long.
    pub(super) async fn answer(&self, request: &LeasesRequest) -> Result<LeasesResponse, ExchangeError> {
        let way = &self.ways[self.rotation.current()];
        if !self.rotation.has_another() {
            return way.leases(request).await;
        }
        let patience = patience(self.timeout, self.rtt);
        let answer = tokio::time::timeout(patience, way.leases(request)).await;
        answer.unwrap_or_else(|_| Err(ExchangeError::Unreachable(format!("no answer within {patience:?}"))))
    }

    /// The exchange was no use, for this `reason`: asks the next allocator from now on. Returns how long to wait before that,
    /// and whether none is left that has not failed.
    pub(super) async fn leave(&mut self, reason: &(dyn std::fmt::Display + Sync)) -> (Duration, bool) {
        if self.rotation.is_alone() {
            return (self.backoff.failed(self.dice.u64(..)), true);
        }
        let from = self.rotation.current();
        let turn = self.rotation.failed(self.numbers.draw());
        self.left.get_or_insert_with(|| Left { from, reason: reason.to_string() });
        if turn.disowns {
            in_parts(&self.shared, |pools| pools.iter().for_each(|pool| move_on(pool))).await;
        }
        let dice = self.dice.u64(..);
        let wait = match turn.all_failed {
            true => self.backoff.failed(dice),
            false => self.backoff.elsewhere(dice),
        };
        (wait, turn.all_failed)
    }

    /// The allocator that is asked has given a good answer.
    pub(super) fn arrive(&mut self) {
        self.rotation.heard();
        self.rotation.succeeded();
        let at = self.rotation.current();
        self.heard_at.send_if_modified(|before| std::mem::replace(before, at) != at);
        let Some(Left { from, reason }) = self.left.take().filter(|left| left.from != at) else { return };
        let (from, to) = (self.ways[from].name().clone(), self.ways[at].name().clone());
        tracing::warn!(%from, %to, reason, "went on at another allocator");
        metrics::counter!(MOVES).increment(1);
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
        self.shared.tell(Event::Moved { from, to });
    }
}

/// What `pool` holds is spent until it ends, and extended no more.
fn move_on(pool: &LocalPool) {
    let mut refill = pool.refill();
    refill.move_on(pool.slot(), CLOCK.now());
    if !refill.is_idle() {
        pool.make_known();
    }
}
