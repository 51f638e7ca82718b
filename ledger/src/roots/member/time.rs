//! The time of the store as this allocator knows it, from the store's clock or from the stamps of the keeper.

use super::super::RootError;
use super::{AfterTime, Call, Host, Member, MemberError, Next, Notice, Step};
use crate::cells::{Cell, Swapped, Timeline};
use crate::roots::Stepped;
use crate::roots::timekeeping::{CLOCK_CELL, StampRead, Timekeeping, Todo};
use lessor_protocol::Moment;

impl Member {
    /// Asks for the time, and then does what comes `after`.
    pub(super) fn ask_time(&mut self, now: Moment, after: AfterTime, host: &mut impl Host) -> Next {
        let Some(timekeeping) = &mut self.timekeeping else {
            return self.call(Step::Time(now, after), Call::Time);
        };
        let todo = timekeeping.begin(now, &self.clock, host.wall(), host.draw());
        self.keep_time(todo, now, after, now, host)
    }

    /// Takes the answer of the store, asked at `asked`: the time was `said`.
    pub(super) fn on_time(
        &mut self,
        said: Moment,
        asked: Moment,
        after: AfterTime,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        match self.clock.on_answer(said, asked, now) {
            Ok(()) => {
                let head = self.head.as_ref().map(|(_, head)| head);
                self.watch.fits(head, self.signer.session, said);
            }
            Err(Stepped) => {
                self.watch.differs(said);
                // What is known of roots goes by the time as it was known.
                self.head = None;
                host.hold_back();
            }
        }
        self.time_known(after, now, host)
    }

    /// Takes a read of the cell of the time. The first of several reads `began`, and this one was `asked`, at these
    /// instants.
    pub(super) fn on_stamp(
        &mut self,
        timeline: &Timeline,
        cell: Option<Cell>,
        (began, asked): (Moment, Moment),
        after: AfterTime,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        self.goes_by(timeline);
        self.has_seen |= cell.is_some();
        let Some(timekeeping) = &mut self.timekeeping else { return self.fail(MemberError::Mismatch, now) };
        let life = timekeeping.life();
        let reading = StampRead { cell, began, asked, answered: now };
        let todo = timekeeping.on_read(reading, &mut self.clock, host.wall(), || host.draw());
        if timekeeping.life() != life {
            self.time_begins(host);
        }
        match todo {
            Ok(todo) => self.keep_time(todo, began, after, now, host),
            Err(why) => self.fail(MemberError::Stamp(why), now),
        }
    }

    /// Takes the outcome of the swap of the cell of the time, which was sent at `sent`.
    pub(super) fn stamp_swapped(
        &mut self,
        swapped: Vec<Swapped>,
        (began, sent): (Moment, Moment),
        after: AfterTime,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let (Some(timekeeping), Some(timeline)) = (&mut self.timekeeping, self.clock.timeline().cloned())
        else {
            return self.fail(MemberError::Mismatch, now);
        };
        match swapped.into_iter().next() {
            Some(Swapped::Done) => {
                let (life, kept) = (timekeeping.life(), timekeeping.is_keeper());
                timekeeping.on_written(&mut self.clock, sent, now);
                if timekeeping.life() != life {
                    self.time_begins(host);
                }
                if !kept {
                    host.tell(Notice::KeepsTime);
                }
                self.time_known(after, now, host)
            }
            // Another allocator was faster: this has been in the cell since then.
            Some(Swapped::Other(cell)) => self.on_stamp(&timeline, cell, (began, sent), after, now, host),
            None => self.fail(MemberError::Mismatch, now),
        }
    }

    /// Returns the life of the time that it knows, if allocators keep the time.
    pub fn life(&self) -> Option<u64> {
        self.timekeeping.as_ref().and_then(Timekeeping::life)
    }

    /// Whether this allocator keeps the time, as far as it knows.
    pub fn keeps_time(&self) -> bool {
        self.timekeeping.as_ref().is_some_and(Timekeeping::is_keeper)
    }

    /// Forgets what is known of the time.
    pub(super) fn forget_time(&mut self) {
        self.clock.forget();
        self.timekeeping.iter_mut().for_each(Timekeeping::forget);
    }

    /// Goes by the time of the server of `timeline`. Returns `false` if it went by no server or another one, whose time
    /// it forgets.
    pub(super) fn goes_by(&mut self, timeline: &Timeline) -> bool {
        let is_same = self.clock.follow(timeline);
        if !is_same {
            self.timekeeping.iter_mut().for_each(Timekeeping::forget);
        }
        is_same
    }

    /// Drops the head and holds back: another life of the time began, and what is known of roots goes by the one
    /// before.
    fn time_begins(&mut self, host: &mut impl Host) {
        self.head = None;
        host.hold_back();
    }

    fn keep_time(
        &mut self,
        todo: Todo,
        began: Moment,
        after: AfterTime,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        match todo {
            Todo::Know => self.time_known(after, now, host),
            Todo::Read => {
                self.call(Step::LoadStamp(began, now, after), Call::Load(vec![CLOCK_CELL.to_owned()]))
            }
            Todo::Write(swap) => match self.clock.timeline().cloned() {
                Some(timeline) => {
                    self.call(Step::SwapStamp(began, now, after), Call::Swap(timeline, vec![swap]))
                }
                None => self.fail(MemberError::Mismatch, now),
            },
            Todo::Wait => self.fail(MemberError::Time(RootError::NoTime), now),
        }
    }

    /// Does what comes `after` the time, if that is known by now.
    fn time_known(&mut self, after: AfterTime, now: Moment, host: &mut impl Host) -> Next {
        let Some(there) = self.clock.now(now) else {
            return self.fail(MemberError::Time(RootError::NoTime), now);
        };
        match after {
            AfterTime::LoadHead => self.load_head(),
            AfterTime::SignHead => self.sign_head(there, now, host),
            AfterTime::Read(found) => self.follow_era(found, there, now, host),
            AfterTime::Judge(found, head) => {
                (self.era, self.has_stepped) = (Some(head.era()), !head.is_watched(there));
                self.judge(found, *head, there, now, host)
            }
        }
    }
}
