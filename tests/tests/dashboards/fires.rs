//! Every alert in a run that causes it: real processes, clients, stores and a real Prometheus. Each trouble is made and
//! then mended, and each alert fires and clears. Minutes are seconds here; the thresholds are those that ship.

use super::expressions::{in_store, leased};
use super::prometheus::{Prometheus, export};
use super::{ALERTS, read};
use axum::Router;
use lessor::http::{HeaderMap, HeaderValue, StatusCode};
use lessor::{Client, Limit, RateLimitHeaders};
use lessor_allocator::cells::{Cell, Cells, StoreKind, Swap, Swapped};
use lessor_protocol::CLOCK;
use reqwest::Method;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use scenarios::faults::Faulty;
use scenarios::process::Allocator;
use scenarios::servers::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

/// How long it may take until all alerts fire, or until none fires any more, on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// One minute of the rules, in milliseconds.
const MINUTE: u64 = 1_000;

/// The longest wait of an alert, in milliseconds.
const WAIT_MAX: u64 = 15 * MINUTE;

/// The shortest window for a rate, in milliseconds: Prometheus scrapes four times a second.
const WINDOW_MIN: u64 = 3_000;

/// How long the vendor that refuses asks to be left alone.
const VENDOR_PAUSE: Duration = Duration::from_secs(20);

/// Pause between two calls of a caller that wants a quarter of a limit. One of the limits has two such callers.
const MODEST: Duration = Duration::from_millis(40);

const CONFIG: &str = r#"
[[limit]]
name = "refused"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]

[[limit]]
name = "lowered"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]

[[limit]]
name = "wanted"
rules = [{ kind = "sliding_window", limit = 20, per = "1s" }]

[[limit]]
name = "burning"
rules = [{ kind = "sliding_window", limit = 1000, per = "1s" }]

[[limit]]
name = "paused"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]
"#;

/// A limit whose keys are remembered for a month, in the least memory that an allocator may be given.
const CROWDED: &str = r#"
[server]
memory_max = 67_108_864

[[limit]]
name = "crowded"
keyed = true
rules = [{ kind = "fixed_window", limit = 10, calendar = "month" }]
"#;

fn one(limit: &str, per: &str) -> String {
    format!(
        "[[limit]]\nname = {limit:?}\nrules = [{{ kind = \"sliding_window\", limit = 100, per = {per:?} }}]\n"
    )
}

/// Returns `alerts` with all times divided by sixty, but no window shorter than [`WINDOW_MIN`], and no wait longer than
/// [`WAIT_MAX`].
fn hastened(alerts: &str) -> String {
    let mut hastened = String::new();
    for line in alerts.lines() {
        let mut line = line.to_owned();
        for minutes in [1, 2, 3, 5, 15] {
            let window = (minutes * MINUTE).max(WINDOW_MIN);
            line = line.replace(&format!("[{minutes}m]"), &format!("[{window}ms]"));
            line = line.replace(&format!("offset {minutes}m)"), &format!("offset {window}ms)"));
        }
        if let Some((before, wait)) = line.split_once("for: ") {
            let (number, unit) = wait.split_at(wait.len() - 1);
            let number: u64 = number.parse().expect("a number");
            let millis = if unit == "m" { number * MINUTE } else { number * MINUTE / 60 };
            line = format!("{before}for: {}ms", millis.min(WAIT_MAX));
        }
        hastened = hastened + &line + "\n";
    }
    let is_left = ["m]", "5m)", " 0ms"].iter().any(|time| hastened.contains(time));
    assert!(!is_left, "{hastened}");
    hastened
}

/// Trouble that goes on in the background until this value is dropped.
struct Trouble(JoinSet<()>);

impl Trouble {
    /// Starts callers of `limit`, each with a client of its own and a pause of `pause` between two calls.
    async fn of_callers(url: &str, limit: &str, callers: usize, pause: Duration) -> Trouble {
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            let client = client(url, &format!("{limit}-{caller}")).await;
            let limit = client.limit(limit);
            tasks.spawn(async move {
                let _client = client;
                loop {
                    let _ = limit.try_acquire(1);
                    sleep(pause).await;
                }
            });
        }
        Trouble(tasks)
    }

    /// Starts a caller whose only allocator answers, and turns it away.
    async fn of_a_stranger() -> Trouble {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let client = Client::builder(&url).node("stranger").build().expect("a good address");
        let mut tasks = JoinSet::new();
        let strict = Router::new().fallback(async || StatusCode::UNAUTHORIZED);
        tasks.spawn(async move { axum::serve(listener, strict).await.expect("it serves") });
        tasks.spawn(async move {
            loop {
                let _ = client.limit("denied").try_acquire(1);
                sleep(MODEST).await;
            }
        });
        Trouble(tasks)
    }

    /// Starts processes that die with the permits that they hold, one after another.
    fn of_deaths(url: &str) -> Trouble {
        let (mut tasks, url) = (JoinSet::new(), url.to_owned());
        tasks.spawn(async move {
            loop {
                let url = url.clone();
                spawn_blocking(move || die_with_permits(&url)).await.expect("no panic");
            }
        });
        Trouble(tasks)
    }

    /// Has a caller read in the answers of its vendor that the limit is lower, each time by another number.
    fn of_a_lower_limit(limit: Limit) -> Trouble {
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for number in 0.. {
                let policy = format!("\"rest\";q={};w=1", 50 + number % 2);
                let said = [("ratelimit-policy", policy.as_str()), ("ratelimit", "\"rest\";r=40;t=1")];
                let said = said.map(|(name, value)| {
                    (name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
                });
                limit.observe(StatusCode::OK, &HeaderMap::from_iter(said));
                sleep(Duration::from_secs(1)).await;
            }
        });
        Trouble(tasks)
    }

    /// Starts clients that rewrite the root of the allocators, each as fast as an allocator that goes on from what another one
    /// wrote. The content of the root stays as it is, and no version comes twice.
    async fn of_rivals(store: &Server) -> Trouble {
        let mut tasks = JoinSet::new();
        for rival in 1..=4_u64 {
            let mut cells = Cells::new(&store.config("lessor")).expect("a good configuration");
            let name = "root root".to_owned();
            tasks.spawn(async move {
                let mut known = None;
                for version in (rival << 40).. {
                    let (timeline, cell) = match known.take() {
                        Some(known) => known,
                        None => {
                            let names = std::slice::from_ref(&name);
                            let Ok((timeline, found)) = cells.load(names).await else { continue };
                            let Some(Some(cell)) = found.into_iter().next() else { continue };
                            (timeline, cell)
                        }
                    };
                    let (expected, next) = (Some(cell.version), Cell { version, ..cell });
                    let swap = Swap { name: name.clone(), expected, next: Some(next.clone()) };
                    let swapped = cells.swap(&timeline, &[swap]).await.ok().and_then(|mut all| all.pop());
                    known = match swapped {
                        Some(Swapped::Done) => Some((timeline, next)),
                        Some(Swapped::Other(Some(other))) => Some((timeline, other)),
                        Some(Swapped::Other(None)) | None => None,
                    };
                }
            });
        }
        Trouble(tasks)
    }

    /// Stops a store most of the time.
    fn of_pauses(store: Arc<Server>) -> Trouble {
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                store.stop();
                sleep(Duration::from_millis(150)).await;
                store.go_on();
                sleep(Duration::from_millis(50)).await;
            }
        });
        Trouble(tasks)
    }

    async fn end(mut self) {
        self.0.shutdown().await;
    }
}

async fn client(url: &str, node: &str) -> Client {
    Client::builder(url).node(node).connect().await.expect("the allocator answers")
}

/// Keeps the process from writing files longer than `most` bytes.
fn limit_files(allocator: &Allocator, most: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(allocator.running.id()).expect("a process id"));
    prlimit(pid, Resource::Fsize, Rlimit { current: most, maximum: None }).expect("the process is ours");
}

async fn send(method: Method, url: &str, body: &'static str) {
    let said = reqwest::Client::new().request(method, url).header("content-type", "application/json");
    let answer = said.body(body).send().await.expect("the server answers");
    assert!(answer.status().is_success(), "{url}: {}", answer.status());
}

/// Waits until the metrics of the allocator at `url` have this `sample`.
async fn shows(url: &str, sample: &str) {
    let end = CLOCK.now() + PATIENCE;
    loop {
        let answer = reqwest::get(format!("{url}/metrics")).await.expect("the server answers");
        if answer.text().await.expect("text").contains(sample) {
            return;
        }
        assert!(CLOCK.now() < end, "{url} never shows {sample:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Asks for permits of new keys until memory is too short for more of them.
async fn crowd(url: &str) {
    for batch in 1..500 {
        let ask = |key| json!({ "limit": "crowded", "key": format!("{batch}-{key}"), "spent_total": 0, "held": 0, "want": 1, "waiting": 1 });
        let asks: Vec<Value> = (0..1_000).map(ask).collect();
        let body = json!({ "node": "crowd", "session": 1, "seq": batch, "asks": asks });
        let answer = reqwest::Client::new().post(format!("{url}/v1/leases")).json(&body).send().await;
        let answer = answer.expect("the server answers").text().await.expect("text");
        if answer.contains("memory is short") {
            return;
        }
    }
    panic!("half a million keys fit into 64 MiB");
}

/// Kills an allocator every second and a half, and starts it again at once with its store.
async fn begin_again(mut allocator: Allocator) -> Allocator {
    for _ in 0..5 {
        allocator = spawn_blocking(|| allocator.restart()).await.expect("it starts");
        sleep(Duration::from_millis(1_500)).await;
    }
    allocator
}

/// Has a process live for a tenth of a second. Its runtime goes first, so that it says no goodbye.
fn die_with_permits(url: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limit = runtime.block_on(async {
        let limit = client(url, "mortal").await.limit("burning");
        let _ = limit.acquire_within(50, Duration::from_secs(1)).await;
        for _ in 0..100 {
            let _ = limit.try_acquire(1);
            sleep(Duration::from_millis(1)).await;
        }
        limit
    });
    runtime.shutdown_background();
    drop(limit);
}

/// Polls until `is_it` holds of all alerts that have fired since the call, and of those that fire now.
async fn watch(
    prometheus: &Prometheus,
    what: &str,
    is_it: impl Fn(&BTreeSet<String>, &BTreeSet<String>) -> bool,
) {
    let (began, mut fired, mut before) = (CLOCK.now(), BTreeSet::new(), BTreeSet::new());
    loop {
        let firing = prometheus.firing().await.expect("the server answers");
        let took = CLOCK.now().since(began);
        for (change, alerts) in [("fires", &firing - &before), ("clears", &before - &firing)] {
            alerts.iter().for_each(|alert| println!("{alert} {change} after {took:.1?}"));
        }
        fired.extend(firing.iter().cloned());
        if is_it(&fired, &firing) {
            return;
        }
        assert!(took < PATIENCE, "{what}: {fired:?} have fired, and now {firing:?}");
        before = firing;
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_alert_fires_in_a_run_that_causes_it_and_clears() {
    let start = |config: &str| Allocator::start(config, "127.0.0.1:0", true);
    let process = export().await;
    // One store is stopped again and again, and another client writes to the other one.
    let [slow, rival] = [(); 2].map(|()| Arc::new(Server::start(StoreKind::Redis, &[])));
    let main = start(CONFIG);
    let [full, forgetful, away] = [("full", "1s"), ("forgetful", "10s"), ("away", "1s")]
        .map(|(limit, per)| Allocator::start_to_be_limited(&one(limit, per)));
    let crowded = start(CROWDED);
    // Only the trouble asks for the limit that the upstream does not have.
    let region = start(&(leased("away", &away.url) + &leased("mistyped", &main.url)));
    let [slowed, contended] = [&slow, &rival].map(|store| start(&in_store(store)));
    let looping = start(&one("looping", "1s"));
    let ahead = Faulty::start(&one("ahead", "1s"));
    let at = ahead.address().to_string();
    let all = [&main, &full, &forgetful, &away, &crowded, &region, &slowed, &contended, &looping];
    let all = [all.map(Allocator::address).as_slice(), &[&at]].concat();
    let rules = read(ALERTS);
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    let prometheus = Prometheus::start(&hastened(&rules), &all, &process);

    // At first all is well, and Prometheus scrapes for a while.
    let calls = [
        Trouble::of_callers(&full.url, "full", 1, MODEST).await,
        Trouble::of_callers(&away.url, "away", 1, MODEST).await,
        Trouble::of_callers(&region.url, "away", 1, MODEST).await,
        Trouble::of_callers(&slowed.url, "root", 1, MODEST).await,
        Trouble::of_callers(&contended.url, "root", 1, MODEST).await,
    ];
    let vendor = client(&main.url, "vendor").await;
    let [refused, lowered] = ["refused", "lowered"].map(|limit| vendor.limit(limit));
    for limit in [&refused, &lowered] {
        limit.acquire_within(1, PATIENCE).await.expect("there is plenty");
    }
    let looked = format!("min(count_over_time(up[10s])) > 8 and count(up == 1) == {}", all.len() + 1);
    let end = CLOCK.now() + PATIENCE;
    while !prometheus.samples(&looked).await.is_ok_and(|samples| !samples.is_empty()) {
        assert!(CLOCK.now() < end, "Prometheus does not see all targets");
        sleep(Duration::from_millis(100)).await;
    }
    let mut quiet = prometheus.firing().await.expect("the server answers");
    // The disk of a busy machine may really be slow.
    quiet.remove("LessorStoreSlow");
    assert_eq!(quiet, BTreeSet::new(), "an alert fires before the run");

    // Now everything goes wrong at once.
    refused.report(&RateLimitHeaders::refused(Some(VENDOR_PAUSE)));
    let lowered = Trouble::of_a_lower_limit(lowered);
    let [paused, block] =
        ["pause", "nodes/runaway/block"].map(|act| format!("{}/v1/limits/paused/{act}", main.url));
    send(Method::POST, &paused, r#"{"for":"1h"}"#).await;
    send(Method::POST, &block, "").await;
    ahead.set("shift_s 60");
    main.rewrite("[[limit]]\nname = 7\n");
    main.running.signal(Signal::HUP);
    away.running.signal(Signal::STOP);
    limit_files(&full, Some(0));
    let forgetful = forgetful.restart_after(|folder| {
        std::fs::remove_file(folder.join("lessor.redb")).expect("the file can be removed");
    });
    let looping = tokio::spawn(begin_again(looping));
    // On a busy machine the keys take longer than some alerts last.
    let url = crowded.url.clone();
    let crowding = tokio::spawn(async move { crowd(&url).await });
    let wanted = Trouble::of_callers(&main.url, "wanted", 3, Duration::from_millis(2)).await;
    let deaths = Trouble::of_deaths(&main.url);
    let mistyped = Trouble::of_callers(&region.url, "mistyped", 1, MODEST).await;
    let gone = Trouble::of_callers(&main.url, "gone", 1, MODEST).await;
    let stranger = Trouble::of_a_stranger().await;
    let pauses = Trouble::of_pauses(slow.clone());
    let shared = in_store(&rival);
    let goes_by = |version: u64| {
        contended.rewrite(&shared.replacen("[store]", &format!("[store]\nversion = {version}"), 1));
        contended.running.signal(Signal::HUP);
    };
    // A newer file that is rolled back to a lower version.
    goes_by(2);
    shows(&contended.url, "\nlessor_store_config_version 2").await;
    goes_by(1);
    let rival = Trouble::of_rivals(&rival).await;
    watch(&prometheus, "not all fire", |fired, _| *fired == names).await;
    crowding.await.expect("the keys do not fit");
    let looping = looping.await.expect("it starts each time");

    // Then everything is mended.
    for trouble in [lowered, wanted, deaths, mistyped, gone, stranger, pauses, rival] {
        trouble.end().await;
    }
    slow.go_on();
    limit_files(&full, None);
    away.running.signal(Signal::CONT);
    let roomy = CROWDED.replace("67_108_864", "4_000_000_000");
    let crowded = crowded.restart_after(|folder| {
        std::fs::write(folder.join("lessor.toml"), roomy).expect("a writable file");
    });
    send(Method::POST, &format!("{}/v1/limits/paused/resume", main.url), "").await;
    send(Method::DELETE, &block, "").await;
    ahead.set("");
    main.rewrite(CONFIG);
    main.running.signal(Signal::HUP);
    goes_by(3);
    watch(&prometheus, "some go on", |_, firing| firing.is_empty()).await;
    for calls in calls {
        calls.end().await;
    }
    drop((forgetful, crowded, looping));
}
