//! The mutation gate: mistakes that could be made here, switched on one at a time. The simulator's oracle must notice
//! each within a budget of seeds, or nothing that passes under it means much. `tests/mutants/run` builds and runs it.

#[cfg(planted)]
use gate::hunt::{BUDGET, complaints, first_noticed};
use gate::mutant;

/// Each mistake is noticed, and it is the mistake that is noticed: the same fleet without it gets no complaint.
#[cfg(planted)]
#[test]
fn every_mistake_is_noticed_within_the_budget() {
    // An assertion that shipping builds do not have would stop the run before the oracle can complain.
    if cfg!(debug_assertions) {
        panic!("run it with tests/mutants/run");
    }
    let mutants = mutant::all().expect("they can be read");
    let found = first_noticed(&mutants, 1..BUDGET + 1);
    let found = || mutants.iter().zip(&found);
    let missed: Vec<&str> =
        found().filter(|(_, seed)| seed.is_none()).map(|(mutant, _)| mutant.name.as_str()).collect();
    assert!(missed.is_empty(), "not noticed in {BUDGET} seeds: {missed:?}");
    let worlds = found().filter_map(|(mutant, seed)| Some((mutant.scenario, (*seed)?))).collect();
    assert_eq!(complaints(&worlds), Vec::<String>::new());
}

#[test]
fn the_table_that_is_published_names_every_mistake() {
    let table = include_str!("../../../docs/mutants.md");
    let mutants = mutant::all().expect("they can be read");
    for mutant::Mutant { name, wrong, scenario, .. } in &mutants {
        let row = format!("| `{name}` | {wrong} | `{scenario:?}` |");
        assert!(table.contains(&row), "docs/mutants.md lacks {row}");
    }
    let rows = table.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, mutants.len(), "docs/mutants.md names mistakes that there are none of");
}
