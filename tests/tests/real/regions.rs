//! Regions that lease from a centre and lend on: real allocators, over a network that is cut.

use lessor::{Client, Limit};
use lessor_protocol::{CLOCK, Moment};
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use scenarios::proxy::Proxy;
use scenarios::proxy::fault::Fault;
use scenarios::vendor::Vendor;
use std::time::Duration;

const LIMIT: u64 = 400;
const PER: Duration = Duration::from_secs(2);

fn centre() -> String {
    format!(
        "[[limit]]\nname = \"vendor\"\nrules = [{{ kind = \"sliding_window\", limit = {LIMIT}, per = \"2s\", margin = \"0s\" }}]
[[limit]]\nname = \"user\"\nkeyed = true\nrules = [{{ kind = \"fixed_window\", limit = 3, per = \"1h\" }}]
[[limit]]\nname = \"paced\"\nrules = [{{ kind = \"leaky_bucket\", refill = 1, per = \"20ms\" }}]
[[limit]]\nname = \"calls\"\nrules = [{{ kind = \"concurrency\", limit = 4, longest = \"2s\" }}]
[[limit]]\nname = \"hourly\"\nrules = [{{ kind = \"sliding_window\", limit = 300, per = \"1h\" }}]\n"
    )
}

/// A region called `node` that leases from `upstream`.
async fn region(node: &str, upstream: &str) -> Fleet {
    let limit =
        |name: &str, more: &str| format!("[[limit]]\nname = {name:?}\nupstream = {upstream:?}\n{more}\n");
    let limits = ["vendor", "paced", "calls", "hourly"].map(|name| limit(name, "")).concat();
    let limits = limits + &limit("user", "keyed = true");
    Fleet::start(&format!("[server]\nnode = {node:?}\n{limits}")).await
}

/// Calls as often as possible until then, and waits for at most 50 ms each time.
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
    assert!(centre.number("vendor", "spent").await > 0, "the upstream allocator is told what is spent");
    for client in clients {
        client.shutdown().await;
    }
    // Permits that no node holds any more are returned to the centre.
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

/// The bug: the centre did not learn of a call that needs nearly all permits, and lent the last tenth slowly.
#[tokio::test]
async fn a_caller_in_a_region_that_waits_for_nearly_all_of_a_window_has_it() {
    let centre = Fleet::start(&centre()).await;
    let east = region("east", &centre.url).await;
    let client = east.client("a").await;
    let hourly = client.limit("hourly");
    assert_eq!(hourly.acquire_within(295, Duration::from_secs(20)).await, Ok(()), "of 300");
    client.shutdown().await;
    east.stop().await;
    centre.stop().await;
}

/// The bug: the first call of each key was refused, because the region answered before it had asked the centre.
#[tokio::test]
async fn a_check_in_a_region_is_decided_by_what_the_centre_has() {
    let centre = Fleet::start(&centre()).await;
    let east = region("east", &centre.url).await;
    let client = east.client("a").await;
    let user = client.limit("user");
    for key in ["ann", "bob", "carol"] {
        for _ in 0..3 {
            assert_eq!(user.check_key(key, 1).await, Ok(()), "{key}");
        }
        let began = CLOCK.now();
        let refused = user.check_key(key, 1).await.expect_err("three an hour");
        assert!(refused.retry_after().is_some_and(|wait| wait > Duration::from_secs(1)), "{refused:?}");
        assert!(CLOCK.now().since(began) < Duration::from_secs(1), "{key}");
    }
    // Without the centre, a check of an unknown key is refused in a bounded time, and no limit is reported.
    centre.stop().await;
    let began = CLOCK.now();
    user.check_key("dan", 1).await.expect_err("no centre");
    assert!(CLOCK.now().since(began) < Duration::from_secs(5));
    let headers = user.key("dan").headers(None);
    assert!(headers.get("ratelimit-policy").is_none(), "{headers:?}");
    client.shutdown().await;
    east.stop().await;
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
        assert!(fifth.is_err(), "a fifth call began while four are in flight");
    }
    // Two calls in the east end, and two more begin in the west.
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

/// Returns how long a region is cut off from the centre: three windows, or `LESSOR_FAULT_SECONDS`.
fn cut() -> Duration {
    let seconds = std::env::var("LESSOR_FAULT_SECONDS").ok();
    seconds.map_or(3 * PER, |seconds| Duration::from_secs(seconds.parse().expect("seconds")))
}

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
    // The region goes on with what it holds until its term ends, after two seconds at most.
    tokio::join!(call_until(&vendor, &there, until(PER)), call_until(&vendor, &here, until(PER)),);
    let mine = Vendor::new(LIMIT, PER);
    let closed = until(cut() - PER);
    tokio::join!(call_until(&mine, &there, closed), call_until(&vendor, &here, closed));
    assert_eq!(mine.count(), 0, "calls were admitted in a region without its upstream");
    link.set(Fault::None);
    let mended = CLOCK.now();
    eventually("a permit", async || vendor.call(&there).then_some(())).await;
    let resumed = CLOCK.now().since(mended);
    println!("a permit {resumed:?} after the link was mended");
    // After the failures the region pauses before it asks again, and then it takes a term at most.
    assert!(resumed <= Duration::from_secs(3), "{resumed:?}");
    tokio::join!(call_until(&vendor, &there, until(2 * PER)), call_until(&vendor, &here, until(2 * PER)));
    assert_eq!(vendor.breach(), None);
    cut_off.shutdown().await;
    other.shutdown().await;
    for fleet in [east, west, centre] {
        fleet.stop().await;
    }
}

/// Whether the allocator at `url` says that it is ready.
async fn is_ready(url: &str) -> bool {
    reqwest::get(format!("{url}/readyz")).await.expect("the server answers").status().is_success()
}

/// The bug: such a region answered that its limits are empty, and that it is ready. Its nodes stayed there for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_is_cut_off_sends_its_nodes_to_another() {
    let centre = Fleet::start(&centre()).await;
    let address = centre.url.strip_prefix("http://").expect("http").parse().expect("an address");
    let link = Proxy::start(address).await;
    let (east, west) = (region("east", &link.url()).await, region("west", &centre.url).await);
    let builder = Client::builder(&east.url).or(&west.url).node("a");
    let client = builder.connect().await.expect("both answer");
    let limit = client.limit("vendor");
    let spent = async |fleet: &Fleet| fleet.books("vendor").await["pools"][0]["spent"].as_u64().unwrap_or(0);
    limit.acquire_within(1, Duration::from_secs(5)).await.expect("there are plenty");
    link.set(Fault::Cut);
    assert!(is_ready(&east.url).await, "it need not notice before it is asked");
    // The client began at either of them.
    let began = spent(&west).await;
    let only = east.client("b").await;
    let stays = only.limit("vendor");
    eventually("the region is not ready", async || {
        let _ = stays.acquire_within(1, Duration::from_millis(50)).await;
        (!is_ready(&east.url).await).then_some(())
    })
    .await;
    eventually("the other region lends", async || {
        let _ = limit.acquire_within(1, Duration::from_millis(50)).await;
        (spent(&west).await > began + 10).then_some(())
    })
    .await;
    link.set(Fault::None);
    eventually("the region lends again", async || stays.try_acquire(1).ok()).await;
    eventually("the region is ready", async || is_ready(&east.url).await.then_some(())).await;
    for client in [client, only] {
        client.shutdown().await;
    }
    for fleet in [east, west, centre] {
        fleet.stop().await;
    }
}

/// Time between two kills, each of another region, and how many there are.
const KILL_EVERY: Duration = Duration::from_secs(4);
const KILLS: u32 = 3;

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

/// Sixty permits in a year, lent as fast as they are wanted.
const YEARLY: &str = "ease_off = false\nrules = [{ kind = \"fixed_window\", limit = 60, per = \"365d\" }]";

/// The bug: a region reported nothing more of a limit that was removed there. The centre took the permits that the
/// region held for spent.
#[tokio::test]
async fn a_limit_that_is_removed_in_a_region_strands_nothing() {
    let centre = Fleet::start(&format!("[[limit]]\nname = \"vendor\"\n{YEARLY}\n")).await;
    let leased = format!("[[limit]]\nname = \"vendor\"\nupstream = {:?}\n", centre.url);
    let east = Fleet::start(&format!("[server]\nnode = \"east\"\n{leased}")).await;
    let mut admitted = 0;
    let mut take = async |fleet: &Fleet, count: usize| {
        let client = fleet.client("a").await;
        for _ in 0..count {
            let vendor = client.limit("vendor");
            admitted += u64::from(vendor.acquire_within(1, Duration::from_secs(5)).await.is_ok());
        }
        client.shutdown().await;
    };
    take(&east, 5).await;
    let gone = reqwest::Client::new()
        .delete(format!("{}/v1/limits/vendor?confirm=true", east.url))
        .header("if-match", "*");
    let gone = gone.send().await.expect("the server answers");
    assert!(gone.status().is_success(), "{}: {:?}", gone.status(), gone.text().await);
    eventually("nothing is out", async || (centre.number("vendor", "outstanding").await == 0).then_some(()))
        .await;
    take(&centre, 55).await;
    assert_eq!(admitted, 60, "of 60 in a year");
    east.stop().await;
    centre.stop().await;
}
