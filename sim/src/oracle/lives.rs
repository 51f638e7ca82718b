//! What the oracle expects of books that were lost or restored, or that begin.

use super::{Instant, Oracle};
use lessor_ledger::pool::PoolView;
use lessor_protocol::Moment;
use std::time::Duration;

impl Oracle {
    /// Records that the allocator lost its books, or dropped a pool that it took for new. The pool is `view` now.
    pub(crate) fn books_lost(&mut self, now: Instant, view: PoolView) {
        self.measure.life += 1;
        self.paused_above = None;
        (self.vendor_until, self.vendor_pauses) = (Moment::ORIGIN, Some(Duration::ZERO));
        // Restored books begin with what was out.
        (self.admitted, self.books, self.block) = (0, view.books, view.books.outstanding);
        // A pool that was dropped because it looked like a new one opens no later when it is made anew.
        if !view.quarantine.is_zero() {
            self.opens = now.allocator + view.quarantine;
        }
    }

    /// Records that the books go on as they were written down, with all of it in flight or a flow lent. What is owed
    /// after the last quarantine is unknown from then on.
    pub(crate) fn books_go_on(&mut self, now: Instant) {
        if self.opens <= now.allocator {
            self.opens = Moment::ORIGIN;
        }
    }

    /// Records that the books of the rules marked in `is_new` are new. Their buckets begin at `begins` on the
    /// allocator's clock.
    pub(crate) fn books_begin(&mut self, now: Instant, begins: Moment, is_new: &[bool]) {
        let made = self.promises.iter_mut().zip(is_new).filter(|(_, is_new)| **is_new);
        made.for_each(|(promise, _)| promise.begin(now, begins.as_nanos()));
    }

    /// Records when buckets at intervals refill `next` after an unknown gap, on the allocator's clock.
    pub(crate) fn refills_at(&mut self, now: Instant, next: &[Option<Moment>]) {
        let known =
            self.promises.iter_mut().zip(next).filter_map(|(promise, next)| Some((promise, (*next)?)));
        known.for_each(|(promise, next)| promise.refill_at(now, next.as_nanos()));
    }

    /// Returns when, on the allocator's clock, the last quarantine was over, if nothing was lent since.
    pub(crate) fn opens_unlent(&self) -> Option<Moment> {
        (self.opens > Moment::ORIGIN && self.books.granted == 0).then_some(self.opens)
    }
}
