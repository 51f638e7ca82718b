//! What can happen in the simulated world, and in which order: the soonest first, of two at the same time the one
//! that was queued first.

use crate::faults::Fault;
use lessor_ledger::rejection::Reason;
use lessor_protocol::{Answer, Ask, Observed, SafeShare};
use std::cmp::Ordering;
use std::time::Duration;

/// The part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Load and trouble: nothing may go wrong.
    Trouble,
    /// No trouble and little load: progress is owed soon.
    Settling,
    /// Progress is owed.
    Calm,
    /// No load: everything comes back.
    Silence,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A node's task wakes by itself.
    Wake {
        node: usize,
        life: u64,
    },
    /// A message reaches the allocator.
    Ask(Message),
    /// An answer reaches a node.
    Answer(Reply),
    /// A node has waited long enough for an answer.
    TimeOut {
        node: usize,
        life: u64,
        exchange: u64,
    },
    /// The next permit of a steady flow is due for the first in line.
    Due {
        desk: usize,
        life: u64,
    },
    /// A caller has waited long enough.
    GiveUp {
        desk: usize,
        life: u64,
        ticket: u64,
    },
    /// A call has ended, as the vendor sees it.
    Land {
        limit: usize,
        permits: u64,
    },
    /// The process that made a call learns that it has ended.
    HandBack {
        desk: usize,
        life: u64,
        permits: u64,
    },
    /// A call on several limits comes to nothing.
    PutBack {
        desk: usize,
        life: u64,
        permits: u64,
    },
    /// A call that has reserved is over, and did not need `rest`.
    Settle {
        desk: usize,
        life: u64,
        number: u64,
        rest: u64,
    },
    /// One that does not play by the rules asks for something.
    Scheme(usize),
    /// Rates change.
    Traffic {
        generation: u64,
    },
    /// A timed fault strikes.
    Strike(Fault),
    /// An operator does something, by its place in the setup.
    Operate(usize),
    /// A node's process starts.
    Start {
        node: usize,
        life: u64,
    },
    /// A frozen clock goes on.
    Thaw {
        node: usize,
        ppm: i64,
    },
    /// A daemon has slewed the clock of a host far enough: of the allocator, or of the node after this one.
    Unslew {
        host: usize,
    },
    /// The task of a region wakes by itself.
    RegionWakes {
        region: usize,
        life: u64,
    },
    /// A region has waited long enough for an answer.
    RegionTimesOut {
        region: usize,
        life: u64,
        exchange: u64,
    },
    /// A region's process starts, without its books.
    RegionStarts {
        region: usize,
        life: u64,
    },
    /// The clock of a region is wrong from now on; or goes on, after it stood still.
    Lags,
    RegionThaws {
        ppm: i64,
    },
    /// An allocator says to the store that it is there.
    Signs {
        region: usize,
        life: u64,
    },
    /// A letter of an allocator to the store, and its answer; or there is none.
    AtStore {
        region: usize,
        letter: u64,
    },
    FromStore {
        region: usize,
        letter: u64,
    },
    StoreSilent {
        region: usize,
        life: u64,
        letter: u64,
    },
    /// The clock of the store is set again.
    SetAgain,
    /// The file of an allocator that shares a store is replaced by a newer one.
    HasNewFile {
        region: usize,
        version: u64,
    },
    /// A decision of an operator goes on after a pause; or the operator waits no longer.
    PublishWakes {
        region: usize,
        life: u64,
        number: u64,
    },
    PublishTimesOut {
        region: usize,
        life: u64,
        number: u64,
    },
    /// Operators lift what they decided, once the trouble is over.
    Lift,
    /// Callers at a node spend all that it has, at the last instant.
    Spree {
        desk: usize,
        life: u64,
    },
    /// The allocator's process starts, without its books.
    Reopen {
        life: u64,
    },
    /// The allocator copies the next pool that it writes down.
    Copies {
        life: u64,
    },
    /// What the allocator wrote down is durable.
    Durable {
        life: u64,
    },
    /// The allocator looks whether anything can be forgotten.
    Sweep,
    /// The next part begins.
    Next(Phase),
    /// The run is over.
    End,
}

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// At one limit of a node.
    Desk(usize),
    /// At a sender of messages.
    Node(usize),
}

/// What a sender asks in one exchange, or says last.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The place of its sender: a node, an adversary or a region.
    pub(super) node: usize,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) exchange: u64,
    pub(super) asks: Vec<DeskAsk>,
    /// Goodbye, rather than asks.
    pub(super) leaves: bool,
    /// How long an exchange takes, as the node has measured it.
    pub(super) rtt: Duration,
}

/// What is asked of one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskAsk {
    /// The desk that asks, or the place of an adversary or a region after all desks.
    pub(super) desk: usize,
    pub(super) ask: Ask,
    /// What it heard of the vendor.
    pub(super) observed: Option<Observed>,
}

impl Message {
    /// An answer to it.
    pub(super) fn reply(&self, answers: Option<Vec<DeskAnswer>>) -> Reply {
        let Message { node, session, seq, exchange, .. } = *self;
        Reply { node, session, seq, exchange, answers }
    }
}

/// What is said to a message.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) node: usize,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) exchange: u64,
    /// In the order of the asks; `None` if the allocator is not there.
    pub(super) answers: Option<Vec<DeskAnswer>>,
}

/// What is said to an ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskAnswer {
    pub(super) desk: usize,
    pub(super) answer: Result<Answer, Reason>,
    /// What the node may go on with by itself.
    pub(super) share: Option<SafeShare>,
    /// The longest that a call may take by the rules of that time, in nanoseconds, if they say.
    pub(super) longest: Option<u64>,
}

/// An event in the queue. The soonest is the greatest; of two at the same time, the one that was queued first.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) at: u64,
    pub(super) order: u64,
    pub(super) event: Event,
}

impl Event {
    /// The host that it happens to, if it is a node.
    pub(super) fn host(&self) -> Option<Host> {
        match self {
            Event::Wake { node, .. }
            | Event::TimeOut { node, .. }
            | Event::Start { node, .. }
            | Event::Thaw { node, .. } => Some(Host::Node(*node)),
            Event::Answer(reply) => Some(Host::Node(reply.node)),
            Event::Due { desk, .. }
            | Event::GiveUp { desk, .. }
            | Event::HandBack { desk, .. }
            | Event::PutBack { desk, .. }
            | Event::Settle { desk, .. }
            | Event::Spree { desk, .. } => Some(Host::Desk(*desk)),
            Event::Ask(_)
            | Event::Scheme(_)
            | Event::Land { .. }
            | Event::Traffic { .. }
            | Event::Strike(_)
            | Event::Operate(_)
            | Event::Unslew { .. }
            | Event::Lags
            | Event::RegionThaws { .. }
            | Event::Signs { .. }
            | Event::AtStore { .. }
            | Event::FromStore { .. }
            | Event::StoreSilent { .. }
            | Event::SetAgain
            | Event::HasNewFile { .. }
            | Event::PublishWakes { .. }
            | Event::PublishTimesOut { .. }
            | Event::Lift
            | Event::RegionWakes { .. }
            | Event::RegionTimesOut { .. }
            | Event::RegionStarts { .. }
            | Event::Reopen { .. }
            | Event::Copies { .. }
            | Event::Durable { .. }
            | Event::Sweep
            | Event::Next(_)
            | Event::End => None,
        }
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Queued {}
