//! What the allocator writes down before it answers, and what is left of it when its process dies: all pools that want it
//! in one step, one step at a time, and the answers that wait for it.

use super::World;
use super::event::{Event, Reply};
use crate::MILLI;
use crate::family::Rows;
use lessor_ledger::Rule;
use lessor_ledger::overrides::SavedSuspension;
use lessor_ledger::pool::{CHECKPOINT_LASTS, Checkpoint, HighWater};
use lessor_ledger::rule::Gap;
use lessor_protocol::Moment;
use std::time::Duration;

/// To whom the limit is closed, as it is written down; and until when it is paused, and for how long that still was then.
#[derive(Clone, Debug, Default)]
struct Closed {
    gate: SavedSuspension,
    pause: Option<(Moment, Duration)>,
}

/// What is written in one step.
#[derive(Debug)]
struct Writing {
    boot: u64,
    rules: Vec<Rule>,
    rows: Rows,
    closed: Closed,
}

/// What is written down, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The boot in which that was written.
    boot: u64,
    /// The newest durable checkpoint of each pool that has one.
    durable: Vec<Option<Checkpoint>>,
    /// The rules by which they are.
    rules: Vec<Rule>,
    closed: Closed,
    writing: Option<Writing>,
    /// Whether nothing has been written in this life: what is written first is all that there is.
    is_first: bool,
    /// Whether an operator has decided something since.
    is_decided: bool,
    /// Answers that wait for that, and for what is written after that.
    waiting: Vec<Reply>,
    late: Vec<Reply>,
}

impl Store {
    /// Nothing, of so many pools.
    pub(super) fn new(pools: usize) -> Self {
        Store { durable: vec![None; pools], ..Store::default() }
    }

    /// What was being written is durable, all of it.
    fn keep(&mut self) -> Vec<(usize, HighWater)> {
        let Some(Writing { boot, rules, rows, closed }) = self.writing.take() else { return vec![] };
        (self.boot, self.closed) = (boot, closed);
        if self.rules != rules {
            // What is of other rules is of no use beside these.
            self.durable.fill(None);
            self.rules = rules;
        }
        let mut marks = vec![];
        for (place, row) in rows {
            let (checkpoint, mark) = row.unzip();
            self.durable[place] = checkpoint;
            marks.extend(mark.map(|mark| (place, mark)));
        }
        marks
    }
}

impl World {
    fn writes(&self) -> bool {
        self.setup.store > 0 && self.rival.is_none()
    }

    /// Whether what `node` is answered says more than is written down.
    pub(super) fn must_be_written(&self, node: usize) -> bool {
        self.writes() && self.centre.up && !self.centre.pool.may_be_known(self.setup.limit(node))
    }

    /// An answer leaves when all that it says is durable.
    pub(super) fn answer_later(&mut self, reply: Reply) {
        self.centre.store.late.push(reply);
        self.write_down();
    }

    /// An operator has decided something.
    pub(super) fn decided(&mut self) {
        self.centre.store.is_decided = true;
        self.write_down();
    }

    /// Writes down what has to be, unless that is going on.
    pub(super) fn write_down(&mut self) {
        let store = &mut self.centre.store;
        if self.setup.store == 0 || self.rival.is_some() || store.writing.is_some() {
            return;
        }
        let is_first = std::mem::take(&mut store.is_first);
        if store.late.is_empty() && !store.is_decided && !is_first && !self.centre.pool.wants_checkpoint() {
            return;
        }
        store.is_decided = false;
        let now = self.centre.clock.show(self.real);
        let pause = self.centre.gate.paused_until(now).map(|until| (until, until.since(now)));
        let closed = Closed { gate: self.centre.gate.save(now), pause };
        let rows = self.centre.pool.write_down(now, CHECKPOINT_LASTS, is_first);
        let (boot, rules) = (self.centre.boot, self.centre.plan.rules.clone());
        store.writing = Some(Writing { boot, rules, rows, closed });
        store.waiting = std::mem::take(&mut store.late);
        let takes = self.rng.u64(1..=2 * self.setup.store);
        // Once in a while a disk is busy with other things.
        let takes = takes * if self.rng.u32(..50) == 0 && self.setup.store < MILLI { 20 } else { 1 };
        self.push(self.real + takes, Event::Durable { life: self.centre.life });
    }

    /// What was being written is durable: what waited for it leaves.
    pub(super) fn durable(&mut self, life: u64) {
        if self.centre.life != life {
            return;
        }
        for (place, mark) in self.centre.store.keep() {
            self.centre.pool.raise_high_water(place, mark);
        }
        for reply in std::mem::take(&mut self.centre.store.waiting) {
            self.send_back(reply);
        }
        self.write_down();
    }

    /// The process dies: nothing that waits is ever said, and what was being written is durable or not.
    pub(super) fn lose_store(&mut self) {
        let store = &mut self.centre.store;
        (store.waiting, store.late) = (vec![], vec![]);
        if store.writing.is_some() && self.rng.bool() {
            store.keep();
        }
        store.writing = None;
    }

    /// Whether the allocator goes on with what is written down: not if there is nothing, if it is of other rules, or if
    /// it is lost. What operators have decided holds unless it is lost.
    pub(super) fn goes_on(&mut self) -> bool {
        if !self.writes() {
            return false;
        }
        let is_lost = self.rng.u32(..8) == 0;
        if is_lost {
            self.centre.store = Store::new(self.centre.store.durable.len());
            return false;
        }
        if self.rng.bool() {
            self.centre.boot += 1;
        }
        let is_same_boot = self.centre.store.boot == self.centre.boot;
        let gap = if is_same_boot { Gap::Counted } else { Gap::Unknown };
        self.close_again(gap);
        if !self.centre.plan.has_checkpoints() {
            return false;
        }
        if self.centre.store.rules != self.centre.plan.rules {
            let Store { boot, durable, closed, .. } = std::mem::take(&mut self.centre.store);
            self.centre.store = Store { boot, closed, ..Store::new(durable.len()) };
            return false;
        }
        self.log.note(
            self.real,
            "the allocator is back with what it wrote down (#)",
            &[u64::from(gap == Gap::Unknown)],
        );
        let now = self.centre.clock.show(self.real);
        // What was never written down was never lent from.
        self.new_pools(Moment::ORIGIN);
        if !self.centre.pool.restore(&self.centre.store.durable, gap, now) {
            self.centre.store = Store::new(self.centre.store.durable.len());
            return false;
        }
        self.books_are_others(&self.all_new());
        if gap == Gap::Unknown {
            let (next, now) = (self.refills_after_gap(now), self.now());
            self.oracles.refill_at(now, &next);
        }
        let now = self.now();
        self.oracles.books_go_on(now);
        self.centre.store.is_first = true;
        self.write_down();
        true
    }

    /// When each rule that refills at intervals does so after a gap of unknown length: as long from `now` on as it had to wait when that
    /// was written down.
    fn refills_after_gap(&self, now: Moment) -> Vec<Vec<Option<Moment>>> {
        let clocks = self.setup.plan.clocks;
        let of_checkpoint = |checkpoint: &Option<Checkpoint>| -> Vec<Option<Moment>> {
            let written = serde_json::to_value(checkpoint).expect("plain data");
            let next = |rule: &serde_json::Value| {
                let next = rule["bucket"]["refill"]["interval"]["next"].as_u64()?;
                let left = Duration::from_nanos(next - written["written"].as_u64()?);
                Some(now + clocks.stretched(left))
            };
            written["rules"].as_array().map_or(vec![], |rules| rules.iter().map(next).collect())
        };
        let each: Vec<_> = self.centre.store.durable.iter().map(of_checkpoint).collect();
        match self.setup.limits() {
            1 => vec![each.concat()],
            limits => each[..limits].iter().cloned().chain([each[limits..].concat()]).collect(),
        }
    }

    /// It is closed as it was when that was written down.
    fn close_again(&mut self, gap: Gap) {
        let now = self.centre.clock.show(self.real);
        let Closed { gate, pause } = &self.centre.store.closed;
        self.centre.gate = gate.read(gap, now, self.setup.plan.clocks);
        let until = pause.map(|(until, left)| match gap {
            Gap::Counted => until,
            // A pause that no operator ends has no end.
            Gap::Unknown if until == Moment::NEVER => until,
            Gap::Unknown => now + left,
        });
        self.oracles.shut(until.unwrap_or(Moment::ORIGIN));
    }
}
