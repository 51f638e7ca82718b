//! Opens the head: it is read, made or changed where that must be, signed, and written.

use super::{AfterTime, Call, Host, Job, LOSS_LATER, Member, MemberError, Next, Notice, Step, TRIES};
use crate::cells::{Cell, Swap, Swapped, Timeline};
use crate::roots::{Families, HEAD, Head, RootError, Verdict};
use lessor_protocol::Moment;

/// The cell of the head as it was found, and the timeline that it was on.
#[derive(Debug)]
pub(super) struct Found {
    timeline: Timeline,
    cell: Option<Cell>,
}

impl Member {
    /// Reads the head, and makes it or changes it where that must be.
    pub(super) fn open(&mut self, now: Moment, host: &mut impl Host) -> Next {
        self.head = None;
        if self.tries == TRIES {
            return self.fail(MemberError::Busy, now);
        }
        self.tries += 1;
        self.ask_time(now, AfterTime::LoadHead, host)
    }

    pub(super) fn load_head(&mut self) -> Next {
        self.call(Step::LoadHead, Call::Load(vec![HEAD.to_owned()]))
    }

    /// Takes the content of the cell of the head.
    pub(super) fn read_head(
        &mut self,
        timeline: Timeline,
        cell: Option<Cell>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let is_same_clock = self.goes_by(&timeline);
        self.has_seen |= cell.is_some();
        let found = Found { timeline, cell };
        if !is_same_clock {
            return self.ask_time(now, AfterTime::Read(found), host);
        }
        match self.clock.now(now) {
            Some(there) => self.follow_era(found, there, now, host),
            None => self.fail(MemberError::Time(RootError::NoTime), now),
        }
    }

    /// Goes by the time of the era of the head. What was known of the time of another era is void.
    pub(super) fn follow_era(
        &mut self,
        found: Found,
        there: Moment,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let head = match &found.cell {
            Some(cell) => match Head::read(&cell.value) {
                Ok(head) => head,
                Err(why) => return self.fail(MemberError::Head(why), now),
            },
            None => {
                host.tell(Notice::Begins(found.timeline.clone()));
                // An allocator that knew a head has lent by it. Another one may have lent if it wrote a head or a stamp.
                let is_fresh = host.is_fresh() && self.era.is_none() && !self.has_seen;
                let mut head = Head::begin(host.draw(), &found.timeline, there, is_fresh);
                head.goes_by_time(self.life());
                self.date_loss(&mut head);
                head
            }
        };
        if let Some(life) = self.life() {
            if head.time().is_some_and(|time| time > life) {
                // What is known of the time is void.
                self.forget_time();
                return self.fail(MemberError::Time(RootError::NoTime), now);
            }
            self.has_stepped = head.time() != Some(life);
            return self.judge(found, head, there, now, host);
        }
        if self.era.is_none_or(|era| era == head.era()) {
            return self.judge(found, head, there, now, host);
        }
        self.clock.forget();
        self.watch.forget();
        self.ask_time(now, AfterTime::Judge(found, Box::new(head)), host)
    }

    /// Begins another era where that must be, and signs. Does neither while it is not known which clock is wrong.
    pub(super) fn judge(
        &mut self,
        found: Found,
        mut head: Head,
        there: Moment,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let Found { timeline, cell } = found;
        match self.written {
            // The server of the store may be another one, with a clock of its own.
            Some((id, before)) if id != head.life().0 => {
                head.keep_suspensions_of_before(host.suspensions(), before, there);
            }
            // What this allocator knows is dated by the time of the head, too.
            Some(_) | None => head.keep_suspensions(&host.suspensions()),
        }
        // Where the clock is known to have been set, another era begins in any case.
        let verdict = match self.has_stepped {
            true => Verdict::None,
            false => self.watch.judge(&head, &timeline, there),
        };
        match verdict {
            Verdict::None => {}
            Verdict::Own => host.tell(Notice::OwnStepped),
            Verdict::Store => self.has_stepped = true,
            Verdict::Unknown => {
                // An allocator that starts now does not go by the time of the head.
                if cell.is_some() && self.watch.doubts(&mut head, there) {
                    return self.swap_head(&timeline, cell, head, true, now, host);
                }
                return self.fail(MemberError::InDoubt, now);
            }
        }
        if self.has_stepped {
            host.tell(if self.timekeeping.is_some() { Notice::TimeBegins } else { Notice::StoreStepped });
            head.begin_era(there);
            head.goes_by_time(self.life());
            self.date_loss(&mut head);
            self.watch.forget();
        } else if self.era.is_none()
            && self.timekeeping.is_none()
            && head.may_have_stepped(there, host.wall())
        {
            host.tell(Notice::Unwatched);
            head.begin_era(there);
            self.date_loss(&mut head);
        }
        if head.timeline() != timeline {
            host.tell(Notice::Moved(head.timeline(), timeline.clone()));
            head.lose(&timeline, self.clock.source(), there);
            self.date_loss(&mut head);
        }
        head.sign(&self.signer, there);
        self.swap_head(&timeline, cell, head, false, now, host)
    }

    /// Dates the loss in `head` later, where the store is several servers. It was found just now, or was dated anew.
    fn date_loss(&self, head: &mut Head) {
        if self.is_on_several {
            head.date_loss_later(LOSS_LATER);
        }
    }

    /// Signs the head that is known. The time of the store is known by now.
    pub(super) fn sign_head(&mut self, there: Moment, now: Moment, host: &mut impl Host) -> Next {
        let Some((cell, mut head)) = self.head.take().filter(|_| !self.has_stepped) else {
            return self.open(now, host);
        };
        head.sign(&self.signer, there);
        let timeline = head.timeline();
        self.swap_head(&timeline, Some(cell), head, false, now, host)
    }

    /// Writes `head`, with all that this allocator knows, in the place of `before`.
    pub(super) fn swap_head(
        &mut self,
        timeline: &Timeline,
        before: Option<Cell>,
        mut head: Head,
        is_in_doubt: bool,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        head.keep_suspensions(&host.suspensions());
        let (newest, above) = host.configuration();
        head.keep_newest(newest);
        head.keep_families(&Families::new(newest, above));
        let next = Cell { version: host.draw(), value: head.write() };
        let expected = before.map(|cell| cell.version);
        let swap = Swap { name: HEAD.to_owned(), expected, next: Some(next.clone()) };
        let step = Step::SwapHead { next, head: Box::new(head), is_in_doubt, sent: now };
        self.call(step, Call::Swap(timeline.clone(), vec![swap]))
    }

    /// Takes the outcome of writing the head, and goes by it if it was written.
    pub(super) fn head_swapped(
        &mut self,
        next: Cell,
        head: Head,
        is_in_doubt: bool,
        swapped: &[Swapped],
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let is_done = swapped.first() == Some(&Swapped::Done);
        if is_done {
            (self.era, self.has_stepped) = (Some(head.era()), false);
        }
        match (is_in_doubt, self.job) {
            (true, _) => self.fail(MemberError::InDoubt, now),
            (false, Job::Leave) if is_done => Next::Done(Ok(vec![])),
            (false, Job::Leave) => self.leave_again(),
            (false, _) if is_done => self.follow(next, head, now, host),
            (false, _) => self.open(now, host),
        }
    }

    /// Takes another look at the head, of which `cell` is the content now. Goes by it if what was known still holds.
    pub(super) fn goes_on(&mut self, cell: Option<Cell>) -> Result<(), MemberError> {
        let (cell, known) = cell.zip(self.head.take()).ok_or(MemberError::OtherHead)?;
        if cell.version == known.0.version {
            self.head = Some(known);
            return Ok(());
        }
        let head = Head::read(&cell.value).map_err(MemberError::Head)?;
        if !head.goes_on_from(&known.1) {
            return Err(MemberError::OtherHead);
        }
        self.head = Some((cell, head));
        Ok(())
    }
}
