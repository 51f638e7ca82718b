//! Fleets in virtual time, each drawn from a seed with its rule, its load and its faults: nothing is admitted beyond
//! the limit, the books are right, and progress is made once the faults stop. A canary shows that a violation would be
//! reported.

mod evenness;
mod fairness;
mod patience;
mod shrinking;

use lessor_protocol::Clock;
use lessor_sim::faults::Fault;
use lessor_sim::generator::lengthy::lengthy;
use lessor_sim::generator::overlong::overlong;
use lessor_sim::generator::removed::removed;
use lessor_sim::generator::{draw, swarm, topologies};
use lessor_sim::network::Latency;
use lessor_sim::setup::{Sabotage, Setup, parse_rules, plan};
use lessor_sim::soak::{Soaked, run};
use lessor_sim::text::{self, bare};
use lessor_sim::topology::{Regions, Shared, Topology};
use lessor_sim::traffic::Workload;
use lessor_sim::world::{Failure, Report};
use lessor_sim::{MILLI, SECOND};

/// Runs all `setups` on two threads. Each failure says how to replay it.
fn check(setups: &[Setup]) -> Soaked {
    let mut all = Soaked::default();
    let halves = setups.split_at(setups.len() / 2);
    std::thread::scope(|scope| {
        let half = |setups: &[Setup]| setups.iter().cloned().map(run).collect::<Vec<_>>();
        let other = scope.spawn(move || half(halves.1));
        half(halves.0).into_iter().for_each(|run| all.add(run));
        other.join().expect("no panic").into_iter().for_each(|run| all.add(run));
    });
    let failures: Vec<String> = all.failures.iter().map(Failure::to_string).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    all
}

/// Returns a setup of 5 nodes that try far more often than `limit` allows, without faults.
fn setup(limit: &str) -> Setup {
    Setup {
        plan: plan(parse_rules(limit).expect("a limit"), false),
        nodes: 5,
        demand: 1_000.0,
        latency: Latency { one_way: MILLI, jitter: MILLI },
        drifting: true,
        lasts: 20 * SECOND,
        replay: "a test".to_owned(),
        ..bare()
    }
}

/// Returns each topology that lends to nodes, with its one of `parts`. Three regions, or three allocators that share a
/// store, are `far` from what they lease from.
fn topologies(far: Latency, parts: [f64; 3]) -> [(Topology, f64); 3] {
    let regions = Topology::Regions(Regions { count: 3, far });
    let store = Topology::Store(Shared::of(3, far));
    [(Topology::Allocator, parts[0]), (regions, parts[1]), (store, parts[2])]
}

#[test]
fn three_hundred_fleets_under_faults_keep_every_promise() {
    let all = check(&(1..=300).map(draw).collect::<Vec<Setup>>());
    assert!(all.admissions > 100_000, "{} admissions are too few to say anything", all.admissions);
    let timed = Fault::TIMED.into_iter().filter(|fault| *fault != Fault::Freeze);
    let missing: Vec<Fault> = timed.filter(|fault| !all.struck.contains_key(fault)).collect();
    assert_eq!(missing, [], "faults that never happened");
}

/// Each run draws other fleets, so failures outside the fixed set are found sooner or later.
#[test]
fn a_few_fresh_fleets_keep_every_promise() {
    let fresh = Clock::since_boot().now().as_nanos();
    check(&(fresh..fresh + 16).map(swarm).collect::<Vec<Setup>>());
}

/// The bug: a call that was running when its lease ended counted for as long as a call may take, and no longer,
/// although its node reported it in each ask. Two regions had five calls in flight of four.
#[test]
fn a_call_counts_for_as_long_as_its_node_says_so() {
    let all = check(&(0..100).map(overlong).collect::<Vec<Setup>>());
    assert!(
        all.admissions > 1_000 && all.struck[&Fault::NodePause] > 1_000,
        "too few calls or pauses: {all:?}"
    );
}

/// Other setups have windows of five seconds at most. `LENGTHY_SEEDS` says how many fleets run.
#[test]
fn fleets_on_windows_of_minutes_keep_every_promise() {
    let seeds = std::env::var("LENGTHY_SEEDS").map_or(24, |seeds| seeds.parse().expect("a number of seeds"));
    let all = check(&(0..seeds).map(lengthy).collect::<Vec<Setup>>());
    assert!(all.admissions > 10_000, "{} admissions are too few to say anything", all.admissions);
}

/// The bug: what a limit had lent just before it was removed was not in the batch that its answer waited for. The next
/// life, with the limit in its file, lent it again.
#[test]
fn what_waits_for_a_batch_when_its_limit_is_removed_is_known_to_the_next_life() {
    let all = check(&(0..400).map(removed).collect::<Vec<Setup>>());
    assert!(all.admissions > 50_000, "{} admissions are too few to say anything", all.admissions);
}

#[test]
fn what_was_found_once_is_not_found_again() {
    check(&setups(include_str!("../../regressions/setups.txt")));
}

/// Reads the setups in `text`, one a line.
fn setups(text: &str) -> Vec<Setup> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let setups: Vec<Setup> = lines.map(|line| text::read(line).expect("a setup")).collect();
    assert!(!setups.is_empty());
    setups
}

/// A change that only moves code changes no event. After a change of behaviour the list is written anew: the failure
/// prints it.
#[test]
fn fleets_do_what_they_did() {
    let recorded = include_str!("../../regressions/hashes.txt");
    let recorded: Vec<&str> = recorded.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(recorded.len(), 50);
    let found: Vec<String> = (1..=50)
        .map(|seed| {
            let hash = run(draw(seed)).expect("a clean run").hash;
            format!("{seed} {hash}")
        })
        .collect();
    assert!(found == recorded, "the recorded runs changed:\n{}", found.join("\n"));
}

/// The same holds for fleets with regions or a shared store.
#[test]
fn fleets_of_regions_and_stores_do_what_they_did() {
    let recorded = include_str!("../../regressions/topologies.txt");
    let recorded: Vec<&str> = recorded.lines().filter(|line| !line.starts_with('#')).collect();
    let found: Vec<String> = (0..28)
        .map(|seed| format!("{seed} {}", run(topologies::any(seed)).expect("a clean run").hash))
        .collect();
    assert!(found == recorded, "the recorded runs changed:\n{}", found.join("\n"));
}

#[test]
fn a_replay_is_the_same_to_the_last_event() {
    let again = |seed| run(draw(seed)).expect("a clean run");
    for seed in 1..=5 {
        let (once, twice): (Report, Report) = (again(seed), again(seed));
        assert_eq!((once.hash, once.lasted, once.admissions), (twice.hash, twice.lasted, twice.admissions));
        assert_eq!(once.figures, twice.figures);
    }
    assert_ne!(again(1).hash, again(2).hash);
}

/// Returns the first failure in a few seeds of `setup` with `sabotage`.
fn caught(setup: &Setup, sabotage: Sabotage) -> Option<Box<Failure>> {
    let sabotaged = |seed| run(Setup { seed, sabotage, ..setup.clone() });
    (1..=20).find_map(|seed| sabotaged(seed).err())
}

/// The canary: each of these setups is wrong on purpose and must be reported, or a passing test would mean nothing.
#[test]
fn what_is_wrong_on_purpose_is_reported() {
    let base = setup("sliding_window 100/1s");
    let mut freezes = base.clone();
    freezes.faults.every.insert(Fault::Freeze, (SECOND, SECOND));
    // A frozen clock breaks an assumption, which shows that the oracle would notice an outlived lease. `large` has so
    // many limits that the simulator seldom adds up what nodes hold.
    let large =
        Setup { siblings: 299, pools: 300, nodes: 1, demand: 40_000.0, lasts: 2 * SECOND, ..base.clone() };
    let cases = [
        (&base, Sabotage::StricterOracle),
        (&large, Sabotage::StricterOracle),
        (&base, Sabotage::UnderReport),
        (&large, Sabotage::UnderReport),
        (&freezes, Sabotage::None),
    ];
    for (setup, sabotage) in cases {
        let failure = caught(setup, sabotage).unwrap_or_else(|| panic!("{sabotage:?} went unseen"));
        assert!(!failure.last.is_empty() && failure.step > 0, "{failure}");
    }
    assert_eq!(caught(&base, Sabotage::None), None);
    assert_eq!(caught(&large, Sabotage::None), None);
}

/// V4, with a single node, so that no other node can ask in its stead.
#[test]
fn after_a_restart_a_node_that_waits_is_lent_something_within_one_refresh() {
    let mut restarts =
        Setup { nodes: 1, lasts: 3 * SECOND, then_calm: true, ..setup("sliding_window 100/1s") };
    restarts.faults.every.insert(Fault::AllocatorRestart, (SECOND, 10 * MILLI));
    let setups: Vec<Setup> = (1..=10).map(|seed| Setup { seed, ..restarts.clone() }).collect();
    assert!(check(&setups).struck[&Fault::AllocatorRestart] >= 10);
}

/// A pool that is not refilled is spent to the last permit. Hardly anything is stranded when a caller first finds it
/// empty.
#[test]
fn the_last_permits_go_where_they_are_asked_for() {
    let setup = Setup {
        nodes: 50,
        workload: Workload::ZipfJumps,
        demand: 20_000.0,
        latency: Latency { one_way: 10 * MILLI, jitter: MILLI },
        start: 100 * 3_600 * SECOND,
        lasts: 20 * SECOND,
        drifting: false,
        ..setup("fixed_window 200000/1h")
    };
    let figures = run(setup).expect("a clean run").figures;
    assert_eq!(figures.admitted, 200_000);
    assert!(figures.first_empty_refusal_at_share >= 0.995, "{figures:?}");
    assert!(figures.stranded_share < 0.002, "{figures:?}");
}

/// A node that is further away than a lease is long must still get permits, and not burn all that it is lent.
#[test]
fn a_node_far_away_is_served() {
    let latency = Latency { one_way: 25 * MILLI, jitter: 0 };
    let figures =
        run(Setup { latency, demand: 100.0, ..setup("sliding_window 1000/1s") }).expect("clean").figures;
    assert!(figures.admitted > 1_000, "{figures:?}");
}

/// Two nodes that wait for five of five permits must not hold a part each and extend it for ever.
#[test]
fn callers_that_want_the_whole_limit_take_turns() {
    let patience = 1_000 * SECOND;
    let setup = Setup { nodes: 2, demand: 1.0, cost_max: 5, patience, ..setup("sliding_window 5/1s") };
    let figures = run(Setup { lasts: 100 * SECOND, ..setup }).expect("clean").figures;
    assert!(figures.worst_wait < 20.0, "{figures:?}");
}

/// A caller that tries now and then, and never comes back within milliseconds, must not find the slot empty each time.
#[test]
fn a_rare_caller_that_only_tries_is_served_sometimes() {
    let rare = setup("sliding_window 10/1s");
    let figures = run(Setup { nodes: 1, demand: 0.5, lasts: 600 * SECOND, ..rare }).expect("clean").figures;
    assert!(figures.admitted > 30, "{figures:?}");
}
