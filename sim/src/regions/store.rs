//! The store in the place of a centre: what is in it, what its clock shows, and what becomes of it.

use super::family::NAMES;
use super::*;
use lessor_ledger::cells::{CellsError, Table, Timeline};
use lessor_ledger::pool::PoolView;
use lessor_ledger::roots::{self, Call, HEAD, Head, OVERRIDES, RootSpec, SIGN_EVERY, Said, cell_of};

/// What becomes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A replica has all of it.
    Copied,
    /// Its clock is set.
    Set,
    /// Its clock is set, and set again before all have heard of it: by more than a second, for no allocator could tell less.
    SetTwice,
    /// An operator empties it, on the same timeline.
    Emptied,
    /// The same, while a region that knows the head asks the store for the first time: just before it reads a root, or just before
    /// it writes one that it has read. A region that holds nothing is not asked what it holds.
    EmptiedUnderway,
    /// It goes on with what the replica has, on another timeline.
    Behind,
    /// It goes on with all that it had, on another timeline.
    Started,
    /// The same on another server, whose clock is a few milliseconds off: less than allocators may be about the time.
    Replaced,
}

/// Before which call of a first exchange a store is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doom {
    Read,
    Write,
}

/// The era of a store when the first region comes to it.
const FIRST_ERA: u64 = 1;

/// All of them.
pub(super) const FATES: [Fate; 5] = [Fate::Copied, Fate::Set, Fate::Emptied, Fate::Behind, Fate::Started];

/// The store, and what is on its way to it or back.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) table: Table,
    /// What a replica has of it.
    pub(super) behind: Table,
    pub(super) timelines: u64,
    /// What may become of it, and how often: after so long, on average.
    pub(super) fates: &'static [Fate],
    pub(super) every: u64,
    /// Whether no region has written to it yet.
    pub(super) is_new: bool,
    /// Whether it is emptied as soon as a region asks for the first time, and before what of that.
    pub(super) doom: Option<Doom>,
    /// By how much its clock was set, in all.
    pub(super) set: i64,
    pub(super) specs: [RootSpec; 2],
    pub(super) letters: BTreeMap<u64, Letter>,
    pub(super) written: u64,
    /// Whether its time began anew, as far as its head says.
    pub(super) has_eras: bool,
    /// What each root is as long as no region swaps it, the time that it is then, and when that was.
    pub(super) roots: [Option<(Pool, Moment, u64)>; 2],
}

#[derive(Clone, Debug)]
pub(super) enum Letter {
    Call(Call),
    Said(Result<Said, CellsError>),
}

impl Store {
    /// Reads what the roots are, if they can be read.
    pub(super) fn read_roots(&mut self, real: u64, clock: Moment) {
        let names = NAMES.map(|name| cell_of(name, None));
        let cells = self.table.load(&names);
        // No region lends by the head of another timeline.
        let head = self.head().filter(|head| head.timeline() == *self.table.timeline());
        // Where the clock was set, allocators go by it only once they have noticed.
        let now = if self.set == 0 { clock } else { Moment::ORIGIN };
        self.has_eras |= head.as_ref().is_some_and(|head| head.era() > FIRST_ERA);
        for (place, cell) in cells.into_iter().enumerate() {
            let spec = &self.specs[place];
            let read =
                cell.zip(head.as_ref()).map(|(cell, head)| roots::read(spec, head, Some(&cell.value), now));
            self.roots[place] = read.and_then(Result::ok).map(|root| (root.pool, root.now, real));
        }
    }

    fn head(&self) -> Option<Head> {
        let cell = self.table.load(&[HEAD.to_owned()]).pop().flatten();
        cell.and_then(|cell| Head::read(&cell.value).ok())
    }

    /// Whether a region has said which limit is below which.
    pub(super) fn knows_families(&self) -> bool {
        self.head().is_some_and(|head| !head.families().is_empty())
    }
}

impl World {
    /// The same in full use, with no trouble but that of the store: one of `fates`, every so often.
    pub(super) fn in_full_use(mut self, fates: &'static [Fate], every: u64) -> World {
        // No other process dies.
        let calm =
            Trouble { loss: 0.0, repeat: 0.0, late: 0.0, every: 1_000_000 * SECOND, centre_dies: true };
        self.trouble = calm;
        self.rate = 3.0 * self.most_per_second() / self.nodes.len() as f64;
        if let Some(store) = &mut self.store {
            (store.fates, store.every) = (fates, every);
        }
        self
    }

    /// The same where processes die and links are cut, too.
    pub(super) fn of_mortals(mut self) -> World {
        self.trouble.every = 2 * SECOND;
        self
    }

    /// The same where the ways to the store and back are not alike, and so no region can tell the time well. Many letters get
    /// lost, so that leases end while there is something left of them.
    pub(super) fn on_crooked_ways(mut self) -> World {
        self.near = MILLI / 20;
        self.trouble.loss = 0.4;
        self.rate /= 6.0;
        for region in &mut self.regions {
            let (long, short) = (self.rng.u64(6..=8) * MILLI, MILLI / 20);
            region.link.ways = Some(if self.rng.bool() { (long, short) } else { (short, long) });
        }
        self
    }

    /// The same, where so many times as much is wanted, by some who know what time it is, and by some who take it to be earlier, and are
    /// as quick.
    pub(super) fn of_few_permits(mut self, times: f64) -> World {
        self.near = MILLI / 20;
        self.rate *= times;
        for region in &mut self.regions {
            let back = if self.rng.bool() { self.rng.u64(4..=7) * MILLI } else { MILLI / 20 };
            region.link.ways = Some((MILLI / 20, back));
        }
        self
    }

    /// How often something becomes of it.
    pub(super) fn store_every(&self) -> Option<u64> {
        self.store.as_ref().map(|store| store.every)
    }

    /// What its clock shows.
    pub(super) fn store_clock(&self) -> Moment {
        let set = self.store.as_ref().map_or(0, |store| store.set);
        let nanos = shown(self.real, self.centre_ppm).as_nanos().saturating_add_signed(set);
        Moment::from_nanos(nanos)
    }

    /// Something becomes of it.
    pub(super) fn store_in_trouble(&mut self) {
        let is_fixed = self.rules().any(|rule| matches!(rule, Rule::FixedWindow(_)));
        let (fates, real) = (self.store.as_ref().map_or(&FATES[..], |store| store.fates), self.real);
        let fate = fates[self.rng.usize(..fates.len())];
        let step = self.rng.i64(20..100_000) * MILLI.cast_signed() * if self.rng.bool() { 1 } else { -1 };
        // A clock is set only while a region watches: no region can know of a step that none watches.
        let is_watched = self.regions.iter().any(|region| {
            real > 100 * MILLI && region.clock(real).since(region.link.member.signed()) < SIGN_EVERY * 2
        });
        // Where windows are of the calendar, another clock has others.
        let apart = if is_fixed { 0 } else { step % (8 * MILLI.cast_signed()) };
        let doom = if self.rng.bool() { Doom::Read } else { Doom::Write };
        let Some(store) = &mut self.store else { return };
        store.roots = [None, None];
        match fate {
            Fate::Copied => store.behind = store.table.clone(),
            Fate::Set if is_watched && !is_fixed => store.set += step,
            Fate::SetTwice if is_watched && !is_fixed => {
                store.set += step;
                let soon = self.rng.u64(10..250) * MILLI;
                self.after(soon, Event::SetAgain);
            }
            Fate::Set | Fate::SetTwice => {}
            Fate::Emptied => self.empty_store(),
            Fate::EmptiedUnderway => store.doom = Some(doom),
            Fate::Behind | Fate::Started | Fate::Replaced => {
                // A region that sees another timeline does not know whether anything is lost.
                self.centre_died = true;
                if fate == Fate::Behind {
                    store.table = store.behind.clone();
                }
                if fate == Fate::Replaced {
                    store.set += apart;
                }
                store.timelines += 1;
                store.table.move_to(Timeline::new(store.timelines.to_string()));
            }
        }
    }

    /// A region may not take it to be later than the clock of the server shows by which it goes.
    pub(super) fn is_not_ahead(&self, region: usize) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        let at = &self.regions[region];
        let member = &at.link.member;
        let Some(now) = member.time(at.clock(self.real)) else { return Ok(()) };
        // Where a clock is set, allocators know it from the next answer.
        let is_set = store.fates.iter().any(|fate| matches!(fate, Fate::Set | Fate::SetTwice));
        let (clock, is_same) = (self.store_clock(), member.timeline() == Some(store.table.timeline()));
        match is_set || !is_same || now <= clock {
            true => Ok(()),
            false => Err(format!("an allocator takes it to be {:?} later than its store", now.since(clock))),
        }
    }

    /// Its clock is set once more.
    pub(super) fn set_again(&mut self) {
        let step = self.rng.i64(1_100..100_000) * MILLI.cast_signed();
        let step = if self.rng.bool() { step } else { -step };
        self.store.iter_mut().for_each(|store| store.set += step);
    }

    fn empty_store(&mut self) {
        let Some(store) = &mut self.store else { return };
        store.table = Table::new(store.table.timeline().clone());
        (store.roots, store.doom, self.centre_died) = ([None, None], None, true);
    }

    /// `letter` of a region arrives: if that is its fate, it is emptied just before.
    pub(super) fn empty_if_doomed(&mut self, region: usize, letter: u64) {
        let is_first = self.regions[region].line.seq() <= 1;
        let Some(store) = &self.store else { return };
        let Some(Letter::Call(call)) = store.letters.get(&letter) else { return };
        let is_root = |name: &str| name != HEAD && name != OVERRIDES;
        let is_it = match (store.doom, call) {
            (Some(Doom::Read), Call::Load(names)) => names.iter().any(|name| is_root(name)),
            (Some(Doom::Write), Call::Swap(_, swaps)) => {
                swaps.iter().any(|swap| is_root(&swap.name) && swap.expected.is_some())
            }
            _ => false,
        };
        if is_first && is_it {
            self.empty_store();
        }
    }

    /// Returns the roots, as an observer that is never behind the time sees them; `None` for a root that is unknown.
    pub(super) fn root_views(&mut self) -> [Option<PoolView>; 2] {
        let (clock, real) = (self.store_clock(), self.real);
        let Some(store) = &mut self.store else { return [None, None] };
        let set = store.set;
        store.roots.each_mut().map(|root| {
            let (root, then, at) = root.as_mut()?;
            let now = if set == 0 { clock } else { *then + Duration::from_nanos(real - *at) };
            Some(root.view(now))
        })
    }
}
