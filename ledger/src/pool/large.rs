//! Calls that take much of what a limit has. While a pool eases off, credit is kept for a term only, and no such call would ever be let
//! through, though there is enough for it.

use super::Pool;
use super::family::Place;
use crate::pacing::credit_max;
use crate::rule::Pace;
use lessor_protocol::Ask;
use std::time::Duration;

impl Pool {
    /// For how long credit is saved up for `id` while the pool eases off: it asks once in its term, which is longer than others where
    /// it is far away.
    pub(super) fn saves_for(&self, id: Place) -> Duration {
        self.term.max(self.sessions[id].term)
    }

    /// What `ask` lacks for a call that waits, if that is more than `pace` ever saves up, and all of it is there.
    pub(super) fn lacks_for_large(&self, id: Place, ask: &Ask, pace: Option<Pace>) -> u64 {
        let lacks = ask.largest.saturating_sub(ask.held);
        let is_large = pace.is_some_and(|pace| ask.largest > credit_max(pace, self.saves_for(id)));
        let waits = ask.waiting >= lacks.max(1);
        if is_large && waits && self.left() >= lacks { lacks } else { 0 }
    }

    /// `ask` of `id` was answered with `granted` permits. What the call still lacks that waits first there is lacking here too, where
    /// this pool leases: the one above is told with the next ask. What a session said before is not so any more: much may have come
    /// since, and a call that seems to lack more than its callers wait for is let through by no pool.
    pub(super) fn notes_large(&mut self, id: Place, ask: &Ask, granted: u64) {
        let Some(borrower) = self.borrower.as_mut() else { return };
        let large = if ask.waiting > 0 { ask.largest } else { 0 };
        let lacks = large.saturating_sub(ask.held.saturating_add(granted));
        let others = borrower.lacks.filter(|(of, _)| *of != id);
        if others.is_none_or(|(_, most)| lacks > most) {
            borrower.lacks = (lacks > 0).then_some((id, lacks));
        }
    }
}
