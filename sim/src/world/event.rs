//! Events of the simulated world and their order: the soonest first, and at the same time the one queued first.

use crate::faults::Fault;
use lessor_ledger::rejection::Reason;
use lessor_protocol::{Answer, Ask, Observed, SafeShare};
use std::cmp::Ordering;
use std::time::Duration;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Load and faults: nothing may go wrong.
    Trouble,
    /// No faults and little load: progress is owed soon.
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
    Wake { node: usize, life: u64 },
    /// A message reaches the allocator.
    Ask(Message),
    /// An answer reaches a node.
    Answer(Reply),
    /// A node has waited long enough for an answer.
    TimeOut { node: usize, life: u64, exchange: u64 },
    /// The next permit of a steady flow is due for the first caller in line.
    Due { desk: usize, life: u64 },
    /// A caller has waited for as long as its patience lasts.
    GiveUp { desk: usize, life: u64, ticket: u64 },
    /// A call has ended, as the vendor sees it.
    Land { limit: usize, permits: u64 },
    /// The process that made a call learns that it has ended.
    HandBack { desk: usize, life: u64, permits: u64 },
    /// A call on several limits finds another one short and puts its permits back.
    PutBack { desk: usize, life: u64, permits: u64 },
    /// A call that had reserved is over, and did not need `rest`.
    Settle { desk: usize, life: u64, number: u64, rest: u64 },
    /// An adversary asks.
    Scheme(usize),
    /// Rates change.
    Traffic { generation: u64 },
    /// A timed fault strikes.
    Strike(Fault),
    /// An operator performs the act at this place of the setup.
    Operate(usize),
    /// A node's process starts.
    Start { node: usize, life: u64 },
    /// A frozen clock goes on.
    Thaw { node: usize, ppm: i64 },
    /// A daemon ends the slew of a host's clock: the allocator's for 0, or that of node `host - 1`.
    Unslew { host: usize },
    /// The task of a region wakes by itself.
    RegionWakes { region: usize, life: u64 },
    /// A region has waited long enough for an answer.
    RegionTimesOut { region: usize, life: u64, exchange: u64 },
    /// A region's process starts, without its books.
    RegionStarts { region: usize, life: u64 },
    /// The clock of the first allocator is wrong from now on.
    Lags,
    /// The clock of the first allocator goes on after it stood still.
    RegionThaws { ppm: i64 },
    /// An allocator signs the head of the store.
    Signs { region: usize, life: u64 },
    /// A call of an allocator reaches the store.
    AtStore { region: usize, letter: u64 },
    /// The answer of the store reaches the allocator.
    FromStore { region: usize, letter: u64 },
    /// An allocator has waited long enough for the store.
    StoreSilent { region: usize, life: u64, letter: u64 },
    /// The clock of the store is set again.
    SetAgain,
    /// The file of an allocator that shares a store is replaced by a newer one.
    HasNewFile { region: usize, version: u64 },
    /// A publication goes on after a pause.
    PublishWakes { region: usize, life: u64, number: u64 },
    /// The operator of a publication waits no longer.
    PublishTimesOut { region: usize, life: u64, number: u64 },
    /// Operators lift what they decided, once the trouble is over.
    Lift,
    /// Callers at a node spend all that it has, at the last instant.
    Spree { desk: usize, life: u64 },
    /// The allocator's process starts.
    Reopen { life: u64 },
    /// The allocator copies the next pool that it writes down.
    Copies { life: u64 },
    /// The batch that the allocator wrote is durable.
    Durable { life: u64 },
    /// The allocator forgets what it can.
    Sweep,
    /// The next phase begins.
    Next(Phase),
    /// The run is over.
    End,
}

/// The host to which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// One limit of a node.
    Desk(usize),
    /// A sender of messages.
    Node(usize),
    /// The process of a region.
    Region(usize),
}

/// The asks of a sender in one exchange, or its goodbye.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The place of the sender: a node, an adversary or a region.
    pub(super) node: usize,
    pub(super) session: u64,
    /// The life of the allocator that has answered in this session; 0 if none has.
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) exchange: u64,
    pub(super) asks: Vec<DeskAsk>,
    /// Whether this is a goodbye.
    pub(super) leaves: bool,
    /// The round-trip time as the node has measured it.
    pub(super) rtt: Duration,
}

/// The ask for one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskAsk {
    /// The desk that asks, or the place of an adversary or a region behind all desks.
    pub(super) desk: usize,
    pub(super) ask: Ask,
    /// What the node heard of the vendor.
    pub(super) observed: Option<Observed>,
}

impl Message {
    /// Makes the reply of an allocator in its life `epoch`.
    pub(super) fn reply(&self, epoch: u64, answers: Vec<DeskAnswer>) -> Reply {
        Reply { epoch, answers: Some(answers), ..self.no_reply() }
    }

    /// Makes the reply of an allocator that is down.
    pub(super) fn no_reply(&self) -> Reply {
        let Message { node, session, seq, exchange, .. } = *self;
        Reply { node, session, seq, exchange, epoch: 0, answers: None }
    }
}

/// The reply to a message.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) node: usize,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) exchange: u64,
    /// The number of the allocator's life.
    pub(super) epoch: u64,
    /// Answers in the order of the asks; `None` if the allocator is down.
    pub(super) answers: Option<Vec<DeskAnswer>>,
}

/// The answer to one ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskAnswer {
    pub(super) desk: usize,
    pub(super) answer: Result<Answer, Reason>,
    /// The safe share of the node, if it has one.
    pub(super) share: Option<SafeShare>,
    /// The longest that a call may take by the rules at that time, in nanoseconds, if they limit it.
    pub(super) longest: Option<u64>,
}

/// An event in the queue. The soonest is the greatest, and at the same time the one queued first.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) at: u64,
    pub(super) order: u64,
    pub(super) event: Event,
}

impl Event {
    /// Returns the host to which the event happens. For a message to a region that is its sender.
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
            Event::RegionWakes { region, .. }
            | Event::RegionTimesOut { region, .. }
            | Event::Signs { region, .. }
            | Event::FromStore { region, .. }
            | Event::StoreSilent { region, .. }
            | Event::HasNewFile { region, .. }
            | Event::PublishWakes { region, .. }
            | Event::PublishTimesOut { region, .. } => Some(Host::Region(*region)),
            Event::Ask(_)
            | Event::Scheme(_)
            | Event::Land { .. }
            | Event::Traffic { .. }
            | Event::Strike(_)
            | Event::Operate(_)
            | Event::Unslew { .. }
            | Event::Lags
            | Event::RegionThaws { .. }
            | Event::AtStore { .. }
            | Event::SetAgain
            | Event::Lift
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
