//! What the background task does when the allocator that it asks is no use: it goes on at the next one, if there is another.
//!
//! What is held was lent by the allocator that is left, which takes it for spent. So the client spends it until it ends. No
//! allocator is told of it, and none extends it. The next one is asked as a session that owns nothing.

use super::{Refiller, in_parts};
use crate::events::Event;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::MOVES;
use std::fmt::Display;
use std::sync::atomic::Ordering;

impl Refiller {
    /// The exchange was no use, for this `reason`: the next allocator is asked from now on, if there is another. `is_stopping` says
    /// whether the one that is left has answered that it stops. True if no allocator is left that has not failed.
    pub(super) async fn leave(&mut self, reason: &(dyn Display + Sync), is_stopping: bool) -> bool {
        let (now, number, random) = (CLOCK.now(), self.numbers.draw(), self.rng.u64(..));
        let failure = match is_stopping {
            true => self.connection.on_stopping(now, number, random),
            false => self.connection.on_failure(now, number, random),
        };
        self.left.get_or_insert_with(|| reason.to_string());
        if failure.loses_leases {
            in_parts(&self.shared, |pools| pools.iter().for_each(|pool| move_on(pool))).await;
        }
        failure.all_failed
    }

    /// The allocator that is asked has given a good answer.
    pub(super) fn arrive(&mut self) {
        let from = self.connection.on_success();
        let at = self.connection.place();
        self.current_allocator.send_if_modified(|before| std::mem::replace(before, at) != at);
        let reason = self.left.take();
        let Some(from) = from else { return };
        let reason = reason.unwrap_or_default();
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
