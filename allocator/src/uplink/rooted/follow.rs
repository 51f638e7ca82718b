//! What operators have decided at any allocator is followed from the store, and the store is told of it again if it was lost there.

use super::super::dice;
use super::super::transport::TransportError;
use super::{Rooted, broken};
use crate::cells::{Cell, Swap, Swapped, Timeline};
use crate::shared::Shared;
use lessor_ledger::roots::{DECIDED, Decided};
use std::time::Duration;

/// How often it is looked what operators have put and removed, also while the head says nothing of it: who has just decided
/// something may have died before the head said so.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Rooted {
    /// Goes by what operators have decided: before anything is lent by the head that is known.
    pub(super) async fn follow(&mut self, shared: &Shared) -> Result<(), TransportError> {
        // Nothing is lent by the head meanwhile, and nothing after an error.
        let Some((cell, head)) = self.head.take() else { return Ok(()) };
        let now = shared.now();
        let is_known = shared.commons().overlay().newest().serial >= head.newest().serial;
        // Of another life: the store may know less than it did.
        let is_seen =
            self.looked.is_some_and(|(looked, life)| life == head.life() && now < looked + LOOK_EVERY);
        if !is_known || !is_seen {
            self.follow_decided(shared, &head.timeline()).await?;
            self.looked = Some((now, head.life()));
        }
        if let Some(now) = self.clock.now(shared.now()) {
            shared.follow(head.gates(), now);
        }
        self.head = Some((cell, head));
        Ok(())
    }

    /// Goes by what operators have put and removed. If the store knows less, it is told.
    async fn follow_decided(&mut self, shared: &Shared, timeline: &Timeline) -> Result<(), TransportError> {
        let names = [DECIDED.to_owned()];
        let found = self.cells.load(&names).await.map_err(|error| broken(&error))?.1.pop().flatten();
        let there = match &found {
            Some(cell) => Decided::read(&cell.value)
                .map_err(|why| broken(&format!("the cell of its limits is of no use: {why}")))?,
            None => Decided::default(),
        };
        shared.follow_decided(&there);
        let known = shared.commons().overlay().decided().clone();
        if known == there {
            return Ok(());
        }
        if !known.fits() {
            tracing::error!(
                "the store has lost limits that were put over the API, and has no room for them any more"
            );
            return Ok(());
        }
        let next = Some(Cell { version: dice(), value: known.write() });
        let expected = found.map(|cell| cell.version);
        let [name] = names;
        let swap = Swap { name, expected, next };
        let swapped = self.cells.swap(timeline, &[swap]).await.map_err(|error| broken(&error))?;
        // What a faster allocator wrote is heard of, too.
        if swapped.first() == Some(&Swapped::Done) {
            tracing::warn!("the store had lost what was put and removed over the API: it was told again");
        }
        Ok(())
    }
}
