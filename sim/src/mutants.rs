//! Mistakes that must be noticed: each is switched on, and fleets are run until the oracle complains. The gate in
//! `tests/gate` asks whether it does in time, the `simulate` tool measures how soon, for the table in
//! `docs/mutants.md`.
//!
//! A panic does not count: what ships has no assertions in its hot parts, and the oracle must see it by itself.

mod ground;
mod led;

pub use ground::Ground;

use crate::overlong;
use crate::regions::{self, Fate};
use crate::soak;
use lessor_protocol::mutant::{self, Mutant};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds within which each mistake must be noticed. One that is noticed in one of twenty seeds, as the rarest here
/// are, is missed by chance once in five million changes of the dice; more seeds would hide that a ground is poor.
pub const BUDGET: u64 = 300;

/// Threads that look: what a small machine of CI has.
pub const THREADS: usize = 2;

/// The mistakes that are called `names`, with commas between them; all of them if it is empty.
///
/// # Errors
/// In words, if there is none of that name.
pub fn named(names: &str) -> Result<Vec<Mutant>, String> {
    if names.is_empty() {
        return Ok(Mutant::ALL.to_vec());
    }
    let of = |name: &str| Mutant::ALL.iter().copied().find(|mutant| format!("{mutant:?}") == name);
    names.split(',').map(|name| of(name).ok_or(format!("{name:?}: use names of {:?}", Mutant::ALL))).collect()
}

/// What the oracle says to `mutant` in the fleet that `seed` draws, in words.
pub fn noticed(mutant: Mutant, seed: u64) -> Option<String> {
    let failure = mutant::with(mutant, || Ground::of(mutant).run(seed)).err()?;
    (!failure.starts_with("panic")).then_some(failure)
}

impl Ground {
    /// Runs what `seed` stands for here.
    ///
    /// # Errors
    /// What the oracle said, in words.
    pub fn run(self, seed: u64) -> Result<(), String> {
        match self {
            Ground::Regions => regions::run(seed).map(|_| ()),
            Ground::Stored => regions::run_stored(seed).map(|_| ()),
            Ground::StoreLoses => {
                let lost = &[Fate::Copied, Fate::Emptied, Fate::Behind];
                regions::run_fated(seed, lost).map(|_| ())
            }
            Ground::StoreSet => regions::run_fated(seed, &[Fate::Set]).map(|_| ()),
            Ground::StoreClose => regions::run_close(seed).map(|_| ()),
            Ground::StoreSetTwice => regions::run_fated(seed, &[Fate::SetTwice]).map(|_| ()),
            Ground::StoreEmptied => regions::run_emptied(seed).map(|_| ()),
            Ground::StoreSmall => regions::run_small(seed).map(|_| ()),
            Ground::StoreFamily => regions::run_family(seed).map(|_| ()),
            Ground::Overlong => overlong::run(seed).map(|_| ()),
            Ground::RegionsCapped => regions::run_capped(seed).map(|_| ()),
            Ground::StoreCapped => regions::run_capped_store(seed).map(|_| ()),
            ground => soak::run(ground.draw(seed)).map(|_| ()).map_err(|failure| failure.what),
        }
    }
}

/// The first of `seeds` in which each of `mutants` is noticed.
pub fn first_noticed(mutants: &[Mutant], seeds: Range<u64>) -> BTreeMap<Mutant, Option<u64>> {
    each(mutants, THREADS, |mutant| seeds.clone().find(|&seed| noticed(mutant, seed).is_some()))
}

/// What is said of `worlds`, each a ground and its seed, where nothing is wrong.
pub fn complaints(worlds: &BTreeSet<(Ground, u64)>) -> Vec<String> {
    let worlds: Vec<(Ground, u64)> = worlds.iter().copied().collect();
    let said = each(&worlds, THREADS, |(ground, seed)| ground.run(seed).err());
    let say = |((ground, seed), said): (_, Option<String>)| {
        said.map(|said| format!("{ground:?}, seed {seed}: {said}"))
    };
    said.into_iter().filter_map(say).collect()
}

/// Does `act` for each of `items`, on several threads.
fn each<I: Copy + Ord + Send + Sync, T: Send>(
    items: &[I],
    threads: usize,
    act: impl Fn(I) -> T + Sync,
) -> BTreeMap<I, T> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = act(item);
                    all.lock().expect("no panic while it is held").insert(item, result);
                }
            });
        }
    });
    all.into_inner().expect("no panic while it is held")
}

/// What came of many seeds with one mistake.
#[derive(Clone, Debug, Default)]
struct Hunt {
    seeds: u64,
    /// Seeds that noticed it.
    kills: u64,
    /// Seeds since the last that did, and the most that it ever took.
    gap: u64,
    worst: u64,
    /// What was said, without numbers, and how often.
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

    /// What was said most often.
    fn complaint(&self) -> &str {
        self.complaints.iter().max_by_key(|(_, times)| **times).map_or("", |(words, _)| words)
    }
}

/// The beginning of `what`, with an n for each number.
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

/// Runs all of `seeds` with each of `mutants`, and draws a table of how soon each is noticed.
pub fn table(mutants: &[Mutant], seeds: Range<u64>, threads: usize) -> String {
    let hunts = each(mutants, threads, |mutant| {
        let mut hunt = Hunt::default();
        seeds.clone().for_each(|seed| hunt.add(noticed(mutant, seed)));
        hunt
    });
    let mut table =
        "| mistake | what is wrong | looked for in | seeds to notice it | worst | most often said |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for (mutant, hunt) in hunts {
        let (ground, wrong) = (Ground::of(mutant), mutant.wrong());
        let (mean, worst) = match hunt.kills {
            0 => ("never".to_owned(), "–".to_owned()),
            kills => (format!("{:.1}", hunt.seeds as f64 / kills as f64), hunt.worst.to_string()),
        };
        let said = hunt.complaint();
        writeln!(table, "| `{mutant:?}` | {wrong} | `{ground:?}` | {mean} | {worst} | {said} |")
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
