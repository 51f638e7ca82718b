//! Regions: allocators that lease from the one above them, or from roots in a store which they share, and lend on. Each drives
//! the shipping pool as the upstream loop of the allocator does: due → write → send → on_answer.

use super::World;
use super::allocator::answer_of;
use super::decisions::Decisions;
use super::event::{Event, Message, Reply};
use super::roots::StoreLink;
use super::trouble::STANDS_STILL;
use crate::clock::HostClock;
use crate::family::Family;
use crate::oracle::{Asked, Stock, Verdict, must};
use crate::setup::Setup;
use crate::topology::Lag;
use crate::{MILLI, SECOND};
use lessor_holder::answer::{Recovery, recovery};
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_ledger::pool::{Goodbye, GrantOutcome, Holder, SessionId};
use lessor_ledger::rejection::{AskRejection, Reason};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Answer, Ask, Moment};
use std::time::Duration;

/// How long a clock stands still.
const STALL: u64 = 200 * MILLI;

/// The host of a region, or of one of the allocators that share a store.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) clock: HostClock,
    pub(super) up: bool,
    pub(super) life: u64,
    pub(super) pool: Family,
    pub(super) connection: Connection,
    /// Its way to a store, if it leases from roots there.
    pub(super) link: StoreLink,
    /// What it knows of the decisions of operators.
    pub(super) decisions: Decisions,
    /// For how long nodes may hold what was lent last, of each limit that it leases; for ever as long as nothing was.
    horizons: [Duration; 2],
    /// The exchange that is awaited.
    exchange: Option<u64>,
    /// When its task wakes by itself, in real time.
    alarm: u64,
}

impl Region {
    /// A host whose process is about to start as `session`.
    pub(super) fn new(setup: &Setup, region: usize, clock: HostClock, real: u64, session: u64) -> Self {
        let above = setup.topology.shared().is_some() && setup.above > 0 && !setup.is_old(region);
        Region {
            clock,
            up: true,
            life: 0,
            pool: Family::borrowed(&setup.plan, above, clock.show(real)),
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, session - 1),
            link: StoreLink::new(setup.plan.clocks),
            decisions: Decisions::default(),
            horizons: [Duration::MAX; 2],
            exchange: None,
            alarm: u64::MAX,
        }
    }

    /// How it stands, where its nodes can spend `in_hand`.
    pub(super) fn stock(&mut self, real: u64, in_hand: u64) -> Stock {
        let at = self.clock.show(real);
        Stock { view: self.pool.view(at), in_hand, at }
    }

    /// For how long its nodes may hold what it lends.
    pub(super) fn horizon(&self) -> Duration {
        self.horizons[0].min(self.horizons[1])
    }

    /// The number of the exchange that is open; zero if none is.
    pub(super) fn asks(&self) -> u64 {
        self.connection.open().map_or(0, |exchange| exchange.seq)
    }

    /// How far away its nodes are from what it leases from.
    pub(super) fn distance(&mut self) -> Duration {
        let rtt = self.connection.rtt();
        self.pool.pools().next().expect("it has one").distance_above(rtt)
    }
}

impl World {
    /// The place of the first region among those that send messages.
    fn first_region(&self) -> usize {
        self.nodes.len() + self.adversaries.len()
    }

    /// The place of `region` among those that send messages.
    pub(super) fn region_place(&self, region: usize) -> usize {
        self.first_region() + region
    }

    /// Which region sends messages from `place`, if one does.
    pub(super) fn region(&self, place: usize) -> Option<usize> {
        place.checked_sub(self.first_region()).filter(|region| *region < self.regions.len())
    }

    /// Whether `message` is of a node that asks its region.
    pub(super) fn reaches_region(&self, message: &Message) -> bool {
        self.setup.lends_on() && self.region(message.node).is_none()
    }

    /// All of them start.
    pub(super) fn begin_regions(&mut self) {
        for region in 0..self.regions.len() {
            let session = self.regions[region].connection.session();
            self.oracles.root().begins(region, session);
            let alarm = self.rng.u64(0..5_000_000);
            self.push(alarm, Event::RegionWakes { region, life: 0 });
            if self.shared.is_some() {
                self.push(0, Event::Signs { region, life: 0 });
            }
        }
        if self.setup.topology.shared().is_some_and(|shared| shared.lag.is_some()) {
            let from = self.rng.u64(2 * SECOND..4 * SECOND);
            self.push(from, Event::Lags);
        }
    }

    /// Asks if it is time, or sleeps until it is.
    pub(super) fn look_above(&mut self, region: usize) -> Verdict {
        let at = &mut self.regions[region];
        if !at.up || at.exchange.is_some() {
            return Ok(());
        }
        let is_too_early = self.is_too_early(region);
        let at = &mut self.regions[region];
        let (now, rtt) = (at.clock.show(self.real), at.connection.rtt());
        let due = match is_too_early {
            true => Moment::NEVER,
            false => at.pool.asks_above(now, rtt).max(at.connection.quiet_until()),
        };
        if due <= now {
            return self.ask_above(region);
        }
        let alarm = at.clock.when(due).min(self.real + SECOND) + self.rng.u64(0..=MILLI);
        if alarm < at.alarm {
            at.alarm = alarm;
            let life = at.life;
            self.push(alarm, Event::RegionWakes { region, life });
        }
        Ok(())
    }

    pub(super) fn region_wakes(&mut self, region: usize, life: u64) -> Verdict {
        if self.regions[region].life != life {
            return Ok(());
        }
        self.regions[region].alarm = u64::MAX;
        self.look_above(region)
    }

    fn ask_above(&mut self, region: usize) -> Verdict {
        self.order += 1;
        let (exchange, place) = (self.order, self.region_place(region));
        let at = &mut self.regions[region];
        let (now, measured) = (at.clock.show(self.real), at.connection.rtt());
        let asks: Vec<Ask> = at.pool.pools().filter_map(|pool| pool.ask_above(now, measured)).collect();
        let (ask, rtt) = (asks[0], at.distance());
        at.exchange = Some(exchange);
        let Exchange { session, seq, patience, .. } = at.connection.begin(now);
        let (life, timeout) = (at.life, at.clock.when(now + patience));
        self.log.note(
            self.real,
            "region # asks (# of its session): spent #, holds #, wants #",
            &[region as u64, seq, ask.spent_total, ask.held, ask.want],
        );
        self.push(timeout, Event::RegionTimesOut { region, life, exchange });
        if self.shared.is_some() {
            return self.ask_roots(region, asks);
        }
        let message =
            Message { node: place, session, seq, exchange, rtt, ask, observed: None, leaves: false };
        self.send_ask(message);
        Ok(())
    }

    /// A message of a node reaches its region.
    pub(super) fn reach_region(&mut self, message: Message) -> Verdict {
        let Message { node, session, seq, rtt, ask, leaves, .. } = message;
        let region = self.setup.lender(node);
        let holder = Holder { id: SessionId(session), share: self.setup.share(node), rtt };
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        let mut reply = message.reply(None);
        if leaves && at.up {
            return self.leave_region(region, message);
        }
        if at.up {
            let answer = match at.decisions.refusal(now, &self.setup.name(node)) {
                Some(refusal) => at.pool.settle_only(now, holder, seq, ask, refusal),
                None => at.pool.renew(now, holder, seq, ask),
            };
            let answer = answer.map_err(|error| AskRejection::from(error).reason);
            self.log_answer(&message, &answer);
            self.oracle_on_answer(&message, &answer)?;
            reply.answer = Some(answer);
            reply.longest = self.setup.plan.longest().map(nanos);
            self.look_above(region)?;
        }
        self.send_back(reply);
        Ok(())
    }

    fn leave_region(&mut self, region: usize, message: Message) -> Verdict {
        let Ask { spent_total, running, held, .. } = message.ask;
        let goodbye = Goodbye { spent_total, running, held: Some(held) };
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        let left = at.pool.leave(now, SessionId(message.session), message.seq, goodbye);
        self.log.note(self.real, "node # leaves and gives back #", &[message.node as u64, left.unwrap_or(0)]);
        let (stocks, asked) = (self.stocks(), self.asked(&message));
        self.oracles.left(region, self.now(), &asked, &stocks)?;
        self.look_above(region)
    }

    /// A message of a region reaches the allocator above it.
    pub(super) fn reach_from_region(&mut self, region: usize, message: Message) -> Verdict {
        if !self.centre.up {
            self.send_back(message.reply(None));
            return Ok(());
        }
        let answer = answer_of(&self.exchange(&message));
        self.log_answer(&message, &answer);
        let (stocks, asked) = (self.stocks(), self.asked_above(region, &message));
        self.oracles.root_answered(self.now(), &asked, &answer, &stocks)?;
        self.answer(message.reply(Some(answer)));
        Ok(())
    }

    fn asked_above(&self, region: usize, message: &Message) -> Asked {
        let Message { session, seq, exchange, ask, .. } = *message;
        let at = &self.regions[region];
        let is_awaited = at.exchange == Some(exchange) && at.connection.session() == session;
        Asked { session, seq, ask, is_honest: true, is_awaited, lends_on: true, horizon: Duration::MAX }
    }

    /// An answer of the allocator above reaches a region, which believes it only if it still waits for it.
    pub(super) fn region_hears(&mut self, region: usize, reply: Reply) -> Verdict {
        let at = &mut self.regions[region];
        if !at.up || !at.connection.awaits(reply.session, reply.seq) {
            return Ok(());
        }
        match reply.answer {
            Some(Ok(answer)) => self.region_takes(region, vec![Ok(answer)]),
            Some(Err(reason)) => self.region_takes(region, vec![Err(reason)]),
            None => self.region_fails(region),
        }
    }

    /// What a region asked is answered, of each limit that it leases: the lowest first.
    pub(super) fn region_takes(&mut self, region: usize, answers: Vec<Result<Answer, Reason>>) -> Verdict {
        let is_lost = self.shared.as_ref().is_none_or(|store| store.is_lost);
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        let (session, seq) = (at.connection.session(), at.asks());
        let Some((exchange, _)) = at.connection.on_answer(session, seq, now) else { return Ok(()) };
        at.exchange = None;
        at.connection.on_success();
        let mut is_disputed = false;
        for (place, (pool, answer)) in at.pool.pools().zip(answers).enumerate() {
            match answer {
                Ok(Answer::Grant(grant)) => {
                    if !grant.term.is_zero() {
                        at.horizons[place] = grant.horizon;
                    }
                    let outcome = pool.on_grant_above(now, exchange.first_sent, &grant);
                    self.log.note(
                        self.real,
                        "region # is lent # of limit #, keeps #",
                        &[region as u64, grant.permits, place as u64, grant.kept],
                    );
                    must("K1", outcome == GrantOutcome::Believed, || {
                        format!("region {region} was granted what cannot be: {grant:?}")
                    })?;
                }
                Ok(Answer::Refusal(refusal)) => pool.on_refusal_above(now, refusal),
                Err(error) => {
                    must("K2", is_lost || error != Reason::TotalsWrong, || {
                        format!("an honest region was not believed: {error:?}")
                    })?;
                    pool.on_unrecognised_above(now);
                    is_disputed |= place == 0 && recovery(error.code()) == Recovery::BeginSession;
                }
            }
        }
        if is_disputed {
            // Another session is one with all of them.
            at.pool.pools().for_each(|pool| pool.on_unrecognised_above(now));
            let session = self.next_region_session(region);
            self.regions[region].connection.begin_session(session - 1);
        }
        self.look_above(region)
    }

    /// Ends the session of `region`, and names the next one.
    fn next_region_session(&mut self, region: usize) -> u64 {
        self.sessions += 1;
        let (before, session) = (self.regions[region].connection.session(), self.sessions);
        self.oracles.root().ends(before);
        self.oracles.root().begins(region, session);
        session
    }

    pub(super) fn region_times_out(&mut self, region: usize, life: u64, exchange: u64) -> Verdict {
        let at = &self.regions[region];
        match at.life == life && at.exchange == Some(exchange) {
            true => self.region_fails(region),
            false => Ok(()),
        }
    }

    /// No answer comes any more.
    pub(super) fn region_fails(&mut self, region: usize) -> Verdict {
        if self.shared.is_some() {
            self.forget_store(region);
        }
        let at = &mut self.regions[region];
        at.exchange = None;
        let now = at.clock.show(self.real);
        at.pool.pools().for_each(|pool| pool.on_failure_above());
        at.connection.on_failure(now, 0, self.rng.u64(..));
        self.log.note(self.real, "region # got no answer", &[region as u64]);
        self.look_above(region)
    }

    /// The process of a region dies, or is stopped and says so. It is back at `until`, without its books.
    fn region_dies(&mut self, region: usize, is_stopped: bool, until: u64) {
        if !self.regions[region].up {
            return;
        }
        if is_stopped {
            self.region_leaves(region);
        }
        self.oracles.of(region).shut(Moment::ORIGIN);
        let session = self.next_region_session(region);
        let (life, fresh) = (self.regions[region].life + 1, self.fresh_region(region, session));
        self.regions[region] = Region { up: false, life, ..fresh };
        let (stocks, now) = (self.stocks(), self.now());
        self.oracles.region_lost(region, now, &stocks);
        self.push(until, Event::RegionStarts { region, life });
    }

    /// A host whose process is about to start as `session`.
    fn fresh_region(&self, region: usize, session: u64) -> Region {
        let clock = self.regions[region].clock;
        Region::new(&self.setup, region, clock, self.real, session)
    }

    fn region_leaves(&mut self, region: usize) {
        let place = self.region_place(region);
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        let asks: Vec<Ask> = at.pool.pools().map_while(|pool| pool.leave_above(now)).collect();
        let Some(&ask) = asks.first() else { return };
        let Exchange { session, seq, rtt, .. } = at.connection.begin(now);
        if self.shared.is_some() {
            return self.leave_roots(region, asks);
        }
        self.send_ask(Message {
            node: place,
            session,
            seq,
            exchange: 0,
            rtt,
            ask,
            observed: None,
            leaves: false,
        });
    }

    pub(super) fn region_starts(&mut self, region: usize, life: u64) -> Verdict {
        let at = &self.regions[region];
        if at.life != life || at.up {
            return Ok(());
        }
        // What it was is gone: its pool begins now.
        let session = at.connection.session();
        self.regions[region] = Region { life, ..self.fresh_region(region, session) };
        self.log.note(self.real, "region # starts as session #", &[region as u64, session]);
        self.begin_region(region)
    }

    fn begin_region(&mut self, region: usize) -> Verdict {
        let life = self.regions[region].life;
        if self.shared.is_some() {
            self.push(self.real, Event::Signs { region, life });
        }
        self.look_above(region)
    }

    /// The link between some region and what it leases from is cut.
    pub(super) fn cut_region(&mut self, until: u64) {
        if let Some(region) = self.some_region() {
            self.network.cut(self.region_place(region), true, true, until);
        }
    }

    /// Some region dies, or is stopped and says so.
    pub(super) fn lose_region(&mut self, is_stopped: bool, until: u64) {
        if let Some(region) = self.some_region() {
            self.region_dies(region, is_stopped, until);
        }
    }

    fn some_region(&mut self) -> Option<usize> {
        let regions = self.regions.len();
        (regions > 0).then(|| self.rng.usize(..regions))
    }

    /// All trouble of regions ends.
    pub(super) fn mend_regions(&mut self) -> Verdict {
        (0..self.regions.len()).try_for_each(|region| self.region_starts(region, self.regions[region].life))
    }

    /// The clock of the first allocator is wrong from now on.
    pub(super) fn lags(&mut self) {
        let Some(lag) = self.setup.topology.shared().and_then(|shared| shared.lag) else { return };
        let clock = &mut self.regions[0].clock;
        match lag {
            Lag::Stalled => {
                let ppm = clock.ppm();
                clock.set_rate(self.real, STANDS_STILL);
                self.push(self.real + STALL, Event::RegionThaws { ppm });
            }
            Lag::Slewed(ppm) => clock.slew(self.real, ppm),
        }
    }

    /// The clock of the first allocator goes on.
    pub(super) fn region_thaws(&mut self, ppm: i64) {
        self.regions[0].clock.set_rate(self.real, ppm);
    }
}
