//! The time of the store as this allocator knows it, and what it does while it does not know which clock is wrong: nothing.

use super::super::transport::TransportError;
use super::{Rooted, broken};
use crate::cells::{Cell, Timeline};
use crate::config::Upstream;
use crate::shared::Shared;
use lessor_ledger::roots::{Head, RootError, Stepped, Verdict};
use lessor_protocol::Moment;

impl Rooted {
    /// Asks the store for the time.
    pub(super) async fn look_at_clock(&mut self, shared: &Shared) -> Result<Moment, TransportError> {
        let asked = shared.now();
        let said = self.cells.time().await.map_err(|error| broken(&error))?;
        match self.clock.hear(said, asked, shared.now()) {
            Ok(()) => {
                let head = self.head.as_ref().map(|(_, head)| head);
                self.watch.fits(head, self.signer.session, said);
            }
            Err(Stepped) => {
                self.watch.differs(said);
                // What is known of roots goes by what was known of the time.
                self.head = None;
                shared.with(|allocator, now| allocator.hold_back_above(now, &Upstream::Store));
            }
        }
        let now = self.clock.now(shared.now());
        now.ok_or_else(|| broken(&RootError::NoTime))
    }

    /// It is `now`, unless `head` is of another era than the one that was known: what was known of the time is over then.
    pub(super) async fn go_by(
        &mut self,
        shared: &Shared,
        head: &Head,
        now: Moment,
    ) -> Result<Moment, TransportError> {
        if self.era.is_none_or(|era| era == head.era()) {
            return Ok(now);
        }
        self.clock.forget();
        self.watch.forget();
        let now = self.look_at_clock(shared).await?;
        (self.era, self.has_stepped) = (Some(head.era()), !head.is_watched(now));
        Ok(now)
    }

    /// Whether it is not known which clock is wrong, as `head` shows `now`.
    pub(super) fn is_in_doubt(&mut self, head: &Head, timeline: &Timeline, now: Moment) -> bool {
        // Another era begins in any case.
        let verdict = if self.has_stepped { Verdict::None } else { self.watch.judge(head, timeline, now) };
        if verdict == Verdict::Own {
            tracing::error!(
                "the clock of this machine stood still or was slewed: others agree with that of the store"
            );
        }
        self.has_stepped |= verdict == Verdict::Store;
        verdict == Verdict::Unknown
    }

    /// It is not known which clock is wrong. An allocator that starts now does not go by the time of `head`.
    pub(super) async fn doubts(
        &mut self,
        shared: &Shared,
        timeline: &Timeline,
        found: Option<Cell>,
        mut head: Head,
        now: Moment,
    ) -> Result<(), TransportError> {
        if found.is_some() && self.watch.doubts(&mut head, now) {
            self.swap_head(shared, timeline, found, head).await?;
            self.head = None;
        }
        Err(broken(
            &"its clock was set, or that of this machine stood still: it waits until others show which",
        ))
    }
}
