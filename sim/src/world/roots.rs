//! The link of an allocator to the store that it shares. Each allocator runs the shipping [`Member`]; here are only the
//! messages with its calls, which get lost or come late.

use super::World;
use super::configured::Configured;
use super::decisions::Decisions;
use super::event::Event;
use super::regions::Region;
use crate::network::Way;
use crate::oracle::Verdict;
use crate::{MILLI, SECOND};
use lessor_ledger::cells::CellsError;
use lessor_ledger::overrides::{LimitOverrides, Suspensions, Version};
use lessor_ledger::pool::AskError;
use lessor_ledger::registry::{DueAbove, Registry};
use lessor_ledger::rejection::AskRejection;
use lessor_ledger::roots::{
    Call, Host, Member, MemberError, Next, Notice, Reply, RootAsk, RootError, SIGN_EVERY, Said, TimeSource,
    to_pool,
};
use lessor_protocol::lease::millis_up;
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an allocator waits for an answer of the store, in nanoseconds.
const STORE_TIMEOUT: u64 = SECOND / 2;

/// The link of an allocator to the store.
#[derive(Debug)]
pub(super) struct StoreLink {
    pub(super) member: Member,
    /// The call whose answer it waits for.
    waits: Option<u64>,
    /// Whether it asks for what is due.
    asks: bool,
    /// Whether it will ask once it has signed.
    asks_next: bool,
}

impl StoreLink {
    pub(super) fn new(clocks: ClockBounds, source: TimeSource) -> Self {
        let member = Member::new(String::new(), clocks.drift_ppm(), source);
        StoreLink { member, waits: None, asks: false, asks_next: false }
    }
}

/// What a member knows of its allocator, and changes there.
pub(super) struct Here<'a> {
    rng: &'a mut fastrand::Rng,
    /// The calendar of the machine, whose clock was never set.
    wall: Moment,
    is_fresh: bool,
    /// The asks that are due, if it asks.
    due: Option<&'a DueAbove>,
    configured: &'a mut Configured,
    /// Whether the limit that nodes ask has begun anew.
    anew: bool,
    registry: &'a mut Registry,
    decisions: &'a mut Decisions,
    local: Moment,
}

impl Host for Here<'_> {
    fn draw(&mut self) -> u64 {
        self.rng.u64(..)
    }

    fn wall(&self) -> Moment {
        self.wall
    }

    fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn asks(&mut self) -> Vec<Option<RootAsk>> {
        let Some(due) = self.due else { return vec![] };
        let version = |name: &str, asked: &str| self.configured.version_for(name, asked);
        self.registry.root_asks(due, version, self.configured.newest())
    }

    fn suspensions(&self) -> Suspensions {
        self.decisions.known.clone()
    }

    fn configuration(&self) -> (Version, BTreeMap<String, String>) {
        (self.configured.newest(), self.configured.parents())
    }

    fn overrides(&self) -> LimitOverrides {
        self.configured.known().clone()
    }

    fn follow_overrides(&mut self, there: &LimitOverrides) {
        self.anew |= self.configured.follow(there, self.local, self.registry);
    }

    fn follow_suspensions(&mut self, suspensions: &Suspensions, there: Moment) {
        self.decisions.known.merge(suspensions);
        self.registry.follow_suspensions(&self.decisions.known, there, self.local);
    }

    fn hold_back(&mut self) {
        self.registry.hold_back_store(self.local);
    }

    fn tell(&mut self, _: Notice) {}
}

impl World {
    /// Whether `region` has an older configuration than the others, and the store does not know the newer one yet. It
    /// does not ask before: no root could tell that its configuration is older.
    pub(super) fn is_too_early(&self, region: usize) -> bool {
        self.setup.is_old(region) && !self.shared.as_ref().is_some_and(|store| store.knows_families())
    }

    /// Lets an allocator ask the roots, once its call at the store is done.
    pub(super) fn ask_roots(&mut self, region: usize) -> Verdict {
        let link = &mut self.regions[region].link;
        if link.waits.is_some() {
            link.asks_next = true;
            return Ok(());
        }
        let next = self.begin_ask(region);
        self.goes_on_at_store(region, next)
    }

    /// Lets an allocator send its last report to the roots, if it knows them and waits for nothing.
    pub(super) fn leave_roots(&mut self, region: usize) {
        let link = &self.regions[region].link;
        if link.waits.is_none()
            && link.member.head().is_some()
            && let Next::Call(call) = self.begin_ask(region)
        {
            self.write_to_store(region, call);
        }
    }

    fn begin_ask(&mut self, region: usize) -> Next {
        let at = &mut self.regions[region];
        at.link.asks = true;
        let (session, seq) = (at.connection.session(), at.asks());
        let rtt = Duration::from_millis(millis_up(at.due.distance));
        self.as_member(region, |member, now, here| member.ask(session, seq, rtt, now, here))
    }

    /// Lets an allocator sign, and again after a while. One that waits for the store signs once that has answered.
    pub(super) fn signs(&mut self, region: usize, life: u64) -> Verdict {
        let at = &mut self.regions[region];
        if at.life != life {
            return Ok(());
        }
        if at.link.waits.is_some() {
            self.push(self.real + MILLI, Event::Signs { region, life });
            return Ok(());
        }
        let (session, due) = (at.connection.session(), at.link.member.signs_next());
        match self.as_member(region, |member, now, here| member.sign(session, now, here)) {
            Some(next) => {
                self.push(self.real + nanos(SIGN_EVERY), Event::Signs { region, life });
                self.goes_on_at_store(region, next)
            }
            None => {
                // A clock may stand still meanwhile.
                let most = self.real + nanos(SIGN_EVERY);
                let due = self.regions[region].clock.when(due).clamp(self.real + 1, most);
                self.push(due, Event::Signs { region, life });
                Ok(())
            }
        }
    }

    /// Drops the wait for an answer of the store.
    pub(super) fn forget_store(&mut self, region: usize) {
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        at.link.member.give_up(now);
        (at.link.waits, at.link.asks, at.link.asks_next) = (None, false, false);
    }

    /// Lets the member of an allocator act now.
    pub(super) fn as_member<T>(
        &mut self,
        region: usize,
        act: impl FnOnce(&mut Member, Moment, &mut Here<'_>) -> T,
    ) -> T {
        let is_fresh = self.shared.as_ref().expect("there is a store").is_new;
        let wall = self.calendar(region);
        let Region { clock, link, configured, registry, due, decisions, .. } = &mut self.regions[region];
        let (local, due) = (clock.show(self.real), link.asks.then_some(&*due));
        let mut here = Here {
            rng: &mut self.rng,
            wall,
            is_fresh,
            due,
            configured,
            anew: false,
            registry,
            decisions,
            local,
        };
        let done = act(&mut link.member, local, &mut here);
        let anew = here.anew;
        self.goes_by_operators(region, anew);
        done
    }

    /// Returns the calendar of an allocator. Where the store has no clock, each process has a calendar that is off.
    fn calendar(&self, region: usize) -> Moment {
        let right = self.centre.clock.show(self.real);
        match self.setup.topology.shared().filter(|shared| shared.is_clockless) {
            // With more, nothing would be lent after the store is emptied, for as long as two calendars are apart.
            Some(shared) => {
                let most = if shared.fates.is_empty() { 120 * SECOND } else { SECOND };
                let life = self.regions[region].life << 8 | region as u64;
                right + Duration::from_nanos(fastrand::Rng::with_seed(self.setup.seed ^ life).u64(..most))
            }
            None => right,
        }
    }

    /// Performs the next step of an allocator's member.
    fn goes_on_at_store(&mut self, region: usize, next: Next) -> Verdict {
        self.is_not_ahead(region)?;
        match next {
            Next::Call(call) => {
                self.write_to_store(region, call);
                Ok(())
            }
            Next::Done(done) => {
                let link = &mut self.regions[region].link;
                let asked = std::mem::take(&mut link.asks);
                let asks_next = std::mem::take(&mut link.asks_next);
                if asked {
                    self.has_asked(region, done)?;
                }
                if asks_next { self.ask_roots(region) } else { Ok(()) }
            }
        }
    }

    fn write_to_store(&mut self, region: usize, call: Call) {
        let letter = self.send_to_store(region, call);
        self.regions[region].link.waits = Some(letter);
    }

    /// Sends a call to the store and returns its number.
    pub(super) fn send_to_store(&mut self, region: usize, call: Call) -> u64 {
        let store = self.shared.as_mut().expect("there is a store");
        let (letter, life) = (store.write(call, self.real), self.regions[region].life);
        self.post(region, Way::There, Event::AtStore { region, letter });
        self.push(self.real + STORE_TIMEOUT, Event::StoreSilent { region, life, letter });
        letter
    }

    /// Sends an answer of the store.
    pub(super) fn answer_of_store(&mut self, region: usize, letter: u64) {
        self.post(region, Way::Back, Event::FromStore { region, letter });
    }

    fn post(&mut self, region: usize, way: Way, event: Event) {
        let place = self.region_place(region);
        let ways = self.setup.topology.shared().and_then(|shared| shared.ways.get(region));
        let least = ways.map(|(there, back)| if way == Way::There { *there } else { *back });
        let Self { network, setup, struck, rng, .. } = self;
        if let Some(at) = network.post(self.real, place, way, least, &setup.faults, struck, rng) {
            self.push(at, event);
        }
    }

    /// Ends the wait for a call that took too long.
    pub(super) fn store_silent(&mut self, region: usize, life: u64, letter: u64) -> Verdict {
        let silent = CellsError::Unreachable("no answer in time".to_owned());
        match self.regions[region].life == life {
            true => self.hear_call(region, letter, Err(silent)),
            false => Ok(()),
        }
    }

    pub(super) fn hear_store(&mut self, region: usize, letter: u64) -> Verdict {
        match self.shared.as_mut().and_then(|store| store.said(letter)) {
            Some(said) => self.hear_call(region, letter, said),
            None => Ok(()),
        }
    }

    fn hear_call(&mut self, region: usize, letter: u64, said: Result<Said, CellsError>) -> Verdict {
        if self.publish_hears(region, letter, &said)? {
            return Ok(());
        }
        let link = &mut self.regions[region].link;
        if link.waits != Some(letter) {
            return Ok(());
        }
        link.waits = None;
        let next = self.as_member(region, |member, now, here| member.on_answer(said, now, here));
        self.goes_on_at_store(region, next)
    }

    /// Takes the answers of the roots, or the failure to ask them.
    fn has_asked(
        &mut self,
        region: usize,
        done: Result<Vec<Option<Result<Reply, RootError>>>, MemberError>,
    ) -> Verdict {
        // The exchange may be over already.
        if self.regions[region].connection.open().is_none() {
            return Ok(());
        }
        let Ok(answers) = done else {
            return self.region_fails(region);
        };
        let reason = |error: AskError| AskRejection::from(error).reason;
        let answers = answers.into_iter().map(|answer| to_pool(answer).map_err(reason)).collect();
        self.region_takes(region, 0, answers)
    }
}
