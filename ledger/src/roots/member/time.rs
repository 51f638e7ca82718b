//! The time of the store as this allocator knows it.

use super::super::RootError;
use super::{AfterTime, Call, Host, Member, MemberError, Next, Step};
use crate::roots::Stepped;
use lessor_protocol::Moment;

impl Member {
    /// Asks the store for the time, and then does what comes after.
    pub(super) fn ask_time(&mut self, now: Moment, after: AfterTime) -> Next {
        self.call(Step::Time(now, after), Call::Time)
    }

    /// The store was asked at `asked`, and `said` what time it is.
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
                // What is known of roots goes by what was known of the time.
                self.head = None;
                host.hold_back();
            }
        }
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
