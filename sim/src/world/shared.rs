//! The store that allocators share: what is in it, what its clock shows, and the fates that strike it.

use super::World;
use super::event::{Event, Phase};
use super::kept_time::Keeper;
use super::opened::Seen;
use super::rates::memory;
use crate::limits::{File, Limits};
use crate::oracle::{Stock, Verdict, hold_after, must};
use crate::topology::{Fate, Shared};
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::cells::{CellsError, Table, Timeline};
use lessor_ledger::overrides::{LimitOverrides, Version};
use lessor_ledger::pool::{Books, Past, Pool, PoolView};
use lessor_ledger::registry::Registry;
use lessor_ledger::roots::{self, Call, HEAD, Head, OVERRIDES, RootSpec, SIGN_EVERY, Said, cell_of};
use lessor_ledger::rule::RefillStyle;
use lessor_protocol::{ClockBounds, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// The place of the root that nodes ask, where its rules change.
const ASKED: usize = 0;

/// The era of a store when the first allocator comes to it.
const FIRST_ERA: u64 = 1;

/// The least by which a set clock of a store differs from what it showed within the last second, in milliseconds. An
/// allocator that missed the sets between could not tell less.
const TOLD_APART: i64 = 1_100;

/// The call of a first exchange before which a store is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    Read,
    Write,
}

/// The store, and the messages on their way to and from it.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) table: Table,
    /// What a replica has of the table.
    behind: Table,
    timelines: u64,
    pub(super) is_clockless: bool,
    /// For each life of the time that allocators keep: the least by which any of them took it to be later than the time
    /// that really passed, at the pace of the fastest clock.
    pub(super) paces: BTreeMap<u64, i128>,
    /// The last keeper of each life of that time.
    pub(super) kept: BTreeMap<u64, Keeper>,
    /// Whether no allocator has written the head yet.
    pub(super) is_new: bool,
    /// The call of an allocator's first exchange before which the store is emptied, if it is.
    doom: Option<Doom>,
    /// How far its clock was set in all, in nanoseconds, and whether it was ever set while allocators watched.
    pub(super) set: i64,
    is_set: bool,
    /// Sets within the last second: when, in real time, and `set` before it.
    sets: Vec<(u64, i64)>,
    /// Whether it has ever lost something, or another timeline said so.
    pub(super) has_lost: bool,
    /// Whether its roots may not know of all that is out.
    pub(super) is_lost: bool,
    /// Real time since when the root that nodes ask is open, after a loss.
    open_since: Option<u64>,
    /// The name of the root of each limit, and its specification.
    specs: Vec<(String, RootSpec)>,
    pub(super) letters: BTreeMap<u64, Letter>,
    /// Real time when each call was sent that has not arrived.
    sent: BTreeMap<u64, u64>,
    written: u64,
    /// The time of the roots as it was last read, and whether another life of it has begun since the oracle heard of it.
    pub(super) seen: Option<Seen>,
    pub(super) has_leapt: bool,
    /// Whether its time began anew, by its head.
    pub(super) has_eras: bool,
    /// Each root as it was last swapped, the time of that by the roots, and by real time.
    roots: Vec<Option<(Pool, Moment, u64)>>,
    /// The configuration that the root asked by nodes follows, and its rules as the root keeps them.
    pub(super) goes_by: (Version, Vec<Rule>),
    /// The rules of that root as operators say them.
    pub(super) promises: Vec<Rule>,
}

/// A call on its way, or its answer.
#[derive(Clone, Debug)]
pub(super) enum Letter {
    Call(Call),
    Said(Result<Said, CellsError>),
}

impl Store {
    /// Makes an empty store for roots of `limits`.
    pub(super) fn new(limits: &Limits, file: &File, clocks: ClockBounds, is_clockless: bool) -> Self {
        // A registry that belongs to none of the allocators knows what roots are made of.
        let now = Moment::ORIGIN;
        let mut registry = Registry::new(&limits.leased(file), clocks, Past::None, now, 1);
        let spec = |place| {
            let (name, id) = limits.pool(place);
            let limit = registry.limit(name).expect("it is configured");
            // An observer changes no root: each root goes by its cell.
            let spec = limit.spec(id, None, Version::of_file(file.version));
            let key = id.key.as_ref().map(|key| key.as_str());
            (cell_of(name, key), spec.expect("it is in a store"))
        };
        let specs: Vec<_> = (0..limits.count()).map(spec).collect();
        let table = Table::new(Timeline::new("0"));
        Store {
            behind: table.clone(),
            table,
            timelines: 0,
            is_clockless,
            paces: BTreeMap::new(),
            kept: BTreeMap::new(),
            is_new: true,
            doom: None,
            set: 0,
            is_set: false,
            sets: vec![],
            has_lost: false,
            is_lost: false,
            open_since: None,
            roots: vec![None; specs.len()],
            goes_by: (Version::of_file(file.version), vec![]),
            promises: file.rules.clone(),
            specs,
            letters: BTreeMap::new(),
            sent: BTreeMap::new(),
            written: 0,
            seen: None,
            has_leapt: false,
            has_eras: false,
        }
    }

    /// Reads the roots, if they can be read.
    fn read_roots(&mut self, real: u64, life: Option<u64>, clock: Moment) {
        let names: Vec<String> = self.specs.iter().map(|(name, _)| name.clone()).collect();
        let cells = self.table.load(&names);
        // No allocator lends by the head of another timeline, or of another life of the time.
        let is_of_now = |head: &Head| head.timeline() == *self.table.timeline() && head.time() == life;
        let head = self.head().filter(is_of_now);
        // Where the clock was set, allocators go by it only once they have noticed.
        let now = if self.set == 0 { clock } else { Moment::ORIGIN };
        self.has_eras |= head.as_ref().is_some_and(|head| head.era() > FIRST_ERA);
        for (place, cell) in cells.into_iter().enumerate() {
            let (_, spec) = &self.specs[place];
            let read =
                cell.zip(head.as_ref()).map(|(cell, head)| roots::read(spec, head, Some(&cell.value), now));
            let read = read.and_then(Result::ok);
            if let (ASKED, Some(read)) = (place, &read) {
                self.sees(life, read.now, real);
                self.goes_by = (read.version, read.pool.rules().to_vec());
            }
            self.roots[place] = read.map(|root| (root.pool, root.now, real));
        }
    }

    /// Returns how each root is made, and what is in its cell.
    pub(super) fn values(&self) -> impl Iterator<Item = (&RootSpec, Option<Vec<u8>>)> {
        self.specs.iter().map(|(name, spec)| {
            let cell = self.table.load(std::slice::from_ref(name)).pop().flatten();
            (spec, cell.map(|cell| cell.value))
        })
    }

    pub(super) fn head(&self) -> Option<Head> {
        let cell = self.table.load(&[HEAD.to_owned()]).pop().flatten();
        cell.and_then(|cell| Head::read(&cell.value).ok())
    }

    /// Returns what operators put over the API, if it can be read.
    pub(super) fn overrides(&self) -> Option<LimitOverrides> {
        let cell = self.table.load(&[OVERRIDES.to_owned()]).pop().flatten()?;
        LimitOverrides::read(&cell.value).ok()
    }

    /// Whether an allocator has written which limit is below which.
    pub(super) fn knows_families(&self) -> bool {
        self.head().is_some_and(|head| !head.families().is_empty())
    }

    /// Returns the root that nodes ask as it was last swapped, and the time of that.
    pub(super) fn asked(&self) -> Option<(&Pool, Moment)> {
        self.roots[ASKED].as_ref().map(|(pool, at, _)| (pool, *at))
    }

    /// Returns the roots as an observer sees them that is never behind the time; `None` for an unknown root.
    fn views(&mut self, clock: Moment, real: u64) -> Vec<Option<PoolView>> {
        let (set, is_clockless) = (self.set, self.is_clockless);
        let view = |root: &mut Option<(Pool, Moment, u64)>| {
            let (root, then, at) = root.as_mut()?;
            let now =
                if set == 0 && !is_clockless { clock } else { *then + Duration::from_nanos(real - *at) };
            let view = root.view(now);
            let is_known = *then > Moment::ORIGIN;
            Some(PoolView { available: if is_known { view.available } else { 0 }, ..view })
        };
        self.roots.iter_mut().map(view).collect()
    }

    /// Sets the clock at `real` by `step`, or by more if allocators could not tell that step.
    fn set_by(&mut self, mut step: i64, real: u64) {
        let least = TOLD_APART * MILLI.cast_signed();
        self.sets.retain(|(at, _)| real < at + SECOND);
        while self.sets.iter().any(|(_, before)| (self.set + step - before).abs() < least) {
            step += least * step.signum();
        }
        self.sets.push((real, self.set));
        self.set += step;
        self.is_set = true;
    }

    /// Takes a call that is on its way to the store. Returns its number.
    pub(super) fn write(&mut self, call: Call, real: u64) -> u64 {
        self.written += 1;
        self.sent.insert(self.written, real);
        self.letters.insert(self.written, Letter::Call(call));
        self.written
    }

    /// Returns the answer to `letter`, if it is on its way.
    pub(super) fn said(&mut self, letter: u64) -> Option<Result<Said, CellsError>> {
        match self.letters.remove(&letter)? {
            Letter::Said(said) => Some(said),
            Letter::Call(_) => None,
        }
    }

    fn empty(&mut self) {
        self.table = Table::new(self.table.timeline().clone());
        self.roots.fill(None);
        self.doom = None;
        self.loses();
    }

    /// Records that roots may not know of all that is out.
    pub(super) fn loses(&mut self) {
        (self.has_lost, self.is_lost, self.open_since) = (true, true, None);
    }

    /// Trusts the roots again once the one that nodes ask has been open for `memory`, in nanoseconds.
    fn recovers(&mut self, real: u64, memory: u64) {
        let asked = self.roots[ASKED].as_mut();
        let is_open = asked.is_some_and(|(root, then, _)| root.view(*then).quarantine.is_zero());
        self.open_since = is_open.then(|| self.open_since.unwrap_or(real));
        self.is_lost &= self.open_since.is_none_or(|since| real < since + memory);
    }

    /// Empties the store just before `letter` arrives, if it is doomed and the allocator asks for the first time
    /// (`is_first`).
    fn empty_if_doomed(&mut self, letter: u64, is_first: bool) {
        let Some(Letter::Call(call)) = self.letters.get(&letter) else { return };
        let is_root = |name: &str| name != HEAD && name != OVERRIDES;
        let is_it = match (self.doom, call) {
            (Some(Doom::Read), Call::Load(names)) => names.iter().any(|name| is_root(name)),
            (Some(Doom::Write), Call::Swap(_, swaps)) => {
                swaps.iter().any(|swap| is_root(&swap.name) && swap.expected.is_some())
            }
            _ => false,
        };
        if is_first && is_it {
            self.empty();
        }
    }

    /// Answers `letter`, which arrives at `clock` of the store. Returns false if it is no call.
    fn answer(&mut self, letter: u64, real: u64, (life, clock): (Option<u64>, Moment)) -> bool {
        let Some(Letter::Call(call)) = self.letters.remove(&letter) else { return false };
        let said = match call {
            Call::Time if self.is_clockless => Err(CellsError::Unfit("it has no clock".to_owned())),
            // Rounded to microseconds, as stores tell the time.
            Call::Time => Ok(Said::Time(Moment::from_nanos(clock.as_nanos() / 1_000 * 1_000))),
            Call::Load(names) => Ok(Said::Loaded(self.table.timeline().clone(), self.table.load(&names))),
            Call::Swap(timeline, swaps) => {
                let swapped = self.table.swap(&timeline, &swaps);
                // The time of a store without a clock is written before its head.
                self.is_new &= swaps.iter().all(|swap| swap.name != HEAD);
                self.read_roots(real, life, clock);
                swapped.map(Said::Swapped)
            }
        };
        self.letters.insert(letter, Letter::Said(said));
        true
    }
}

impl World {
    fn shared(&self) -> &Shared {
        self.setup.topology.shared().expect("there is a store")
    }

    /// Returns the time of the roots: the clock of the store. Where allocators keep the time, it is the latest
    /// that any of them knows in its last life, with that life; the origin while no allocator knows it.
    fn root_time(&self) -> (Option<u64>, Moment) {
        if !self.shared().is_clockless {
            return (None, self.root_clock());
        }
        let members = self.regions.iter().map(|at| (&at.link.member, at.clock.show(self.real)));
        let times = members.filter_map(|(member, local)| Some((Some(member.life()?), member.time(local)?)));
        times.max().unwrap_or_default()
    }

    /// Returns what the clock of the store shows, or that of the only allocator.
    pub(super) fn root_clock(&self) -> Moment {
        let shown = self.centre.clock.show(self.real);
        let set = self.shared.as_ref().map_or(0, |store| store.set);
        Moment::from_nanos(shown.as_nanos().saturating_add_signed(set))
    }

    /// Returns the pools of the roots, where nodes can spend `in_hand`; `None` if one of them is unknown.
    pub(super) fn stock_of_roots(&mut self, in_hand: u64) -> Option<Stock> {
        let (at, real) = (self.root_clock(), self.real);
        let views = self.shared.as_mut()?.views(at, real);
        let known: Vec<PoolView> = views.into_iter().collect::<Option<_>>()?;
        let least = known.into_iter().reduce(|own, above| PoolView {
            available: own.available.min(above.available),
            books: if own.books.outstanding <= above.books.outstanding { own.books } else { above.books },
            ..own
        });
        Some(Stock { view: least?, in_hand, at })
    }

    /// K1: the books of each known root balance.
    fn roots_balance(&mut self) -> Verdict {
        let (at, real) = (self.root_clock(), self.real);
        let views = self.shared.as_mut().map_or(vec![], |store| store.views(at, real));
        views.into_iter().flatten().try_for_each(|view| hold_after(view.books, Books::default()))
    }

    /// Delivers a call of `region` to the store.
    pub(super) fn at_store(&mut self, region: usize, letter: u64) -> Verdict {
        let (time, real) = (self.root_time(), self.real);
        let is_first = self.regions[region].asks() <= 1;
        let memory = self.setup.rule_sets().map(memory).max().unwrap_or(0);
        let granted = self.granted_before(letter);
        let Some(store) = &mut self.shared else { return Ok(()) };
        store.empty_if_doomed(letter, is_first);
        let (went_by, was_there) = (store.goes_by.clone(), store.asked().is_some());
        let took = store.sent.remove(&letter).map_or(0, |sent| real - sent);
        let is_answered = store.answer(letter, real, time);
        store.recovers(real, memory);
        if is_answered {
            self.answer_of_store(region, letter);
        }
        self.opens_windows(granted);
        self.hears_of_puts();
        self.decisions_hold()?;
        self.roots_balance()?;
        self.follows_rules(&went_by, was_there, Duration::from_nanos(took));
        let (now, stocks) = (self.now(), self.stocks());
        self.oracles.books(now, &stocks)
    }

    /// Lets a fate strike the store.
    pub(super) fn strike_store(&mut self) {
        if self.shared.is_none() || self.phase != Phase::Trouble {
            return;
        }
        let fates = self.shared().fates.clone();
        let rules = self.setup.plan.rules.iter();
        let is_fixed = rules.clone().any(|rule| matches!(rule, Rule::FixedWindow(_)));
        let real = self.real;
        let Some(&fate) = fates.get(self.rng.usize(..fates.len().max(1))) else { return };
        let sign = if self.rng.bool() { 1 } else { -1 };
        // An allocator that missed the set before could not tell a step of less than a second.
        let set_at = self.shared.as_ref().and_then(|store| store.sets.last()).map_or(0, |(at, _)| *at);
        let least = if real < set_at + SECOND { TOLD_APART } else { 20 };
        let step = sign * self.rng.i64(least..100_000) * MILLI.cast_signed();
        // A clock is set only while an allocator signs: no allocator can know of a step that none saw.
        let is_watched = self.regions.iter().any(|region| {
            real > 100 * MILLI && region.clock.show(real).since(region.link.member.signed()) < SIGN_EVERY * 2
        });
        // Another clock would have other calendar windows.
        let apart = if is_fixed { 0 } else { step % (8 * MILLI.cast_signed()) };
        let doom = if self.rng.bool() { Doom::Read } else { Doom::Write };
        let soon = self.rng.u64(10..250) * MILLI;
        self.log.note(real, "! something becomes of the store (#)", &[fate as u64]);
        let Some(store) = &mut self.shared else { return };
        if !matches!(fate, Fate::Copied | Fate::Set | Fate::SetTwice | Fate::EmptiedUnderway) {
            store.roots.fill(None);
        }
        match fate {
            Fate::Copied => store.behind = store.table.clone(),
            Fate::Set if is_watched && !is_fixed => store.set_by(step, real),
            Fate::SetTwice if is_watched && !is_fixed => {
                store.set_by(step, real);
                self.push(real + soon, Event::SetAgain);
            }
            Fate::SetUnwatched if !is_fixed => {
                store.set_by(step + 2 * sign * SECOND.cast_signed(), real);
                (0..self.regions.len()).for_each(|region| self.region_dies(region, false, real + soon));
            }
            Fate::Set | Fate::SetTwice | Fate::SetUnwatched => {}
            Fate::Emptied => store.empty(),
            Fate::EmptiedUnderway => store.doom = Some(doom),
            Fate::Behind | Fate::Started | Fate::Replaced => {
                // An allocator that sees another timeline does not know whether anything is lost.
                store.loses();
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

    /// Sets the clock once more.
    pub(super) fn set_again(&mut self) {
        let step = self.rng.i64(TOLD_APART..100_000) * MILLI.cast_signed();
        let step = if self.rng.bool() { step } else { -step };
        let real = self.real;
        self.shared.iter_mut().for_each(|store| store.set_by(step, real));
    }

    /// K9: an allocator never takes the time to be later than the clock of its store shows.
    pub(super) fn is_not_ahead(&mut self, region: usize) -> Verdict {
        let Some(store) = &self.shared else { return Ok(()) };
        let at = &self.regions[region];
        let member = &at.link.member;
        let Some(now) = member.time(at.clock.show(self.real)) else { return Ok(()) };
        if self.shared().is_clockless {
            self.agrees(region, now)?;
            return self.goes_no_faster(region, now);
        }
        // Where a clock is set, allocators know it from the next answer on.
        let (clock, is_same) = (self.root_clock(), member.timeline() == Some(store.table.timeline()));
        // The first allocator's clock may be wrong by more than any bound that it was told.
        let is_wrong = region == 0 && self.shared().lag.is_some();
        must("K9", store.is_set || is_wrong || !is_same || now <= clock, || {
            format!("an allocator's time is {:?} later than its store's clock", now.since(clock))
        })
    }

    /// Whether the roots know of all permits out. They may not if the store lost something. Where eras hide how many
    /// intervals passed, a bucket may have waited out permits that are still out.
    pub(super) fn is_trusted(&self) -> bool {
        let at_intervals = |rule: &Rule| matches!(rule, Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval);
        let may_be_waited_out =
            |store: &Store| store.has_eras && self.setup.plan.rules.iter().any(at_intervals);
        self.shared.as_ref().is_none_or(|store| !store.is_lost && !may_be_waited_out(store))
    }
}
