//! The same regions where there is no centre: the root is in a store that all of them swap. Its clock drifts and is set, calls
//! of it get lost or come late, and it starts anew on another timeline, with all that it had or with what it had a while ago.

use super::family::{Asks, NAMES};
use super::store::{FATES, Letter};
use super::*;
use lessor_ledger::cells::{Cell, CellsError, Swap, Swapped, Table, Timeline};
use lessor_ledger::roots::{
    self, Exchange, HEAD, Head, Kin, Origin, Recipe, RootAnswer, RootAsk, RootClock, RootError, SIGN_EVERY,
    Signer, Stepped, Verdict, Version, Watch, cell_of,
};

/// How often another region may be faster.
const TRIES: u32 = 6;

/// What a region knows of the store.
#[derive(Debug)]
pub(super) struct Member {
    clock: RootClock,
    watch: Watch,
    era: Option<u64>,
    has_stepped: bool,
    head: Option<(Cell, Head)>,
    roots: [Option<Cell>; 2],
    /// What it waits for, and since when.
    waits: Option<(u64, Moment)>,
    step: Step,
    tries: u32,
    pub(super) signed: Moment,
    /// An ask that waits until it has signed.
    next: Option<Asks>,
    /// How long the way there takes at least, and the way back, where that is not what it is for all.
    pub(super) ways: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Step {
    Nothing,
    /// It looks what there is, for an ask or to sign.
    Looks(Option<Asks>),
    /// It writes this head.
    Heads(Option<Asks>, Cell, Box<Head>),
    /// It says that it is in doubt about the time; and whether it has asked.
    Doubts(bool),
    Asks(Box<Exchange>),
}

impl Member {
    fn knows_roots(&self) -> bool {
        self.roots[0].is_some()
    }

    pub(super) fn new(terms: Terms) -> Self {
        Member {
            clock: RootClock::new(terms.drift_ppm()),
            watch: Watch::default(),
            era: None,
            has_stepped: false,
            head: None,
            roots: [None, None],
            waits: None,
            step: Step::Nothing,
            tries: 0,
            signed: Moment::ORIGIN,
            next: None,
            ways: None,
        }
    }
}

impl World {
    /// The same world without a centre.
    pub(super) fn stored(mut self) -> World {
        let rules: Vec<Rule> =
            self.plan.rules.iter().map(|rule| roots::stricter(rule).expect("it can be kept")).collect();
        let sharing = Sharing { term_min: roots::BLUR * 10, ..self.plan.sharing.clone() };
        let recipe = Recipe::new(Plan { rules, is_root: true, sharing, ..(*self.plan).clone() });
        let table = Table::new(Timeline::new("0"));
        self.store = Some(Store {
            behind: table.clone(),
            table,
            timelines: 0,
            fates: &FATES,
            every: self.trouble.every,
            is_new: true,
            is_doomed: false,
            set: 0,
            origins: [0, 1].map(|_| Origin {
                recipe: recipe.clone(),
                version: Version::of_file(2),
                kin: Kin::default(),
            }),
            letters: BTreeMap::new(),
            written: 0,
            has_eras: false,
            roots: [None, None],
        });
        // Farther away, no region could tell what time it is there.
        self.far = self.dice.u64(MILLI / 20..2 * MILLI);
        for region in 0..self.regions.len() {
            self.after(0, Event::Signs(region));
        }
        self
    }

    /// A region asks the root.
    pub(super) fn ask_root(&mut self, region: usize, ask: Asks) {
        let is_quick = self.dice.bool();
        let member = &mut self.regions[region].member;
        if member.waits.is_some() {
            member.next = Some(ask);
        } else if member.head.is_some() && member.knows_roots() && is_quick {
            // What it knows may be out of date: the store says so.
            self.swap_root(region, ask);
        } else {
            self.look_at_store(region, Some(ask));
        }
    }

    /// A region says the last that it has to say to the root, if it knows that and waits for nothing.
    pub(super) fn leave_root(&mut self, region: usize, ask: Asks) {
        let member = &self.regions[region].member;
        if member.waits.is_none() && member.head.is_some() && member.knows_roots() {
            self.swap_root(region, ask);
        }
    }

    /// A region signs, and again after a while. One that waits for the store signs once that has answered.
    pub(super) fn signs(&mut self, region: usize) {
        if self.regions[region].member.waits.is_some() {
            return self.after(MILLI, Event::Signs(region));
        }
        self.look_at_store(region, None);
        let every = u64::try_from(SIGN_EVERY.as_nanos()).expect("a moment");
        self.after(every, Event::Signs(region));
    }

    /// Whatever it waits for will not come.
    pub(super) fn forget_store(&mut self, region: usize) {
        let member = &mut self.regions[region].member;
        (member.waits, member.step) = (None, Step::Nothing);
        (member.head, member.roots, member.next) = (None, [None, None], None);
    }

    fn look_at_store(&mut self, region: usize, ask: Option<Asks>) {
        self.regions[region].member.step = Step::Looks(ask);
        self.write_to_store(region, Letter::Load);
    }

    fn write_to_store(&mut self, region: usize, letter: Letter) {
        let Some(store) = &mut self.store else { return };
        store.written += 1;
        let id = store.written;
        store.letters.insert(id, letter);
        let at = &mut self.regions[region];
        at.member.waits = Some((id, at.clock(self.real)));
        let way = self.regions[region].member.ways.map_or(self.far, |(there, _)| there);
        self.post(region, way, Event::AtStore(region, id));
        self.after(TIMEOUT / 2, Event::StoreSilent(region, id));
    }

    fn post(&mut self, region: usize, way: u64, event: Event) {
        let Trouble { loss, late, .. } = self.trouble;
        if self.line(Who::Region(region)).cut_until > self.real || self.dice.f64() < loss {
            return;
        }
        let more = if self.dice.f64() < late { self.dice.u64(0..4 * SECOND) } else { 0 };
        let wait = way + self.dice.u64(0..=way) + more;
        self.after(wait, event);
    }

    pub(super) fn store_silent(&mut self, region: usize, id: u64) {
        let member = &self.regions[region].member;
        if member.waits.is_some_and(|(waits, _)| waits == id) {
            self.forget_store(region);
        }
    }

    pub(super) fn at_store(&mut self, region: usize, id: u64) {
        let said = self.store_clock();
        self.empty_if_doomed(region, id);
        let Some(store) = &mut self.store else { return };
        let answer = match store.letters.remove(&id) {
            Some(Letter::Load) => Letter::Loaded {
                // As exact as a store tells it.
                said: Moment::from_nanos(said.as_nanos() / 1_000 * 1_000),
                timeline: store.table.timeline().clone(),
                cells: store.table.load(&[cell_of(NAMES[0], None), cell_of(NAMES[1], None), HEAD.to_owned()]),
            },
            Some(Letter::Swap(timeline, swaps)) => {
                let swapped = store.table.swap(&timeline, &swaps);
                store.is_new = false;
                store.read_roots(self.real, said);
                Letter::Swapped(swapped)
            }
            Some(Letter::Loaded { .. } | Letter::Swapped(_)) | None => return,
        };
        store.letters.insert(id, answer);
        let way = self.regions[region].member.ways.map_or(self.far, |(_, back)| back);
        self.post(region, way, Event::FromStore(region, id));
    }

    pub(super) fn hear_store(&mut self, region: usize, id: u64) -> Result<(), String> {
        let letter = self.store.as_mut().and_then(|store| store.letters.remove(&id));
        let member = &mut self.regions[region].member;
        let Some((_, asked)) = member.waits.filter(|(waits, _)| *waits == id) else { return Ok(()) };
        member.waits = None;
        match (letter, std::mem::replace(&mut member.step, Step::Nothing)) {
            (Some(Letter::Loaded { said, timeline, cells }), Step::Looks(ask)) => {
                self.looked(region, ask, (said, asked), &timeline, cells)?;
            }
            (Some(Letter::Swapped(swapped)), Step::Heads(ask, cell, head)) => {
                let is_done = swapped.is_ok_and(|swapped| swapped == [Swapped::Done]);
                if is_done {
                    (member.era, member.has_stepped) = (Some(head.era()), false);
                    member.head = Some((cell, *head));
                }
                let ask = ask.or(member.next.take());
                match (is_done, ask) {
                    (true, Some(ask)) => self.swap_root(region, ask),
                    // Another one was faster: the shell of an allocator tries again at once, too.
                    (false, ask) => self.look_at_store(region, ask),
                    (true, None) => {}
                }
            }
            (Some(Letter::Swapped(_)), Step::Doubts(has_asked)) => self.give_up(region, has_asked),
            (Some(Letter::Swapped(swapped)), Step::Asks(exchange)) => {
                self.swapped_root(region, *exchange, swapped)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// As the shell of an allocator does it: the head is read, and made or changed where that must be, and signed.
    fn looked(
        &mut self,
        region: usize,
        ask: Option<Asks>,
        (said, asked): (Moment, Moment),
        timeline: &Timeline,
        mut cells: Vec<Option<Cell>>,
    ) -> Result<(), String> {
        // The clock of the machine was never set.
        let calendar = shown(self.real, self.centre_ppm);
        let session = self.regions[region].line.session().0;
        let version = self.dice.u64(..);
        let families = self.families(region);
        let is_first = self.store.as_ref().is_some_and(|store| store.is_new);
        let at = &mut self.regions[region];
        let (local, member) = (at.clock(self.real), &mut at.member);
        // Whatever was known goes by what was known of the time.
        let known = member.head.take();
        let found = cells.pop().flatten();
        member.roots = [1, 0].map(|_| cells.pop().flatten());
        member.roots.reverse();
        let mut has_stepped = member.has_stepped;
        match member.clock.hear(said, asked, local) {
            Ok(()) => member.watch.fits(known.as_ref().map(|(_, head)| head), session, said),
            Err(Stepped) => {
                member.watch.differs(said);
                std::iter::once(&mut at.pool)
                    .chain(&mut at.above)
                    .for_each(|pool| pool.hold_back_above(local));
            }
        }
        if !member.clock.follow(timeline) {
            let is_fit = member.clock.hear(said, asked, local);
            is_fit.map_err(|_| "a clock that is new knows more than it heard")?;
        }
        let head = found.as_ref().map(|cell| Head::read(&cell.value)).transpose()?;
        if let (Some(era), Some(head)) = (member.era, &head)
            && era != head.era()
        {
            // What was known of its time is over.
            member.clock.forget();
            member.watch.forget();
            let is_fit = member.clock.hear(said, asked, local);
            is_fit.map_err(|_| "a clock that is new knows more than it heard")?;
            if let Some(now) = member.clock.now(local) {
                (member.era, has_stepped) = (Some(head.era()), !head.is_watched(now));
            }
        }
        member.has_stepped = has_stepped;
        let Some(now) = member.clock.now(local) else {
            // It is too far away at the moment.
            self.give_up(region, ask.is_some());
            return Ok(());
        };
        self.is_not_ahead(now, timeline)?;
        let member = &mut self.regions[region].member;
        // The first one knows that nothing was lent. If there is none later, the store was emptied.
        let mut head = head.unwrap_or_else(|| Head::begin(version, timeline, now, is_first));
        let verdict = if has_stepped { Verdict::None } else { member.watch.judge(&head, timeline, now) };
        if verdict == Verdict::Unknown {
            if found.is_none() || !member.watch.doubts(&mut head, now) {
                self.give_up(region, ask.is_some());
                return Ok(());
            }
            let next = Some(Cell { version, value: head.write() });
            let swap = Swap { name: HEAD.to_owned(), expected: found.map(|cell| cell.version), next };
            member.step = Step::Doubts(ask.is_some());
            self.write_to_store(region, Letter::Swap(timeline.clone(), vec![swap]));
            return Ok(());
        }
        has_stepped |= verdict == Verdict::Store;
        if has_stepped {
            member.watch.forget();
        }
        member.has_stepped = has_stepped;
        if has_stepped || (member.era.is_none() && head.may_have_stepped(now, calendar)) {
            head.begin_era(now);
        }
        if head.timeline() != *timeline {
            head.lose(timeline, now);
        }
        head.keep_families(&families);
        head.sign(&Signer { session, node: String::new() }, now);
        let cell = Cell { version, value: head.write() };
        let swap = Swap {
            name: HEAD.to_owned(),
            expected: found.map(|cell| cell.version),
            next: Some(cell.clone()),
        };
        (member.step, member.signed) = (Step::Heads(ask, cell, Box::new(head)), local);
        self.write_to_store(region, Letter::Swap(timeline.clone(), vec![swap]));
        Ok(())
    }

    fn swap_root(&mut self, region: usize, ask: Asks) {
        let [origin, origin_above] = self.origins(region);
        let at = &mut self.regions[region];
        let rtt = at.pool.distance_above(Duration::from_nanos(4 * self.far));
        let holder = Holder { id: at.line.session(), share: Share::EVEN, rtt };
        let root = |place: usize, origin, ask| RootAsk { name: cell_of(NAMES[place], None), origin, ask };
        let [own, above] = at.member.roots.each_mut().map(Option::take);
        let mut asks = vec![(root(0, origin, ask.own), own)];
        asks.extend(ask.above.map(|ask| (root(1, origin_above, ask), above)));
        at.member.tries = 0;
        let exchange = Exchange::new(holder, at.line.seq(), asks);
        self.try_root(region, exchange);
    }

    fn try_root(&mut self, region: usize, mut exchange: Exchange) {
        let version = self.dice.u64(..);
        let at = &mut self.regions[region];
        at.member.tries += 1;
        let Some((_, head)) = &at.member.head else { return self.give_up(region, true) };
        let swaps = exchange.swaps(head, &at.member.clock, at.clock(self.real), || version);
        if swaps.is_empty() || at.member.tries > TRIES {
            return self.give_up(region, true);
        }
        let timeline = head.timeline();
        at.member.step = Step::Asks(Box::new(exchange));
        self.write_to_store(region, Letter::Swap(timeline, swaps));
    }

    fn swapped_root(
        &mut self,
        region: usize,
        mut exchange: Exchange,
        swapped: Result<Vec<Swapped>, CellsError>,
    ) -> Result<(), String> {
        let Ok(swapped) = swapped else {
            self.give_up(region, true);
            return Ok(());
        };
        let is_late = exchange.swapped(swapped) > 0;
        if is_late {
            self.try_root(region, exchange);
            return Ok(());
        }
        let local = self.regions[region].clock(self.real);
        let mut answers = exchange.finish(local).into_iter();
        let (Some(own), above) = (answers.next(), answers.next()) else { return Ok(()) };
        let at = &mut self.regions[region];
        at.member.roots = [own.cell, above.as_ref().and_then(|above| above.cell.clone())];
        let (session, seq) = (at.line.session(), at.line.seq());
        // Whether that is still waited for.
        let first_sent = at.line.connection.open().map(|exchange| exchange.first_sent);
        if let (Some(RootAnswer { answer, .. }), Some(first_sent)) = (above, first_sent) {
            let Some(answer) = answer else {
                self.give_up(region, true);
                return Ok(());
            };
            self.hear_from_above(region, first_sent, answer)?;
        }
        match own.answer {
            Some(Ok(answer)) => self.hear(Who::Region(region), session, seq, Ok(answer)),
            Some(Err(RootError::Ask(error))) => {
                if matches!(error, AskError::Totals { .. }) && !self.centre_died {
                    return Err(format!("an honest region was not believed: {error}"));
                }
                self.hear(Who::Region(region), session, seq, Err(error))
            }
            Some(Err(_)) | None => {
                self.give_up(region, true);
                Ok(())
            }
        }
    }

    /// It comes to nothing; who asked is told.
    fn give_up(&mut self, region: usize, has_asked: bool) {
        self.forget_store(region);
        if has_asked && self.line(Who::Region(region)).connection.open().is_some() {
            self.failed(Who::Region(region));
        }
    }
}
