//! Follows what operators have decided at any allocator, as the store has it. A store that lost a decision is told
//! again.

use super::{Call, Host, Member, MemberError, Next, Notice, Step};
use crate::cells::{Cell, Swap};
use crate::overrides::LimitOverrides;
use crate::roots::{Head, OVERRIDES};
use lessor_protocol::Moment;
use std::time::Duration;

/// How often an allocator reads the overrides while the head says nothing new of them. The allocator that swapped them may have
/// died before the head said so.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Member {
    /// Goes by what operators have decided, before anything is lent by `head`. After an error nothing is lent.
    pub(super) fn follow(&mut self, cell: Cell, head: Head, now: Moment, host: &mut impl Host) -> Next {
        let is_known = host.configuration().0.serial >= head.newest().serial;
        // In another life of the head the store may know less than it did.
        let is_seen =
            self.looked.is_some_and(|(looked, life)| life == head.life() && now < looked + LOOK_EVERY);
        match is_known && is_seen {
            true => self.go_by(cell, head, now, host),
            false => {
                let step = Step::LoadOverrides(cell, Box::new(head), now);
                self.call(step, Call::Load(vec![OVERRIDES.to_owned()]))
            }
        }
    }

    /// Goes by the overrides in the store. If the store knows less than this allocator, it is told.
    pub(super) fn on_overrides(
        &mut self,
        cell: Cell,
        head: Box<Head>,
        began: Moment,
        cells: Vec<Option<Cell>>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let found = cells.into_iter().next().flatten();
        let there = found
            .as_ref()
            .map_or_else(|| Ok(LimitOverrides::default()), |cell| LimitOverrides::read(&cell.value));
        let there = match there {
            Ok(there) => there,
            Err(why) => return self.fail(MemberError::Overrides(why), now),
        };
        host.follow_overrides(&there);
        let known = host.overrides();
        if known == there {
            return self.follow_head(cell, *head, began, now, host);
        }
        if !known.fits() {
            host.tell(Notice::NoRoom);
            return self.follow_head(cell, *head, began, now, host);
        }
        let next = Some(Cell { version: host.draw(), value: known.write() });
        let swap = Swap { name: OVERRIDES.to_owned(), expected: found.map(|cell| cell.version), next };
        let timeline = head.timeline();
        self.call(Step::SwapOverrides(cell, head, began), Call::Swap(timeline, vec![swap]))
    }

    /// Goes by `head`, now that the overrides are followed. They were read from `began` on.
    pub(super) fn follow_head(
        &mut self,
        cell: Cell,
        head: Head,
        began: Moment,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        self.looked = Some((began, head.life()));
        self.go_by(cell, head, now, host)
    }

    fn go_by(&mut self, cell: Cell, head: Head, now: Moment, host: &mut impl Host) -> Next {
        if let Some(there) = self.clock.now(now) {
            host.follow_suspensions(head.suspensions(), there);
        }
        self.written = Some((head.life().0, head.written()));
        self.head = Some((cell, head));
        self.goes_by_head(now, host)
    }
}
