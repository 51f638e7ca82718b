//! A fleet of nodes that lease, in virtual time: the shipping allocator and the nodes of the simulator, with a round
//! trip between them and no faults. `lessor replay --nodes` answers with it, so that the cost of leasing can be seen
//! beside the exact limiter. It decides on which node a request lands, but not what the node may spend.
//!
//! In reading order: [`event`] (the queue of events), [`local`] (one pool of one node, at a desk of the simulator),
//! `in_flight` (calls that end), `change` (changes of limits).

mod change;
mod event;
mod in_flight;
mod local;

use super::answer::Answer;
use super::contract::PoolId;
use super::lineage::Lineage;
use super::request::{Call, Request};
use event::{Event, Queue};
use lessor_allocator::Config;
use lessor_allocator::config::{Keyed, LimitConfig, Names};
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::connection::Exchange;
use lessor_ledger::Rule;
use lessor_ledger::exact::Admission;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::Registry;
use lessor_ledger::registry::{Caller, Entry};
use lessor_protocol::moment::nanos;
use lessor_protocol::wire::{AskBody, GrantBody};
use lessor_protocol::{ClockBounds, Key, Moment, NodeName};
use lessor_sim::clock::HostClock;
use lessor_sim::desk::Waiter;
use lessor_sim::node::{Node, Task};
use local::{Local, Served};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Time for which nodes have known their limits when the first request comes: enough for a first lease.
const AHEAD: Duration = Duration::from_secs(1);

/// Latest time of a request. Terms of leases and windows after it are in 64 bits, too.
const AT_MAX: Moment = Moment::from_nanos(u64::MAX / 2);

/// Time after the last request for which a caller may still wait. A longer wait counts as endless: the reader of the
/// answers waits too.
const RUN_OUT: Duration = Duration::from_secs(3600);

/// The allocator, its nodes, and what happens between them.
#[derive(Debug)]
pub(crate) struct Fleet {
    registry: Registry,
    clocks: ClockBounds,
    /// Limits by name or pattern.
    limits: BTreeMap<String, LimitConfig>,
    lineage: Lineage,
    nodes: Vec<Host>,
    /// Requests of callers that wait, by ticket.
    waiting: HashMap<u64, Request>,
    /// The node of each name, in the order in which names were first seen.
    named: HashMap<String, usize>,
    /// Requests without a node so far, which go to each node in turn.
    unnamed: usize,
    queue: Queue,
    now: Moment,
    has_begun: bool,
    rtt: Duration,
    rng: fastrand::Rng,
    answers: Vec<(Request, u64, Answer)>,
    admissions: Vec<(PoolId, Admission)>,
}

/// One node, and its pools.
#[derive(Debug)]
struct Host {
    name: NodeName,
    node: Node,
    pools: BTreeMap<PoolId, Local>,
}

/// Size of a fleet, and its distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) rtt: Duration,
    pub(crate) seed: u64,
}

impl Fleet {
    /// Creates nodes that have spent nothing yet of the limits of `config`.
    pub(crate) fn new(config: &Config, shape: Shape) -> Self {
        // The clocks of nodes show the time of the requests.
        let node = |index: usize| Host {
            name: NodeName::try_new(&format!("node-{}", index + 1)).expect("letters and digits"),
            node: Node::new(HostClock::new(0, 0), index as u64 + 1),
            pools: BTreeMap::new(),
        };
        Fleet {
            registry: Registry::new(&config.limits, config.clocks, Past::None, Moment::ORIGIN, 1),
            clocks: config.clocks,
            limits: config.limits.iter().map(|limit| (limit.name.to_string(), limit.clone())).collect(),
            lineage: Lineage::new(config),
            nodes: (0..shape.nodes).map(node).collect(),
            waiting: HashMap::new(),
            named: HashMap::new(),
            unnamed: 0,
            queue: Queue::default(),
            now: Moment::ORIGIN,
            has_begun: false,
            rtt: shape.rtt,
            rng: fastrand::Rng::with_seed(shape.seed),
            answers: vec![],
            admissions: vec![],
        }
    }

    /// Handles a request, named by `ticket`. It is answered at once, or when it has waited.
    ///
    /// # Errors
    /// If nodes cannot do what it asks, or there is no such pool: the problem, beginning with the field.
    pub(crate) fn request(&mut self, request: &Request, ticket: u64) -> Result<(), String> {
        if request.at > AT_MAX {
            let (at, most) = (request.at.as_nanos(), AT_MAX.as_nanos());
            return Err(format!("at_ns is {at}: use at most {most} with --nodes, a time in the year 2262"));
        }
        let id = self.pool_id(request)?;
        let changed = match &request.call {
            Call::Set(rules, carry_over) => Some((self.changed(request, rules)?, *carry_over)),
            Call::TryAcquire(_) | Call::Acquire(..) | Call::Peek(_) | Call::Refund(_) | Call::TopUp(_) => {
                None
            }
        };
        self.begin(request.at);
        self.run_until(request.at);
        if let Some((config, carry_over)) = changed {
            self.put(config, carry_over)?;
            self.answer(request, &id, ticket);
            return Ok(());
        }
        if let Call::TopUp(permits) = request.call {
            self.top_up(&id, permits)?;
            self.answer(request, &id, ticket);
            return Ok(());
        }
        if let Call::Refund(permits) = request.call {
            return self.refund(request, &id, permits, ticket);
        }
        let node = self.node(request);
        let now = self.now;
        let (host, local) = self.at(node, &id);
        let (permits, patience) = match request.call {
            Call::TryAcquire(permits) => (permits, Some(Duration::ZERO)),
            Call::Acquire(permits, patience) => (permits, patience),
            Call::Peek(permits) => {
                let answer = local.look(permits, now);
                self.answers.push((request.clone(), ticket, answer));
                return Ok(());
            }
            Call::Refund(_) | Call::TopUp(_) | Call::Set(..) => unreachable!("it has been answered"),
        };
        let waits = matches!(request.call, Call::Acquire(..));
        if local.take(host, permits, now) {
            let answer = Answer { wait_ns: waits.then_some(0), ..Answer::yes(local.remaining(now)) };
            self.admit(node, id.clone(), Admission { at: now, permits, since: now });
            self.answers.push((request.clone(), ticket, answer));
        } else if local.let_pass(permits) {
            let answer = Answer::passed(local.remaining(now), waits);
            self.answers.push((request.clone(), ticket, answer));
        } else if let Some(answer) = local.refuse(permits, patience, now, waits) {
            self.answers.push((request.clone(), ticket, answer));
        } else {
            let until = patience.map_or(Moment::NEVER, |patience| now + patience);
            local.desk.line.push_back(Waiter { ticket, since: now.as_nanos(), permits });
            self.waiting.insert(ticket, request.clone());
            self.queue.push(until, Event::GiveUp { node, id: id.clone(), ticket });
        }
        let (host, local) = self.at(node, &id);
        if local.desk.nudged || local.desk.next_due(host, now.as_nanos()).is_some() {
            self.look(node);
        }
        Ok(())
    }

    /// Lets waiting callers be served, or give up. A caller that still waits after [`RUN_OUT`] gets an error.
    pub(crate) fn run_out(&mut self) {
        let end = self.now + RUN_OUT;
        while self.nodes.iter().any(Host::has_line) && self.queue.next_at() <= end {
            self.run_until(self.queue.next_at());
        }
        let lines = self.nodes.iter_mut().flat_map(|host| host.pools.values_mut());
        for waiter in lines.flat_map(|local| std::mem::take(&mut local.desk.line)) {
            let problem = format!("still waiting {RUN_OUT:?} after the last request");
            let request = self.waiting.remove(&waiter.ticket).expect("it waits");
            self.answers.push((request, waiter.ticket, Answer::wrong(problem)));
        }
    }

    /// Returns the answers since the last call, with the tickets of their requests.
    pub(crate) fn answers(&mut self) -> std::vec::Drain<'_, (Request, u64, Answer)> {
        self.answers.drain(..)
    }

    /// Returns the admissions since the last call.
    pub(crate) fn admissions(&mut self) -> std::vec::Drain<'_, (PoolId, Admission)> {
        self.admissions.drain(..)
    }

    fn pool_id(&mut self, request: &Request) -> Result<PoolId, String> {
        let name = &request.limit;
        let known = self.registry.limit_for(name);
        let limit = known.ok_or_else(|| format!("limit {name:?} is not in the configuration"))?;
        // New rules are for all keys.
        if let (Call::Set(..), None) = (&request.call, &request.key) {
            return Ok((name.clone(), None));
        }
        let id = limit.pool_id(name, request.key.as_deref());
        let id = (name.clone(), id.map_err(|wrong| format!("key: {}", wrong.detail))?.key);
        let known = self.lineage.limit(name).unwrap_or_default();
        self.lineage.chain(&known, id.clone())?;
        Ok(id)
    }

    /// Returns the pool `id` of `node`, without permits if the node has never been asked for it.
    fn local(&mut self, node: usize, id: &PoolId) -> &mut Local {
        self.at(node, id).1
    }

    /// Returns the pool `id` of `node`, beside `node` itself.
    fn at(&mut self, node: usize, id: &PoolId) -> (&Node, &mut Local) {
        if !self.nodes[node].pools.contains_key(id) {
            let local = Local::new(self.now, self.rtt, self.ceiling(id));
            self.nodes[node].pools.insert(id.clone(), local);
        }
        let Host { node, pools, .. } = &mut self.nodes[node];
        (node, pools.get_mut(id).expect("it is there now"))
    }

    /// Returns the rules of the pool `id` and of the pools above it.
    fn rules(&self, id: &PoolId) -> impl Iterator<Item = &Rule> {
        let name = self.lineage.limit(&id.0).unwrap_or_default();
        let chain = self.lineage.chain(&name, id.clone()).unwrap_or_default();
        chain.into_iter().enumerate().flat_map(move |(index, (above, key))| {
            let limit = self.limits.get(if index == 0 { &name } else { &above });
            limit
                .map(|limit| key.and_then(|key| limit.overrides.get(&key)).unwrap_or(&limit.rules))
                .into_iter()
                .flatten()
        })
    }

    /// Begins with the first request: a little before it, nodes learn of the limits without keys.
    fn begin(&mut self, at: Moment) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        self.now = at.before(AHEAD);
        let is_single = |limit: &&LimitConfig| limit.keyed == Keyed::No && limit.name.names() == Names::One;
        let limits: Vec<PoolId> =
            self.limits.values().filter(is_single).map(|limit| (limit.name.to_string(), None)).collect();
        for node in 0..self.nodes.len() {
            for id in &limits {
                self.local(node, id);
            }
            self.look(node);
        }
    }

    /// Returns the node of a request: by its name, or else in turn. More names than nodes share them.
    fn node(&mut self, request: &Request) -> usize {
        let count = self.nodes.len();
        let Some(name) = &request.node else {
            self.unnamed += 1;
            return (self.unnamed - 1) % count;
        };
        let next = self.named.len();
        *self.named.entry(name.to_string()).or_insert(next % count)
    }

    /// Lets time pass up to `end`, never backwards.
    fn run_until(&mut self, end: Moment) {
        while self.queue.next_at() <= end {
            let (at, event) = self.queue.pop().expect("there is a next one");
            self.now = self.now.max(at);
            match event {
                Event::Wake { node } => {
                    self.nodes[node].node.alarm = u64::MAX;
                    for id in self.nodes[node].pools.keys().cloned().collect::<Vec<_>>() {
                        self.serve(node, &id);
                    }
                    self.look(node);
                }
                Event::Asked { node, seq, asks } => self.lend(node, seq, &asks),
                Event::Answered { node, seq, grants } => self.on_answer(node, seq, &grants),
                Event::Over { node, id } => self.over(node, &id),
                Event::Notified { node, event } => self.on_event(node, &event),
                Event::GiveUp { node, id, ticket } => self.give_up(node, &id, ticket),
            }
        }
        self.now = self.now.max(end);
    }

    /// Asks for all pools of `node` that are due, or sets its alarm.
    fn look(&mut self, node: usize) {
        let (now, real) = (self.now, self.now.as_nanos());
        let Host { node: at, pools, .. } = &mut self.nodes[node];
        // A caller that waits for the next permit of a steady flow is served when it is due, even while the node asks.
        let permits = pools.values().filter_map(|local| local.desk.next_due(at, real)).min();
        let permits = permits.map_or(Moment::NEVER, Moment::from_nanos);
        if at.connection.open().is_some() {
            return self.wake_at(node, permits);
        }
        match at.next(real, pools.iter_mut().map(|(id, local)| (id, &mut local.desk))) {
            Task::Sleep(later) => self.wake_at(node, permits.min(later)),
            Task::Ask(due) => {
                let due: Vec<PoolId> = due.into_iter().cloned().collect();
                let Exchange { seq, rtt, .. } = at.connection.begin(now);
                let ask = |id: PoolId| {
                    let ask = pools.get_mut(&id).expect("it was looked at").desk.write(now, rtt);
                    let (name, key) = &id;
                    Entry::Ask(AskBody::of(name, key.as_ref().map(|key| key.as_str()), ask))
                };
                let asks = due.into_iter().map(ask).collect();
                self.queue.push(now + self.rtt / 2, Event::Asked { node, seq, asks });
                self.wake_at(node, permits);
            }
        }
    }

    /// Looks again at `next`, if nothing happens before.
    fn wake_at(&mut self, node: usize, next: Moment) {
        let at = &mut self.nodes[node].node;
        if next.as_nanos() < at.alarm {
            at.alarm = next.as_nanos();
            self.queue.push(next, Event::Wake { node });
        }
    }

    /// Lets the allocator answer.
    fn lend(&mut self, node: usize, seq: u64, asks: &[Entry]) {
        let Host { name, node: at, .. } = &self.nodes[node];
        let caller = Caller {
            node: name.clone(),
            session: at.session(),
            epoch: 0,
            seq,
            rtt: self.rtt,
            owner: Default::default(),
        };
        let grants = self.registry.leases(self.now, &caller, asks).grants;
        let arrives = self.now + (self.rtt - self.rtt / 2);
        self.queue.push(arrives, Event::Answered { node, seq, grants });
    }

    /// Takes in an answer: its grants are installed, and serve waiting callers.
    fn on_answer(&mut self, node: usize, seq: u64, grants: &[GrantBody]) {
        let (now, clocks) = (self.now, self.clocks);
        let connection = &mut self.nodes[node].node.connection;
        let (exchange, _) =
            connection.on_answer(connection.session(), seq, now).expect("one exchange at a time");
        connection.on_success();
        for body in grants {
            let key = body.key.as_deref().map(|key| Key::try_new(key).expect("it was ours"));
            let id = (body.limit.clone(), key);
            let timing = AnswerTiming { first_sent: exchange.first_sent, now, clocks };
            let random = self.rng.u64(..);
            let outcome = self.local(node, &id).on_answer(body, timing, random);
            assert_ne!(outcome, Outcome::Impossible, "our own allocator lends what was asked for");
            self.serve(node, &id);
        }
        self.look(node);
    }

    /// Serves callers that wait at `node`, as far as permits are there and it is time.
    fn serve(&mut self, node: usize, id: &PoolId) {
        let now = self.now;
        loop {
            let (host, local) = self.at(node, id);
            let Some((waiter, served)) = local.serve_first(host, now) else { return };
            let remaining = local.remaining(now);
            let Waiter { ticket, since, permits } = waiter;
            let since = Moment::from_nanos(since);
            let request = self.waiting.remove(&ticket).expect("it waits");
            let (wait_ns, shadow) = (Some(nanos(now.since(since))), served == Served::Passed);
            self.answers.push((request, ticket, Answer { wait_ns, shadow, ..Answer::yes(remaining) }));
            if served == Served::Admitted {
                self.admit(node, id.clone(), Admission { at: now, permits, since });
            }
        }
    }

    fn give_up(&mut self, node: usize, id: &PoolId, ticket: u64) {
        let now = self.now;
        let local = self.local(node, id);
        let line = &mut local.desk.line;
        let Some(place) = line.iter().position(|waiter| waiter.ticket == ticket) else { return };
        let waiter = line.remove(place).expect("it is there");
        let answer = local.too_late(waiter.permits, now);
        let request = self.waiting.remove(&ticket).expect("it waited");
        self.answers.push((request, ticket, answer));
        self.look(node);
    }

    /// Returns the most that one call can ever take of the pool `id`.
    fn ceiling(&self, id: &PoolId) -> u64 {
        self.rules(id).map(Rule::ceiling).min().unwrap_or(0)
    }

    fn admit(&mut self, node: usize, id: PoolId, admission: Admission) {
        if admission.permits > 0 {
            self.schedule_end(node, &id);
            self.admissions.push((id, admission));
        }
    }
}

impl Host {
    fn has_line(&self) -> bool {
        self.pools.values().any(|local| !local.desk.line.is_empty())
    }
}
