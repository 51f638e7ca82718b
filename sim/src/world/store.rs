//! What the allocator writes down before it answers, and what is left of it when its process dies. The journal makes
//! one batch at a time and copies the pools one by one. An answer leaves once the batch that it waits for is durable.

use super::World;
use super::event::{Event, Reply};
use crate::MILLI;
use lessor_ledger::registry::{Batch, Gathering, PoolPlace, Registry, Written};
use lessor_ledger::rule::Gap;
use lessor_protocol::Moment;
use std::time::Duration;

/// Until when the limit is paused, and how much of that was left when it was written down.
type Pause = Option<(Moment, Duration)>;

/// A batch on its way to the disk.
#[derive(Debug)]
struct Writing {
    boot: u64,
    batch: Made,
    pause: Pause,
    /// Until when the vendor of each limit wants to be left alone.
    vendor: Vec<Moment>,
}

/// A batch whose pools are being copied, or were copied.
#[derive(Debug)]
enum Made {
    Partly(Gathering),
    Wholly(Batch),
}

/// What is durable, and what waits to be.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The boot in which `durable` was written.
    boot: u64,
    durable: Written,
    pause: Pause,
    vendor: Vec<Moment>,
    writing: Option<Writing>,
    /// The batch that the last answer of the allocator waits for.
    pub(super) waits_for: Option<u64>,
    /// Answers that wait, each with its batch.
    waiting: Vec<(u64, Reply)>,
}

impl Store {
    /// Makes the whole batch being written durable; `None` if its pools are not copied yet.
    fn keep(&mut self) -> Option<Batch> {
        let Writing { boot, batch, pause, vendor } = self.writing.take()?;
        let Made::Wholly(batch) = batch else { return None };
        (self.boot, self.pause, self.vendor) = (boot, pause, vendor);
        self.durable.apply(&batch);
        Some(batch)
    }
}

impl World {
    fn writes(&self) -> bool {
        self.setup.store > 0 && self.rival.is_none()
    }

    /// Sends an answer once all that it says is durable.
    pub(super) fn answer(&mut self, reply: Reply) {
        match self.centre.store.waits_for.take() {
            Some(batch) => self.centre.store.waiting.push((batch, reply)),
            None => self.send_back(reply),
        }
        self.write_down();
    }

    /// Begins a life that writes down what it lends. What it begins with is durable before it answers.
    pub(super) fn begin_writing(&mut self) {
        if self.writes() {
            self.centre.registry.begin_writing(0);
            let now = self.centre.clock.show(self.real);
            let batch = Made::Wholly(self.centre.registry.write_down(now));
            self.centre.store.writing = Some(self.writing(batch));
            self.is_durable();
        }
    }

    fn writing(&self, batch: Made) -> Writing {
        let now = self.centre.clock.show(self.real);
        let pause = self.centre.paused.filter(|until| *until > now).map(|until| (until, until.since(now)));
        let vendor = self.oracles.vendor_until();
        Writing { boot: self.centre.boot, batch, pause, vendor }
    }

    /// Writes down what has to be, unless a batch is on its way.
    pub(super) fn write_down(&mut self) {
        if !self.writes() || self.centre.store.writing.is_some() || !self.centre.registry.is_unwritten() {
            return;
        }
        let now = self.centre.clock.show(self.real);
        let batch = Made::Partly(self.centre.registry.begin_batch(now));
        self.centre.store.writing = Some(self.writing(batch));
        self.copies(self.centre.life);
    }

    /// Copies the next pool. With the last one, the batch goes to the disk.
    pub(super) fn copies(&mut self, life: u64) {
        if self.centre.life != life {
            return;
        }
        let now = self.centre.clock.show(self.real);
        let Some(Writing { boot, batch: Made::Partly(mut gathering), pause, vendor }) =
            self.centre.store.writing.take()
        else {
            return;
        };
        if !self.centre.registry.gather(now, &mut gathering, 1) {
            let batch = Made::Partly(gathering);
            self.centre.store.writing = Some(Writing { boot, batch, pause, vendor });
            let soon = self.rng.u64(1..=self.setup.store);
            return self.push(self.real + soon, Event::Copies { life });
        }
        let batch = Made::Wholly(gathering.into_batch());
        self.centre.store.writing = Some(Writing { boot, batch, pause, vendor });
        let takes = self.rng.u64(1..=2 * self.setup.store);
        // Now and then a disk is busy with other things.
        let takes = takes * if self.rng.u32(..50) == 0 && self.setup.store < MILLI { 20 } else { 1 };
        self.push(self.real + takes, Event::Durable { life: self.centre.life });
    }

    /// Makes a batch durable and sends the answers that waited for it.
    pub(super) fn durable(&mut self, life: u64) {
        if self.centre.life == life {
            let number = self.is_durable();
            let waiting = std::mem::take(&mut self.centre.store.waiting).into_iter();
            let (ready, waiting) = waiting.partition(|(batch, _)| *batch <= number);
            self.centre.store.waiting = waiting;
            let ready: Vec<(u64, Reply)> = ready;
            ready.into_iter().for_each(|(_, reply)| self.send_back(reply));
            self.write_down();
        }
    }

    /// Makes the batch durable, and returns its number unless answers have to wait for the next one.
    fn is_durable(&mut self) -> u64 {
        let Some(batch) = self.centre.store.keep() else { return 0 };
        self.centre.registry.raise_high_water(&batch);
        if batch.is_partial { 0 } else { batch.number }
    }

    /// Ends the process: no answer that waits is ever sent, and the batch on its way becomes durable or not.
    pub(super) fn lose_store(&mut self) {
        let store = &mut self.centre.store;
        store.waiting.clear();
        if store.writing.is_some() && self.rng.bool() {
            let _ = store.keep();
        }
        store.writing = None;
    }

    /// Begins a process with the books that are durable. Returns false if there are none, or they are lost.
    pub(super) fn goes_on(&mut self) -> bool {
        if !self.writes() {
            return false;
        }
        // Without its store, an allocator does not know how much of the reserve an earlier life gave out as safe
        // shares.
        if self.rng.u32(..8) == 0 && !self.setup.changes_reserve() {
            self.centre.store = Store::default();
            return false;
        }
        if self.rng.bool() {
            self.centre.boot += 1;
        }
        let is_same_boot = self.centre.store.boot == self.centre.boot;
        let gap = if is_same_boot { Gap::Counted } else { Gap::Unknown };
        self.log.note(
            self.real,
            "the allocator is back with what it wrote down (#)",
            &[u64::from(gap == Gap::Unknown)],
        );
        let now = self.centre.clock.show(self.real);
        let (limits, clocks) = (self.limits.configs(&self.centre.rules), self.setup.plan.clocks);
        let written = &self.centre.store.durable;
        let mut registry = Registry::restored(&limits, clocks, written, gap, now, self.centre.life);
        registry.take_decisions(&limits, written, gap, now);
        self.centre.registry = registry;
        self.are_lost(&self.all());
        let (places, refills) = (0..self.limits.count(), self.refills_after_gap(now));
        // A pool that was never written down never lent, so it is as new.
        let begin: Vec<bool> = places.map(|place| !self.is_restored(place)).collect();
        if gap == Gap::Unknown {
            let now = self.now();
            self.oracles.refill_at(now, &refills);
        }
        let now = self.now();
        self.oracles.books_go_on(now);
        self.books_begin(&begin, Moment::ORIGIN);
        self.pause_again(gap);
        for limit in 0..self.setup.limits() {
            let until = self.centre.store.vendor.get(limit).copied().filter(|_| self.is_restored(limit));
            self.oracles.of(limit).vendor_waits(now, until);
        }
        true
    }

    fn place_of(&self, place: usize) -> PoolPlace {
        let (name, id) = self.limits.pool(place);
        PoolPlace { limit: name.to_owned(), id: id.clone() }
    }

    /// Whether the pool at `place` goes on as it was written down.
    fn is_restored(&mut self, place: usize) -> bool {
        let at = self.place_of(place);
        let is_resumed = self.centre.registry.limit(&at.limit).is_some_and(|limit| limit.is_resumed());
        is_resumed && self.centre.store.durable.pools.contains_key(&at)
    }

    /// Returns when each rule that refills at intervals does so after a gap of unknown length: as long after `now` as
    /// it had to wait when that was written down.
    fn refills_after_gap(&mut self, now: Moment) -> Vec<Vec<Option<Moment>>> {
        let clocks = self.setup.plan.clocks;
        let (asked, count) = (self.limits.above().start, self.limits.count());
        let own = self.centre.rules.len() - self.limits.above().len();
        let of_place = |place: usize| -> Vec<Option<Moment>> {
            let rules = if place < asked { own } else { 1 };
            if !self.is_restored(place) {
                return vec![None; rules];
            }
            let row = &self.centre.store.durable.pools[&self.place_of(place)];
            let written = serde_json::to_value(&row.checkpoint).expect("plain data");
            let next = |rule: &serde_json::Value| {
                let next = rule["bucket"]["refill"]["interval"]["next"].as_u64()?;
                let left = Duration::from_nanos(next - written["written"].as_u64()?);
                Some(now + clocks.stretched(left))
            };
            written["rules"].as_array().map_or(vec![], |rules| rules.iter().map(next).collect())
        };
        let each: Vec<_> = (0..count).map(of_place).collect();
        match self.setup.limits() {
            1 => vec![each.concat()],
            limits => each[..limits].iter().cloned().chain([each[limits..].concat()]).collect(),
        }
    }

    /// Pauses the limit as the store says.
    fn pause_again(&mut self, gap: Gap) {
        let now = self.centre.clock.show(self.real);
        self.centre.paused = self.centre.store.pause.map(|(until, left)| match gap {
            Gap::Counted => until,
            // A pause that only an operator ends has no end.
            Gap::Unknown if until == Moment::NEVER => until,
            Gap::Unknown => now + left,
        });
        self.oracles.shut(self.centre.paused.unwrap_or(Moment::ORIGIN));
    }
}
