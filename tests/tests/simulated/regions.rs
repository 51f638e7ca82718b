//! Regions that lease from a centre and lend on, and allocators that share a store: many seeds of a small world with
//! trouble, and what is used of a limit without.

use lessor_sim::regions::{
    Fate, Fault, Figures, run, run_capped, run_capped_family, run_capped_store, run_close, run_emptied,
    run_family, run_fated, run_flow, run_intervals, run_intervals_close, run_lagging, run_small, run_stored,
    used, used_capped, used_capped_store, used_family, used_flow, used_intervals, used_stored,
};

/// Worlds, in CI. `REGION_SEEDS` is for more.
const SEEDS: u64 = 300;

fn seeds() -> u64 {
    std::env::var("REGION_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Where each takes longer.
fn few_seeds() -> u64 {
    seeds() / 10
}

/// Runs all of `worlds`, in which there are `calls` a world at least once all is well again. None lets too much through
/// then or before, and hardly any call is refused.
fn all_hold(worlds: impl IntoIterator<Item = u64>, run: fn(u64) -> Result<Figures, String>, calls: u64) {
    all_hold_but(50, seeds(), worlds, run, calls);
}

/// The same of `count` of them, where one call in `part` may be refused.
fn all_hold_but(
    part: u64,
    count: u64,
    worlds: impl IntoIterator<Item = u64>,
    run: fn(u64) -> Result<Figures, String>,
    calls: u64,
) {
    let mut sum = Figures::default();
    for seed in worlds {
        let figures = run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        assert!(figures.refused * 10 <= figures.calls, "seed {seed}, when all is well again: {figures:?}");
        sum = sum.plus(figures);
    }
    println!("{sum:?}");
    let is_troubled = sum.crashes > count && sum.calls > calls * count;
    assert!(is_troubled, "there was trouble, and calls after it: {sum:?}");
    assert!(sum.refused * part <= sum.calls, "when all is well again: {sum:?}");
}

#[test]
fn regions_hold_the_cap_and_strand_nothing() {
    // And one in which a permit that was told as spent, and was not, once hid one that was spent later.
    all_hold((0..seeds()).chain([1_600]), run, 20);
}

#[test]
fn allocators_that_share_a_store_hold_the_cap_and_strand_nothing() {
    all_hold(0..seeds(), run_stored, 20);
}

#[test]
fn a_limit_below_another_one_in_a_store_is_charged_to_both() {
    all_hold(0..seeds(), run_family, 10);
}

#[test]
fn a_cap_on_what_is_in_flight_holds_over_regions_and_strands_nothing() {
    all_hold_but(50, few_seeds(), 0..few_seeds(), run_capped, 5);
}

#[test]
fn a_cap_on_what_is_in_flight_holds_through_a_store_and_strands_nothing() {
    all_hold_but(50, few_seeds(), 0..few_seeds(), run_capped_store, 5);
}

#[test]
fn a_cap_on_what_is_in_flight_holds_beside_another_limit_in_a_store() {
    all_hold_but(50, few_seeds(), 0..few_seeds(), run_capped_family, 1);
}

#[test]
fn a_bucket_that_refills_at_intervals_holds_through_a_store() {
    // Around each instant at which it refills nothing is lent for some 20 ms.
    all_hold_but(25, few_seeds(), 0..few_seeds(), run_intervals, 20);
    for seed in 0..few_seeds() {
        run_intervals_close(seed).unwrap_or_else(|wrong| panic!("close, seed {seed}: {wrong}"));
    }
}

#[test]
fn a_steady_flow_holds_through_a_store() {
    for seed in 0..few_seeds() {
        run_flow(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

/// In full use, where each permit too many shows. The store's clock is set, it loses what it had, or no allocator can tell
/// the time well.
#[test]
fn a_store_in_trouble_is_believed_no_more_than_it_should_be() {
    const LOST: &[Fate] = &[Fate::Copied, Fate::Emptied, Fate::Behind, Fate::Started];
    for seed in 0..seeds() / 5 {
        let set = run_fated(seed, &[Fate::Set]);
        set.unwrap_or_else(|wrong| panic!("clock set, seed {seed}: {wrong}"));
        let twice = run_fated(seed, &[Fate::SetTwice]);
        twice.unwrap_or_else(|wrong| panic!("clock set twice, seed {seed}: {wrong}"));
        let replaced = run_fated(seed, &[Fate::Replaced]);
        replaced.unwrap_or_else(|wrong| panic!("replaced, seed {seed}: {wrong}"));
        run_fated(seed, LOST).unwrap_or_else(|wrong| panic!("lost, seed {seed}: {wrong}"));
        run_close(seed).unwrap_or_else(|wrong| panic!("close, seed {seed}: {wrong}"));
        run_emptied(seed).unwrap_or_else(|wrong| panic!("emptied, seed {seed}: {wrong}"));
        run_small(seed).unwrap_or_else(|wrong| panic!("small, seed {seed}: {wrong}"));
    }
}

/// The bug: an allocator whose own clock stood still for 200 ms said that the clock of the store was set, and limits of an hour or a
/// day were shut for all.
#[test]
fn one_allocator_whose_clock_stood_still_shuts_no_limit_for_the_others() {
    for seed in 0..few_seeds() {
        run_lagging(seed, Fault::Stalled).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

/// chrony slews by up to 83,333 ppm: ten times that, and what broke it once.
#[test]
fn one_allocator_whose_clock_is_slewed_shuts_no_limit_for_the_others() {
    for seed in 0..few_seeds() {
        for ppm in [-833_333, -5_000, 5_000, 833_333] {
            let slewed = run_lagging(seed, Fault::Slewed(ppm));
            slewed.unwrap_or_else(|wrong| panic!("seed {seed}, {ppm} ppm: {wrong}"));
        }
    }
}

/// With twice as much demand as there is, so much `is_used` at least in the worst of `worlds`, and in the median.
fn used_at_least(worlds: usize, worst: f64, median: f64, is_used: fn(u64, f64) -> Result<f64, String>) {
    let used = |seed| is_used(seed, 2.0).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    let mut used: Vec<f64> = (0..worlds as u64).map(used).collect();
    used.sort_by(f64::total_cmp);
    println!("used: worst {:.3}, median {:.3}", used[0], used[worlds / 2]);
    assert!(used[0] >= worst && used[worlds / 2] >= median, "{used:?}");
}

#[test]
fn what_is_wanted_of_a_limit_is_used_through_a_store() {
    used_at_least(60, 0.88, 0.97, used_stored);
}

/// Of what one limiter admits that is asked about each call.
#[test]
fn what_is_wanted_of_limits_that_are_below_each_other_is_used_through_a_store() {
    used_at_least(60, 0.85, 0.95, used_family);
}

#[test]
fn what_is_wanted_of_a_cap_is_used_through_a_store() {
    used_at_least(12, 0.5, 0.85, used_capped_store);
}

#[test]
fn what_is_wanted_of_a_cap_is_used_through_regions() {
    used_at_least(12, 0.5, 0.85, used_capped);
}

#[test]
fn what_comes_at_intervals_is_used_through_a_store() {
    used_at_least(12, 0.6, 0.97, used_intervals);
}

#[test]
fn what_is_wanted_of_a_steady_flow_is_used_through_a_store() {
    used_at_least(12, 0.5, 0.95, used_flow);
}

#[test]
fn what_is_wanted_of_a_limit_is_used_through_regions() {
    used_at_least(60, 0.88, 0.97, used);
}
