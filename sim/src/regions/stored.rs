//! The same regions where there is no centre: the root is in a store that all of them swap. Its clock drifts and is set, calls
//! of it get lost or come late, and it starts anew on another timeline, with all that it had or with what it had a while ago.
//!
//! Each region drives the shipping [`Member`]. Here are only the letters that carry its calls.

use super::family::{Asks, NAMES};
use super::store::{FATES, Letter};
use super::*;
use lessor_ledger::cells::{CellsError, Table, Timeline};
use lessor_ledger::overrides::{LimitOverrides, Suspensions, Version};
use lessor_ledger::roots::{
    self, Call, CompiledPlan, Host, Member, MemberError, Next, Notice, ParentRef, RootAsk, RootError,
    RootSpec, SIGN_EVERY, Said, cell_of, to_pool,
};

/// The way of a region to the store.
#[derive(Debug)]
pub(super) struct StoreLink {
    pub(super) member: Member,
    /// The call that it waits for.
    waits: Option<u64>,
    /// What it asks, if that is its job.
    asks: Option<Asks>,
    /// An ask that waits until it has signed.
    next: Option<Asks>,
    /// How long the way there takes at least, and the way back, where that is not what it is for all.
    pub(super) ways: Option<(u64, u64)>,
}

impl StoreLink {
    pub(super) fn new(clocks: ClockBounds) -> Self {
        let member = Member::new(String::new(), clocks.drift_ppm());
        StoreLink { member, waits: None, asks: None, next: None, ways: None }
    }
}

/// What a member knows of its region, and does there.
struct Here<'a> {
    rng: &'a mut fastrand::Rng,
    /// The calendar of a machine, whose clock was never set.
    wall: Moment,
    is_fresh: bool,
    asks: Vec<Option<RootAsk>>,
    configuration: (Version, BTreeMap<String, String>),
    pools: Vec<&'a mut Pool>,
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
        self.asks.clone()
    }

    fn suspensions(&self) -> Suspensions {
        Suspensions::default()
    }

    fn configuration(&self) -> (Version, BTreeMap<String, String>) {
        self.configuration.clone()
    }

    fn overrides(&self) -> LimitOverrides {
        LimitOverrides::default()
    }

    fn follow_overrides(&mut self, _: &LimitOverrides) {}

    fn follow_suspensions(&mut self, _: &Suspensions, _: Moment) {}

    fn hold_back(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.hold_back_above(self.local));
    }

    fn tell(&mut self, _: Notice) {}
}

impl World {
    /// The same world without a centre.
    pub(super) fn stored(mut self) -> World {
        let rules: Vec<Rule> =
            self.plan.rules.iter().map(|rule| roots::stricter(rule).expect("it can be kept")).collect();
        let sharing = Sharing { term_min: roots::CLOCK_UNCERTAINTY * 10, ..self.plan.sharing.clone() };
        let compiled = CompiledPlan::new(Plan { rules, is_root: true, sharing, ..(*self.plan).clone() });
        let table = Table::new(Timeline::new("0"));
        self.store = Some(Store {
            behind: table.clone(),
            table,
            timelines: 0,
            fates: &FATES,
            every: self.trouble.every,
            is_new: true,
            doom: None,
            set: 0,
            specs: [0, 1].map(|_| RootSpec {
                compiled: compiled.clone(),
                version: Version::of_file(2),
                parent_ref: ParentRef::default(),
            }),
            letters: BTreeMap::new(),
            written: 0,
            has_eras: false,
            roots: [None, None],
        });
        // Farther away, no region could tell what time it is there.
        self.far = self.rng.u64(MILLI / 20..2 * MILLI);
        for region in 0..self.regions.len() {
            self.after(0, Event::Signs(region));
        }
        self
    }

    /// A region asks the root, once it has done what it does at the store.
    pub(super) fn ask_root(&mut self, region: usize, asks: Asks) {
        let link = &mut self.regions[region].link;
        if link.waits.is_some() {
            link.next = Some(asks);
            return;
        }
        let next = self.begin_ask(region, asks);
        if let Err(fault) = self.goes_on(region, next) {
            self.fault.get_or_insert(fault);
        }
    }

    /// A region says the last that it has to say to the root, if it knows that and waits for nothing.
    pub(super) fn leave_root(&mut self, region: usize, asks: Asks) {
        let link = &self.regions[region].link;
        if link.waits.is_none()
            && link.member.head().is_some()
            && let Next::Call(call) = self.begin_ask(region, asks)
        {
            self.write_to_store(region, call);
        }
    }

    fn begin_ask(&mut self, region: usize, asks: Asks) -> Next {
        let at = &mut self.regions[region];
        at.link.asks = Some(asks);
        let (session, seq) = (at.line.session().0, at.line.seq());
        let rtt = at.pool.distance_above(Duration::from_nanos(4 * self.far));
        self.as_member(region, |member, now, here| member.ask(session, seq, rtt, now, here))
    }

    /// A region signs, and again after a while. One that waits for the store signs once that has answered.
    pub(super) fn signs(&mut self, region: usize) -> Result<(), String> {
        let at = &mut self.regions[region];
        if at.link.waits.is_some() {
            self.after(MILLI, Event::Signs(region));
            return Ok(());
        }
        let (session, now) = (at.line.session().0, at.clock(self.real));
        let signed = at.link.member.signed();
        match at.link.member.sign(session, now) {
            Some(next) => {
                self.after(nanos(SIGN_EVERY), Event::Signs(region));
                self.goes_on(region, next)
            }
            None => {
                let due = at.when(signed + SIGN_EVERY, self.real);
                self.after(due.saturating_sub(self.real).max(1), Event::Signs(region));
                Ok(())
            }
        }
    }

    /// No answer of the store is waited for any more.
    pub(super) fn forget_store(&mut self, region: usize) {
        let at = &mut self.regions[region];
        let now = at.clock(self.real);
        at.link.member.give_up(now);
        (at.link.waits, at.link.asks, at.link.next) = (None, None, None);
    }

    /// Lets the member of a region act, now.
    fn as_member<T>(
        &mut self,
        region: usize,
        act: impl FnOnce(&mut Member, Moment, &mut Here<'_>) -> T,
    ) -> T {
        let configuration = self.configuration(region);
        let [own, above] = self.specs(region);
        let is_fresh = self.store.as_ref().is_some_and(|store| store.is_new);
        let at = &mut self.regions[region];
        let local = at.clock(self.real);
        let root = |place: usize, spec, ask| Some(RootAsk { name: cell_of(NAMES[place], None), spec, ask });
        let asks = at.link.asks.map_or(vec![], |asks| {
            let above = asks.above.map(|ask| root(1, above, ask));
            std::iter::once(root(0, own, asks.own)).chain(above).collect()
        });
        let mut here = Here {
            rng: &mut self.rng,
            wall: shown(self.real, self.centre_ppm),
            is_fresh,
            asks,
            configuration,
            pools: std::iter::once(&mut at.pool).chain(&mut at.above).collect(),
            local,
        };
        act(&mut at.link.member, local, &mut here)
    }

    /// The member of a region has said what comes next.
    fn goes_on(&mut self, region: usize, next: Next) -> Result<(), String> {
        self.is_not_ahead(region)?;
        match next {
            Next::Call(call) => {
                self.write_to_store(region, call);
                Ok(())
            }
            Next::Done(done) => {
                let link = &mut self.regions[region].link;
                let (asks, next) = (link.asks.take(), link.next.take());
                if asks.is_some() {
                    self.has_asked(region, done)?;
                }
                if let Some(next) = next {
                    self.ask_root(region, next);
                }
                Ok(())
            }
        }
    }

    fn write_to_store(&mut self, region: usize, call: Call) {
        let Some(store) = &mut self.store else { return };
        store.written += 1;
        let id = store.written;
        store.letters.insert(id, Letter::Call(call));
        let link = &mut self.regions[region].link;
        link.waits = Some(id);
        let way = link.ways.map_or(self.far, |(there, _)| there);
        self.post(region, way, Event::AtStore(region, id));
        self.after(TIMEOUT / 2, Event::StoreSilent(region, id));
    }

    fn post(&mut self, region: usize, way: u64, event: Event) {
        let Trouble { loss, late, .. } = self.trouble;
        if self.line(Who::Region(region)).cut_until > self.real || self.rng.f64() < loss {
            return;
        }
        let more = if self.rng.f64() < late { self.rng.u64(0..4 * SECOND) } else { 0 };
        let wait = way + self.rng.u64(0..=way) + more;
        self.after(wait, event);
    }

    /// A call has taken too long.
    pub(super) fn store_silent(&mut self, region: usize, id: u64) -> Result<(), String> {
        let silent = CellsError::Unreachable("no answer in time".to_owned());
        self.hear_call(region, id, Err(silent))
    }

    pub(super) fn at_store(&mut self, region: usize, id: u64) {
        let clock = self.store_clock();
        self.empty_if_doomed(region, id);
        let Some(store) = &mut self.store else { return };
        let Some(Letter::Call(call)) = store.letters.remove(&id) else { return };
        let said = match call {
            // As exact as a store tells it.
            Call::Time => Ok(Said::Time(Moment::from_nanos(clock.as_nanos() / 1_000 * 1_000))),
            Call::Load(names) => Ok(Said::Loaded(store.table.timeline().clone(), store.table.load(&names))),
            Call::Swap(timeline, swaps) => {
                let swapped = store.table.swap(&timeline, &swaps);
                store.is_new = false;
                store.read_roots(self.real, clock);
                swapped.map(Said::Swapped)
            }
        };
        store.letters.insert(id, Letter::Said(said));
        let way = self.regions[region].link.ways.map_or(self.far, |(_, back)| back);
        self.post(region, way, Event::FromStore(region, id));
    }

    pub(super) fn hear_store(&mut self, region: usize, id: u64) -> Result<(), String> {
        match self.store.as_mut().and_then(|store| store.letters.remove(&id)) {
            Some(Letter::Said(said)) => self.hear_call(region, id, said),
            Some(Letter::Call(_)) | None => Ok(()),
        }
    }

    fn hear_call(&mut self, region: usize, id: u64, said: Result<Said, CellsError>) -> Result<(), String> {
        let link = &mut self.regions[region].link;
        if link.waits != Some(id) {
            return Ok(());
        }
        link.waits = None;
        let next = self.as_member(region, |member, now, here| member.heard(said, now, here));
        self.goes_on(region, next)
    }

    /// The roots have answered, or could not be asked.
    fn has_asked(
        &mut self,
        region: usize,
        done: Result<Vec<Option<Result<Answer, RootError>>>, MemberError>,
    ) -> Result<(), String> {
        let at = &mut self.regions[region];
        // Whether that is still waited for.
        let Some(open) = at.line.connection.open() else { return Ok(()) };
        let (first_sent, session, seq) = (open.first_sent, at.line.session(), at.line.seq());
        let Ok(answers) = done else {
            self.failed(Who::Region(region));
            return Ok(());
        };
        let mut answers = answers.into_iter().map(to_pool);
        let own = answers.next().ok_or("an ask of a root has no answer")?;
        if let Some(above) = answers.next() {
            self.hear_from_above(region, first_sent, above)?;
        }
        if let Err(error @ AskError::Totals { .. }) = &own
            && !self.centre_died
        {
            return Err(format!("an honest region was not believed: {error}"));
        }
        self.hear(Who::Region(region), session, seq, own)
    }
}
