//! The permits of one pool at this moment: taking a part of what is wanted, and looking without taking. It asks for
//! nothing and counts no demand that was not tried.

use super::{CLOCK, LocalPool};
use crate::refusal::Refusal;
use crate::slot::Short;
use lessor_protocol::Moment;

impl LocalPool {
    /// Takes the permits that are there, up to `permits`, and returns how many: at least one. `first` says that it is
    /// the caller's turn; no caller overtakes the line.
    pub(crate) fn take_up_to(&self, permits: u64, first: bool) -> Result<u64, Short> {
        let now = CLOCK.now();
        loop {
            let part = permits.min(self.there_at(now));
            match self.take(part.max(1), first) {
                Ok(()) => return Ok(part.max(1)),
                // Another thread has taken some of them; others may be left.
                Err(Short::Empty | Short::Early) if part > 1 && self.is_open_to(first) => {}
                Err(short) => return Err(short),
            }
        }
    }

    /// Returns the permits that a call outside the line could take now, and the refusal that a call of `permits` would
    /// get.
    pub(crate) fn peek(&self, permits: u64) -> (u64, Option<Refusal>) {
        let now = CLOCK.now();
        let there = if self.is_open_to(false) { self.there_at(now) } else { 0 };
        if permits == 0 || permits <= there || self.lets_all_pass() {
            return (there, None);
        }
        (there, Some(self.for_good(permits).unwrap_or_else(|| self.not_now_at(permits, now))))
    }

    /// Whether a call of `permits` might get them at `now`. It sets nothing aside, and so disturbs no other caller.
    pub(crate) fn might_give(&self, permits: u64, first: bool, now: Moment) -> bool {
        let is_there = || permits <= self.there_at(now) || self.share_is_due(permits, now);
        self.lets_all_pass() || (self.is_open_to(first) && is_there())
    }

    /// Whether a caller may take what is there: it must be first in line, unless there is no line.
    fn is_open_to(&self, first: bool) -> bool {
        first || !self.slow_path().has_line()
    }

    /// Permits that can be spent at `now`.
    pub(super) fn there_at(&self, now: Moment) -> u64 {
        let free = if now < self.slot().deadline() { self.slot().balance().free } else { 0 };
        if self.is_paced() { free.min(self.pace().map_or(0, |pace| pace.available(now))) } else { free }
    }
}
