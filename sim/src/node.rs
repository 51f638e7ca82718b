//! One node of the simulated fleet: a host with a clock, and a process with the shipping connection. What it holds of each limit is
//! a [`Desk`]. The world drives both as the shipping background task does.

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
    /// Its clock, which outlives its process.
    pub clock: HostClock,
    /// Whether its process runs.
    pub up: bool,
    /// Counts processes.
    pub life: u64,
    /// It does nothing before this real instant.
    pub paused_until: u64,
    /// Its exchanges.
    pub connection: Connection,
    /// What callers by key share of their readings of the clock.
    pub watch: Watch,
    /// What the world knows of the exchange in flight.
    pub exchange: Option<InFlight>,
    /// When the task wakes by itself, in real time.
    pub alarm: u64,
}

/// An exchange in flight.
#[derive(Debug)]
pub struct InFlight {
    /// Names it.
    pub id: u64,
    /// The desks that it is for.
    pub desks: Vec<usize>,
}

/// What the task of a node does next.
#[derive(Debug)]
pub enum Task<T> {
    /// It asks for these desks.
    Ask(Vec<T>),
    /// Nothing before this moment, unless a caller wants something.
    Sleep(Moment),
}

/// The number that a connection makes `session` of.
fn number(session: u64) -> u64 {
    session - 1
}

impl Node {
    /// A host whose process is about to start as `session`.
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

    /// The process ended, and starts again as `session` when `up` is set.
    pub fn restarted(&self, session: u64) -> Self {
        Node { life: self.life + 1, up: false, ..Node::new(self.clock, session) }
    }

    /// What its task does next at `real`, where it has `desks`, which `T` names.
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

    /// Whether it waits for the answer to `exchange`.
    pub fn awaits(&self, exchange: u64) -> bool {
        self.exchange.as_ref().is_some_and(|waiting| waiting.id == exchange)
    }

    /// Which session it is.
    pub fn session(&self) -> u64 {
        self.connection.session()
    }

    /// Goes on as `session`.
    pub fn begin_session(&mut self, session: u64) {
        self.connection.begin_session(number(session));
    }

    /// What its clock shows.
    pub fn now(&self, real: u64) -> Moment {
        self.clock.show(real)
    }
}
