//! A small world in virtual time: the shipping pool on one side, shipping slots and refills on the other, clocks that
//! drift, and a network that loses, delays, repeats and reorders. It does what it is told, step by step, and
//! remembers every spend; it decides nothing and rolls no dice.

use crate::reference::Spend;
use lessor::pace::Refill;
use lessor::slot::Slot;
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::refill::Seen;
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_ledger::pool::{AskError, Holder, Plan, Pool, SessionId};
use lessor_ledger::rejection::AskRejection;
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, Moment};
use std::sync::Arc;
use std::time::Duration;

/// Round trip that nodes reckon with.
const RTT: Duration = Duration::from_millis(5);

/// One step. Numbers that choose something are taken modulo what there is to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Real time passes.
    Wait {
        /// Nanoseconds.
        nanos: u64,
    },
    /// A caller on a node tries to spend.
    Spend {
        /// Which node.
        node: usize,
        /// How many permits.
        permits: u64,
    },
    /// Callers on a node spend all that it has, one permit at a time: at once, or at the last instant of its lease.
    SpendAll {
        /// Which node.
        node: usize,
        /// Whether they wait for the last instant.
        late: bool,
    },
    /// A node asks, the ask takes its time, the answer takes its time, and both arrive.
    Exchange {
        /// Which node.
        node: usize,
        /// Permits that callers queue for.
        waiting: u64,
        /// Nanoseconds that the ask takes.
        there: u64,
        /// Nanoseconds that the answer takes.
        back: u64,
    },
    /// A node asks, with `waiting` callers in line; its earlier ask is given up.
    Ask {
        /// Which node.
        node: usize,
        /// Permits that callers queue for.
        waiting: u64,
    },
    /// A message reaches the allocator, which answers. It stays on the network: it may arrive again.
    Arrive {
        /// Which message.
        message: usize,
    },
    /// An answer reaches its node. It stays on the network too.
    Return {
        /// Which answer.
        answer: usize,
    },
    /// A node dies and comes back as a new session with nothing.
    RestartNode {
        /// Which node.
        node: usize,
    },
    /// The allocator dies and comes back without its books.
    RestartAllocator,
}

/// A message that is somewhere on the network.
#[derive(Clone, Copy, Debug)]
struct Message {
    node: usize,
    session: SessionId,
    seq: u64,
    ask: Ask,
}

#[derive(Clone, Copy, Debug)]
struct Reply {
    node: usize,
    session: SessionId,
    seq: u64,
    answer: Result<Answer, AskError>,
}

#[derive(Debug)]
struct Node {
    /// Parts per million that its clock runs fast.
    drift_ppm: i64,
    connection: Connection,
    slot: Slot,
    refill: Refill,
    refused: u64,
}

/// The whole world.
#[derive(Debug)]
pub struct World {
    plan: Arc<Plan>,
    real: u64,
    drift_ppm: i64,
    pool: Pool,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    replies: Vec<Reply>,
    sessions: u64,
    restarted: bool,
    /// Every admission, in the order of time.
    pub spends: Vec<Spend>,
    /// Everything that was lent, in the order of time.
    pub grants: Vec<Spend>,
}

/// What a clock that runs `ppm` fast shows after `real` nanoseconds.
fn shown(real: u64, ppm: i64) -> u64 {
    let rate = u128::try_from(1_000_000 + ppm).expect("no clock runs backwards");
    u64::try_from(u128::from(real) * rate / 1_000_000).expect("a few years at most")
}

impl World {
    /// A world at `start` nanoseconds of real time. The allocator's clock runs `drift_ppm` fast, each node's as
    /// `nodes_ppm` says.
    pub fn new(plan: Plan, start: u64, drift_ppm: i64, nodes_ppm: &[i64]) -> Self {
        let plan = Arc::new(plan);
        let pool = Pool::new(plan.clone(), Moment::from_nanos(shown(start, drift_ppm)));
        let mut world = World {
            plan,
            real: start,
            drift_ppm,
            pool,
            nodes: vec![],
            messages: vec![],
            replies: vec![],
            sessions: 0,
            restarted: false,
            spends: vec![],
            grants: vec![],
        };
        for &ppm in nodes_ppm {
            let node = world.new_node(ppm);
            world.nodes.push(node);
        }
        world
    }

    /// Does one step.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait { nanos } => self.real += nanos,
            Step::Spend { node, permits } => self.spend(node % self.nodes.len(), permits),
            Step::SpendAll { node, late } => self.spend_all(node % self.nodes.len(), late),
            Step::Exchange { node, waiting, there, back } => {
                self.ask(node % self.nodes.len(), waiting);
                self.real += there;
                self.arrive(*self.messages.last().expect("it was just sent"));
                self.real += back;
                self.take_back(*self.replies.last().expect("it was just answered"));
            }
            Step::Ask { node, waiting } => self.ask(node % self.nodes.len(), waiting),
            Step::Arrive { .. } if self.messages.is_empty() => {}
            Step::Arrive { message } => self.arrive(self.messages[message % self.messages.len()]),
            Step::Return { .. } if self.replies.is_empty() => {}
            Step::Return { answer } => self.take_back(self.replies[answer % self.replies.len()]),
            Step::RestartNode { node } => {
                let node = node % self.nodes.len();
                self.nodes[node] = self.new_node(self.nodes[node].drift_ppm);
            }
            Step::RestartAllocator => {
                let now = self.allocator_now();
                self.restarted = true;
                self.pool = Pool::after_loss(self.plan.clone(), now, now);
            }
        }
    }

    /// Permits that nodes could still spend at this instant.
    pub fn in_hand(&self) -> u64 {
        let live = |node: &&Node| self.node_now(node) < node.slot.deadline();
        self.nodes.iter().filter(live).map(|node| node.slot.balance().total()).sum()
    }

    /// What the pool takes for outstanding.
    pub fn outstanding(&mut self) -> u64 {
        self.pool.view(self.allocator_now()).books.outstanding
    }

    /// Whether the pool has forgotten, and waits until no node can be spending what it lent.
    pub fn is_in_quarantine(&mut self) -> bool {
        !self.pool.view(self.allocator_now()).quarantine.is_zero()
    }

    fn new_node(&mut self, drift_ppm: i64) -> Node {
        self.sessions += 1;
        Node {
            drift_ppm,
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, self.sessions - 1),
            slot: Slot::new(),
            refill: Refill::new(Moment::from_nanos(shown(self.real, drift_ppm)), true),
            refused: 0,
        }
    }

    fn allocator_now(&self) -> Moment {
        Moment::from_nanos(shown(self.real, self.drift_ppm))
    }

    fn node_now(&self, node: &Node) -> Moment {
        Moment::from_nanos(shown(self.real, node.drift_ppm))
    }

    fn spend(&mut self, node: usize, permits: u64) {
        let now = self.node_now(&self.nodes[node]);
        let spender = &mut self.nodes[node];
        if permits == 0 || !take(spender, permits, now) {
            spender.refused += permits;
            return;
        }
        let allocator = self.allocator_now().as_nanos();
        self.spends.push(Spend { real: self.real, allocator, permits });
    }

    fn spend_all(&mut self, node: usize, late: bool) {
        let deadline = self.nodes[node].slot.deadline();
        if late && deadline > self.node_now(&self.nodes[node]) {
            // The last real nanosecond at which the node's clock still shows less than the deadline.
            let rate = u128::try_from(1_000_000 + self.nodes[node].drift_ppm).expect("it runs forwards");
            let real = (u128::from(deadline.as_nanos()) * 1_000_000).div_ceil(rate) - 1;
            self.real = self.real.max(u64::try_from(real).expect("a few years at most"));
        }
        for _ in 0..self.nodes[node].slot.balance().free {
            self.spend(node, 1);
        }
    }

    fn ask(&mut self, node: usize, waiting: u64) {
        let now = self.node_now(&self.nodes[node]);
        let asker = &mut self.nodes[node];
        let seen = Seen { refused: asker.refused, waiting, shadow_refused: 0, largest: 1 };
        let _ = asker.refill.due(&asker.slot, seen, now, RTT);
        let ask = asker.refill.write(&asker.slot, seen, now, RTT);
        let Exchange { session, seq, .. } = asker.connection.begin(now);
        self.messages.push(Message { node, session: SessionId(session), seq, ask });
    }

    fn arrive(&mut self, message: Message) {
        let Message { node, session, seq, ask } = message;
        let holder = Holder { id: session, share: Share::EVEN, rtt: Duration::ZERO };
        let now = self.allocator_now();
        let before = self.pool.view(now).books.granted;
        let answer = self.pool.renew(now, holder, seq, ask);
        let permits = self.pool.view(now).books.granted - before;
        self.grants.push(Spend { real: self.real, allocator: now.as_nanos(), permits });
        self.replies.push(Reply { node, session, seq, answer });
    }

    fn take_back(&mut self, reply: Reply) {
        let now = self.node_now(&self.nodes[reply.node]);
        let node = &mut self.nodes[reply.node];
        let Some((exchange, _)) = node.connection.on_answer(reply.session.0, reply.seq, now) else { return };
        node.connection.on_success();
        let timing = AnswerTiming { first_sent: exchange.first_sent, now, clocks: self.plan.clocks };
        let word = reply.answer.as_ref().map_err(|error| AskRejection::from(*error).reason.code());
        match node.refill.on_answer(&node.slot, word, timing, false, reply.seq) {
            Outcome::Impossible => panic!("the pool says what cannot be: {:?}", reply.answer),
            // A copy of an old ask made itself at home in the new books before the truth arrived.
            Outcome::Disputed if self.restarted => {
                self.sessions += 1;
                node.connection.begin_session(self.sessions - 1);
                node.refill.begin_session(&node.slot, now, reply.seq);
            }
            Outcome::Disputed => panic!("an honest node was not believed: {:?}", reply.answer),
            Outcome::Installed | Outcome::Refused | Outcome::Unrecognised | Outcome::Unavailable => {}
        }
    }
}

/// Spends as a handle does: of a steady flow, only if the permits are there and it is time.
fn take(node: &Node, permits: u64, now: Moment) -> bool {
    if !node.refill.is_paced() {
        return node.slot.take(permits, now).is_ok();
    }
    if node.slot.hold(permits, now).is_err() {
        return false;
    }
    let is_time = node.refill.pace().take(permits, now).is_ok();
    match is_time {
        true => node.slot.spend_held(permits),
        false => {
            node.slot.put_back(permits);
            0
        }
    };
    is_time
}
