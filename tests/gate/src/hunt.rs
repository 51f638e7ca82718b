//! Switches mistakes on, one at a time, and runs fleets until the oracle complains. `tests/mutants.rs` asserts that it
//! does in time; the binary `hunt` measures how soon, for the table in `docs/mutants.md`.
//!
//! A panic does not count: shipping builds have no assertions in their hot parts, so the oracle must notice the mistake
//! by itself.

use crate::mutant::Mutant;
use crate::scenario::Scenario;
use lessor_protocol::planted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds within which each mistake must be noticed. One noticed in one of twenty seeds is missed by chance once in five
/// million changes of the draws, and rarer ones more often. More seeds would hide that a scenario is poor.
pub const BUDGET: u64 = 300;

/// Threads that run fleets: as many as a small CI machine has.
pub const THREADS: usize = 2;

/// Returns in words what the oracle says of `mutant` in the fleet that `seed` draws.
///
/// # Panics
/// If the mistake was not planted in this build.
pub fn noticed(mutant: &Mutant, seed: u64) -> Option<String> {
    let number = planted::NAMES.iter().position(|name| *name == mutant.name);
    let number = number.unwrap_or_else(|| panic!("{} is not planted", mutant.name));
    let failure = planted::with(number, || mutant.scenario.run(seed)).err()?;
    (!failure.starts_with("panic")).then_some(failure)
}

/// Returns the first of `seeds` in which each of `mutants` is noticed.
pub fn first_noticed(mutants: &[Mutant], seeds: Range<u64>) -> Vec<Option<u64>> {
    each(mutants, |mutant| seeds.clone().find(|&seed| noticed(mutant, seed).is_some()))
}

/// Returns what the oracle says of `worlds`, each a scenario and its seed, without any mistake.
pub fn complaints(worlds: &BTreeSet<(Scenario, u64)>) -> Vec<String> {
    let worlds: Vec<(Scenario, u64)> = worlds.iter().copied().collect();
    let said = each(&worlds, |(scenario, seed)| scenario.run(*seed).err());
    let say = |((scenario, seed), said): (&(Scenario, u64), Option<String>)| {
        said.map(|said| format!("{scenario:?}, seed {seed}: {said}"))
    };
    worlds.iter().zip(said).filter_map(say).collect()
}

/// Applies `act` to each of `items`, on several threads.
fn each<I: Sync, T: Send>(items: &[I], act: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { return };
                    let result = act(item);
                    all.lock().expect("no panic while it is held").insert(number, result);
                }
            });
        }
    });
    all.into_inner().expect("no panic while it is held").into_values().collect()
}

/// The results of many seeds with one mistake.
#[derive(Clone, Debug, Default)]
struct Hunt {
    seeds: u64,
    /// Seeds that noticed the mistake.
    kills: u64,
    /// Seeds since the last that did, and the most that it took so far.
    gap: u64,
    worst: u64,
    /// Complaints without their numbers, and how often each was made.
    complaints: BTreeMap<String, u64>,
}

impl Hunt {
    fn add(&mut self, failure: Option<String>) {
        self.seeds += 1;
        self.gap += 1;
        self.worst = self.worst.max(self.gap);
        if let Some(failure) = failure {
            self.kills += 1;
            self.gap = 0;
            *self.complaints.entry(without_numbers(&failure)).or_default() += 1;
        }
    }

    /// Returns the most frequent complaint.
    fn complaint(&self) -> &str {
        self.complaints.iter().max_by_key(|(_, times)| **times).map_or("", |(words, _)| words)
    }
}

/// Returns the beginning of `what`, with an n for each number.
fn without_numbers(what: &str) -> String {
    let mut words = String::new();
    let mut in_number = false;
    for letter in what.split([':', '{']).next().unwrap_or_default().chars() {
        let is_digit = letter.is_ascii_digit();
        if !(is_digit && in_number) {
            words.push(if is_digit { 'n' } else { letter });
        }
        in_number = is_digit;
    }
    words.trim_end().to_owned()
}

/// Runs all of `seeds` with each of `mutants`, and returns a table of how soon each is noticed.
pub fn table(mutants: &[Mutant], seeds: Range<u64>) -> String {
    let hunts = each(mutants, |mutant| {
        let mut hunt = Hunt::default();
        seeds.clone().for_each(|seed| hunt.add(noticed(mutant, seed)));
        hunt
    });
    let mut table =
        "| mistake | what is wrong | looked for in | seeds to notice it | worst | most often said |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for (Mutant { name, wrong, scenario, .. }, hunt) in mutants.iter().zip(hunts) {
        let (mean, worst) = match hunt.kills {
            0 => ("never".to_owned(), "–".to_owned()),
            kills => (format!("{:.1}", hunt.seeds as f64 / kills as f64), hunt.worst.to_string()),
        };
        let said = hunt.complaint();
        writeln!(table, "| `{name}` | {wrong} | `{scenario:?}` | {mean} | {worst} | {said} |")
            .expect("a string");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_alike_but_for_their_numbers() {
        assert_eq!(
            without_numbers("12 could be spent now, where 3 are promised"),
            "n could be spent now, where n are promised"
        );
        assert_eq!(without_numbers("node 4 was not believed: seq 3 is old"), "node n was not believed");
    }
}
