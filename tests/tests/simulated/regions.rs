//! Regions that lease from an allocator and lend on, and allocators that share a store: many seeds of small fleets in
//! trouble, and how much of a limit is used without trouble.

use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::RefillStyle;
use lessor_ledger::share::Sharing;
use lessor_sim::faults::Fault;
use lessor_sim::generator::topologies::{self, in_use, store_fated};
use lessor_sim::policy::Policy;
use lessor_sim::setup::Setup;
use lessor_sim::soak::{run, run_as};
use lessor_sim::topology::{Fate, Lag, Topology};
use lessor_sim::world::{Report, Watch, sustained};

/// Fleets in CI. `REGION_SEEDS` sets another number.
const SEEDS: u64 = 40;

fn seeds() -> u64 {
    std::env::var("REGION_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Returns the number of seeds for fleets that take longer.
fn few_seeds() -> u64 {
    seeds() / 4
}

fn clean(setup: Setup) -> Report {
    run(setup).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The outcome of many fleets.
#[derive(Debug, Default)]
struct Sum {
    admissions: u64,
    faults: u64,
    /// Processes that died.
    deaths: u64,
    /// Simulated time, in hours.
    hours: f64,
    /// Calls that came in calm, and calls among them that were not served at once, in fleets with long windows and many
    /// calls.
    calls: u64,
    short: u64,
    /// How many of these calls may wait.
    may_wait: u64,
}

/// How late a fixed window begins at most, or a bucket refills at intervals, in seconds, where several clocks each know
/// the time only within a span.
const BEGINS_LATE: f64 = 0.05;

/// How much sooner a window ends for nodes, in seconds, where the store has no clock. No lease reaches over its end,
/// and nodes are told shorter leases than their root dates.
const ENDS_EARLY: f64 = 0.05;

/// Returns the part of the calls of `setup` that may wait in calm: one in 50, or the calls just before a window begins.
fn may_wait(setup: &Setup) -> f64 {
    let is_clockless = setup.topology.shared().is_some_and(|shared| shared.is_clockless);
    let early = if is_clockless { ENDS_EARLY } else { 0.0 };
    let late = |rule: &Rule| match rule {
        Rule::FixedWindow(rule) => (BEGINS_LATE + early) / rule.per().as_secs_f64(),
        Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval => {
            BEGINS_LATE / rule.per().as_secs_f64()
        }
        Rule::SlidingWindow(_)
        | Rule::SlidingLog(_)
        | Rule::TokenBucket(_)
        | Rule::LeakyBucket(_)
        | Rule::Concurrency(_) => 0.0,
    };
    setup.rule_sets().flatten().map(late).fold(0.02, f64::max)
}

/// Runs `count` fleets. No oracle may complain. In calm few calls may wait, and in one fleet at most one in ten.
fn all_hold(count: u64, draw: impl Fn(u64) -> Setup) -> Sum {
    let mut sum = Sum::default();
    for seed in 0..count {
        let setup = draw(seed);
        let (is_judged, may_wait) = (is_judged(&setup), may_wait(&setup));
        let report = clean(setup);
        sum.admissions += report.admissions;
        sum.faults += report.struck.values().sum::<u64>();
        let died = [Fault::NodeCrash, Fault::RegionCrash, Fault::RegionLeave, Fault::AllocatorRestart];
        sum.deaths += died.iter().filter_map(|fault| report.struck.get(fault)).sum::<u64>();
        sum.hours += report.lasted as f64 / 3.6e12;
        if is_judged {
            let (calls, short) = report.figures.calm;
            assert!(short * 10 <= calls, "seed {seed}: {short} of {calls} calls were not served at once");
            (sum.calls, sum.short) = (sum.calls + calls, sum.short + short);
            sum.may_wait += (calls as f64 * may_wait) as u64;
        }
    }
    println!("{sum:?}");
    assert!(sum.deaths > count, "too few deaths: {sum:?}");
    assert!(sum.short <= sum.may_wait, "calls wait too long after the faults: {sum:?}");
    sum
}

/// Whether windows and calls suffice to judge. A window not much longer than the way to the allocator and back is used
/// up by the way.
fn is_judged(setup: &Setup) -> bool {
    let seconds = |rule: &Rule| rule.ceiling() as f64 / sustained(&[*rule]);
    let is_long = |rules: &[Rule]| rules.iter().all(|rule| seconds(rule) >= 1.0);
    let is_large = |rules: &[Rule]| sustained(rules) / setup.nodes as f64 >= 40.0;
    setup.rule_sets().all(|rules| is_long(rules) && is_large(rules))
}

#[test]
fn regions_hold_the_cap_and_strand_nothing() {
    let sum = all_hold(2 * seeds(), topologies::regions);
    assert!(sum.calls > 100 * seeds(), "{sum:?}");
}

#[test]
fn allocators_that_share_a_store_hold_the_cap_and_strand_nothing() {
    let sum = all_hold(seeds(), topologies::store);
    assert!(sum.calls > 100 * seeds(), "{sum:?}");
}

/// One allocator follows a newer file sooner than another, and a root follows the newest.
#[test]
fn allocators_that_share_a_store_hold_the_cap_while_rules_change() {
    let sum = all_hold(few_seeds(), topologies::store_changed);
    let admitted =
        |fleet: fn(u64) -> Setup| (0..few_seeds() / 2).map(|seed| clean(fleet(seed)).admissions).sum::<u64>();
    let (capped, in_use) =
        (admitted(topologies::store_changed_caps), admitted(topologies::store_changed_close));
    println!("{capped} where calls are capped, {in_use} in full use");
    let least = sum.admissions.min(capped).min(in_use);
    assert!(least > 100 * seeds(), "too few to say anything: {sum:?}, {capped} and {in_use}");
}

/// An operator tells one allocator, and all follow, until a newer file says otherwise.
#[test]
fn allocators_that_share_a_store_hold_the_cap_while_limits_are_put_over_the_api() {
    let sum = all_hold(seeds() / 2, topologies::store_put);
    assert!(sum.admissions > 100 * seeds(), "too few to say anything: {sum:?}");
}

/// Limits are removed by the API, too, and come back.
#[test]
fn allocators_that_share_a_store_hold_the_cap_while_limits_are_removed_over_the_api() {
    let sum = all_hold(seeds() / 2, topologies::store_removed);
    assert!(sum.admissions > 100 * seeds(), "too few to say anything: {sum:?}");
}

/// One allocator after another keeps the time.
#[test]
fn allocators_of_a_store_without_a_clock_hold_the_cap_and_strand_nothing() {
    let sum = all_hold(seeds(), topologies::store_clockless);
    assert!(sum.calls > 100 * seeds(), "{sum:?}");
    let admissions: u64 =
        (0..seeds() / 2).map(|seed| clean(topologies::store_clockless_close(seed)).admissions).sum();
    assert!(admissions > seeds(), "too few to say anything: {admissions}");
}

/// Returns the permits that were spent in some fleets while no allocator answered.
fn passed(fleet: fn(u64) -> Setup) -> u64 {
    (0..few_seeds()).map(|seed| clean(fleet(seed)).passed).sum()
}

/// Nodes without an answering allocator spend of the reserve.
#[test]
fn nodes_of_allocators_that_share_a_store_go_on_with_safe_shares() {
    let (troubled, close) = (passed(topologies::store_safe), passed(topologies::store_safe_close));
    println!("{troubled} and {close} permits were spent while no allocator answered");
    assert!(troubled.min(close) > seeds(), "too few to say anything: {troubled} and {close}");
}

/// A node that was told of a long-lasting share goes on with it if it does not hear of a shorter one.
#[test]
fn safe_shares_hold_the_cap_while_configurations_change() {
    let (one, several) = (passed(topologies::safe_changed), passed(topologies::store_safe_changed));
    println!("{one} and {several} permits were spent while no allocator answered");
    assert!(one.min(several) > seeds(), "too few to say anything: {one} and {several}");
}

#[test]
fn safe_shares_hold_the_cap_while_rules_and_reserves_change() {
    let fleets =
        [topologies::safe_changed_rules, topologies::safe_anew, topologies::store_safe_changed_rules];
    let passed = fleets.map(passed);
    println!("{passed:?} permits were spent while no allocator answered");
    assert!(passed.iter().all(|passed| *passed > seeds()), "too few to say anything: {passed:?}");
}

#[test]
fn allocators_that_share_a_store_hold_the_cap_where_groups_are_guaranteed_a_part() {
    let sum = all_hold(few_seeds(), topologies::store_guaranteed);
    assert!(sum.calls > 100 * few_seeds(), "{sum:?}");
}

/// Other nodes want as much as there is, at the same allocators or at others. The guarantee leaves little unused.
#[test]
fn a_group_has_what_is_guaranteed_whichever_allocators_its_nodes_ask() {
    let (mut least, mut used) = (f64::MAX, f64::MAX);
    for seed in 0..few_seeds() / 4 {
        let mut setup = topologies::store_guaranteed_in_use(seed);
        let even =
            Setup { plan: Plan { sharing: Sharing::default(), ..setup.plan.clone() }, ..setup.clone() };
        let all = clean(even).figures.admitted as f64;
        for topology in [setup.topology.clone(), Topology::Allocator] {
            setup.topology = topology;
            let (guaranteed, report) = (&setup.plan.sharing.guaranteed, clean(setup.clone()));
            let ceiling: u64 = setup.plan.rules.iter().map(Rule::ceiling).sum();
            let windows = setup.lasts as f64 / 1e9 * sustained(&setup.plan.rules) / ceiling as f64;
            let nodes = |group| report.by_node.iter().skip(group).step_by(guaranteed.len() + 1);
            let part = |group: usize| nodes(group).sum::<u64>() as f64 / (guaranteed[group] as f64 * windows);
            least = least.min(part(0)).min(part(1));
            used = used.min(report.figures.admitted as f64 / all);
        }
    }
    println!(
        "groups have {least:.2} of what is guaranteed, and all have {used:.3} of what they have without"
    );
    assert!(least > 0.97 && used > 0.9, "{least} and {used}");
}

#[test]
fn a_limit_below_another_one_in_a_store_is_charged_to_both() {
    let sum = all_hold(seeds(), topologies::store_family);
    assert!(sum.calls > 20 * seeds(), "{sum:?}");
}

#[test]
fn a_cap_on_what_is_in_flight_holds_over_regions_and_strands_nothing() {
    all_hold(few_seeds(), topologies::regions_capped);
}

#[test]
fn a_window_of_first_use_holds_through_a_store() {
    all_hold(few_seeds(), topologies::store_first_use);
}

#[test]
fn a_limit_that_regions_lease_holds_while_it_is_changed() {
    all_hold(few_seeds(), topologies::regions_changed);
}

#[test]
fn a_cap_on_what_is_in_flight_holds_through_a_store_and_strands_nothing() {
    all_hold(few_seeds(), topologies::store_capped);
}

#[test]
fn a_cap_on_what_is_in_flight_holds_beside_another_limit_in_a_store() {
    all_hold(few_seeds(), topologies::store_capped_family);
}

#[test]
fn a_bucket_that_refills_at_intervals_holds_through_a_store() {
    all_hold(few_seeds(), |seed| topologies::store_intervals(seed, 200..3_000));
    for seed in 0..few_seeds() {
        clean(topologies::store_intervals_close(seed));
    }
}

#[test]
fn a_steady_flow_holds_through_a_store() {
    for seed in 0..few_seeds() {
        clean(topologies::store_flow(seed, 1..40));
    }
}

/// The limit is in full use, so each permit too many shows. The store's clock is set, the store loses data, or no
/// allocator can tell the time well.
#[test]
fn a_store_in_trouble_is_believed_no_more_than_it_should_be() {
    const LOST: &[Fate] = &[Fate::Copied, Fate::Emptied, Fate::Behind, Fate::Started];
    let mut admissions = [0; 7];
    for seed in 0..seeds() / 2 {
        let setups = [
            store_fated(seed, &[Fate::Set]),
            store_fated(seed, &[Fate::SetTwice]),
            store_fated(seed, &[Fate::Replaced]),
            store_fated(seed, LOST),
            topologies::store_close(seed),
            topologies::store_emptied(seed),
            topologies::store_small(seed),
        ];
        for (sum, setup) in admissions.iter_mut().zip(setups) {
            *sum += clean(setup).admissions;
        }
    }
    println!("{admissions:?}");
    assert!(admissions.iter().all(|sum| *sum > seeds()), "too few to say anything: {admissions:?}");
}

/// The bug: after a loss, an allocator based a decision on what the store had left, and then went back to what it had
/// known before.
#[test]
fn what_operators_decide_at_a_store_is_followed_by_all() {
    for seed in 0..seeds() / 2 {
        clean(topologies::store_decided(seed));
    }
}

/// Returns what is admitted in some of the fleets that `draw` draws.
fn admitted_in(draw: fn(u64) -> Setup) -> u64 {
    let admissions = |seed| clean(draw(seed)).admissions;
    (0..few_seeds()).map(admissions).sum()
}

/// A process may read an answer seconds after it came.
#[test]
fn hosts_that_stand_still_lend_nothing_that_has_ended() {
    let admitted = [topologies::store_paused, topologies::regions_paused].map(admitted_in);
    assert!(admitted.iter().all(|sum| *sum > 100 * seeds()), "too few to say anything: {admitted:?}");
}

#[test]
fn rules_with_options_hold_through_stores_and_regions() {
    let admitted = [topologies::store_rules, topologies::regions_rules].map(admitted_in);
    assert!(admitted.iter().all(|sum| *sum > 100 * seeds()), "too few to say anything: {admitted:?}");
}

/// A vendor has less than its contract says, and refuses calls.
#[test]
fn what_a_vendor_says_holds_back_what_regions_and_stores_lend() {
    let admitted = [topologies::regions_outside, topologies::store_outside].map(admitted_in);
    assert!(admitted.iter().all(|sum| *sum > 100 * seeds()), "too few to say anything: {admitted:?}");
}

#[test]
fn a_clock_that_is_set_while_no_allocator_watches_is_not_gone_by() {
    let admitted = admitted_in(topologies::store_unwatched);
    assert!(admitted > 10 * seeds(), "too few to say anything: {admitted}");
}

/// The clock of one allocator, which has no nodes, is wrong. Hardly any call at the others is refused.
fn others_are_served(lag: Lag) {
    for seed in 0..few_seeds() {
        let refused = clean(topologies::store_lagging(seed, lag)).figures.refused_share;
        assert!(refused <= 0.02, "seed {seed}, {lag:?}: {refused} of all calls were refused");
    }
}

/// The bug: an allocator whose own clock stood still for 200 ms reported that the clock of the store was set, and
/// limits of an hour or a day were shut for all.
#[test]
fn one_allocator_whose_clock_stood_still_shuts_no_limit_for_the_others() {
    others_are_served(Lag::Stalled);
}

/// chrony slews by up to 83,333 ppm. This tries ten times that, and a rate that once broke it.
#[test]
fn one_allocator_whose_clock_is_slewed_shuts_no_limit_for_the_others() {
    for ppm in [-833_333, -5_000, 5_000, 833_333] {
        others_are_served(Lag::Slewed(ppm));
    }
}

/// With twice as much demand as there is, at least this part is used in the worst of `fleets`, and in the median.
fn used_at_least(fleets: u64, worst: f64, median: f64, draw: impl Fn(u64) -> Setup) {
    let watch = || Watch { compares: true, ..Watch::default() };
    let used = |seed| {
        let setup = in_use(draw(seed), 2.0);
        let cap = setup.plan.rules.iter().find(|rule| rule.longest().is_some()).map(Rule::ceiling);
        let report = run_as(Policy::Lessor, setup, watch()).unwrap_or_else(|failure| panic!("{failure}"));
        match cap {
            Some(cap) => report.figures.in_flight / cap as f64,
            None => {
                report.figures.admitted as f64 / report.exact.expect("the exact optimum was asked for") as f64
            }
        }
    };
    let mut used: Vec<f64> = (0..fleets).map(used).collect();
    used.sort_by(f64::total_cmp);
    println!("used: worst {:.3}, median {:.3}", used[0], used[used.len() / 2]);
    assert!(used[0] >= worst && used[used.len() / 2] >= median, "{used:?}");
}

#[test]
fn what_is_wanted_of_a_limit_is_used_through_a_store() {
    used_at_least(30, 0.88, 0.97, |seed| topologies::store_of_seconds(seed, false));
}

#[test]
fn what_is_wanted_of_a_limit_is_used_through_a_store_without_a_clock() {
    used_at_least(30, 0.88, 0.97, topologies::store_of_seconds_clockless);
}

/// Measured against a limiter that is asked for each call.
#[test]
fn what_is_wanted_of_limits_that_are_below_each_other_is_used_through_a_store() {
    used_at_least(30, 0.85, 0.95, |seed| topologies::store_of_seconds(seed, true));
}

#[test]
fn what_is_wanted_of_a_cap_is_used_through_a_store() {
    used_at_least(12, 0.5, 0.85, topologies::store_capped);
}

#[test]
fn what_is_wanted_of_a_cap_is_used_through_regions() {
    used_at_least(12, 0.5, 0.85, topologies::regions_capped);
}

#[test]
fn what_comes_at_intervals_is_used_through_a_store() {
    used_at_least(12, 0.6, 0.97, |seed| topologies::store_intervals(seed, 1_000..4_000));
}

#[test]
fn what_is_wanted_of_a_steady_flow_is_used_through_a_store() {
    used_at_least(12, 0.5, 0.95, |seed| topologies::store_flow(seed, 5..40));
}

#[test]
fn what_is_wanted_of_a_limit_is_used_through_regions() {
    used_at_least(30, 0.88, 0.97, topologies::regions_of_seconds);
}

/// Returns what this many allocators of one root admit to callers that want twice what it sustains.
fn admitted_by(allocators: usize) -> u64 {
    let text = format!(
        "seed=1 rules=token_bucket,10000/1000000000ns,capacity,10000,initial,0 \
         allocators={allocators}/500000/500000 nodes=40 workload=steady demand=20000 one_way=500000 jitter=500000 lasts=6000000000"
    );
    clean(lessor_sim::text::read(&text).expect("a setup")).admissions
}

/// The bug: of many allocators that swap one root, each was nearly always late, and its grant had ended before its next
/// turn.
#[test]
fn forty_allocators_of_one_root_use_nearly_what_five_do() {
    let (few, many) = (admitted_by(5), admitted_by(40));
    assert!(many * 10 >= few * 9, "{many} by forty, {few} by five");
}
