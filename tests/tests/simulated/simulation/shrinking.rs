//! A failing setup is cut down to what it takes to fail, and the rest is replayed from its line of text.

use super::setup;
use lessor_sim::adversary::Lie;
use lessor_sim::faults::Fault;
use lessor_sim::setup::Setup;
use lessor_sim::shrink::shrink;
use lessor_sim::soak::run;
use lessor_sim::traffic::Workload;
use lessor_sim::world::Failure;
use lessor_sim::{MILLI, SECOND, text};

/// Returns a setup whose clocks stand still, which breaks an assumption, with much else that does not matter.
fn noisy() -> Setup {
    let mut noisy = Setup {
        nodes: 6,
        adversaries: vec![Lie::Forge, Lie::Overstate],
        workload: Workload::ZipfJumps,
        cost_max: 2,
        reserves: 50,
        patience: 5 * MILLI,
        then_calm: true,
        ..setup("sliding_window 100/1s + token_bucket 50/100ms capacity 400")
    };
    let (faults, second) = (&mut noisy.faults, SECOND);
    faults.every.insert(Fault::Freeze, (second, second));
    faults.every.insert(Fault::Cut, (2 * second, second / 2));
    faults.every.insert(Fault::NodePause, (2 * second, second / 10));
    faults.every.insert(Fault::ClockRate, (second, MILLI));
    faults.chance.insert(Fault::Loss, 0.1);
    faults.chance.insert(Fault::Duplicate, 0.1);
    faults.chance.insert(Fault::CrashAfterSend, 0.01);
    noisy
}

/// Returns the first of a few seeds that fails as `wanted` says.
fn first(wanted: impl Fn(&Failure) -> bool) -> (Setup, Failure) {
    let fails = |seed| {
        let setup = Setup { seed, ..noisy() };
        run(setup.clone()).err().filter(|failure| wanted(failure)).map(|failure| (setup, *failure))
    };
    (1..=200).find_map(fails).expect("a frozen clock breaks the cap sooner or later")
}

/// A node whose clock stood still can spend what the pool may lend to others by then. The oracle reports that (K2)
/// before it happens.
#[test]
fn what_could_break_the_cap_is_cut_down_to_the_clock_that_stood_still() {
    let (setup, failure) = first(|failure| failure.name == "K2");
    let shrunk = shrink(&setup, &failure, 600);
    let left = &shrunk.setup;
    assert_eq!((shrunk.failure.name, shrunk.failure.is_over), ("K2", failure.is_over));
    assert_eq!(left.faults.every.keys().collect::<Vec<_>>(), [&Fault::Freeze], "{left:?}");
    assert!(left.faults.chance.is_empty() && left.adversaries.is_empty(), "{left:?}");
    assert!(left.nodes < 6 && left.plan.rules.len() == 1 && !left.then_calm, "{left:?}");
    // Cutting down again has the same result, and its line is enough to replay it.
    assert_eq!(shrink(&setup, &failure, 600).setup, *left);
    let again = run(text::read(&text::write(left)).expect("a setup")).expect_err("the setup fails again");
    assert_eq!(*again, shrunk.failure);
}

#[test]
fn a_budget_is_kept() {
    let (setup, failure) = first(|_| true);
    let shrunk = shrink(&setup, &failure, 5);
    assert_eq!((shrunk.runs, shrunk.failure.name), (5, failure.name));
}
