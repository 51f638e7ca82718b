//! Regions that lease from a centre and lend on: many seeds of a small world with trouble, what is used of a limit without, and
//! servers that do so for real, over a network that is cut.

use lessor::{Client, Limit};
use lessor_protocol::{Clock, Moment};
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use scenarios::proxy::Proxy;
use scenarios::proxy::fault::Fault;
use scenarios::regions::{
    Fate, Figures, run, run_capped, run_capped_family, run_capped_store, run_close, run_emptied, run_family,
    run_fated, run_flow, run_intervals, run_intervals_close, run_small, run_stored, used, used_capped,
    used_capped_store, used_family, used_flow, used_intervals, used_stored,
};
use scenarios::vendor::Vendor;
use std::time::Duration;

/// Worlds, in CI. `REGION_SEEDS` is for more.
const SEEDS: u64 = 300;

fn seeds() -> u64 {
    std::env::var("REGION_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Where each takes longer.
fn few_seeds() -> u64 {
    seeds() / 10
}

/// Runs all of `worlds`, in which there are `calls` a world at least once all is well again: none lets too much through then or before,
/// and hardly anybody is refused.
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

/// In full use, where each permit too many shows: its clock is set, it loses what it had, or nobody can tell the time well.
#[test]
fn a_store_in_trouble_is_believed_no_more_than_it_should_be() {
    const LOST: &[Fate] = &[Fate::Copied, Fate::Emptied, Fate::Behind, Fate::Started];
    for seed in 0..seeds() / 5 {
        let set = run_fated(seed, &[Fate::Set]);
        set.unwrap_or_else(|wrong| panic!("clock set, seed {seed}: {wrong}"));
        let twice = run_fated(seed, &[Fate::SetTwice]);
        twice.unwrap_or_else(|wrong| panic!("clock set twice, seed {seed}: {wrong}"));
        run_fated(seed, LOST).unwrap_or_else(|wrong| panic!("lost, seed {seed}: {wrong}"));
        run_close(seed).unwrap_or_else(|wrong| panic!("close, seed {seed}: {wrong}"));
        run_emptied(seed).unwrap_or_else(|wrong| panic!("emptied, seed {seed}: {wrong}"));
        run_small(seed).unwrap_or_else(|wrong| panic!("small, seed {seed}: {wrong}"));
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

const CLOCK: Clock = Clock::since_boot();

const LIMIT: u64 = 400;
const PER: Duration = Duration::from_secs(2);

fn centre() -> String {
    format!(
        "[[limit]]\nname = \"vendor\"\nrules = [{{ kind = \"sliding_window\", limit = {LIMIT}, per = \"2s\", margin = \"0s\" }}]
[[limit]]\nname = \"user\"\nkeyed = true\nrules = [{{ kind = \"fixed_window\", limit = 3, per = \"1h\" }}]
[[limit]]\nname = \"paced\"\nrules = [{{ kind = \"leaky_bucket\", refill = 1, per = \"20ms\" }}]
[[limit]]\nname = \"calls\"\nrules = [{{ kind = \"concurrency\", limit = 4, longest = \"2s\" }}]\n"
    )
}

/// A region called `node` that leases from `upstream`.
async fn region(node: &str, upstream: &str) -> Fleet {
    let limit =
        |name: &str, more: &str| format!("[[limit]]\nname = {name:?}\nupstream = {upstream:?}\n{more}\n");
    let limits =
        limit("vendor", "") + &limit("user", "keyed = true") + &limit("paced", "") + &limit("calls", "");
    Fleet::start(&format!("[server]\nnode = {node:?}\n{limits}")).await
}

/// Calls as often as it may until then, never waiting for longer than a moment.
async fn call_until(vendor: &Vendor, limit: &Limit, until: Moment) {
    while CLOCK.now() < until {
        vendor.wait(limit, Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_regions_share_one_limit_and_use_it() {
    let centre = Fleet::start(&centre()).await;
    let (east, west) = (region("east", &centre.url).await, region("west", &centre.url).await);
    let clients = [east.client("a").await, east.client("b").await, west.client("c").await];
    let vendor = Vendor::new(LIMIT, PER);
    let until = CLOCK.now() + 5 * PER;
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    tokio::join!(
        call_until(&vendor, &limits[0], until),
        call_until(&vendor, &limits[1], until),
        call_until(&vendor, &limits[2], until),
    );
    assert_eq!(vendor.breach(), None);
    assert!(vendor.count() >= 5 * LIMIT * 9 / 10, "{} of {}", vendor.count(), 5 * LIMIT);
    assert!(centre.number("vendor", "spent").await > 0, "it is told what is spent");
    for client in clients {
        client.shutdown().await;
    }
    // What nobody holds any more is back.
    eventually("nothing is out", async || (centre.number("vendor", "outstanding").await == 0).then_some(()))
        .await;
    for fleet in [east, west, centre] {
        fleet.stop().await;
    }
}

#[tokio::test]
async fn keys_are_leased_one_by_one_and_what_cannot_be_lent_on_is_refused() {
    let centre = Fleet::start(&centre()).await;
    let east = region("east", &centre.url).await;
    let client = east.client("a").await;
    let user = client.limit("user").key("ann");
    for _ in 0..3 {
        eventually("a permit", async || user.try_acquire(1).ok()).await;
    }
    user.acquire_within(1, Duration::from_millis(300)).await.expect_err("three an hour");
    eventually("another user", async || client.limit("user").key("bob").try_acquire(1).ok()).await;
    let paced = client.limit("paced").acquire_within(1, Duration::from_millis(500)).await;
    paced.expect_err("a steady flow is not lent on");
    client.shutdown().await;
    east.stop().await;
    centre.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_in_one_region_are_known_in_the_other() {
    let centre = Fleet::start(&centre()).await;
    let (east, west) = (region("east", &centre.url).await, region("west", &centre.url).await);
    let clients = [east.client("a").await, west.client("b").await];
    let calls = clients.each_ref().map(|client| client.limit("calls"));
    let patience = Duration::from_secs(8);
    let mut in_flight = vec![];
    for one in 0..4 {
        in_flight.push(calls[one % 2].enter_within(1, patience).await.expect("four at once"));
    }
    for limit in &calls {
        let fifth = limit.enter_within(1, Duration::from_secs(3)).await;
        assert!(fifth.is_err(), "for longer than any call should take, and as long as they say so");
    }
    // Two that are in flight in the east end, and two more begin in the west.
    drop([in_flight.swap_remove(2), in_flight.swap_remove(0)]);
    for _ in 0..2 {
        in_flight.push(calls[1].enter_within(1, patience).await.expect("two have ended"));
    }
    assert!(calls[0].enter_within(1, Duration::from_secs(1)).await.is_err());
    drop(in_flight);
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
    centre.stop().await;
}

/// How long a region is cut off from the centre.
const CUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_is_cut_off_lends_nothing_new_and_resumes_within_a_term() {
    let centre = Fleet::start(&centre()).await;
    let address = centre.url.strip_prefix("http://").expect("http").parse().expect("an address");
    let link = Proxy::start(address).await;
    let (east, west) = (region("east", &link.url()).await, region("west", &centre.url).await);
    let (cut_off, other): (Client, Client) = (east.client("a").await, west.client("b").await);
    let vendor = Vendor::new(LIMIT, PER);
    let until = |span: Duration| CLOCK.now() + span;
    let (there, here) = (cut_off.limit("vendor"), other.limit("vendor"));
    tokio::join!(call_until(&vendor, &there, until(2 * PER)), call_until(&vendor, &here, until(2 * PER)));
    link.set(Fault::Cut);
    // What it holds goes on until its term ends: two seconds at most.
    tokio::join!(call_until(&vendor, &there, until(PER)), call_until(&vendor, &here, until(PER)),);
    let mine = Vendor::new(LIMIT, PER);
    let closed = until(CUT - PER);
    tokio::join!(call_until(&mine, &there, closed), call_until(&vendor, &here, closed));
    assert_eq!(mine.count(), 0, "it was cut off");
    link.set(Fault::None);
    let mended = CLOCK.now();
    eventually("a permit", async || vendor.call(&there).then_some(())).await;
    let resumed = CLOCK.now().since(mended);
    println!("a permit {resumed:?} after the link was mended");
    // A pause of its own after so many failures, and a term.
    assert!(resumed <= Duration::from_secs(3), "{resumed:?}");
    tokio::join!(call_until(&vendor, &there, until(2 * PER)), call_until(&vendor, &here, until(2 * PER)));
    assert_eq!(vendor.breach(), None);
    cut_off.shutdown().await;
    other.shutdown().await;
    for fleet in [east, west, centre] {
        fleet.stop().await;
    }
}

/// How often one of two regions is killed, and how often in all.
const KILL_EVERY: Duration = Duration::from_secs(4);
const KILLS: u32 = 6;

/// Three nodes, each of which may ask either of two regions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_are_killed_in_turn_serve_one_contract() {
    let centre = Fleet::start(&centre()).await;
    let config = format!("[[limit]]\nname = \"vendor\"\nupstream = {:?}\n", centre.url);
    let regions = [(); 2].map(|()| Allocator::start(&config, "127.0.0.1:0", true));
    let urls = regions.each_ref().map(|region| region.url.clone());
    let client = |node: &'static str| Client::builder(&urls[0]).or(&urls[1]).node(node).connect();
    let clients = tokio::try_join!(client("a"), client("b"), client("c")).expect("both answer");
    let limits = [&clients.0, &clients.1, &clients.2].map(|client| client.limit("vendor"));
    let killer = tokio::task::spawn_blocking(move || {
        let [mut next, mut other] = regions;
        for _ in 0..KILLS {
            std::thread::park_timeout(KILL_EVERY);
            (next, other) = (other, next.restart());
        }
        (next, other)
    });
    let (vendor, begin) = (Vendor::new(LIMIT, PER), CLOCK.now());
    let until = begin + KILL_EVERY * (KILLS + 1);
    let gap = std::sync::Mutex::new((begin, Duration::ZERO));
    let call = async |limit: &Limit| {
        while CLOCK.now() < until {
            if vendor.wait(limit, Duration::from_millis(50)).await {
                let (now, mut gap) = (CLOCK.now(), gap.lock().expect("no panic"));
                *gap = (now, gap.1.max(now.since(gap.0)));
            }
        }
    };
    tokio::join!(call(&limits[0]), call(&limits[1]), call(&limits[2]));
    let most = LIMIT * u64::from(KILLS + 1) * KILL_EVERY.as_secs() / PER.as_secs();
    let (used, gap) = (vendor.count() as f64 / most as f64, gap.lock().expect("no panic").1);
    println!("{KILLS} kills, {used:.3} of {most} used, longest gap {gap:?}");
    assert_eq!(vendor.breach(), None);
    assert!(used >= 0.8, "{used}");
    let _regions = killer.await.expect("no panic");
    for client in [clients.0, clients.1, clients.2] {
        client.shutdown().await;
    }
    centre.stop().await;
}
