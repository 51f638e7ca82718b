//! Which pools one exchange is for: those whose ask is due, and with them those whose ask could wait. A driver looks at
//! each of its pools before each exchange.

use crate::permits::{Pacer, Permits};
use crate::refill::{GOES_ALONG, Refill, Seen};
use crate::timing::TOGETHER;
use lessor_protocol::Moment;
use lessor_protocol::wire::ASKS_MAX;
use std::time::Duration;

/// The pools that may go into the next exchange. `T` names a pool.
#[derive(Debug)]
pub struct Round<T> {
    now: Moment,
    /// When the exchange before this one began.
    began: Moment,
    rtt: Duration,
    due: Vec<T>,
    /// The latest moment for any of the due asks.
    latest: Option<Moment>,
    /// When the first of the other pools is due.
    next: Moment,
}

/// What a look at a pool found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookOutcome {
    /// Its ask goes into this exchange.
    Due,
    /// Its ask is due later.
    Waits,
    /// The pool has nothing to hold or to report: it is looked at again once it is called.
    Rests,
}

impl<T> Round<T> {
    /// Starts a round at `now`. The exchange before this one began at `began`, and a round trip takes `rtt`.
    pub fn new(now: Moment, began: Moment, rtt: Duration) -> Self {
        Round { now, began, rtt, due: vec![], latest: None, next: Moment::NEVER }
    }

    /// Looks at `pool`, whose handles have `seen` these totals. Its ask may wait for others if it `is_key`: one of many
    /// keys.
    pub fn look<P: Pacer>(
        &mut self,
        pool: T,
        refill: &mut Refill<P>,
        slot: &impl Permits,
        seen: Seen,
        is_key: bool,
    ) -> LookOutcome {
        let Round { now, began, rtt, .. } = *self;
        let may_ask = now >= refill.not_before();
        let when = refill.due(slot, seen, now, rtt);
        let is_rare = is_key && refill.is_rare(slot, seen);
        let goes_along = is_rare && may_ask && when <= now + GOES_ALONG;
        if goes_along || when <= now + TOGETHER {
            let latest = match is_rare {
                true => refill.latest(slot, seen, (when, began), now, rtt),
                false => when,
            };
            self.latest = Some(self.latest.map_or(latest, |other| other.min(latest)));
            self.due.push(pool);
            return LookOutcome::Due;
        }
        if !may_ask {
            self.next = self.next.min(refill.not_before());
        }
        self.next = self.next.min(when);
        let rests = may_ask && when == Moment::NEVER && refill.is_idle();
        if rests { LookOutcome::Rests } else { LookOutcome::Waits }
    }

    /// Returns the pools whose asks go into an exchange now, and when to look again. If more are due than fit, those
    /// with the earliest `deadline` go first.
    pub fn finish(self, mut deadline: impl FnMut(&T) -> Moment) -> (Vec<T>, Moment) {
        let Round { now, mut due, latest, next, .. } = self;
        match latest {
            Some(latest) if latest > now + TOGETHER => (vec![], next.min(latest)),
            _ if due.len() <= ASKS_MAX => (due, next),
            _ => {
                due.sort_by_cached_key(|pool| deadline(pool));
                due.truncate(ASKS_MAX);
                (due, now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hand::{Bucket, Hand};
    use lessor_protocol::moment::millis as at;

    const RTT: Duration = Duration::from_millis(2);

    #[test]
    fn a_pool_that_is_due_goes_and_one_that_was_never_called_rests() {
        let (slot, seen) = (Hand::new(), Seen::default());
        let mut round = Round::new(at(5), at(0), RTT);
        let mut eager = Refill::<Bucket>::new(at(5), true);
        let mut quiet = Refill::<Bucket>::new(at(5), false);
        assert_eq!(round.look("quiet", &mut quiet, &slot, seen, false), LookOutcome::Rests);
        assert_eq!(round.look("eager", &mut eager, &slot, seen, false), LookOutcome::Due);
        assert_eq!(round.finish(|_| Moment::NEVER), (vec!["eager"], Moment::NEVER));
    }

    #[test]
    fn a_pool_that_was_told_to_wait_waits_as_long() {
        let slot = Hand::new();
        let mut refill = Refill::<Bucket>::new(at(5), false);
        refill.refused(at(5), Duration::from_secs(1), 0);
        let waiting = Seen { waiting: 1, ..Seen::default() };
        let mut round = Round::new(at(6), at(0), RTT);
        assert_eq!(round.look((), &mut refill, &slot, waiting, false), LookOutcome::Waits);
        assert_eq!(round.finish(|()| Moment::NEVER), (vec![], at(1_005)));
    }

    /// A refused call of a rare key is asked for at once, unless an exchange has just begun.
    #[test]
    fn a_rare_key_waits_for_the_next_exchange_of_rare_keys() {
        let slot = Hand::new();
        let mut key = Refill::<Bucket>::new(at(0), false);
        let waiting = Seen { waiting: 1, ..Seen::default() };
        let mut round = Round::new(at(100), at(95), RTT);
        assert_eq!(round.look((), &mut key, &slot, waiting, true), LookOutcome::Due);
        assert_eq!(
            round.finish(|()| Moment::NEVER),
            (vec![], at(105)),
            "ten milliseconds after the exchange before"
        );
        let mut round = Round::new(at(105), at(95), RTT);
        round.look((), &mut key, &slot, waiting, true);
        assert_eq!(round.finish(|()| Moment::NEVER).0.len(), 1);
    }

    #[test]
    fn of_more_than_fit_the_earliest_go_first() {
        let (slot, seen) = (Hand::new(), Seen::default());
        let mut round = Round::new(at(5), at(0), RTT);
        let pools = 0..ASKS_MAX as u64 + 7;
        for pool in pools.clone() {
            let mut eager = Refill::<Bucket>::new(at(5), true);
            round.look(pool, &mut eager, &slot, seen, false);
        }
        let (due, next) = round.finish(|pool| at(pools.end - pool));
        assert_eq!((due.len(), next), (ASKS_MAX, at(5)), "the other asks follow at once");
        assert_eq!((due[0], due[ASKS_MAX - 1]), (pools.end - 1, 7));
    }
}
