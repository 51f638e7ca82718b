//! The loop: takes the next event in virtual time and performs it. The shipping code decides about leases, and the
//! oracle about right and wrong.

mod adversaries;
mod allocator;
mod calls;
mod configured;
mod decisions;
mod event;
mod flights;
mod hosts;
mod kept_time;
mod live;
mod opened;
mod phases;
mod pools;
mod rates;
mod region_faults;
mod regions;
mod report;
mod reserved;
mod rivalry;
mod rollout;
mod roots;
mod safe;
mod shared;
mod stock;
mod store;
mod tasks;
mod trouble;
mod vendor;

pub use rates::sustained;
pub use report::{Failure, Report, Watch};

use crate::SECOND;
use crate::adversary::Adversary;
use crate::clock::HostClock;
use crate::curve::Curve;
use crate::desk::Desk;
use crate::faults::{Fault, Struck};
use crate::limits::{File, Limits};
use crate::log::Log;
use crate::meter::Meter;
use crate::network::Network;
use crate::node::Node;
use crate::oracle::{Instant, Verdict, Violation, must};
use crate::oracles::Oracles;
use crate::policy::Policy;
use crate::reference::Spend;
use crate::rival::Rival;
use crate::setup::Setup;
use crate::traffic::Traffic;
use allocator::Centre;
use event::{Event, Message, Phase, Queued};
use lessor_ledger::Rule;
use lessor_ledger::exact::Limiter;
use lessor_ledger::overrides::Version;
use lessor_ledger::pool::{Books, Past};
use lessor_ledger::registry::Registry;
use lessor_protocol::moment::nanos;
use rates::memory;
use regions::Region;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use store::Store;

/// Parts per million by which a disciplined clock runs faster, or slower, than its hardware for good.
const STEERED_PPM: i64 = 490;

pub use flights::longest;

/// The whole fleet.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    limits: Limits,
    /// Whether a sweep forgot each pool, by place. Such a pool comes back no poorer than it went.
    forgotten: Vec<bool>,
    /// The books of the pools above those that nodes ask, by place, as they were last seen.
    books_above: Vec<Books>,
    /// Real time when the pool above others last lent all that it had.
    used_up: u64,
    real: u64,
    phase: Phase,
    order: u64,
    queue: BinaryHeap<Queued>,
    /// The next arrival at each desk: real time, order, desk and generation. They are apart from the queue because
    /// there are many.
    arrivals: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    centre: Centre,
    /// The rules of each file that was rolled out, in the order of their versions.
    rollouts: Vec<Vec<Rule>>,
    /// The rules that operators put over the API of some allocator, with their versions.
    puts: Vec<(Version, Vec<Rule>)>,
    /// The store that allocators share, if there is one.
    shared: Option<shared::Store>,
    /// Permits that a caller outside the fleet uses, while the vendor tells its callers what is left.
    outside: Option<u64>,
    /// Hosts that lease and lend on to nodes, if there are any.
    regions: Vec<Region>,
    nodes: Vec<Node>,
    /// The desks of all nodes, node after node.
    desks: Vec<Desk>,
    /// The adversaries, with old messages of each.
    adversaries: Vec<(Adversary, Vec<Message>)>,
    network: Network,
    traffic: Traffic,
    traffic_generation: u64,
    rng: fastrand::Rng,
    sessions: u64,
    /// Number of processes of regions so far.
    region_lives: u64,
    tickets: u64,
    /// See [`stock`].
    steps_unseen: usize,
    struck: Struck,
    admissions: u64,
    passed: u64,
    oracles: Oracles,
    /// The rival that sizes leases in place of the shipping code.
    rival: Option<Rival>,
    over_admissions: u64,
    meter: Meter,
    log: Log,
    watch: Watch,
    curve: Option<Curve>,
    /// A limiter that is asked about each call, and the permits it would have admitted.
    exact: Option<(Limiter, u64)>,
    /// All admissions and all grants, if they are wanted.
    spends: Vec<Spend>,
    grants: Vec<Spend>,
    next_look: u64,
    /// The longest that a caller may wait in calm, in nanoseconds.
    bound: u64,
    /// Real time since when it has been calm.
    calm_since: u64,
}

impl World {
    /// Runs `setup` to its end, or to the first violation.
    ///
    /// # Errors
    /// What was wrong.
    pub fn run(setup: Setup) -> Result<Report, Box<Failure>> {
        World::run_as(Policy::Lessor, setup, Watch::default())
    }

    /// Runs `setup` with leases sized by `policy`. Rivals are for setups without faults.
    ///
    /// # Errors
    /// What was wrong. A rival is never wrong.
    pub fn run_as(policy: Policy, setup: Setup, watch: Watch) -> Result<Report, Box<Failure>> {
        let mut world = World::new(setup, watch);
        world.rival = world.rival(policy);
        world.begin();
        loop {
            world.log.step();
            match world.step() {
                Ok(true) => {}
                Ok(false) => return Ok(world.report()),
                Err(wrong) => return Err(Box::new(world.failure(wrong))),
            }
        }
    }

    fn new(setup: Setup, watch: Watch) -> Self {
        // The load has random numbers of its own, so it is the same whatever else changes.
        let mut rng = fastrand::Rng::with_seed(setup.seed);
        let traffic = Traffic::new(setup.workload, setup.demand, setup.desks(), rng.fork());
        let (plan, limits) = (setup.plan.clone(), Limits::new(&setup));
        let drift = i64::from(if setup.drifting { plan.clocks.drift_ppm() } else { 0 });
        // Half of all clocks run at the very edge of the drift, where a missing factor shows.
        let clock = |rng: &mut fastrand::Rng, shown: u64| {
            let ppm = if rng.bool() { rng.i64(-drift..=drift) } else { [-drift, drift][rng.usize(..2)] };
            HostClock::new(shown, ppm)
        };
        let mut centre_clock = clock(&mut rng, setup.start).steered(plan.clocks);
        if setup.slews() {
            // Hardware has one half of the drift, steering the other. The daemon corrects as much as it can follow.
            let ppm = centre_clock.ppm();
            centre_clock.set_rate(0, ppm / 2);
            centre_clock.discipline(if ppm < 0 { -STEERED_PPM } else { STEERED_PPM });
        }
        let nodes: Vec<Node> = (0..setup.nodes)
            .map(|node| {
                let shown = rng.u64(0..1_000 * SECOND);
                Node::new(clock(&mut rng, shown), node as u64 + 1)
            })
            .collect();
        let desks =
            nodes.iter().flat_map(|node| (0..setup.pools).map(|_| Desk::new(node.now(0), node.session())));
        let desks: Vec<Desk> = desks.collect();
        let adversaries: Vec<Adversary> = setup
            .adversaries
            .iter()
            .enumerate()
            .map(|(index, &lie)| {
                let shown = rng.u64(0..1_000 * SECOND);
                let session = (setup.nodes + index) as u64 + 1;
                Adversary::new(lie, clock(&mut rng, shown), session, rng.fork())
            })
            .collect();
        let regions: Vec<Region> = (0..setup.topology.regions())
            .map(|region| {
                let shown = rng.u64(0..1_000 * SECOND);
                let session = (region as u64 + 1) * regions::SESSIONS;
                let (clock, file) = (clock(&mut rng, shown).steered(plan.clocks), File::new(&setup, region));
                Region::new(&setup, &limits, file, clock, 0, session)
            })
            .collect();
        let now = centre_clock.show(0);
        let near = (0..setup.nodes + adversaries.len()).map(|node| setup.latency(node)).collect();
        World {
            real: 0,
            phase: Phase::Trouble,
            order: 0,
            queue: BinaryHeap::new(),
            arrivals: BinaryHeap::new(),
            centre: Centre {
                clock: centre_clock,
                registry: Registry::new(&limits.configs(&plan.rules), plan.clocks, Past::None, now, 1),
                rules: plan.rules.clone(),
                is_removed: false,
                paused: None,
                up: true,
                life: 1,
                paused_until: 0,
                died: now,
                boot: 0,
                store: Store::default(),
            },
            shared: setup.topology.shared().map(|shared| {
                shared::Store::new(&limits, &File::new(&setup, 0), plan.clocks, shared.is_clockless)
            }),
            rollouts: vec![],
            puts: vec![],
            outside: None,
            network: Network::new(near, setup.topology.far(), setup.topology.regions()),
            traffic,
            traffic_generation: 0,
            sessions: (setup.nodes + adversaries.len()) as u64,
            region_lives: setup.topology.regions() as u64,
            tickets: 0,
            steps_unseen: 0,
            struck: Struck::new(),
            admissions: 0,
            passed: 0,
            oracles: Oracles::new(&setup),
            rival: None,
            over_admissions: 0,
            meter: Meter::new(setup.desks(), &plan.rules),
            log: Log::default(),
            curve: watch.draws.then(|| Curve::new(setup.desks())),
            exact: watch.compares.then(|| (Limiter::new(&plan.rules, now), 0)),
            spends: vec![],
            grants: vec![],
            watch,
            next_look: 0,
            bound: phases::longest_wait(&setup),
            calm_since: u64::MAX,
            regions,
            nodes,
            desks,
            forgotten: vec![false; limits.count()],
            books_above: vec![Books::default(); limits.count()],
            used_up: 0,
            limits,
            adversaries: adversaries.into_iter().map(|adversary| (adversary, vec![])).collect(),
            rng,
            setup,
        }
    }

    fn begin(&mut self) {
        self.are_made(&self.all());
        self.begin_writing();
        for node in 0..self.nodes.len() {
            let at = self.rng.u64(0..5_000_000);
            self.push(at, Event::Wake { node, life: 0 });
            let session = self.nodes[node].session();
            for desk in self.desks_of(node) {
                self.oracles.of(self.setup.lender(desk)).begins(node, session);
            }
        }
        self.begin_regions();
        for index in 0..self.adversaries.len() {
            self.push(0, Event::Scheme(index));
            let (node, session) = (self.nodes.len() + index, self.adversaries[index].0.session);
            let lender = self.setup.lender(self.adversary_desk(index));
            self.oracles.of(lender).begins_to_lie(node, session);
        }
        self.push(0, Event::Traffic { generation: 0 });
        self.push(SECOND, Event::Sweep);
        for fault in Fault::TIMED.into_iter().chain(Fault::OF_REGIONS) {
            self.strike_again(fault);
        }
        for index in 0..self.setup.live.len() {
            self.push(self.setup.live[index].at, Event::Operate(index));
        }
        let end = self.setup.lasts;
        let memory = self.setup.rule_sets().map(memory).max().unwrap_or(0);
        if self.setup.then_calm {
            // Quarantine, the wait after a refusal, and the last backoff.
            let settled = end + 2 * memory + 11 * SECOND;
            let silent = settled + 3 * self.bound;
            self.push(end, Event::Next(Phase::Settling));
            self.push(settled, Event::Next(Phase::Calm));
            self.push(silent, Event::Next(Phase::Silence));
            let term = nanos(self.setup.term());
            // Sessions are remembered for at least ten seconds, on the allocator's clock, after the end of their last
            // lease. That may take three: a spare permit is kept for one, and its lease lasts for two. A region keeps
            // what its own sessions may ask for as long again.
            let of_regions = if self.setup.lends_on() { 10 * SECOND } else { 0 };
            // A root is remembered while its safe shares may be in use.
            let safe = self.setup.safe_lasts().filter(|_| self.shared.is_some());
            let of_safe = safe.map_or(0, |lasts| 2 * nanos(lasts) + 15 * SECOND);
            let end = silent + 4 * term + 2 * memory + 17 * SECOND + of_regions + of_safe;
            self.push(end, Event::End);
        } else {
            self.push(end, Event::End);
        }
    }

    /// Performs the next event. Returns false at the end.
    fn step(&mut self) -> Result<bool, Violation> {
        let arrival = self.arrivals.peek().map_or(u64::MAX, |Reverse(arrival)| arrival.0);
        let event = self.queue.peek().map_or(u64::MAX, |queued| queued.at);
        self.look_until(arrival.min(event));
        if arrival < event {
            let Some(Reverse((at, _, desk, generation))) = self.arrivals.pop() else { return Ok(false) };
            self.real = at;
            if generation == self.desks[desk].arrivals {
                self.arrive(desk)?;
                self.attend(desk)?;
            }
            return Ok(true);
        }
        let Some(Queued { at, event, .. }) = self.queue.pop() else { return Ok(false) };
        self.real = at;
        if let Some(later) = self.held_up(&event) {
            self.push(later, event);
            return Ok(true);
        }
        let touched = self.touched(&event);
        match event {
            Event::Wake { node, life } => self.wake(node, life),
            Event::Ask(message) => self.reach(message)?,
            Event::Answer(reply) => self.hear(reply)?,
            Event::TimeOut { node, life, exchange } => self.time_out(node, life, exchange)?,
            Event::Due { desk, life } => self.due(desk, life)?,
            Event::GiveUp { desk, life, ticket } => self.give_up(desk, life, ticket)?,
            Event::Land { limit, permits } => self.oracles.landed(limit, permits),
            Event::HandBack { desk, life, permits } => self.hand_back(desk, life, permits)?,
            Event::PutBack { desk, life, permits } => self.put_back(desk, life, permits)?,
            Event::Settle { desk, life, number, rest } => self.settle(desk, life, number, rest)?,
            Event::Scheme(index) => self.scheme(index),
            Event::Traffic { generation } => self.change_traffic(generation),
            Event::Strike(fault) => self.strike(fault),
            Event::Operate(index) => self.operate(index)?,
            Event::Start { node, life } => self.start(node, life),
            Event::Thaw { node, ppm } => self.nodes[node].clock.set_rate(self.real, ppm),
            Event::Unslew { host } => self.unslew(host),
            Event::RegionWakes { region, life } => self.region_wakes(region, life)?,
            Event::RegionTimesOut { region, life, exchange } => {
                self.region_times_out(region, life, exchange)?;
            }
            Event::RegionStarts { region, life } => self.region_starts(region, life)?,
            Event::Lags => self.lags(),
            Event::RegionThaws { ppm } => self.region_thaws(ppm),
            Event::Signs { region, life } => self.signs(region, life)?,
            Event::AtStore { region, letter } => self.at_store(region, letter)?,
            Event::FromStore { region, letter } => self.hear_store(region, letter)?,
            Event::StoreSilent { region, life, letter } => self.store_silent(region, life, letter)?,
            Event::SetAgain => self.set_again(),
            Event::HasNewFile { region, version } => self.has_new_file(region, version),
            Event::PublishWakes { region, life, number } => self.publish_wakes(region, life, number)?,
            Event::PublishTimesOut { region, life, number } => self.publish_times_out(region, life, number),
            Event::Lift => self.lift()?,
            Event::Spree { desk, life } => self.spree(desk, life)?,
            Event::Reopen { life } => self.reopen(life),
            Event::Copies { life } => self.copies(life),
            Event::Durable { life } => self.durable(life),
            Event::Sweep => self.sweep()?,
            Event::Next(phase) => self.next(phase)?,
            Event::End => return self.end().map(|()| false),
        }
        for desk in touched {
            self.attend(desk)?;
        }
        Ok(true)
    }

    /// V3: the first caller in line at `desk` is served as soon as possible, and no caller waits longer than its
    /// patience.
    fn no_caller_is_passed_over(&self, desk: usize) -> Verdict {
        let (home, at) = (&self.nodes[self.home(desk)], &self.desks[desk]);
        must("V3", !at.passes_over(home, self.real), || {
            format!("node {desk} lets {:?} wait although it holds {:?}", at.line.front(), at.slot.balance())
        })?;
        let due = |since: u64| since.saturating_add(self.setup.patience).max(home.paused_until);
        let late =
            at.line.iter().find(|waiter| self.phase == Phase::Trouble && self.real > due(waiter.since));
        must("V3", late.is_none(), || format!("node {desk} lets {late:?} wait for too long"))
    }

    fn push(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.queue.push(Queued { at, order: self.order, event });
    }

    fn now(&self) -> Instant {
        Instant { real: self.real, allocator: self.judged_clock() }
    }

    /// Returns the instant on the clock of `lender`, and on the allocator's.
    fn nows(&self, lender: usize) -> [Instant; 2] {
        let now = self.now();
        let own = self.regions.get(lender).map_or(now.allocator, |region| region.clock.show(self.real));
        [Instant { allocator: own, ..now }, now]
    }
}
