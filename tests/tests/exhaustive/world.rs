//! The world that is explored: two nodes, an allocator, a network, and clocks. It takes the steps that the checker
//! chooses, one at a time.

use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::hand::{Bucket, Hand};
use lessor_holder::permits::Permits;
use lessor_holder::refill::{Refill, Seen};
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_ledger::Rule;
use lessor_ledger::pool::{AskError, CHECKPOINT_LASTS, Checkpoint, Holder, Plan, Pool, SessionId};
use lessor_ledger::rejection::AskRejection;
use lessor_ledger::rule::Gap;
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, Moment};
use lessor_sim::reference::{Spend, breach};
use lessor_sim::setup::plan;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

const MILLI: u64 = 1_000_000;

/// The contract: permits in a window of this length.
pub(super) const LIMIT: u64 = 2;
pub(super) const WINDOW: Duration = Duration::from_millis(300);

/// When the world begins, in nanoseconds.
const START: u64 = 1_000_000 * MILLI;

/// How far the clocks are off, in millionths: one node is as slow as allowed and holds its lease for longest. All
/// others are as fast as allowed.
const NODES_PPM: [i64; 2] = [-1_000, 1_000];
const ALLOCATOR_PPM: i64 = 1_000;

/// Steps of time, in nanoseconds: within a lease, beyond a lease, beyond a window, and beyond the quarantine of an
/// allocator that lost its books.
pub(super) const WAITS: [u64; 4] = [7 * MILLI, 25 * MILLI, 310 * MILLI, 2_400 * MILLI];

/// How often a message may arrive.
const COPIES: u8 = 2;

/// Round trip that nodes assume.
const RTT: Duration = Duration::from_millis(1);

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Time passes, in nanoseconds.
    Wait(u64),
    /// A node asks, if it is due.
    Ask(usize),
    /// A node gives up its open exchange.
    GiveUp(usize),
    /// Callers of a node spend permits: the node, and how many.
    Spend(usize, u64),
    /// A node asks, and receives its answer at once.
    Exchange(usize),
    /// The message at this place of the network arrives.
    Arrive(usize),
    /// A node dies and begins again with nothing.
    RestartNode(usize),
    /// The allocator dies and goes on, with its last checkpoint or without.
    Restart { has_books: bool },
}

#[derive(Clone, Debug)]
enum Word {
    Ask(Ask),
    Answer(Result<Answer, AskError>),
}

/// A message from a node or to one.
#[derive(Clone, Debug)]
struct Message {
    node: usize,
    session: u64,
    seq: u64,
    word: Word,
    /// How often the message may still arrive.
    copies: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    connection: Connection,
    pub(super) hand: Hand,
    refill: Refill<Bucket>,
}

/// The state of the world.
#[derive(Clone, Debug)]
pub(super) struct World {
    plan: Arc<Plan>,
    pub(super) real: u64,
    pool: Pool,
    /// The allocator's last checkpoint.
    checkpoint: Option<Checkpoint>,
    /// Whether the allocator ever restarted, and whether it ever did so without its checkpoint.
    has_restarted: bool,
    has_lost: bool,
    pub(super) nodes: [Node; 2],
    network: Vec<Message>,
    sessions: u64,
    pub(super) spends: Vec<Spend>,
    /// An impossible answer or an unjust dispute that was seen.
    fault: Option<String>,
}

fn shown(real: u64, ppm: i64) -> Moment {
    let rate = u64::try_from(1_000_000 + ppm).expect("the clock runs forwards");
    Moment::from_nanos(real / 1_000_000 * rate)
}

impl World {
    pub(super) fn new(rule: Rule) -> World {
        let plan = Arc::new(Plan { lessees_max: 10, ..plan(vec![rule], false) });
        let pool = Pool::new(plan.clone(), shown(START, ALLOCATOR_PPM));
        let nodes = [0, 1].map(|node| Node::new(node, u64::try_from(node).expect("two"), START));
        World {
            plan,
            real: START,
            pool,
            checkpoint: None,
            has_restarted: false,
            has_lost: false,
            nodes,
            network: vec![],
            sessions: 2,
            spends: vec![],
            fault: None,
        }
    }

    fn now(&self, node: usize) -> Moment {
        shown(self.real, NODES_PPM[node])
    }

    fn allocator_now(&self) -> Moment {
        shown(self.real, ALLOCATOR_PPM)
    }

    /// What callers of each node do: they wait for all that the contract gives.
    fn seen() -> Seen {
        Seen { refused: 0, waiting: LIMIT, largest: 1, shadow_refused: 0 }
    }

    fn may_ask(&self, node: usize, seen: Seen) -> bool {
        let (now, Node { connection, hand, refill }) = (self.now(node), &self.nodes[node]);
        connection.open().is_none() && connection.quiet_until().max(refill.due(hand, seen, now, RTT)) <= now
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = WAITS.map(Step::Wait).to_vec();
        for (at, node) in self.nodes.iter().enumerate() {
            if self.may_ask(at, World::seen()) {
                steps.extend([Step::Ask(at), Step::Exchange(at)]);
            }
            if node.connection.open().is_some() {
                steps.push(Step::GiveUp(at));
            }
            if self.now(at) < node.hand.deadline() {
                steps.extend((1..=node.hand.balance().free).map(|permits| Step::Spend(at, permits)));
            }
            steps.push(Step::RestartNode(at));
        }
        steps.extend((0..self.network.len()).map(Step::Arrive));
        steps.extend([true, false].map(|has_books| Step::Restart { has_books }));
        steps
    }

    pub(super) fn go(&mut self, step: Step) {
        match step {
            Step::Wait(nanos) => self.real += nanos,
            Step::Ask(node) => self.ask(node, World::seen()),
            Step::GiveUp(node) => {
                let now = self.now(node);
                let Node { connection, refill, .. } = &mut self.nodes[node];
                refill.unanswered();
                connection.on_failure(now, 0, 0);
            }
            Step::Spend(node, permits) => {
                let now = self.now(node);
                if self.nodes[node].hand.take(permits, now).is_ok() {
                    let allocator = self.allocator_now().as_nanos();
                    self.spends.push(Spend { real: self.real, allocator, permits });
                }
            }
            Step::Exchange(node) => {
                self.ask(node, World::seen());
                // First the ask arrives, then its answer. Both may arrive once more.
                self.go(Step::Arrive(self.network.len() - 1));
                self.go(Step::Arrive(self.network.len() - 1));
            }
            Step::Arrive(at) => {
                self.network[at].copies -= 1;
                let message = match self.network[at].copies {
                    0 => self.network.remove(at),
                    _ => self.network[at].clone(),
                };
                match message.word {
                    Word::Ask(ask) => self.answer(message.node, message.session, message.seq, ask),
                    Word::Answer(answer) => self.hear(message.node, message.session, message.seq, &answer),
                }
            }
            Step::RestartNode(node) => {
                self.nodes[node] = Node::new(node, self.sessions, self.real);
                self.sessions += 1;
            }
            Step::Restart { has_books } => self.restart(has_books),
        }
    }

    fn restart(&mut self, has_books: bool) {
        let (plan, now) = (self.plan.clone(), self.allocator_now());
        self.has_restarted = true;
        self.pool = match &self.checkpoint {
            // Without a checkpoint nothing was ever lent.
            None if has_books => Pool::new(plan, now),
            Some(checkpoint) if has_books => {
                Pool::from_checkpoint(plan, checkpoint, Gap::Counted, now).expect("the checkpoint is valid")
            }
            Some(_) | None => {
                self.has_lost = true;
                Pool::after_loss(plan, now, now)
            }
        };
        self.write_down();
    }

    /// Makes the newest checkpoint durable, after which the pool may lend what it allows.
    fn write_down(&mut self) {
        let now = self.allocator_now();
        if let Some((checkpoint, block)) = self.pool.checkpoint(now, CHECKPOINT_LASTS) {
            self.checkpoint = Some(checkpoint);
            self.pool.raise_high_water(block);
        }
    }

    fn ask(&mut self, node: usize, seen: Seen) {
        let now = self.now(node);
        let Node { connection, hand, refill } = &mut self.nodes[node];
        let ask = refill.write(hand, seen, now, RTT);
        let Exchange { session, seq, .. } = connection.begin(now);
        self.network.push(Message { node, session, seq, word: Word::Ask(ask), copies: COPIES });
    }

    fn answer(&mut self, node: usize, session: u64, seq: u64, ask: Ask) {
        let holder = Holder { id: SessionId(session), share: Share::EVEN, rtt: RTT };
        let answer = self.pool.renew(self.allocator_now(), holder, seq, ask);
        if !self.pool.is_covered() {
            self.write_down();
        }
        self.network.push(Message { node, session, seq, word: Word::Answer(answer), copies: COPIES });
    }

    fn hear(&mut self, at: usize, session: u64, seq: u64, answer: &Result<Answer, AskError>) {
        let (now, clocks) = (self.now(at), self.plan.clocks);
        let Node { connection, hand, refill } = &mut self.nodes[at];
        let Some((exchange, _)) = connection.on_answer(session, seq, now) else { return };
        connection.on_success();
        let timing = AnswerTiming { first_sent: exchange.first_sent, now, clocks };
        let word = answer.as_ref().map_err(|error| AskRejection::from(*error).reason.code());
        match refill.on_answer(hand, word, timing, false, 0) {
            Outcome::Disputed => {
                connection.begin_session(self.sessions);
                refill.begin_session(hand, now, 0);
                self.sessions += 1;
                // After a restart, a copy of an old ask may have arrived before the newest one.
                if !self.has_restarted {
                    self.fault = Some(format!("an honest node was not believed: {answer:?}"));
                }
            }
            Outcome::Impossible => self.fault = Some(format!("an impossible answer: {answer:?}")),
            Outcome::Installed | Outcome::Refused | Outcome::Unrecognised | Outcome::Unavailable => {}
        }
    }

    /// Returns what is wrong with this state, if anything is.
    pub(super) fn wrong(&mut self) -> Option<String> {
        if let Some(fault) = self.fault.clone().or_else(|| breach(&self.plan.rules[0], &self.spends)) {
            return Some(fault);
        }
        let live = |at: &usize| self.now(*at) < self.nodes[*at].hand.deadline();
        let in_hand: u64 = (0..2).filter(live).map(|at| self.nodes[at].hand.balance().total()).sum();
        let out = self.pool.view(self.allocator_now()).books.outstanding;
        let is_unknown = in_hand > out && !self.has_lost;
        is_unknown.then(|| format!("nodes hold {in_hand} permits, and {out} are outstanding"))
    }

    /// Whether all permits can be lent again once nothing goes wrong any more and callers want none.
    pub(super) fn drains(mut self) -> bool {
        self.network.clear();
        for node in 0..2 {
            if self.nodes[node].connection.open().is_some() {
                self.go(Step::GiveUp(node));
            }
        }
        for _ in 0..20 {
            self.real += 250 * MILLI;
            let view = self.pool.view(self.allocator_now());
            if view.available == LIMIT && view.books.outstanding == 0 {
                return true;
            }
            for node in 0..2 {
                if self.may_ask(node, Seen::default()) {
                    self.ask(node, Seen::default());
                    self.go(Step::Arrive(self.network.len() - 1));
                    self.go(Step::Arrive(self.network.len() - 1));
                }
            }
        }
        false
    }
}

impl Node {
    fn new(node: usize, sessions: u64, real: u64) -> Node {
        Node {
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, sessions),
            hand: Hand::new(),
            refill: Refill::new(shown(real, NODES_PPM[node]), true),
        }
    }
}

/// Digests all that makes up a state, except the number of the pool, which is drawn for each new pool.
pub(super) fn digest(world: &World) -> [u64; 2] {
    let World {
        plan: _,
        real,
        pool,
        checkpoint,
        has_restarted,
        has_lost,
        nodes,
        network,
        sessions,
        spends,
        fault,
    } = world;
    let pool = format!("{pool:?}");
    let (number, pool) = pool.split_once(", ").expect("the first field is the number");
    let number = number.rsplit(' ').next().expect("a number");
    let pool = pool.replace(&format!("pool: {number},"), "");
    let all = format!(
        "{real} {pool} {checkpoint:?} {has_restarted} {has_lost} {nodes:?} {network:?} {sessions} {spends:?} {fault:?}"
    );
    [0_u8, 1].map(|salt| BuildHasherDefault::<DefaultHasher>::default().hash_one((salt, &all)))
}
