//! One node of the simulated fleet: a host with a clock, and a process with the shipping connection. Its part of each
//! limit is a [`Desk`]. The world drives both as the shipping background task does.

use crate::clock::HostClock;
use crate::desk::Desk;
use lessor::slot::Watch;
use lessor_holder::connection::Connection;
use lessor_holder::round::Round;
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_protocol::Moment;

/// A node.
#[derive(Debug)]
pub struct Node {
    /// The clock of the host, which outlives the process.
    pub clock: HostClock,
    /// Whether the process runs.
    pub up: bool,
    /// Number of processes before this one.
    pub life: u64,
    /// Real time before which the node does nothing.
    pub paused_until: u64,
    /// The connection, which makes exchanges.
    pub connection: Connection,
    /// The clock readings that callers by key share.
    pub watch: Watch,
    /// The exchange in flight.
    pub exchange: Option<InFlight>,
    /// When the task wakes by itself, in real time.
    pub alarm: u64,
}

/// An exchange in flight.
#[derive(Debug)]
pub struct InFlight {
    /// Names the exchange.
    pub id: u64,
    /// The desks whose asks it carries.
    pub desks: Vec<usize>,
}

/// What the background task of a node does next.
#[derive(Debug)]
pub enum Task<T> {
    /// Asks for these desks.
    Ask(Vec<T>),
    /// Sleeps until this moment, unless a caller wants something.
    Sleep(Moment),
}

/// Returns the number from which a connection derives `session`.
pub(crate) fn number(session: u64) -> u64 {
    session - 1
}

impl Node {
    /// Makes a host whose process is about to start as `session`.
    pub fn new(clock: HostClock, session: u64) -> Self {
        Node {
            clock,
            up: true,
            life: 0,
            paused_until: 0,
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, number(session)),
            watch: Watch::new(),
            exchange: None,
            alarm: u64::MAX,
        }
    }

    /// Returns the node after its process ended. It starts again as `session` when `up` is set.
    pub fn restarted(&self, session: u64) -> Self {
        Node { life: self.life + 1, up: false, ..Node::new(self.clock, session) }
    }

    /// Returns what the task does next at `real`. Each of `desks` is named by a `T`.
    pub fn next<'a, T>(&self, real: u64, desks: impl Iterator<Item = (T, &'a mut Desk)>) -> Task<T> {
        let (now, quiet_until) = (self.now(real), self.connection.quiet_until());
        if now < quiet_until {
            return Task::Sleep(quiet_until);
        }
        let mut round = Round::new(now, Moment::ORIGIN, self.connection.rtt());
        for (name, at) in desks {
            if now >= at.refill.not_before() {
                at.nudged = false;
            }
            let (seen, deadline) = (at.seen(), at.slot.deadline());
            round.look((deadline, name), &mut at.refill, &at.slot, seen, false);
        }
        let (due, later) = round.finish(|(deadline, _)| *deadline);
        if due.is_empty() {
            Task::Sleep(later)
        } else {
            Task::Ask(due.into_iter().map(|(_, name)| name).collect())
        }
    }

    /// Whether the node waits for the answer to `exchange`.
    pub fn awaits(&self, exchange: u64) -> bool {
        self.exchange.as_ref().is_some_and(|waiting| waiting.id == exchange)
    }

    /// Returns the current session.
    pub fn session(&self) -> u64 {
        self.connection.session()
    }

    /// Begins another `session` in the same process.
    pub fn begin_session(&mut self, session: u64) {
        self.connection.begin_session(number(session));
    }

    /// Returns what the clock of the node shows.
    pub fn now(&self, real: u64) -> Moment {
        self.clock.show(real)
    }
}
