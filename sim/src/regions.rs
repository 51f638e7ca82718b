//! Regions in virtual time: shipping slots and refills, that ask shipping pools, that ask the shipping pool of the centre. All
//! clocks drift; messages between all of them get lost, come twice or late; links are cut, and processes die.
//!
//! The vendor is the judge, and remembers every spend. At each step, what nodes could spend is held against what the centre knows
//! to be out. When the trouble is over, hardly any caller that wants less than there is may be refused.

use crate::reference::{Spend, breach};
use lessor::pace::Refill;
use lessor::slot::Slot;
use lessor_holder::answer::{Heard, Outcome, Recovery, recovery};
use lessor_holder::connection::Connection;
use lessor_holder::refill::Seen;
use lessor_ledger::Rule;
use lessor_ledger::exact::{Limiter, Verdict};
use lessor_ledger::pool::{Above, AskError, GrantOutcome, Holder, Plan, Pool, SessionId};
use lessor_ledger::rejection::AskRejection;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket, Windows,
};
use lessor_ledger::share::{Share, Sharing};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Moment};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;

/// Longest that a node or a region waits for an answer.
const TIMEOUT: u64 = SECOND;

/// How long there is trouble, and how long none after it; of that, the last part is judged.
const TROUBLE: u64 = 12 * SECOND;
const CALM: u64 = 16 * SECOND;
const JUDGED: u64 = 4 * SECOND;

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Calls that were admitted.
    pub admitted: u64,
    /// While it is judged whether all is well again: calls, and those among them that were refused.
    pub calls: u64,
    /// See `calls`.
    pub refused: u64,
    /// Exchanges between regions and the centre.
    pub exchanges: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Calls that one limiter would have admitted that is asked about each of them, where that is known.
    pub exact: u64,
}

impl Figures {
    /// Both.
    #[must_use]
    pub fn plus(self, other: Figures) -> Figures {
        Figures {
            admitted: self.admitted + other.admitted,
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            exchanges: self.exchanges + other.exchanges,
            crashes: self.crashes + other.crashes,
            exact: self.exact + other.exact,
        }
    }
}

/// Whose process or link it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Node(usize),
    Region(usize),
    Centre,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Call(usize),
    /// A node spends all that it has, at the last instant.
    SpendAll(usize),
    /// A call ends of the process that was born as that.
    Ends(usize, SessionId),
    Wake(Who),
    /// An ask of a node to its region, or of a region to the centre.
    Asks(Who, SessionId, u64, Ask),
    Hears(Who, SessionId, u64, Result<Answer, AskError>),
    TimeOut(Who, SessionId, u64),
    Dies(Who),
    /// Nothing passes between it and the one above until then.
    Cut(Who, u64),
    /// A region says to the store that it is there.
    Signs(usize),
    /// A letter of a region to the store, and its answer; or there is none.
    AtStore(usize, u64),
    FromStore(usize, u64),
    StoreSilent(usize, u64),
    /// The clock of the store is set again.
    SetAgain,
}

/// The exchanges of a node or region with the one above.
#[derive(Clone, Debug)]
struct Line {
    connection: Connection,
    cut_until: u64,
}

impl Line {
    fn session(&self) -> SessionId {
        SessionId(self.connection.session())
    }

    /// The number of the exchange that is open; zero if none is.
    fn seq(&self) -> u64 {
        self.connection.open().map_or(0, |exchange| exchange.seq)
    }
}

#[derive(Debug)]
struct Node {
    ppm: i64,
    region: usize,
    slot: Slot,
    refill: Refill,
    refused: u64,
    line: Line,
    /// Its first session.
    born: SessionId,
    /// Its newest ask that its region has answered, and of which session that was.
    answered: (SessionId, u64),
}

#[derive(Debug)]
struct Region {
    ppm: i64,
    lag: Lag,
    pool: Pool,
    /// The one above, where all that is lent is charged to two limits, and this region knows that.
    above: Option<Pool>,
    /// For how long it was told last to hold permits, of each of the two; for ever as long as it was lent none.
    told: [Duration; 2],
    line: Line,
    /// Its way to the store, if there is one.
    link: StoreLink,
}

/// What goes wrong, how often.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    loss: f64,
    repeat: f64,
    late: f64,
    /// Mean time between two deaths or cuts of one process.
    every: u64,
    centre_dies: bool,
}

struct World {
    rng: fastrand::Rng,
    real: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    plan: Arc<Plan>,
    borrowed: Arc<Plan>,
    rule: Rule,
    /// That of the limit above, if there is one.
    above: Option<Rule>,
    /// Calls a second, of each node.
    rate: f64,
    far: u64,
    near: u64,
    trouble: Trouble,
    centre_ppm: i64,
    centre: Pool,
    centre_died: bool,
    /// In the place of a centre.
    store: Option<Store>,
    regions: Vec<Region>,
    nodes: Vec<Node>,
    sessions: u64,
    spends: Vec<Spend>,
    /// What the vendor has left by each rule, if it counts by a bucket.
    left: [Option<Left>; 2],
    /// One limiter that is asked about each call.
    exact: Option<Limiter>,
    figures: Figures,
    /// What was found to be wrong where nothing could be said of it yet.
    fault: Option<String>,
}

/// What a clock that runs `ppm` fast shows after `real` nanoseconds.
fn shown(real: u64, ppm: i64) -> Moment {
    let rate = u128::try_from(1_000_000 + ppm).expect("no clock runs backwards");
    Moment::from_nanos(u64::try_from(u128::from(real) * rate / 1_000_000).expect("a few years at most"))
}

/// When such a clock shows `moment`, or a little later.
fn when(moment: Moment, ppm: i64) -> u64 {
    let rate = u128::try_from(1_000_000 + ppm).expect("no clock runs backwards");
    let real = (u128::from(moment.as_nanos()) * 1_000_000).div_ceil(rate);
    u64::try_from(real).unwrap_or(u64::MAX)
}

/// What `rule` allows, in what time.
fn permits_per(rule: &Rule) -> (u64, Duration) {
    match rule {
        Rule::SlidingWindow(rule) => (rule.limit(), rule.per()),
        Rule::FixedWindow(rule) => (rule.limit(), rule.per()),
        Rule::TokenBucket(rule) => (rule.refill(), rule.per()),
        Rule::LeakyBucket(rule) => (rule.refill(), rule.per()),
        // Calls take half of the longest time, on average.
        Rule::Concurrency(rule) => (2 * rule.limit(), rule.longest()),
        Rule::SlidingLog(_) => unreachable!("none is drawn"),
    }
}

fn per(rule: &Rule) -> Duration {
    permits_per(rule).1
}

/// What `rule` allows in a second on average.
fn per_second(rule: &Rule) -> f64 {
    let (permits, per) = permits_per(rule);
    permits as f64 / per.as_secs_f64()
}

impl World {
    /// With `demand` times what its rule allows, and no trouble at all: the part of it that was used.
    fn used(self, demand: f64) -> Result<f64, String> {
        let most = self.most_per_second() * ((TROUBLE + CALM) as f64 / SECOND as f64);
        self.in_use(demand).map(|figures| figures.admitted as f64 / most)
    }

    /// The same beside one limiter that is asked about each call: the part of what that admits.
    fn used_beside_exact(mut self, demand: f64) -> Result<f64, String> {
        let rules: Vec<Rule> = self.rules().copied().collect();
        self.exact = Some(Limiter::new(&rules, self.store_clock()));
        self.in_use(demand).map(|figures| figures.admitted as f64 / figures.exact as f64)
    }

    fn in_use(mut self, demand: f64) -> Result<Figures, String> {
        self.trouble = Trouble { loss: 0.0, repeat: 0.0, late: 0.0, every: u64::MAX, centre_dies: false };
        self.near = MILLI / 2;
        self.rate = demand * self.most_per_second() / self.nodes.len() as f64;
        self.run_on(TROUBLE + CALM)
    }

    /// With trouble for so long, at most; and then, if that is not the end, calm.
    fn run_on(self, trouble: u64) -> Result<Figures, String> {
        self.run_to_the_end(trouble, |_| Ok(()))
    }

    /// The same, and what must hold `at_last`.
    fn run_to_the_end(
        mut self,
        trouble: u64,
        at_last: impl FnOnce(&World) -> Result<(), String>,
    ) -> Result<Figures, String> {
        let (begin, ends) = (self.real, self.real + TROUBLE + CALM);
        for node in 0..self.nodes.len() {
            self.after(0, Event::Wake(Who::Node(node)));
            self.next_call(node);
            self.next_trouble(Who::Node(node));
        }
        (0..self.regions.len()).for_each(|region| self.next_trouble(Who::Region(region)));
        if self.trouble.centre_dies {
            self.next_trouble(Who::Centre);
        }
        // A window that is not much longer than the way to the centre and back is used up by the way.
        let is_long = self.rules().all(|rule| per(rule) >= Duration::from_secs(1));
        let is_judged = is_long && self.rate.min(self.calm_rate()) >= 20.0;
        while let Some(((real, _), event)) = self.queue.pop_first().filter(|((real, _), _)| *real < ends) {
            self.real = real;
            if real > begin + trouble && self.is_troubled() {
                self.trouble =
                    Trouble { loss: 0.0, repeat: 0.0, late: 0.0, every: u64::MAX, centre_dies: false };
                self.rate = self.rate.min(self.calm_rate());
            }
            self.does(event, real + JUDGED > ends && is_judged)?;
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            self.in_hand_is_known()?;
        }
        // Those that cap what is in flight have been judged at each call.
        let judged = self.rules().filter(|rule| rule.longest().is_none());
        if let Some(breach) = { judged }.find_map(|rule| breach(rule, &self.spends)) {
            return Err(format!("the vendor saw too much: {breach}"));
        }
        at_last(&self)?;
        self.figures.admitted = self.spends.len() as u64;
        Ok(self.figures)
    }

    fn does(&mut self, event: Event, is_judged: bool) -> Result<(), String> {
        match event {
            Event::Call(node) => {
                let now = self.store_clock();
                let exact = self.exact.iter_mut().map(|exact| exact.try_acquire(now, 1).verdict);
                self.figures.exact +=
                    exact.filter(|verdict| *verdict == Verdict::Served(Duration::ZERO)).count() as u64;
                let is_admitted = self.spend(node);
                // A region that has yet to hear of a change is lent nothing.
                let is_judged = is_judged && !self.is_old(self.nodes[node].region);
                self.figures.calls += u64::from(is_judged);
                self.figures.refused += u64::from(is_judged && !is_admitted);
                self.next_call(node);
                self.look(Who::Node(node));
                if self.rng.u32(..50) == 0 && self.is_troubled() {
                    let at = &self.nodes[node];
                    let last = when(at.slot.deadline(), at.ppm).saturating_sub(1).max(self.real);
                    self.after(last - self.real, Event::SpendAll(node));
                }
            }
            Event::SpendAll(node) => while self.nodes[node].slot.balance().free > 0 && self.spend(node) {},
            Event::Ends(node, born) => self.ends(node, born),
            Event::Wake(who) => self.look(who),
            Event::Asks(who, session, seq, ask) => self.answer(who, session, seq, ask)?,
            Event::Hears(who, session, seq, answer) => self.hear(who, session, seq, answer)?,
            Event::TimeOut(who, session, seq) => {
                if self.line(who).connection.awaits(session.0, seq) {
                    self.failed(who);
                }
            }
            Event::Dies(who) => self.dies(who),
            Event::Cut(who, until) if self.is_troubled() => {
                self.line(who).cut_until = until;
                self.next_trouble(who);
            }
            Event::Cut(..) => {}
            Event::Signs(region) => self.signs(region)?,
            Event::AtStore(region, letter) => self.at_store(region, letter),
            Event::FromStore(region, letter) => self.hear_store(region, letter)?,
            Event::StoreSilent(region, letter) => self.store_silent(region, letter)?,
            Event::SetAgain => self.set_again(),
        }
        Ok(())
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.real.saturating_add(wait), self.order), event);
    }

    fn next_call(&mut self, node: usize) {
        // Arrivals that are independent of each other.
        let wait = -(1.0 - self.rng.f64()).ln() / self.rate.max(0.01) * SECOND as f64;
        self.after(wait as u64 + 1, Event::Call(node));
    }

    fn next_trouble(&mut self, who: Who) {
        if !self.is_troubled() {
            return;
        }
        let of_store = self.store_every().filter(|_| who == Who::Centre);
        let every = of_store.unwrap_or(self.trouble.every);
        let wait = self.rng.u64(0..2 * every);
        let event = match self.rng.bool() && who != Who::Centre {
            true => Event::Cut(who, self.real + wait + self.rng.u64(0..4 * SECOND)),
            false => Event::Dies(who),
        };
        self.after(wait, event);
    }

    /// All that must hold for each call.
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.rule).chain(&self.above)
    }

    /// What they allow in a second on average.
    fn most_per_second(&self) -> f64 {
        self.rules().map(per_second).fold(f64::INFINITY, f64::min)
    }

    /// Less than there is, for each node.
    fn calm_rate(&self) -> f64 {
        0.4 * self.most_per_second() / self.nodes.len() as f64
    }

    fn is_troubled(&self) -> bool {
        self.trouble.every < u64::MAX
    }

    fn dies(&mut self, who: Who) {
        if !self.is_troubled() {
            return;
        }
        self.figures.crashes += 1;
        match who {
            Who::Node(node) => {
                self.nodes[node] = self.new_node(self.nodes[node].ppm, self.nodes[node].region)
            }
            Who::Region(region) => {
                // Half of them are stopped, and say so.
                if self.rng.bool() {
                    self.leaves(region);
                }
                let above = self.regions[region]
                    .above
                    .as_ref()
                    .map(|_| Pool::new(self.borrowed.clone(), self.regions[region].clock(self.real)));
                self.regions[region] = Region {
                    above,
                    lag: self.regions[region].lag,
                    ..self.new_region(self.regions[region].ppm)
                };
            }
            Who::Centre if self.store.is_some() => self.store_in_trouble(),
            Who::Centre => {
                let now = shown(self.real, self.centre_ppm);
                (self.centre, self.centre_died) = (Pool::after_loss(self.plan.clone(), now, now), true);
            }
        }
        self.next_trouble(who);
        self.look(who);
    }

    fn line(&mut self, who: Who) -> &mut Line {
        match who {
            Who::Node(node) => &mut self.nodes[node].line,
            Who::Region(region) => &mut self.regions[region].line,
            Who::Centre => unreachable!("the centre asks no pool"),
        }
    }
}

mod calls;
mod draw;
mod exchange;
mod family;
mod lag;
mod left;
mod runs;
mod store;
mod stored;

pub use lag::Fault;
use lag::Lag;
use left::Left;
pub use runs::{
    run, run_capped, run_capped_family, run_capped_store, run_close, run_emptied, run_family, run_fated,
    run_flow, run_intervals, run_intervals_close, run_lagging, run_small, run_stored, used, used_capped,
    used_capped_store, used_family, used_flow, used_intervals, used_stored,
};
pub use store::Fate;
use store::Store;
use stored::StoreLink;
