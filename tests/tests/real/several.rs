//! A client of two allocators, which are real processes that each lend half of what the vendor allows: killed, stopped,
//! and restarted one after another. The vendor counts all admissions, wherever the permits came from.

use lessor::{Client, Event, Events, Limit};
use lessor_protocol::{CLOCK, Moment};
use rustix::process::Signal;
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

const ANYWHERE: &str = "127.0.0.1:0";
/// How long an allocator is away during a rolling restart: longer than a lease.
const AWAY: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

/// Half of 6,000 in two seconds, which is more than a node wants that calls once a millisecond. Leases are long, so
/// that they outlast the delays of a busy machine.
const PLENTY: &str = r#"
[[limit]]
name = "vendor"
term = { min = "400ms", max = "400ms" }
rules = [{ kind = "sliding_window", limit = 3000, per = "2s", margin = "50ms" }]
"#;

/// Half of 200 in a second, which is less than the node wants.
const FEW: &str = r#"
[[limit]]
name = "vendor"
term = { min = "200ms", max = "200ms" }
rules = [{ kind = "sliding_window", limit = 100, per = "1s", margin = "50ms" }]
"#;

/// Two calls in flight.
const CAPPED: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "concurrency", limit = 2, longest = "2s" }]
"#;

/// Adds a store in memory, so the books are lost with their process.
fn in_memory(config: &str) -> String {
    format!("[store]\nkind = \"memory\"\n{config}")
}

/// Two allocators, and a client that knows both.
struct Pair {
    client: Client,
    limit: Limit,
    /// The allocator that the client has asked so far, and the other.
    asked: Allocator,
    other: Allocator,
}

impl Pair {
    /// With this timeout, the client does not take an allocator for silent that is slow because the machine is busy.
    async fn start(config: &str) -> Pair {
        Pair::start_with(config, |builder| builder.exchange_timeout(Duration::from_secs(4))).await
    }

    async fn start_with(config: &str, options: impl FnOnce(lessor::Builder) -> lessor::Builder) -> Pair {
        let (asked, other) =
            (Allocator::start(config, ANYWHERE, true), Allocator::start(config, ANYWHERE, true));
        let builder = options(Client::builder(&asked.url).or(&other.url).node("a"));
        let client = builder.connect().await.expect("both answer");
        let limit = client.limit("vendor");
        limit.acquire_within(1, LONG).await.expect("there are plenty");
        let is_other = number(&other, "granted").await > 0;
        assert!(is_other != (number(&asked, "granted").await > 0), "the client asks exactly one allocator");
        let (asked, other) = if is_other { (other, asked) } else { (asked, other) };
        Pair { client, limit, asked, other }
    }
}

/// Returns a number in the books of an allocator.
async fn number(allocator: &Allocator, field: &str) -> u64 {
    let body =
        reqwest::get(format!("{}/v1/limits/vendor/pools", allocator.url)).await.expect("the server answers");
    let books: Value = serde_json::from_str(&body.text().await.expect("a text")).expect("JSON");
    books["pools"][0][field].as_u64().unwrap_or(0)
}

/// Returns the asks that an allocator found wrong: they came from a session that it does not know, or reported permits
/// that it has not lent.
async fn wrong(allocator: &Allocator) -> u64 {
    let body = reqwest::get(format!("{}/metrics", allocator.url)).await.expect("the server answers");
    let body = body.text().await.expect("a text");
    let counts = body.lines().filter(|line| line.starts_with("lessor_asks_wrong_total{"));
    counts
        .map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a count"))
        .sum()
}

/// A caller that tries once a millisecond: the instants at which it was admitted, and at which it was refused.
#[derive(Debug, Default)]
struct Tried {
    admitted: Vec<Moment>,
    refused: Vec<Moment>,
}

impl Tried {
    async fn until(vendor: &Vendor, limit: &Limit, is_over: impl Fn() -> bool) -> Tried {
        let (mut tried, mut tick) = (Tried::default(), interval(Duration::from_millis(1)));
        while !is_over() {
            tick.tick().await;
            let of = if vendor.call(limit) { &mut tried.admitted } else { &mut tried.refused };
            of.push(CLOCK.now());
        }
        tried
    }

    async fn during(vendor: &Vendor, limit: &Limit, span: Duration) -> Tried {
        let end = CLOCK.now() + span;
        Tried::until(vendor, limit, || CLOCK.now() >= end).await
    }

    /// Returns the longest time after `since` without an admission.
    fn longest_gap(&self, since: Moment) -> Duration {
        let after: Vec<Moment> = self.admitted.iter().copied().filter(|at| *at >= since).collect();
        let first = after.first().expect("the client went on").since(since);
        after.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or_default().max(first)
    }

    fn refused_after(&self, since: Moment) -> usize {
        self.refused.iter().filter(|at| **at >= since).count()
    }
}

/// Waits until the client reports that it moved to `to`. Until then it must report no outage.
async fn wait_for_move(events: &mut Events, to: &Allocator) {
    let moved = async {
        loop {
            let event = events.next().await.expect("the client lives");
            assert!(!matches!(event, Event::Unreachable | Event::FallbackEntered { .. }), "{event:?}");
            if let Event::Moved { to, .. } = event {
                return to;
            }
        }
    };
    assert_eq!(&*timeout(LONG, moved).await.expect("in time"), to.url);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_allocator_is_killed_it_goes_on_at_the_other() {
    let pair = Pair::start(PLENTY).await;
    goes_on_at_the_other(pair, Signal::KILL, Duration::from_millis(400)).await;
}

/// The allocator neither answers nor hangs up, as if its machine were gone.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_allocator_is_silent_it_goes_on_at_the_other() {
    let pair = Pair::start_with(PLENTY, |builder| builder).await;
    goes_on_at_the_other(pair, Signal::STOP, Duration::from_secs(1)).await;
}

async fn goes_on_at_the_other(pair: Pair, signal: Signal, within: Duration) {
    let Pair { client, limit, asked, other } = pair;
    let mut events = client.events();
    let vendor = Arc::new(Vendor::new(6_000, Duration::from_secs(2)));
    let trying = tokio::spawn({
        let (vendor, limit) = (vendor.clone(), limit.clone());
        async move { Tried::during(&vendor, &limit, Duration::from_secs(3)).await }
    });
    sleep(Duration::from_secs(1)).await;
    let killed = CLOCK.now();
    asked.running.signal(signal);
    wait_for_move(&mut events, &other).await;
    let tried = trying.await.expect("no panic");
    println!(
        "{signal:?}: {} refused, longest gap {:?}",
        tried.refused_after(killed),
        tried.longest_gap(killed)
    );
    assert_eq!(vendor.breach(), None);
    assert!(tried.longest_gap(killed) < within);
    assert_eq!(wrong(&other).await, 0, "the other allocator got reports of leases that it never granted");
    assert_eq!(
        (client.stats().moves, client.stats().listening),
        (1, 2),
        "the client moved once, and listens to the new allocator"
    );
    client.shutdown().await;
    eventually("all permits are returned", async || (number(&other, "outstanding").await == 0).then_some(()))
        .await;
}

/// The first allocator is asked again while it still remembers what it lent before. Since then the client has reported
/// nothing to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_to_an_allocator_that_remembers_spends_nothing_twice() {
    let Pair { client, limit, asked, other } = Pair::start_with(FEW, |builder| builder).await;
    let vendor = Vendor::new(200, Duration::from_secs(1));
    let is_over = AtomicBool::new(false);
    let stops = async {
        for allocator in [&asked, &other].into_iter().cycle().take(6) {
            let moves = client.stats().moves;
            allocator.running.signal(Signal::STOP);
            let moved = async {
                while client.stats().moves == moves {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            // If the other allocator was slow for a moment, the client may have moved already.
            let _ = timeout(Duration::from_secs(1), moved).await;
            allocator.running.signal(Signal::CONT);
            sleep(Duration::from_millis(300)).await;
        }
        let last = CLOCK.now();
        sleep(Duration::from_millis(1_500)).await;
        is_over.store(true, Ordering::Relaxed);
        last
    };
    let until = Tried::until(&vendor, &limit, || is_over.load(Ordering::Relaxed));
    let (last, _) = tokio::join!(stops, until);
    assert_eq!(vendor.breach(), None);
    println!(
        "stopped six times in turn: {} calls, {} of them after the last",
        vendor.count(),
        vendor.count_after(last)
    );
    assert!(client.stats().moves >= 4 && vendor.count_after(last) > 0, "the client moved to and fro");
    client.shutdown().await;
    for allocator in [&asked, &other] {
        assert_eq!(wrong(allocator).await, 0, "an allocator got reports of leases that it never granted");
        let granted = number(allocator, "granted").await;
        let ended = async || {
            let mut sum = 0;
            for field in ["spent", "returned", "burned"] {
                sum += number(allocator, field).await;
            }
            (sum == granted).then_some(())
        };
        eventually("everything granted is settled or returned", ended).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_to_an_allocator_that_forgot_spends_nothing_twice() {
    let Pair { client, limit, asked, other } = Pair::start(&in_memory(FEW)).await;
    let vendor = Vendor::new(200, Duration::from_secs(1));
    Tried::during(&vendor, &limit, Duration::from_millis(500)).await;
    // The allocator comes back at once with empty books, and lends nothing for a while.
    let asked = asked.restart();
    Tried::during(&vendor, &limit, Duration::from_millis(500)).await;
    let other = other.restart();
    let tried = Tried::during(&vendor, &limit, Duration::from_secs(5)).await;
    assert_eq!(vendor.breach(), None);
    assert!(!tried.admitted.is_empty(), "calls go on after the quarantine");
    client.shutdown().await;
    drop((asked, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_allocator_it_is_as_with_one_and_goes_on_with_whichever_comes_back() {
    let Pair { client, limit, asked, other } = Pair::start(FEW).await;
    let mut events = client.events();
    let folders = [asked, other].map(|allocator| {
        allocator.running.signal(Signal::STOP);
        allocator
    });
    for allocator in &folders {
        allocator.running.signal(Signal::KILL);
        allocator.running.signal(Signal::CONT);
    }
    let hear = async |events: &mut Events, wanted: fn(&Event) -> bool| {
        while !wanted(&timeout(LONG, events.next()).await.expect("in time").expect("the client lives")) {}
    };
    let failed = client.stats().failed_exchanges;
    hear(&mut events, |event| *event == Event::Unreachable).await;
    hear(&mut events, |event| matches!(event, Event::FallbackEntered { .. })).await;
    assert!(matches!(limit.try_acquire(1), Err(lessor::Refusal::Unreachable { .. })));
    let vendor = Vendor::new(200, Duration::from_secs(1));
    Tried::during(&vendor, &limit, Duration::from_secs(3)).await;
    let failed = client.stats().failed_exchanges - failed;
    println!("no allocator for 3 s: {failed} exchanges failed");
    assert!(failed < 15, "{failed} in vain");
    assert_eq!((vendor.count(), client.stats().moves), (0, 0));
    let [one, two] = folders;
    let back = one.restart();
    hear(&mut events, |event| *event == Event::Reachable).await;
    limit.acquire_within(1, LONG).await.expect("the allocator lends");
    client.shutdown().await;
    drop((back, two));
}

/// One allocator after another is stopped in good order and started again, while callers wait their turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_refuses_no_caller_that_waits() {
    let Pair { client, limit, asked, other } = Pair::start(PLENTY).await;
    let vendor = Arc::new(Vendor::new(6_000, Duration::from_secs(2)));
    let (over, is_over) = tokio::sync::watch::channel(false);
    let waits: Vec<_> = (0..8)
        .map(|_| {
            let (vendor, limit, is_over) = (vendor.clone(), limit.clone(), is_over.clone());
            tokio::spawn(async move {
                let (mut served, mut longest) = (0, Duration::ZERO);
                while !*is_over.borrow() {
                    let began = CLOCK.now();
                    assert!(vendor.wait(&limit, Duration::from_secs(1)).await, "refused after {served}");
                    longest = longest.max(CLOCK.now().since(began));
                    served += 1;
                    sleep(Duration::from_millis(8)).await;
                }
                (served, longest)
            })
        })
        .collect();
    let mut allocators = [asked, other];
    for _ in 0..2 {
        for place in 0..2 {
            sleep(Duration::from_millis(500)).await;
            allocators = tokio::task::spawn_blocking(move || {
                let [one, two] = allocators;
                if place == 0 { [one.replace(AWAY), two] } else { [one, two.replace(AWAY)] }
            })
            .await
            .expect("no panic");
        }
    }
    sleep(Duration::from_millis(500)).await;
    over.send_replace(true);
    let (mut served, mut longest) = (0, Duration::ZERO);
    for wait in waits {
        let (calls, wait) = wait.await.expect("no call is refused");
        (served, longest) = (served + calls, longest.max(wait));
    }
    println!(
        "restarted in turn, {} moves: {served} calls, the longest wait {longest:?}",
        client.stats().moves
    );
    assert_eq!(vendor.breach(), None);
    assert!(client.stats().moves >= 3, "the client moved each time its allocator stopped");
    client.shutdown().await;
}

/// Starts a balancer that passes exchanges on to `allocators` by turns, and nothing else. Returns its URL.
async fn balanced(allocators: [String; 2]) -> (String, JoinHandle<std::io::Result<()>>) {
    let (turns, passes) = (Arc::new(AtomicUsize::new(0)), reqwest::Client::new());
    let pass = move |body: String| async move {
        let turn = turns.fetch_add(1, Ordering::Relaxed) % allocators.len();
        let request = passes.post(format!("{}/v1/leases", allocators[turn])).body(body);
        let answer = request.header("content-type", "application/json").send().await;
        answer.expect("both answer").text().await.expect("a text")
    };
    let router = axum::Router::new().route("/v1/leases", axum::routing::post(pass));
    let listener = tokio::net::TcpListener::bind(ANYWHERE).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    (url, tokio::spawn(async move { axum::serve(listener, router).await }))
}

/// The bug: the second allocator did not know the lease, so the client counted from zero. Back at the first one, in the
/// same session, that took all that it had lent for unspent, and lent it again. A region did the same.
#[tokio::test(flavor = "multi_thread")]
async fn two_allocators_behind_one_address_lend_no_permit_twice() {
    let half =
        "[[limit]]\nname = \"vendor\"\nrules = [{ kind = \"sliding_window\", limit = 5, per = \"60s\" }]\n";
    let judged = async |is_region: bool| {
        let (one, other) = (Fleet::start(&in_memory(half)).await, Fleet::start(&in_memory(half)).await);
        let (url, balancer) = balanced([one.url.clone(), other.url.clone()]).await;
        let leased = in_memory(&format!("[[limit]]\nname = \"vendor\"\nupstream = \"{url}\"\n"));
        let region = if is_region { Some(Fleet::start(&leased).await) } else { None };
        let asked = region.as_ref().map_or(&url, |region| &region.url);
        let client = Client::builder(asked).connect().await.expect("it answers");
        let vendor = Vendor::new(10, Duration::from_secs(60));
        let tried = Tried::during(&vendor, &client.limit("vendor"), Duration::from_secs(5)).await;
        assert!(!tried.admitted.is_empty(), "nothing was lent");
        assert_eq!(vendor.breach(), None, "{} calls, of a region: {is_region}", tried.admitted.len());
        client.shutdown().await;
        if let Some(region) = region {
            region.stop().await;
        }
        balancer.abort();
        one.stop().await;
        other.stop().await;
    };
    tokio::join!(judged(false), judged(true));
}

/// Calls stay in flight at the allocator that admitted them, until it must take them for ended. The other allocator
/// counts only its own.
#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_stay_with_the_allocator_that_let_them_begin() {
    let Pair { client, limit, asked, other } = Pair::start(CAPPED).await;
    let enter = async || limit.enter_within(1, Duration::from_secs(5)).await.expect("there is room");
    let first = enter().await;
    asked.running.kill();
    let (second, third) = (enter().await, enter().await);
    assert_eq!(client.stats().moves, 1);
    drop(first);
    assert!(
        limit.enter_within(1, Duration::from_millis(300)).await.is_err(),
        "a call that ends at one allocator makes no room at the other"
    );
    let told = async || (number(&other, "granted").await == 2).then_some(());
    eventually("the other allocator has granted two", told).await;
    drop(second);
    drop(enter().await);
    drop(third);
    client.shutdown().await;
}

#[tokio::test]
async fn an_address_that_is_none_is_named_and_one_that_answers_is_enough() {
    let wrong = Client::builder("http://127.0.0.1:1").or("https://ops:secret@127.0.0.1:2").build();
    let error = wrong.map(|_| ()).expect_err("this build speaks no TLS").to_string();
    assert!(error.starts_with("cannot connect to \"https://127.0.0.1:2\""), "{error}");

    let allocator = Allocator::start(FEW, ANYWHERE, true);
    for seed in 0..4 {
        let client = Client::builder("http://127.0.0.1:1").or(&allocator.url).or("http://127.0.0.1:2");
        let client = client.seed(seed).connect().await.expect("one of them answers");
        client.limit("vendor").acquire_within(1, LONG).await.expect("the allocator lends");
        client.shutdown().await;
    }
    let refused = Client::builder("http://ops:secret@127.0.0.1:1").connect().await;
    let error = refused.map(|_| ()).expect_err("an allocator asks for no password").to_string();
    assert!(!error.contains("secret"), "{error}");
}
