//! What an answer leads to. [`Refill::on_answer`] believes a grant, waits after a refusal, and reacts to an error of
//! the allocator or an impossible grant.

use crate::permits::{Pacer, Permits};
use crate::refill::{Belief, Refill};
use crate::timing::LOOK_AGAIN;
pub use lessor_protocol::recovery::{DISPUTE_PAUSE, Recovery, recovery};
use lessor_protocol::{Answer, ClockBounds, Moment, Refusal, RefusalReason};
use std::time::Duration;

/// Pause before a whole session begins again. It is longer than [`DISPUTE_PAUSE`] because each new session is logged.
pub const SESSION_PAUSE: Duration = Duration::from_secs(1);

/// When an answer came, and what its durations count from.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTiming {
    /// When the answered ask was first sent.
    pub first_sent: Moment,
    /// When the answer came: read after [`Refill::make_way`].
    pub now: Moment,
    /// The bounds of the clock that shows both moments.
    pub clocks: ClockBounds,
}

/// What an answer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The grant was installed, even if it grants nothing.
    Installed,
    /// The answer does not fit the last ask: more than was wanted, more kept than held, or longer than any lease.
    /// Nothing was installed.
    Impossible,
    /// The allocator lends nothing now. Leases go on, unless the refusal stops them too.
    Refused,
    /// The allocator does not know the lease. The permits held of it are used up.
    Unrecognised,
    /// The allocator disputes the session. Nothing has changed here: the driver begins another session, and tells each
    /// pool with [`Refill::begin_session`].
    Disputed,
    /// This pool cannot lend.
    Unavailable,
}

impl<P: Pacer> Refill<P> {
    /// Takes in the answer to the last ask, or the word of the error that came instead. `may_rest` says whether a pool
    /// that cannot lend, or not for long, stays silent until it is called: strangers choose the pool, or it had no call
    /// since the last refusal. `random` is any number: it spreads the next ask.
    pub fn on_answer(
        &mut self,
        slot: &impl Permits,
        answer: Result<&Answer, &str>,
        AnswerTiming { first_sent, now, clocks }: AnswerTiming,
        may_rest: bool,
        random: u64,
    ) -> Outcome {
        match answer {
            Ok(Answer::Grant(grant)) => match self.believe(slot, grant, clocks, first_sent, now, random) {
                Belief::Installed => Outcome::Installed,
                Belief::Invalid => {
                    self.refused(now, DISPUTE_PAUSE, random);
                    Outcome::Impossible
                }
            },
            Ok(Answer::Refusal(refusal)) => {
                let (pause, stops) = (pause_refused(*refusal), refusal.reason.stops());
                match may_rest && pause >= LOOK_AGAIN {
                    true if stops => self.refused_for_good(slot, now, pause, random),
                    true => self.refused_unheard(now, pause, random),
                    false => self.refused(now, pause, random),
                }
                if stops {
                    self.stop(slot);
                }
                Outcome::Refused
            }
            Err(code) => match recovery(code) {
                Recovery::Unrecognised => {
                    let pause = self.pause_from_zero();
                    self.on_unrecognised(slot, now);
                    self.refused(now, pause, random);
                    Outcome::Unrecognised
                }
                Recovery::BeginSession => Outcome::Disputed,
                Recovery::LookAgain if may_rest => {
                    self.refused_for_good(slot, now, LOOK_AGAIN, random);
                    Outcome::Unavailable
                }
                Recovery::LookAgain => {
                    self.refused(now, LOOK_AGAIN, random);
                    Outcome::Unavailable
                }
            },
        }
    }

    /// Begins a session that owns nothing: drops all permits held and counts from zero, after [`SESSION_PAUSE`].
    /// `random` is any number: it spreads the next ask.
    pub fn begin_session(&mut self, slot: &impl Permits, now: Moment, random: u64) {
        self.forget(slot);
        self.refused(now, SESSION_PAUSE, random);
    }

    /// Returns how long to wait before counting from zero. The first time there is no wait: an allocator forgets a node
    /// that was silent for long, and all nodes when it restarts. Later it is [`DISPUTE_PAUSE`].
    fn pause_from_zero(&self) -> Duration {
        if self.is_known() { Duration::ZERO } else { DISPUTE_PAUSE }
    }
}

/// Returns how long to wait after a refusal: as long as it says, within bounds. A decision of an operator lasts at least
/// [`DISPUTE_PAUSE`], and so does a reason that only a later version knows; the event stream tells of an earlier end.
fn pause_refused(refusal: Refusal) -> Duration {
    let least = match refusal.reason {
        RefusalReason::Quarantine | RefusalReason::Stopping => Duration::ZERO,
        RefusalReason::Paused | RefusalReason::Blocked | RefusalReason::Other => DISPUTE_PAUSE,
    };
    refusal.retry_after.clamp(least, LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hand::{Bucket, Hand};
    use crate::refill::Seen;
    use lessor_protocol::Grant;

    #[test]
    fn a_pool_whose_session_begins_is_left_alone_for_the_pause() {
        let (slot, now) = (Hand::new(), Moment::from_nanos(1_000));
        let mut refill = Refill::<Bucket>::new(now, true);
        refill.begin_session(&slot, now, 0);
        assert_eq!(refill.not_before(), now + SESSION_PAUSE);
        assert_eq!(refill.pause_from_zero(), DISPUTE_PAUSE);
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Has `refill` ask, and refuses it at `second` for `reason`. Returns whether it is silent then.
    fn rests(
        refill: &mut Refill<Bucket>,
        slot: &Hand,
        second: u64,
        (reason, retry_after): (RefusalReason, Duration),
        may_rest: bool,
    ) -> bool {
        let now = Moment::ORIGIN + Duration::from_secs(second);
        refill.write(slot, Seen { refused: 1, ..Seen::default() }, now, Duration::ZERO);
        let answer = Answer::Refusal(Refusal { reason, retry_after });
        let timing = AnswerTiming { first_sent: now, now, clocks: ClockBounds::default() };
        assert_eq!(refill.on_answer(slot, Ok(&answer), timing, may_rest, 0), Outcome::Refused);
        refill.is_idle()
    }

    /// The bug: each key that was called once in a pause or a quarantine was asked for every five seconds, and never
    /// forgotten.
    #[test]
    fn a_pool_with_nothing_to_say_is_silent_while_it_is_refused() {
        use RefusalReason::{Paused, Quarantine};
        let slot = Hand::new();
        for reason in [Paused, Quarantine] {
            let mut refill = Refill::new(Moment::ORIGIN, false);
            assert!(rests(&mut refill, &slot, 1, (reason, HOUR), true), "{reason:?}");
            assert!(!rests(&mut refill, &slot, 7, (reason, Duration::from_secs(1)), true), "it is over soon");
            let mut plain = Refill::new(Moment::ORIGIN, false);
            assert!(!rests(&mut plain, &slot, 1, (reason, HOUR), false), "{reason:?} of no key");
        }
    }

    #[test]
    fn a_pool_that_has_spent_is_silent_once_a_pause_has_heard_of_it_and_never_in_quarantine() {
        use RefusalReason::{Paused, Quarantine};
        let (slot, now) = (Hand::new(), Moment::ORIGIN);
        let mut refill = Refill::<Bucket>::new(now, false);
        refill.write(&slot, Seen { waiting: 2, ..Seen::default() }, now, Duration::ZERO);
        let second = Duration::from_secs(1);
        let grant = Answer::Grant(Grant {
            kept: 0,
            permits: 2,
            term: second,
            horizon: second,
            ceiling: 9,
            ask_after: Duration::ZERO,
            retry_after: None,
            rate: lessor_protocol::Rate::Free,
            in_flight: None,
        });
        let timing = AnswerTiming { first_sent: now, now, clocks: ClockBounds::default() };
        assert_eq!(refill.on_answer(&slot, Ok(&grant), timing, true, 0), Outcome::Installed);
        slot.take(1, now).expect("two were lent");
        assert!(!rests(&mut refill, &slot, 0, (Paused, HOUR), true), "one is to be given back");
        assert!(!rests(&mut refill, &slot, 6, (Quarantine, HOUR), true), "a report may change nothing");
        assert!(rests(&mut refill, &slot, 12, (Paused, HOUR), true));
    }

    /// The bug: a refusal for an unknown reason came without a time, and the node asked again at network speed.
    #[test]
    fn nothing_that_an_operator_decided_is_asked_about_at_network_speed() {
        use RefusalReason::{Blocked, Other, Paused, Quarantine};
        let pause =
            |reason, millis| pause_refused(Refusal { reason, retry_after: Duration::from_millis(millis) });
        assert_eq!([Other, Paused, Blocked].map(|reason| pause(reason, 0)), [DISPUTE_PAUSE; 3]);
        assert_eq!(
            (pause(Quarantine, 1), pause(Paused, 70)),
            (Duration::from_millis(1), Duration::from_millis(70))
        );
        assert_eq!(pause(Paused, u64::MAX / 2), LOOK_AGAIN);
    }
}
