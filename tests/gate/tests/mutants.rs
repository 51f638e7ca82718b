//! The mutation gate: mistakes that could be made here, switched on one at a time. The oracle of the simulator must
//! notice each within a budget of seeds, or nothing that passes under it means much.
//!
//! `RUSTFLAGS="--cfg lessor_mutants" cargo test --profile mutants -p gate`
#![cfg(lessor_mutants)]

use lessor_protocol::mutant::Mutant;
use scenarios::sim::mutants::{BUDGET, Ground, complaints, missed};

#[test]
fn every_mistake_is_noticed_within_the_budget() {
    // An assertion that shipping builds do not have would stop the run before the oracle can say anything.
    if cfg!(debug_assertions) {
        panic!("run it with --profile mutants");
    }
    assert_eq!(missed(&Mutant::ALL.to_vec(), 1..BUDGET + 1), [], "nobody noticed these in {BUDGET} seeds");
}

/// Where mistakes are looked for, nothing is wrong by itself.
#[test]
fn without_a_mistake_there_is_nothing_to_notice() {
    let said = complaints(|ground| if ground.has_own_tests() { 10 } else { 100 });
    assert_eq!(said, Vec::<String>::new());
}

#[test]
fn the_table_that_is_published_names_every_mistake() {
    let table = include_str!("../../../docs/mutants.md");
    for mutant in Mutant::ALL {
        let row = format!("| `{mutant:?}` | {} | `{:?}` |", mutant.wrong(), Ground::of(*mutant));
        assert!(table.contains(&row), "docs/mutants.md lacks {row}");
    }
}
