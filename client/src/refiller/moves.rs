//! How the background task moves to the next allocator, if there is one, when the current one fails or stops.
//!
//! The allocator that is left counts what it lent as spent. So the client spends those permits until their lease ends.
//! No other allocator is told of them, and none extends them. The next one is asked in a session that owns nothing.

use super::{LOG_EVERY, Refiller, in_parts};
use crate::events::Event;
use crate::local_pool::{CLOCK, LocalPool};
use crate::tally::MOVES;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Refiller {
    /// Moves to the next allocator, if there is one, because the exchange failed for this `reason`. `is_stopping` says
    /// whether the current allocator has answered that it is stopping. Returns whether all allocators have failed.
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

    /// Lets all pools move on to another session, which has begun because another allocator than before has answered the
    /// asks of `pools`. The answer is not used. Nothing is sent before all pools have moved on.
    pub(super) async fn meet_another(&mut self, pools: &[Arc<LocalPool>]) {
        let allocator = self.transports[self.connection.place()].name();
        let now = CLOCK.now();
        if self.logged_another.is_none_or(|last| now.since(last) >= LOG_EVERY) {
            self.logged_another = Some(now);
            tracing::warn!(%allocator, "another allocator answers at this address, or it was restarted; a new session begins");
        }
        pools.iter().for_each(|pool| pool.refill().unanswered());
        in_parts(&self.shared, |pools| pools.iter().for_each(|pool| move_on(pool))).await;
    }

    /// Notes that the current allocator has given a good answer.
    pub(super) fn arrive(&mut self) {
        let from = self.connection.on_success();
        let at = self.connection.place();
        self.current_allocator.send_if_modified(|before| std::mem::replace(before, at) != at);
        let reason = self.left.take();
        let Some(from) = from else { return };
        let reason = reason.unwrap_or_default();
        let (from, to) = (self.transports[from].name().clone(), self.transports[at].name().clone());
        tracing::warn!(%from, %to, reason, "moved to another allocator");
        metrics::counter!(MOVES).increment(1);
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
        self.shared.tell(Event::Moved { from, to });
    }
}

/// Lets `pool` spend what it holds until the lease ends, without extending it.
fn move_on(pool: &LocalPool) {
    let mut refill = pool.refill();
    refill.move_on(pool.slot(), CLOCK.now());
    if !refill.is_idle() {
        pool.make_known();
    }
}
