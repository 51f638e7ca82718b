//! The mutation gate: mistakes that could be made here, switched on one at a time. The oracle of the simulator must
//! notice each within a budget of seeds, or nothing that passes under it means much.
//!
//! `RUSTFLAGS="--cfg lessor_mutants" cargo test --profile mutants -p gate`
#![cfg(lessor_mutants)]

use lessor_protocol::mutant::Mutant;
use lessor_sim::mutants::{BUDGET, Ground, complaints, first_noticed};

/// And it is the mistake that is noticed: of the same world without it nothing is said.
#[test]
fn every_mistake_is_noticed_within_the_budget() {
    // An assertion that shipping builds do not have would stop the run before the oracle can say anything.
    if cfg!(debug_assertions) {
        panic!("run it with --profile mutants");
    }
    let found = first_noticed(&Mutant::ALL.to_vec(), 1..BUDGET + 1);
    let missed: Vec<Mutant> =
        found.iter().filter(|(_, seed)| seed.is_none()).map(|(mutant, _)| *mutant).collect();
    assert_eq!(missed, [], "not noticed in {BUDGET} seeds");
    let worlds = found.into_iter().filter_map(|(mutant, seed)| Some((Ground::of(mutant), seed?))).collect();
    assert_eq!(complaints(&worlds), Vec::<String>::new());
}

#[test]
fn the_table_that_is_published_names_every_mistake() {
    let table = include_str!("../../../docs/mutants.md");
    for mutant in Mutant::ALL {
        let row = format!("| `{mutant:?}` | {} | `{:?}` |", mutant.wrong(), Ground::of(*mutant));
        assert!(table.contains(&row), "docs/mutants.md lacks {row}");
    }
}
