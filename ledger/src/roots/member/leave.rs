//! Leaves the store: an allocator that stops takes its name off the head.

use super::{Call, Host, Job, Member, Next, Step, TRIES};
use crate::cells::{Cell, Timeline};
use crate::roots::{HEAD, Head};
use lessor_protocol::Moment;

impl Member {
    /// Takes the allocator's name off the head; returns `None` if it was never there. Allocators that do not see that
    /// in the head see that it does not sign.
    pub fn leave(&mut self, now: Moment, host: &mut impl Host) -> Option<Next> {
        self.begin(self.signer.session, Job::Leave, now);
        self.era?;
        Some(match self.head.take() {
            Some((cell, head)) => {
                let timeline = head.timeline();
                self.take_name_off(&timeline, cell, head, now, host)
            }
            None => self.leave_again(),
        })
    }

    /// Reads the head anew: a call that was given up may have written it, or another allocator was faster.
    pub(super) fn leave_again(&mut self) -> Next {
        if self.tries == TRIES {
            return Next::Done(Ok(vec![]));
        }
        self.tries += 1;
        self.call(Step::LoadToLeave, Call::Load(vec![HEAD.to_owned()]))
    }

    /// Takes the content of the cell of the head. A head of another timeline is left to the allocators that go on by
    /// it.
    pub(super) fn leave_head(
        &mut self,
        timeline: &Timeline,
        cell: Option<Cell>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let found = cell.and_then(|cell| Head::read(&cell.value).ok().map(|head| (cell, head)));
        match found.filter(|(_, head)| head.timeline() == *timeline) {
            Some((cell, head)) => self.take_name_off(timeline, cell, head, now, host),
            None => Next::Done(Ok(vec![])),
        }
    }

    fn take_name_off(
        &mut self,
        timeline: &Timeline,
        cell: Cell,
        mut head: Head,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        match head.leave(self.signer.session) {
            true => self.swap_head(timeline, Some(cell), head, false, now, host),
            false => Next::Done(Ok(vec![])),
        }
    }
}
