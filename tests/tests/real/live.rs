//! Limits that change while a fleet runs on them: the real binary as allocator and as command line, real clients, and a
//! strict vendor that knows what each contract allowed at what time.

use lessor::{Client, Limit};
use lessor_protocol::{CLOCK, Moment};
use scenarios::process::{Allocator, lessor};
use scenarios::vendor::Vendor;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

const PER: Duration = Duration::from_secs(1);

/// The longest lease of such a limit, a thirtieth of a second, and ten times as much for a busy machine.
const LEASE: Duration = Duration::from_millis(400);

/// How long a permit may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "sliding_window", limit = 100, per = "1s", margin = "0s" }]

[[limit]]
name = "empty"
rules = [{ kind = "fixed_window", limit = 10, per = "366d" }]
"#;

/// Runs `lessor limits` with `args`.
async fn limits(server: &str, args: &[&str]) -> Output {
    let mut command = Command::new(lessor());
    command.args(["limits", "--server", server]).args(args);
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("it does not panic").expect("the command runs")
}

async fn done(server: &str, args: &[&str]) {
    let output = limits(server, args).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
}

fn rules(limit: u64) -> String {
    format!("[{{ kind = \"sliding_window\", limit = {limit}, per = \"1s\", margin = \"0s\" }}]")
}

async fn client(allocator: &Allocator, name: &str) -> Client {
    Client::builder(&allocator.url).node(name).connect().await.expect("the allocator answers")
}

/// Starts a caller that tries a call every millisecond. `vendor` counts those that are admitted.
fn drive(limit: &Limit, vendor: &Arc<Vendor>) -> JoinHandle<()> {
    let (limit, vendor) = (limit.clone(), vendor.clone());
    tokio::spawn(async move {
        let mut tick = interval(Duration::from_millis(1));
        loop {
            tick.tick().await;
            vendor.call(&limit);
        }
    })
}

/// Lets `fleet` call for `span`. Returns the vendor, with a contract of `limit`, that counted the calls.
async fn run(fleet: &[Limit], limit: u64, span: Duration) -> Arc<Vendor> {
    let vendor = Arc::new(Vendor::new(limit, PER));
    let callers: Vec<_> = fleet.iter().map(|limit| drive(limit, &vendor)).collect();
    sleep(span).await;
    for caller in callers {
        caller.abort();
        assert!(caller.await.is_err_and(|error| error.is_cancelled()));
    }
    vendor
}

/// A limit is halved, doubled and paused by the command line, under a fleet that wants more. Windows that overlap a
/// change, or leases from before it, keep the larger limit. All other windows keep the limit in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_the_contract_while_it_is_halved_doubled_and_paused() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let (mut clients, mut fleet) = (vec![], vec![]);
    for node in 0..4 {
        let client = client(&allocator, &format!("node-{node}")).await;
        fleet.push(client.limit("vendor/rest"));
        clients.push(client);
    }
    let all = Vendor::new(200, PER);
    let of_100 = run(&fleet, 100, 2 * PER).await;
    done(&allocator.url, &["set", "vendor/rest", "--rules", &rules(50)]).await;
    let overlapping = run(&fleet, 100, LEASE).await;
    let of_50 = run(&fleet, 50, 3 * PER).await;
    done(&allocator.url, &["set", "vendor/rest", "--rules", &rules(200)]).await;
    let of_200 = run(&fleet, 200, 3 * PER).await;
    done(&allocator.url, &["pause", "vendor/rest"]).await;
    let pausing = run(&fleet, 200, LEASE).await;
    let of_none = run(&fleet, 0, PER).await;
    assert_eq!(of_none.count(), 0, "calls were admitted while the limit is paused");
    done(&allocator.url, &["resume", "vendor/rest"]).await;
    let resumed = run(&fleet, 200, 2 * PER).await;
    for (vendor, least) in [(&of_100, 100), (&of_50, 75), (&of_200, 300), (&resumed, 150)] {
        assert!(vendor.count() >= least, "{} calls, at least {least} were to be had", vendor.count());
    }
    // Calls admitted under the old limit may still be in a window of the new one, but never more than the larger limit.
    let across = Vendor::new(100, PER);
    [&of_100, &overlapping, &of_50].into_iter().for_each(|vendor| across.merge(vendor));
    assert_eq!(across.breach(), None, "across the first change");
    let phases = [&of_100, &overlapping, &of_50, &of_200, &pausing, &resumed];
    for (phase, vendor) in phases.into_iter().enumerate() {
        assert_eq!(vendor.breach(), None, "in phase {phase}");
        all.merge(vendor);
    }
    assert_eq!(all.breach(), None);
    for client in clients {
        client.shutdown().await;
    }
}

/// The bugs: a top-up that added nothing looked like one that did, and messages did not name what was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_does_by_mistake_is_named() {
    let config = "[[limit]]\nname = \"export\"\nkeyed = true\nrules = [{ kind = \"fixed_window\", limit = 9, per = \"1h\" }]\n\
                  [[limit]]\nname = \"month\"\nrules = [{ kind = \"fixed_window\", limit = 9, calendar = \"month\" }]\n";
    let allocator = Allocator::start(config, "127.0.0.1:0", true);
    let url = &allocator.url;
    let said = async |line: &str| {
        let output = limits(url, &line.split(' ').collect::<Vec<_>>()).await;
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
        (output.status.code(), said.concat())
    };
    for (line, code, says) in [
        ("list", 0, "fixed_window 9/month"),
        ("top-up month 5 --id a", 0, "added 5 to month"),
        ("top-up month 5 --id a", 0, "already applied under the id \"a\""),
        ("top-up month 6 --id a", 2, "id is \"a\", under which 5 permits were added already"),
        ("top-up export 5", 2, "--pool-key"),
        ("set month --rules foo", 2, "--rules is \"foo\": expected an array of rules"),
        ("set month --rules [foo]", 2, "--rules is \"[foo]\": expected an array of rules"),
        ("block month node-7", 0, "no such node is known now"),
        ("unblock month node-7", 0, "month lends to node-7 again"),
        ("unblock month node-7", 0, "was not blocked"),
        ("pause month --for 1h", 0, "paused for 1h"),
        ("list", 0, "paused for 59m"),
    ] {
        let (ended, said) = said(line).await;
        assert_eq!(ended, Some(code), "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
    }
}

/// The demo, as docs/live.md shows it: its limit is lowered, halved, doubled, paused, topped up and resumed by the
/// command line. Any 30 seconds have at most the largest limit of that time and the top-up.
#[tokio::test(flavor = "multi_thread")]
async fn a_demo_keeps_the_promise_for_changes_to_its_vendor() {
    let mut command = Command::new(lessor());
    command.args(["demo", "--nodes", "3", "--seconds", "10", "--json", "--listen", "127.0.0.1:0"]);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut said = BufReader::new(demo.stderr.take().expect("a pipe"));
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        said.read_line(&mut line).map(|_| (line, said))
    });
    // Kept open, because the demo may write more.
    let (line, mut said) = line.await.expect("no panic").expect("text");
    let url = line.trim_end().strip_prefix("listening on ").expect("the demo prints its address");
    let limits_of = async |permits: u64| {
        let rule = format!("kind = \"sliding_window\", limit = {permits}, per = \"30s\", margin = \"250ms\"");
        done(url, &["set", "vendor/rest", "--rules", &format!("[{{ {rule} }}]")]).await;
    };
    limits_of(2_000).await;
    let end = CLOCK.now() + PATIENCE;
    loop {
        let shown = limits(url, &["get", "vendor/rest", "--json"]).await;
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        // The last tenth is lent slowly, and lasts until the first calls leave the window.
        if shown["available"].as_u64().expect("a number") <= 200 {
            break;
        }
        assert!(CLOCK.now() < end, "the contract is never used up: {shown}");
        sleep(Duration::from_millis(50)).await;
    }
    limits_of(1_000).await;
    limits_of(2_000).await;
    done(url, &["pause", "vendor/rest"]).await;
    done(url, &["top-up", "vendor/rest", "300"]).await;
    done(url, &["resume", "vendor/rest"]).await;
    let ran = tokio::task::spawn_blocking(move || demo.wait_with_output());
    let ran = ran.await.expect("no panic").expect("the demo ends");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(ran.status.success(), "{rest}");
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let most = report["limits"][0]["max_in_any_window"].as_u64().expect("a number");
    assert!((2_001..=2_300).contains(&most), "{most} of 2,000 and the 300 on top: {report}");
    assert_eq!(report["stranded"], 0);
}

/// The vendor of a demo halves its contract before half of it is used, and restores it later. No call is refused
/// because of either change, and the report tells how both went. A contract can be restored only after it was halved.
#[tokio::test(flavor = "multi_thread")]
async fn a_demo_whose_vendor_restores_its_contract_says_how_that_went() {
    let demo = |args: &str| {
        let mut command = Command::new(lessor());
        command.args(args.split(' ')).stdin(Stdio::null());
        let ran = tokio::task::spawn_blocking(move || command.output());
        async { ran.await.expect("no panic").expect("the command starts") }
    };
    let wrong = demo("demo --vendor-halves-at 3 --vendor-restores-at 3").await;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert_eq!(said, "lessor: --vendor-restores-at 3 is not after --vendor-halves-at 3\n");
    let ran = demo("demo --nodes 2 --seconds 6 --json --vendor-halves-at 1 --vendor-restores-at 3").await;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let change = &report["vendor_change"];
    assert_eq!((&change["at_s"], &change["limit"]), (&Value::from(1.0), &Value::from(4_500)), "{report}");
    let restored = &change["restored"];
    assert_eq!((&restored["at_s"], &restored["limit"]), (&Value::from(3.0), &Value::from(9_000)), "{report}");
    assert!(restored["used_at_the_end"].as_f64().is_some_and(|used| used > 0.1), "{report}");
    assert_eq!(restored["whole_after_s"], Value::Null, "windows of 30 s are too long for this run: {report}");
    assert_eq!(restored["vendor_429"], 0, "{report}");
    assert_eq!(report["stranded"], 0);
}

/// Waiting nodes are told of a top-up. They are served within a round trip, and need not wait until they would have
/// asked again.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_waits_is_served_as_soon_as_there_is_a_top_up() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = client(&allocator, "waiting").await;
    let limit = client.limit("empty");
    for _ in 0..10 {
        limit.acquire_within(1, PATIENCE).await.expect("ten are there");
    }
    let call = tokio::spawn({
        let limit = limit.clone();
        async move {
            limit.acquire(1).await.expect("the limit is topped up");
            CLOCK.now()
        }
    });
    // By then the client has asked, was told that nothing comes this year, and listens for events.
    let end = CLOCK.now() + PATIENCE;
    while client.stats().listening < 1 || limit.acquire_within(1, Duration::ZERO).await.is_ok() {
        assert!(CLOCK.now() < end, "the client hears no event");
        sleep(Duration::from_millis(10)).await;
    }
    let asked = client.stats().exchanges;
    let http = reqwest::Client::new();
    let url = format!("{}/v1/limits/empty/top-up", allocator.url);
    let reply = http.post(url).header("content-type", "application/json").body(r#"{"permits":1}"#);
    let reply = reply.send().await.expect("the server answers");
    let told = CLOCK.now();
    assert_eq!(reply.status(), reqwest::StatusCode::OK);
    let served: Moment = timeout(PATIENCE, call).await.expect("in time").expect("no panic");
    let begun = CLOCK.now();
    let alive = http.get(format!("{}/livez", allocator.url)).send().await.expect("the server answers");
    assert_eq!(alive.status(), reqwest::StatusCode::OK);
    let (after, round_trip) = (served.since(told), CLOCK.now().since(begun));
    println!("served {after:?} after the top-up was answered; a round trip takes {round_trip:?}");
    // One ask brought the permit, or the one under way and the next. The client did not poll for it.
    let asks = client.stats().exchanges - asked;
    assert!(asks <= 3, "{asks} asks");
    client.shutdown().await;
}

/// The bug: beside each other, both had to keep to the wait that they were told before the top-up, up to 2 s.
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_whose_callers_wait_are_served_as_soon_as_there_is_a_top_up() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let clients = [client(&allocator, "one").await, client(&allocator, "other").await];
    for _ in 0..10 {
        clients[0].limit("empty").acquire_within(1, PATIENCE).await.expect("ten are there");
    }
    let calls = clients.each_ref().map(|client| {
        let limit = client.limit("empty");
        tokio::spawn(async move { limit.acquire(1).await.map(|()| CLOCK.now()) })
    });
    // Until each has been told once more to wait for 2 s, and listens for events.
    let end = CLOCK.now() + PATIENCE;
    let asked = clients.each_ref().map(|client| client.stats().exchanges);
    let hears = |(client, asked): (&Client, u64)| {
        client.stats().listening > 0 && client.stats().exchanges > asked + 1
    };
    while !clients.iter().zip(asked).all(hears) {
        assert!(CLOCK.now() < end, "a client neither asks nor listens");
        sleep(Duration::from_millis(1)).await;
    }
    let url = format!("{}/v1/limits/empty/top-up", allocator.url);
    let reply = reqwest::Client::new().post(url).header("content-type", "application/json");
    let reply = reply.body(r#"{"permits":2}"#).send().await.expect("the server answers");
    let told = CLOCK.now();
    assert_eq!(reply.status(), reqwest::StatusCode::OK);
    for call in calls {
        let served =
            timeout(PATIENCE, call).await.expect("in time").expect("no panic").expect("two are there");
        assert!(served.since(told) < Duration::from_secs(1), "after {:?}", served.since(told));
    }
    for client in clients {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_too_large_is_let_through_once_the_limit_is_raised() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = client(&allocator, "idle").await;
    let limit = client.limit("vendor/rest");
    let too_large = lessor::Refusal::TooLarge { limit: 100 };
    assert_eq!(limit.acquire_within(200, PATIENCE).await, Err(too_large));
    // Now the client holds nothing and has nothing to ask for.
    let end = CLOCK.now() + PATIENCE;
    let mut asked = 0;
    while client.stats().exchanges != asked {
        assert!(CLOCK.now() < end, "the client asks all the time");
        asked = client.stats().exchanges;
        sleep(Duration::from_secs(5)).await;
    }
    done(&allocator.url, &["set", "vendor/rest", "--rules", &rules(300)]).await;
    while limit.try_acquire(200).is_err() {
        assert!(CLOCK.now() < end + PATIENCE, "the client still knows the old limit");
        sleep(Duration::from_millis(10)).await;
    }
    client.shutdown().await;
}

/// A wrong file is refused as a whole. A good one is taken over while nodes go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_taken_over_and_a_bad_one_is_not() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let shown = async |part: &str| {
        let end = CLOCK.now() + PATIENCE;
        loop {
            let output = limits(&allocator.url, &["get", "vendor/rest", "--json"]).await;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.contains(part) {
                return said;
            }
            assert!(CLOCK.now() < end, "{part} is not in {said}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    let reloads = async |result: &str, count: u64| {
        let line = format!("lessor_config_reloads_total{{result=\"{result}\"}} {count}");
        let end = CLOCK.now() + PATIENCE;
        loop {
            let url = format!("{}/metrics", allocator.url);
            let said = reqwest::get(url).await.expect("the server answers").text().await.expect("text");
            if said.contains(&line) {
                return;
            }
            assert!(CLOCK.now() < end, "no {line}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    allocator.rewrite(&CONFIG.replace("limit = 100", "limit = -1"));
    allocator.running.signal(rustix::process::Signal::HUP);
    reloads("refused", 1).await;
    shown("\"limit\":100").await;
    allocator.rewrite(&CONFIG.replace("limit = 100", "limit = 7"));
    reloads("ok", 1).await;
    shown("\"limit\":7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_says_what_is_wrong_and_ends_with_a_code() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let check = async |args: &[&str], code: i32, part: &str| {
        let output = limits(&allocator.url, args).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    };
    check(&["get", "none"], 2, "none").await;
    check(
        &["set", "vendor/rest", "--rules", "[{ kind = \"sliding_window\", limit = -5, per = \"1s\" }]"],
        2,
        "-5",
    )
    .await;
    check(&["top-up", "vendor/rest", "0"], 2, "0").await;
    check(&["pause", "vendor/rest", "--for", "soon"], 2, "soon").await;
    let list = limits(&allocator.url, &["list"]).await;
    let said = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(said.starts_with("LIMIT") && said.contains("sliding_window 100/1s"), "{said}");
    let mut lister = Command::new(lessor());
    let output =
        lister.args(["limits", "list", "--server", "http://127.0.0.1:1"]).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
}
