//! The exchanges of a node with its allocators. This decides which allocator is asked, in which session, which answer
//! is believed, and when the next exchange may begin. A driver sends the exchanges and reports their results.
//!
//! One exchange is open at a time. It ends with [`Connection::on_answer`] or [`Connection::on_failure`].

use crate::answer::SESSION_PAUSE;
use crate::backoff::Backoff;
use crate::rotation::Rotation;
use crate::timing::{INITIAL_RTT, learnt, patience};
use lessor_protocol::Moment;
use std::time::Duration;

/// The exchanges of one node.
#[derive(Clone, Debug)]
pub struct Connection {
    rotation: Rotation,
    backoff: Backoff,
    /// Longest time that an exchange may take.
    timeout: Duration,
    rtt: Duration,
    /// Nothing is sent before this.
    quiet_until: Moment,
    open: Option<Exchange>,
    /// The allocator that was left, until another one has given a good answer.
    left: Option<usize>,
    /// When the last session began because another allocator had answered.
    met: Moment,
}

/// An exchange that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Index of the allocator that is asked.
    pub place: usize,
    /// The session in which it is asked.
    pub session: u64,
    /// The epoch of the allocator that answers in this session; 0 if none has answered yet. The request says it.
    pub epoch: u64,
    /// Sequence number of the exchange in its session.
    pub seq: u64,
    /// When the ask was first sent, or earlier. Leases count from here.
    pub first_sent: Moment,
    /// The measured round trip.
    pub rtt: Duration,
    /// How long to wait for the answer.
    pub patience: Duration,
}

/// What follows from a failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether every allocator has failed since the last good answer.
    pub all_failed: bool,
    /// Whether the session that holds the leases is over: no pool's lease is recognised any more.
    pub loses_leases: bool,
}

impl Connection {
    /// Creates the exchanges with that many `allocators`. `first` (any number) chooses the first allocator, and `number` (any)
    /// the session.
    ///
    /// # Panics
    /// If there is no allocator.
    pub fn new(allocators: usize, timeout: Duration, first: u64, number: u64) -> Self {
        Connection {
            rotation: Rotation::new(allocators, first, number),
            backoff: Backoff::default(),
            timeout,
            rtt: INITIAL_RTT,
            quiet_until: Moment::ORIGIN,
            open: None,
            left: None,
            met: Moment::ORIGIN,
        }
    }

    /// Returns the measured round trip.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns when the next exchange may begin, after a failure.
    pub fn quiet_until(&self) -> Moment {
        self.quiet_until
    }

    /// Returns the index of the allocator that is asked.
    pub fn place(&self) -> usize {
        self.rotation.current()
    }

    /// Returns the session in which it is asked.
    pub fn session(&self) -> u64 {
        self.rotation.session()
    }

    /// Whether there is only one allocator.
    pub fn is_alone(&self) -> bool {
        self.rotation.is_alone()
    }

    /// Returns the exchange that is open.
    pub fn open(&self) -> Option<&Exchange> {
        self.open.as_ref()
    }

    /// Begins an exchange. An open one is given up.
    pub fn begin(&mut self, now: Moment) -> Exchange {
        let patience = match self.rotation.has_another() {
            true => patience(self.timeout, self.rtt),
            false => self.timeout,
        };
        let exchange = Exchange {
            place: self.rotation.current(),
            session: self.rotation.session(),
            epoch: self.rotation.epoch(),
            seq: self.rotation.next_seq(),
            first_sent: now,
            rtt: self.rtt,
            patience,
        };
        self.open = Some(exchange);
        exchange
    }

    /// Whether exchange `seq` of `session` is the open one. A network, or a cache between the allocator and the node,
    /// may deliver an old answer.
    pub fn awaits(&self, session: u64, seq: u64) -> bool {
        self.open.is_some_and(|open| open.session == session && open.seq == seq)
    }

    /// Ends the open exchange with an answer to exchange `seq` of `session`. Returns the exchange and how long it took;
    /// `None` if the answer is to another exchange.
    pub fn on_answer(&mut self, session: u64, seq: u64, now: Moment) -> Option<(Exchange, Duration)> {
        if !self.awaits(session, seq) {
            return None;
        }
        let exchange = self.open.take()?;
        let took = now.since(exchange.first_sent);
        self.rtt = learnt(self.rtt, took);
        Some((exchange, took))
    }

    /// Begins another session if the answer came from another allocator than those before in this session: one address
    /// may lead to several, and a restart makes one another. `epoch` is the number of the allocator's life. `number`
    /// (any) chooses the next session, and there is one such session a second at most. Returns whether it begins. The
    /// answer must not be used then, and no pool's lease is recognised any more. Nothing is lost with it: the exchange
    /// said its epoch, so an allocator of another one has lent nothing.
    ///
    /// The old session does not go on. The first allocator still remembers it, and would take all that it lent for
    /// unspent once pools count from zero.
    pub fn meets_another(&mut self, epoch: u64, now: Moment, number: impl FnOnce() -> u64) -> bool {
        let is_another = self.rotation.is_of_another(epoch);
        if is_another {
            self.rotation.begin_session(number());
            self.quiet_until = now.max(self.met + SESSION_PAUSE);
            self.met = self.quiet_until;
        }
        is_another
    }

    /// Records a good answer, which ends the wait after an earlier failure. Returns the index of the allocator that was
    /// left for this one, the first time.
    pub fn on_success(&mut self) -> Option<usize> {
        self.rotation.on_answer();
        self.rotation.succeeded();
        self.backoff.succeeded();
        self.quiet_until = Moment::ORIGIN;
        self.left.take().filter(|left| *left != self.rotation.current())
    }

    /// Records a failed exchange: no answer came in time, or an invalid one. The next allocator, if there is another,
    /// is asked from now on. `number` (any) chooses its session if it needs a new one. `random` (any) spreads the wait.
    pub fn on_failure(&mut self, now: Moment, number: u64, random: u64) -> Failure {
        self.open = None;
        if self.rotation.is_alone() {
            self.quiet_until = self.quiet_until.max(now + self.backoff.failed(random));
            return Failure { all_failed: true, loses_leases: false };
        }
        self.left.get_or_insert(self.rotation.current());
        let turn = self.rotation.failed(number);
        let wait = match turn.all_failed {
            true => self.backoff.failed(random),
            false => self.backoff.elsewhere(random),
        };
        self.quiet_until = now + wait;
        Failure { all_failed: turn.all_failed, loses_leases: turn.loses_leases }
    }

    /// Records that the allocator is about to stop: the next one is asked from now on. Call it only if there is
    /// another. The arguments are those of [`Connection::on_failure`].
    pub fn on_stopping(&mut self, now: Moment, number: u64, random: u64) -> Failure {
        self.rotation.on_answer();
        self.on_failure(now, number, random)
    }

    /// Begins another session because the allocator disputes this one. `number` (any) chooses it.
    pub fn begin_session(&mut self, number: u64) {
        self.rotation.begin_session(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis as at;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_the_answer_to_the_open_exchange_is_believed() {
        let mut connection = Connection::new(1, SECOND, 0, 6);
        let first = connection.begin(at(0));
        assert_eq!((first.session, first.seq), (7, 1));
        assert!(connection.on_failure(at(1_000), 0, 0).all_failed);
        assert_eq!(connection.on_answer(7, 1, at(1_001)), None, "the exchange was given up");
        let second = connection.begin(at(1_100));
        assert_eq!(connection.on_answer(7, 1, at(1_101)), None, "an answer to the first exchange");
        assert_eq!(connection.on_answer(8, 2, at(1_101)), None, "an answer to another session");
        let ended = connection.on_answer(7, 2, at(1_110));
        assert_eq!(ended, Some((second, Duration::from_millis(10))));
        assert_eq!(connection.on_answer(7, 2, at(1_111)), None, "the answer came twice");
    }

    #[test]
    fn an_exchange_is_given_up_sooner_while_another_allocator_can_be_asked() {
        let mut connection = Connection::new(2, SECOND, 0, 0);
        assert_eq!(connection.begin(at(0)).patience, SECOND / 4);
        let failure = connection.on_failure(at(250), 9, 0);
        assert_eq!(failure, Failure { all_failed: false, loses_leases: false });
        let next = connection.begin(at(250));
        assert_eq!((next.place, next.session, next.patience), (1, 10, SECOND));
        assert!(connection.on_failure(at(1_250), 9, 0).all_failed);
        assert!(connection.quiet_until() > at(1_250), "a pause follows a round of all allocators");
    }

    #[test]
    fn it_says_once_that_another_allocator_has_answered() {
        let mut connection = Connection::new(2, SECOND, 0, 0);
        connection.begin(at(0));
        assert_eq!(connection.on_success(), None);
        connection.begin(at(10));
        assert!(connection.on_stopping(at(20), 9, 0).loses_leases, "the allocator has lent something");
        connection.begin(at(20));
        assert_eq!((connection.on_success(), connection.on_success()), (Some(0), None));
        assert_eq!(connection.quiet_until(), Moment::ORIGIN, "the pause after the failure is over");
    }

    #[test]
    fn a_disputed_session_is_not_gone_on_with() {
        let mut connection = Connection::new(1, SECOND, 0, 6);
        connection.begin(at(0));
        connection.begin_session(20);
        let next = connection.begin(at(10));
        assert_eq!((next.session, next.seq), (21, 1));
    }

    /// The bug: one address led to several allocators by turns. The node counted from zero for the second one, and then
    /// went back to the first in the same session, which took all that it had lent for unspent.
    #[test]
    fn two_allocators_at_one_address_never_answer_in_the_same_session() {
        let mut connection = Connection::new(1, SECOND, 0, 6);
        let mut answered = |millis: u64, epoch| {
            let Exchange { session, seq, .. } = connection.begin(at(millis));
            assert!(connection.on_answer(session, seq, at(millis)).is_some());
            let meets_another = connection.meets_another(epoch, at(millis), || 100 + millis);
            (session, meets_another, connection.session() != session, connection.quiet_until())
        };
        assert_eq!(answered(2_000, 1), (7, false, false, Moment::ORIGIN));
        assert_eq!(answered(2_010, 1), (7, false, false, Moment::ORIGIN));
        assert_eq!(answered(2_020, 2), (7, true, true, at(2_020)), "the first time there is no wait");
        assert_eq!(answered(2_030, 1), (2_121, false, false, at(2_020)));
        assert_eq!(answered(2_040, 2), (2_121, true, true, at(3_020)), "one session a second");
        assert_eq!(answered(3_030, 1), (2_141, false, false, at(3_020)));
        assert_eq!(answered(3_040, 2), (2_141, true, true, at(4_020)), "and no more from then on");
    }

    /// The bug: an allocator that was restarted lent to a session of its earlier life. The node did not use the answer,
    /// so what was lent burned.
    #[test]
    fn an_exchange_says_which_allocator_answers_in_its_session() {
        let mut connection = Connection::new(2, SECOND, 0, 6);
        let answered = |connection: &mut Connection, epoch| {
            let Exchange { session, seq, epoch: said, .. } = connection.begin(at(0));
            connection.on_answer(session, seq, at(0));
            let meets_another = connection.meets_another(epoch, at(0), || 100);
            connection.on_success();
            (said, meets_another)
        };
        let said = [5, 5, 8, 8, 8].map(|epoch| answered(&mut connection, epoch));
        assert_eq!(said, [(0, false), (5, false), (5, true), (0, false), (8, false)]);
        connection.begin(at(0));
        connection.on_failure(at(10), 200, 0);
        assert_eq!(answered(&mut connection, 3), (0, false), "the other allocator");
        assert_eq!(connection.begin(at(20)).epoch, 3);
    }

    #[test]
    fn after_a_failure_another_allocator_is_asked() {
        let mut connection = Connection::new(2, SECOND, 0, 0);
        assert_eq!(connection.place(), 0);
        connection.begin(at(0));
        connection.on_failure(at(250), 9, 0);
        assert_eq!(connection.place(), 1);
    }
}
