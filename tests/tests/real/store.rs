//! An allocator with its own store, killed and started again while nodes spend; and a store that fails. The vendor is
//! the judge, as in the tests of processes.

use lessor_ledger::Rule;
use lessor_ledger::rule::LeakyBucket;
use lessor_protocol::{CLOCK, Moment};
use lessor_sim::reference::{Spend, breach};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use scenarios::process::{Allocator, Node, lessor};
use scenarios::vendor::judge;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SPENDER: &str = env!("CARGO_BIN_EXE_spender");

/// 300 calls in any three seconds, and leases of 100 ms. A quarantine would last for five seconds.
const WINDOW: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 300, per = "3s", margin = "50ms" }]
"#;

/// A limit of more permits than any node here wants.
const PLENTY: &str = r#"
[[limit]]
name = "vendor"
term = { max = "100ms" }
rules = [{ kind = "token_bucket", capacity = 1_000_000, refill = 1_000_000, per = "1s" }]
"#;

/// Ten calls at a time, of three seconds at most, and leases of 100 ms. A quarantine would last for five seconds.
const CAP: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "concurrency", limit = 10, longest = "3s" }]
"#;

/// Five calls at once, and one more each 20 ms, in leases of 500 ms. A quarantine would last for two seconds.
const FLOW: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "leaky_bucket", burst = 5, refill = 1, per = "20ms" }]
"#;

fn node(allocator: &Allocator, name: &str) -> Node {
    Node::start(SPENDER, &allocator.url, "vendor", name)
}

fn pause(millis: u64) {
    std::thread::park_timeout(Duration::from_millis(millis));
}

#[test]
fn killed_again_and_again_it_goes_on_and_no_window_holds_too_much() {
    let mut allocator = Allocator::start(WINDOW, "127.0.0.1:0", true);
    let mut nodes: Vec<Node> = (0..3).map(|i| node(&allocator, &format!("node-{i}"))).collect();
    nodes.iter_mut().for_each(|node| node.begin(12_000));
    for _ in 0..8 {
        pause(1_300);
        allocator = allocator.restart();
    }
    let admitted = nodes.iter_mut().flat_map(Node::answer).map(|at| (at, 1));
    let admitted = judge(300, Duration::from_secs(3), admitted);
    // Four windows, in none of which the limit was shut: each quarantine would have lasted beyond the next kill.
    assert!(admitted > 4 * 300 * 6 / 10, "{admitted} admitted in 12 s");
    let was_lost = allocator.folder().join("lessor.redb.lost").exists();
    assert!(!was_lost, "the store was lost");
}

/// Returns how often the allocator is killed: five times, or as `LESSOR_KILLS` says.
fn kills() -> u64 {
    let kills = std::env::var("LESSOR_KILLS").ok();
    kills.map_or(5, |kills| kills.parse().expect("a number of kills"))
}

#[test]
fn after_a_kill_it_lends_as_soon_as_it_is_back() {
    let mut allocator = Allocator::start(PLENTY, "127.0.0.1:0", true);
    let mut node = node(&allocator, "node");
    node.begin(1_000 * kills());
    let (mut waits, mut burned) = (vec![], vec![]);
    for session in 1..=kills() {
        pause(800);
        let killed = CLOCK.now();
        allocator = allocator.restart();
        let ask = json!({ "limit": "vendor", "spent_total": 0, "held": 0, "want": 1, "waiting": 1 });
        let body = json!({ "node": "other", "session": session, "seq": 1, "asks": [ask] });
        let answer = asked(reqwest::Client::new().post(format!("{}/v1/leases", allocator.url)).json(&body));
        waits.push(CLOCK.now().since(killed));
        assert!(answer["grants"][0]["permits"].as_u64() >= Some(1), "{answer}");
        // By now the leases from before the kill are over, known or not.
        pause(600);
        let pools = asked(reqwest::Client::new().get(format!("{}/v1/limits/vendor/pools", allocator.url)));
        burned.push(pools["pools"][0]["burned"].as_u64().expect("a number"));
    }
    let admitted = node.answer();
    let longest = admitted.windows(2).map(|pair| pair[1].since(pair[0])).max();
    waits.sort_unstable();
    burned.sort_unstable();
    let (middle, worst) = (waits.len() / 2, waits.len() - 1);
    println!("from the kill to a grant: median {:?}, worst {:?}", waits[middle], waits[worst]);
    println!("permits burned by a kill: median {}, worst {}", burned[middle], burned[worst]);
    println!("longest time without an admission on one node: {:?}", longest.expect("some were admitted"));
    // The node calls once a millisecond. A kill burns a lease of 100 ms, which may have been renewed just before, and
    // 250 ms of a block.
    assert!(burned[worst] <= 700, "{burned:?}");
}

/// Sends a request and returns the JSON of the answer.
fn asked(request: reqwest::RequestBuilder) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { request.send().await.expect("the server answers").json().await.expect("JSON") })
}

#[test]
fn what_a_day_has_spent_is_not_forgotten() {
    let day =
        "[[limit]]\nname = \"vendor\"\nrules = [{ kind = \"fixed_window\", limit = 50, per = \"1d\" }]\n";
    let allocator = Allocator::start(day, "127.0.0.1:0", true);
    let mut first = node(&allocator, "first");
    assert_eq!(first.acquire(30, 2_000).len(), 30);
    first.quit();
    let allocator = allocator.restart();
    let mut second = node(&allocator, "second");
    let left = second.acquire(50, 500).len();
    // The kill burns a block at most, and nothing waits for the end of the day.
    assert!((1..=20).contains(&left), "{left} of the 20 free permits were lent");
}

/// The bug: an allocator that was restarted lent to a session of its earlier life. The node did not use the answer, so
/// what was lent burned: for an hour here.
#[test]
fn the_first_call_after_a_restart_is_admitted_and_burns_nothing() {
    let judged = |is_region: bool| {
        let hour = "[[limit]]\nname = \"vendor\"\nrules = [{ kind = \"sliding_window\", limit = 1, per = \"1h\" }]\n";
        let centre = Allocator::start(hour, "127.0.0.1:0", true);
        let leased = format!("[[limit]]\nname = \"vendor\"\nupstream = {:?}\n", centre.url);
        let region = is_region.then(|| Allocator::start(&leased, "127.0.0.1:0", true));
        let mut first = node(region.as_ref().unwrap_or(&centre), "first");
        // What it leases at once it gives back.
        pause(5_000);
        let centre = centre.replace(Duration::ZERO);
        assert_eq!(first.acquire(1, 5_000).len(), 1, "through a region: {is_region}");
        pause(3_000);
        let pools = reqwest::Client::new().get(format!("{}/v1/limits/vendor/pools", centre.url));
        assert_eq!(asked(pools)["pools"][0]["burned"], 0, "through a region: {is_region}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| judged(true));
        judged(false);
    });
}

/// Returns how many of `calls`, each with its begin and its length in milliseconds, go on at `at`.
fn going_on(calls: &[(Moment, u64)], at: Moment) -> usize {
    let goes_on =
        |&&(begun, takes): &&(Moment, u64)| begun <= at && at < begun + Duration::from_millis(takes);
    calls.iter().filter(goes_on).count()
}

#[test]
fn after_a_kill_a_cap_lends_what_was_free_at_once_and_what_was_in_flight_when_it_has_landed() {
    let allocator = Allocator::start(CAP, "127.0.0.1:0", true);
    let enter = |node: &mut Node, calls: u64, takes: u64, patience: u64| {
        node.running.tell(&format!("enter {calls} {takes} {patience}"));
        node.answer().into_iter().map(|begun| (begun, takes)).collect::<Vec<(Moment, u64)>>()
    };
    let mut first = node(&allocator, "first");
    let mut calls = enter(&mut first, 5, 2_900, 2_000);
    assert_eq!(calls.len(), 5);
    let killed = CLOCK.now();
    let allocator = allocator.restart();
    let mut second = node(&allocator, "second");
    let meanwhile = enter(&mut second, 8, 500, 300);
    let waited = meanwhile.first().expect("what was free is lent").0.since(killed);
    println!("from the kill to a call of what was free: {waited:?}; {} calls", meanwhile.len());
    assert!(waited < Duration::from_millis(1_500), "{waited:?}");
    calls.extend(&meanwhile);
    // By now all calls in flight have ended.
    pause(4_500);
    let all = enter(&mut second, 10, 2_900, 1_000);
    assert_eq!(all.len(), 10);
    assert_eq!(going_on(&all, all[9].0), 10);
    calls.extend(&all);
    let most = calls.iter().map(|(begun, _)| going_on(&calls, *begun)).max();
    assert_eq!(most, Some(10), "and never more");
}

#[test]
fn after_a_kill_a_flow_goes_on_when_the_last_rate_is_over() {
    let mut allocator = Allocator::start(FLOW, "127.0.0.1:0", true);
    let mut nodes = [node(&allocator, "first"), node(&allocator, "second")];
    nodes.iter_mut().for_each(|node| node.begin(8_000));
    for _ in 0..4 {
        pause(1_600);
        allocator = allocator.restart();
    }
    let mut instants: Vec<Moment> = nodes.iter_mut().flat_map(Node::answer).collect();
    instants.sort_unstable();
    let longest = instants.windows(2).map(|pair| pair[1].since(pair[0])).max().expect("some were admitted");
    println!("{} calls, and at most {longest:?} without one", instants.len());
    assert!(longest < Duration::from_millis(1_500), "{longest:?}");
    assert!(instants.len() > 8_000 / 20 / 3, "{} of 400", instants.len());
    // A call is recorded a moment after its admission, so the next one may seem to come sooner.
    let rule = LeakyBucket::try_new(5 + 1, 1, Duration::from_millis(20)).expect("valid");
    let spend = |at: &Moment| Spend { real: at.as_nanos(), allocator: at.as_nanos(), permits: 1 };
    let spends: Vec<Spend> = instants.iter().map(spend).collect();
    assert_eq!(breach(&Rule::LeakyBucket(rule), &spends), None);
    assert!(!allocator.folder().join("lessor.redb.lost").exists(), "the store was lost");
}

#[test]
fn another_process_is_told_that_the_store_is_taken() {
    let allocator = Allocator::start(WINDOW, "127.0.0.1:0", true);
    let file = allocator.folder().join("lessor.toml");
    let other =
        Command::new(lessor()).args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(file).output();
    let other = other.expect("the allocator starts");
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("lessor.redb") && said.contains("another process has it open"), "{said}");
}

/// The bug: if the path of the store was by mistake that of the configuration, that file was renamed and a store made
/// in its place.
#[test]
fn a_store_path_that_names_another_file_is_refused_and_that_file_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lessor.toml");
    let text = format!("[store]\npath = {:?}\n{WINDOW}", file.display().to_string());
    std::fs::write(&file, &text).expect("a file");
    // If `check` did not refuse it, `serve` would run without end.
    for args in [vec!["check"], vec!["serve", "--listen", "127.0.0.1:0", "--config"]] {
        let output = Command::new(lessor()).args(args).arg(&file).output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let says = ["store.path: ", "lessor.toml", "no store of Lessor"];
        assert!(says.iter().all(|words| said.contains(words)), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("a readable file"), text);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("the folder can be read").count(),
        1,
        "a file was made beside it"
    );
}

/// Returns how long the limit is shut once the allocator is back, after `act` changed its folder.
fn shut_after(act: impl FnOnce(&Path)) -> Duration {
    let allocator = Allocator::start(WINDOW, "127.0.0.1:0", true);
    let mut before = node(&allocator, "before");
    assert_eq!(before.acquire(5, 2_000).len(), 5);
    let allocator = allocator.restart_after(act);
    let back = CLOCK.now();
    let mut after = node(&allocator, "after");
    let first = after.acquire(1, 20_000);
    first.first().expect("the allocator lends in the end").since(back)
}

#[test]
fn a_store_that_is_gone_old_or_damaged_is_waited_out() {
    let store = |folder: &Path| folder.join("lessor.redb");
    let remove = |folder: &Path| std::fs::remove_file(store(folder)).expect("the file can be removed");
    let damage = |folder: &Path| {
        let mut bytes = std::fs::read(store(folder)).expect("a readable file");
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(store(folder), bytes).expect("a writable file");
    };
    let unseal = |folder: &Path| {
        std::fs::remove_file(folder.join("lessor.redb.seal")).expect("the file can be removed");
    };
    let whole = shut_after(|_| ());
    let [gone, damaged, unsealed] = std::thread::scope(|scope| {
        [&remove as &(dyn Fn(&Path) + Sync), &damage, &unseal]
            .map(|act| scope.spawn(move || shut_after(act)))
            .map(|shut| shut.join().expect("the allocator lends in the end"))
    });
    println!("shut for {whole:?}; gone {gone:?}, damaged {damaged:?}, without its seal {unsealed:?}");
    assert!(whole < Duration::from_secs(3), "{whole:?}");
    for waited in [gone, damaged, unsealed] {
        assert!(waited > Duration::from_secs(4), "{waited:?}: a window and the longest lease");
    }
}

#[test]
fn a_full_disk_lends_nothing_new_and_recovers_when_there_is_room() {
    let allocator = Allocator::start_to_be_limited(PLENTY);
    let mut node = node(&allocator, "node");
    assert_eq!(node.acquire(5, 2_000).len(), 5);
    let pid = Pid::from_raw(i32::try_from(allocator.running.id()).expect("a process id"));
    let limit = |current| Rlimit { current, maximum: None };
    prlimit(pid, Resource::Fsize, limit(Some(0))).expect("the process is ours");
    let ready = || asked(reqwest::Client::new().get(format!("{}/readyz", allocator.url)));
    // A disk that is busy with other work may take some time until it fails.
    let mut rounds = 0;
    while ready()["code"] != "store_failing" {
        assert!(rounds < 60, "{} after {rounds} rounds", ready());
        rounds += 1;
        node.begin(500);
        node.answer();
    }
    let failed = CLOCK.now();
    node.begin(2_500);
    let meanwhile = node.answer();
    let late = meanwhile.iter().filter(|at| **at > failed + Duration::from_secs(1)).count();
    assert_eq!(late, 0, "admissions after the leases and the block ended, of {}", meanwhile.len());
    prlimit(pid, Resource::Fsize, limit(None)).expect("the process is ours");
    let room = CLOCK.now();
    let again = node.acquire(1, 10_000);
    println!("a full disk had room again: {:?} until the next admission", again[0].since(room));
    assert_eq!(ready()["status"], "ready");
    // What was written after that can be read.
    drop(allocator.restart());
}

/// Returns three limits, the first of `first` calls.
fn three(first: u64) -> String {
    let limit = |name: &str, limit: u64, per: &str| {
        format!(
            "[[limit]]\nname = {name:?}\nrules = [{{ kind = \"fixed_window\", limit = {limit}, per = {per:?} }}]\n"
        )
    };
    limit("a", first, "1d") + &limit("b", 20, "1d") + &limit("c", 30, "1s")
}

/// Sends an operator's request about `path`, a limit's name and what follows it. Returns the status and the body of the
/// answer.
fn operate(allocator: &Allocator, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let method = method.parse().expect("a method");
    let mut request =
        reqwest::Client::new().request(method, format!("{}/v1/limits/{path}?confirm=true", allocator.url));
    request = request.header("if-match", "*");
    if let Some(body) = body {
        request = request.json(&body);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let answer = request.send().await.expect("the server answers");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("text");
        (status, serde_json::from_str(&text).unwrap_or_default())
    })
}

/// The bug: after a crash, a limit that an operator had paused or lowered by the API was open again and followed the
/// file. A repeated top-up was made twice.
#[test]
fn what_operators_have_decided_holds_after_a_kill() {
    let allocator = Allocator::start(&three(10), "127.0.0.1:0", true);
    let of = |limit: u64| json!({ "rules": [{ "kind": "fixed_window", "limit": limit, "per": "1d" }] });
    let top_up = json!({ "permits": 5, "id": "march" });
    assert_eq!(operate(&allocator, "PUT", "a", Some(of(4))).0, 200);
    let new = reqwest::Client::new().put(format!("{}/v1/limits/new?fresh=true", allocator.url));
    assert_eq!(asked(new.json(&of(3)))["name"], "new");
    assert_eq!(operate(&allocator, "DELETE", "c", None).0, 204);
    assert_eq!(operate(&allocator, "POST", "b/top-up", Some(top_up.clone())).1["topped_up"], 5);
    assert_eq!(operate(&allocator, "POST", "b/pause", Some(json!({ "for": "10m" }))).0, 200);
    assert_eq!(operate(&allocator, "POST", "a/nodes/x/block", None).0, 200);
    let lent = |allocator: &Allocator, node: &str, session: u64, limits: &[&str]| {
        let ask =
            |limit: &&str| json!({ "limit": limit, "spent_total": 0, "held": 0, "want": 1, "waiting": 1 });
        let asks: Vec<Value> = limits.iter().map(ask).collect();
        let body = json!({ "node": node, "session": session, "seq": 1, "asks": asks });
        let answer = asked(reqwest::Client::new().post(format!("{}/v1/leases", allocator.url)).json(&body));
        let said = |grant: &Value| {
            let why = [&grant["refused"], &grant["error"]["code"]];
            let why = why.into_iter().find_map(Value::as_str).map(str::to_owned);
            why.unwrap_or_else(|| grant["permits"].to_string())
        };
        answer["grants"].as_array().expect("a list").iter().map(said).collect::<Vec<String>>()
    };
    let all = ["a", "b", "c", "new"];
    let before = lent(&allocator, "y", 1, &all);
    assert_eq!(before, ["1", "paused", "limit_unknown", "1"]);
    let mut allocator = allocator.restart();
    assert_eq!(lent(&allocator, "y", 2, &all), before);
    assert_eq!(lent(&allocator, "x", 1, &["a"]), ["blocked"]);
    let again = operate(&allocator, "POST", "b/top-up", Some(top_up));
    assert_eq!((again.0, &again.1["topped_up"], &again.1["available"]), (200, &json!(0), &json!(25)));
    // The file changes one of the limits. `y` keeps what is lent to it.
    allocator = allocator.restart_after(|folder| {
        std::fs::write(folder.join("lessor.toml"), three(11)).expect("a writable file");
    });
    let rule = |limit: &str| operate(&allocator, "GET", limit, None).1["rules"][0]["limit"].clone();
    assert_eq!((rule("a"), rule("new")), (json!(11), json!(3)));
    assert_eq!(lent(&allocator, "y", 3, &["b", "c"]), ["paused", "limit_unknown"]);
    assert_eq!(operate(&allocator, "POST", "b/resume", None).1["was_paused"], true);
    assert_eq!(operate(&allocator, "DELETE", "a/nodes/x/block", None).1["was_blocked"], true);
    let allocator = allocator.restart();
    assert_eq!(lent(&allocator, "y", 4, &["b"]), ["1"]);
    assert_ne!(lent(&allocator, "x", 2, &["a"]), ["blocked"]);
}
