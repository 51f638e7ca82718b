//! What operators have decided at any allocator is followed from the store, and the store is told of it again if it lost it.

use super::{Call, Host, Member, MemberError, Next, Notice, Step};
use crate::cells::{Cell, Swap};
use crate::roots::{DECIDED, Decided, Head};
use lessor_protocol::Moment;
use std::time::Duration;

/// How often an allocator looks what operators have put and removed while the head says nothing new of it: the allocator that was
/// told may have died before the head said so.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Member {
    /// Goes by what operators have decided, before anything is lent by `head`. After an error nothing is.
    pub(super) fn follow(&mut self, cell: Cell, head: Head, now: Moment, host: &mut impl Host) -> Next {
        let is_known = host.configuration().0.serial >= head.newest().serial;
        // Of another life: the store may know less than it did.
        let is_seen =
            self.looked.is_some_and(|(looked, life)| life == head.life() && now < looked + LOOK_EVERY);
        match is_known && is_seen {
            true => self.go_by(cell, head, now, host),
            false => {
                let step = Step::LoadDecided(cell, Box::new(head), now);
                self.call(step, Call::Load(vec![DECIDED.to_owned()]))
            }
        }
    }

    /// Goes by what operators have put and removed. If the store knows less, it is told.
    pub(super) fn hear_decided(
        &mut self,
        cell: Cell,
        head: Box<Head>,
        began: Moment,
        cells: Vec<Option<Cell>>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let found = cells.into_iter().next().flatten();
        let there = found.as_ref().map_or_else(|| Ok(Decided::default()), |cell| Decided::read(&cell.value));
        let there = match there {
            Ok(there) => there,
            Err(why) => return self.fail(MemberError::Decided(why), now),
        };
        host.follow_decided(&there);
        let known = host.decided();
        if known == there {
            return self.follow_head(cell, *head, began, now, host);
        }
        if !known.fits() {
            host.tell(Notice::NoRoom);
            return self.follow_head(cell, *head, began, now, host);
        }
        let next = Some(Cell { version: host.draw(), value: known.write() });
        let swap = Swap { name: DECIDED.to_owned(), expected: found.map(|cell| cell.version), next };
        let timeline = head.timeline();
        self.call(Step::SwapDecided(cell, head, began), Call::Swap(timeline, vec![swap]))
    }

    /// What operators have put and removed is followed; that was looked at from `began` on.
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
            host.follow_gates(head.gates(), there);
        }
        self.head = Some((cell, head));
        self.goes_by_head(now, host)
    }
}
