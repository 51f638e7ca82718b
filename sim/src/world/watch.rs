//! Observes a run: how far it is, and its state a few hundred times. Nothing in the run depends on it.

use super::World;
use crate::curve::LOOKS;
use crate::oracle::Instant;
use crate::reference::Spend;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an observer wants to see of a run.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Whether the report has a curve.
    pub draws: bool,
    /// Whether an exact limiter is also asked about each call.
    pub compares: bool,
    /// Whether the report has each admission and each grant.
    pub remembers: bool,
    /// The counter to which every run adds its simulated nanoseconds.
    pub over: Arc<AtomicU64>,
}

impl World {
    /// Records that `permits` were admitted or lent now.
    pub(super) fn remember(&mut self, permits: u64, list: impl FnOnce(&mut World) -> &mut Vec<Spend>) {
        if self.watch.remembers {
            let Instant { real, allocator } = self.now();
            list(self).push(Spend { real, allocator: allocator.as_nanos(), permits });
        }
    }

    /// Takes the looks that are due up to `next`.
    pub(super) fn look_until(&mut self, next: u64) {
        let every = (self.setup.lasts / LOOKS).max(1);
        while self.next_look <= next.min(self.setup.lasts) {
            let real = self.next_look;
            self.next_look += every;
            if real > 0 {
                self.watch.over.fetch_add(every, Ordering::Relaxed);
            }
            if self.curve.is_some() {
                self.real = real;
                self.draw();
            }
        }
    }

    fn draw(&mut self) {
        let (available, coming) = (self.in_pool(0), self.desks.iter().map(|desk| desk.coming).sum::<u64>());
        let outstanding = self.in_hand().iter().sum::<u64>() + coming;
        if let Some(curve) = &mut self.curve {
            curve.look(self.real, available, outstanding);
        }
    }
}
