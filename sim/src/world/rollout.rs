//! Changes of the files of allocators that share a store, one allocator after the other. Each goes by its own file, and
//! its roots by the newest that any of them knew.

use super::World;
use super::configured::rules_of;
use super::event::Event;
use super::regions::Region;
use super::shared::Store;
use super::sustained;
use crate::SECOND;
use crate::limits::{FIRST, File};
use crate::oracle::{Instant, Stock};
use lessor_ledger::Rule;
use lessor_ledger::overrides::{LimitOverrides, Version};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Nanoseconds after the first allocator until all have the newest file.
const ROLLS_OUT: u64 = 5 * SECOND;

/// The most by which an allocator takes the time to be earlier than it is.
const BEHIND: Duration = Duration::from_millis(20);

/// Time between two looks of the observer at whether leases have ended, as far as roots know.
const LOOKS: Duration = Duration::from_millis(10);

impl World {
    /// Changes how the limit is shared in the file of one allocator.
    pub(super) fn one_shares_otherwise(&mut self, change: impl FnOnce(&mut File)) {
        let region = self.rng.usize(..self.regions.len());
        self.log.note(self.real, "the file of allocator # says another safe share", &[region as u64]);
        let mut file = self.regions[region].file.clone();
        change(&mut file);
        self.goes_by(region, file);
    }

    /// Lets the limit go on by `rules`, which one allocator has at once.
    pub(super) fn roll_out(&mut self, rules: &[Rule]) {
        self.rollouts.push(rules.to_vec());
        self.centre.rules = rules.to_vec();
        let version = File::FIRST + self.rollouts.len() as u64;
        let first = self.rng.usize(..self.regions.len());
        self.has_new_file(first, version);
        for region in 0..self.regions.len() {
            let later = self.rng.u64(0..ROLLS_OUT);
            self.push(self.real + later, Event::HasNewFile { region, version });
        }
    }

    /// Gives `region` the file of `version`, unless it has a newer one.
    pub(super) fn has_new_file(&mut self, region: usize, version: u64) {
        let file = &self.regions[region].file;
        if file.version < version {
            self.log.note(self.real, "allocator # has another file (#)", &[region as u64, version]);
            let rules = self.rules_of(Version::of_file(version)).to_vec();
            self.goes_by(region, File { version, rules, ..file.clone() });
        }
    }

    /// Lets an allocator go by `file` at once; one that is down begins with it.
    fn goes_by(&mut self, region: usize, file: File) {
        let configs = self.limits.leased(&file);
        let Region { clock, up, registry, file: before, configured, .. } = &mut self.regions[region];
        if *up {
            let anew = configured.file_is(&file, &configs, clock.show(self.real), registry);
            registry.file_says(&configs);
            *before = file;
            self.goes_by_operators(region, anew);
        } else {
            *before = file;
        }
    }

    /// Records that the limit that nodes ask may be paused or gone at `region`, and that it begins anew if `anew` says
    /// so.
    pub(super) fn goes_by_operators(&mut self, region: usize, anew: bool) {
        let Region { clock, registry, .. } = &mut self.regions[region];
        let shut_until = match registry.limit(FIRST) {
            Some(limit) => limit.suspension().paused_until(clock.show(self.real)).unwrap_or(Moment::ORIGIN),
            None => Moment::NEVER,
        };
        self.oracles.of(region).shut(shut_until);
        if anew {
            self.region_begins_anew(region);
        }
    }

    /// Records that the limit that nodes ask begins anew at `region`. Nodes go on with their leases.
    pub(super) fn region_begins_anew(&mut self, region: usize) {
        let (now, stocks) = (self.now(), self.stocks());
        self.oracles.region_lost(region, now, &stocks);
    }

    /// Looks for a put over the API after something was swapped in the store. The store may lose it later, and so may
    /// all allocators that know of it.
    pub(super) fn hears_of_puts(&mut self) {
        let there = self.shared.as_ref().and_then(Store::overrides).unwrap_or_default();
        if let Some((version, rules)) = holding(&there, 0) {
            let before = self.puts.iter().rev().find(|(put, _)| *put == version);
            if before.is_none_or(|(_, before)| *before != rules) {
                self.log.note(self.real, "! the limit was put over the API (#)", &[version.serial]);
                self.puts.push((version, rules));
            }
        }
        if !self.puts.is_empty() {
            self.centre.rules = self.newest_rules(there);
        }
    }

    /// Returns the rules that all follow in the end: the newest known to an allocator or to the store, which has
    /// `there`.
    fn newest_rules(&self, there: LimitOverrides) -> Vec<Rule> {
        let (mut known, newest) = (there, File::FIRST + self.rollouts.len() as u64);
        self.regions
            .iter()
            .filter(|region| region.up)
            .for_each(|region| known.merge(region.configured.known()));
        let put = holding(&known, newest).map(|(_, rules)| rules);
        put.unwrap_or_else(|| self.rules_of(Version::of_file(newest)).to_vec())
    }

    /// Returns the rules of the root that nodes ask, if it is in a store.
    pub(super) fn rules_of_root(&self) -> Option<&[Rule]> {
        self.shared.as_ref().map(|store| store.promises.as_slice())
    }

    /// Returns the rules of the configuration `version`: those that were put, or those of the file.
    fn rules_of(&self, version: Version) -> &[Rule] {
        if let Some((_, rules)) = self.puts.iter().rev().find(|(put, _)| *put == version) {
            return rules;
        }
        let newer = (File::FIRST + 1..).map(Version::of_file).zip(&self.rollouts);
        newer.filter(|(newer, _)| *newer <= version).last().map_or(&self.setup.plan.rules, |(_, rules)| rules)
    }

    /// Tells the oracle of the rules of the root that nodes ask, if they are no longer the ones it `went_by`.
    /// (After a loss of all puts, another put may have the same number.) A new root begins as full as its rules say.
    pub(super) fn follows_rules(&mut self, went_by: &(Version, Vec<Rule>), was_there: bool, took: Duration) {
        let Some(store) = &self.shared else { return };
        if *went_by == store.goes_by {
            return;
        }
        let (rules, before, now) =
            (self.rules_of(store.goes_by.0).to_vec(), store.promises.clone(), self.now());
        if rules == before {
            return;
        }
        let ahead = match was_there {
            // The allocator that swapped the root asked it `took` ago, and a bucket refills by the new rules since
            // then.
            true => {
                // A full bucket gained nothing by the rules before.
                let by_then = if ceiling(&rules) > ceiling(&before) { 0.0 } else { refill(&before) };
                let faster = (refill(&rules) - by_then).max(0.0);
                (faster * (took + BEHIND).as_secs_f64()).ceil() as u64 + 1
            }
            false => ceiling(&rules),
        };
        self.shared.iter_mut().for_each(|store| store.promises.clone_from(&rules));
        self.log.note(self.real, "! the root goes by other rules", &[]);
        let (out, ends) = self.out_at_root(now);
        self.oracles.root_changed(now, &rules, (out, ends));
        if refill(&rules) > 0.0 {
            self.oracles.root().may_use(now, ahead);
        }
        // A root that begins anew knows nothing of what is out.
        let is_shut = self.stocks().above.is_some_and(|stock| !stock.view.quarantine.is_zero());
        self.shared.iter_mut().filter(|_| is_shut).for_each(Store::loses);
    }

    /// Returns the permits out of the root that nodes ask, and when all their leases have ended. What a root that lost
    /// its books does not know, allocators and nodes do.
    fn out_at_root(&mut self, now: Instant) -> (u64, Instant) {
        let stocks = self.stocks().own.into_iter();
        let held = stocks
            .map(|Stock { view, in_hand, .. }| view.available + view.books.outstanding.max(in_hand))
            .sum();
        let Some((pool, at)) = self.shared.as_ref().and_then(|store| store.asked()) else {
            return (held, now);
        };
        let (mut pool, mut then) = (pool.clone(), at);
        let quarantine = pool.view(at).quarantine;
        let out = pool.let_pass(at).outstanding.max(held);
        while pool.let_pass(then).outstanding > 0 {
            then = then + LOOKS;
        }
        let lasts = then.since(at).max(quarantine);
        // No clock runs slower than nine tenths of real time.
        let real = now.real + nanos(lasts) / 8 * 9 + 1_000_000;
        (out, Instant { real, allocator: now.allocator + lasts })
    }
}

/// Returns what `overrides` say of the limit that nodes ask, where that holds beside a file of version `file`.
fn holding(overrides: &LimitOverrides, file: u64) -> Option<(Version, Vec<Rule>)> {
    let (_, by) = overrides.holding(file).find(|(name, _)| *name == FIRST)?;
    Some((by.version, rules_of(by.put.as_ref()?)))
}

/// Returns the most that one of `rules` ever lends at once.
fn ceiling(rules: &[Rule]) -> u64 {
    rules.iter().map(Rule::ceiling).max().unwrap_or(0)
}

/// Returns the permits a second that buckets among `rules` gain.
fn refill(rules: &[Rule]) -> f64 {
    let buckets = rules.iter().filter(|rule| matches!(rule, Rule::TokenBucket(_)));
    buckets.map(|bucket| sustained(&[*bucket])).sum()
}
