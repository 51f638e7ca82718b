//! Real processes over loopback, killed, stopped and restarted. The vendor is the judge: it has the instants of all
//! admissions, on the clock that all processes of a machine share.

use lessor_protocol::{CLOCK, Moment};
use rustix::process::{Pid, Signal, kill_process};
use scenarios::process::{Allocator, Node, Running, lessor};
use scenarios::vendor;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SPENDER: &str = env!("CARGO_BIN_EXE_spender");

/// 100 calls in any second, and leases of 33 ms. The margin covers the time between an admission and the reading of the
/// clock that stands for it, on a busy machine.
const CONFIG: &str = r#"
[store]
kind = "memory"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 100, per = "1s", margin = "50ms" }]
"#;

fn node(allocator: &Allocator, name: &str) -> Node {
    Node::start(SPENDER, &allocator.url, "vendor", name)
}

/// Asserts that no second has more than 100 of `admitted`, and returns their number.
fn judge(admitted: impl IntoIterator<Item = Vec<Moment>>) -> usize {
    judge_by(100, admitted)
}

/// Asserts that no second has more than `limit` of `admitted`, and returns their number.
fn judge_by(limit: u64, admitted: impl IntoIterator<Item = Vec<Moment>>) -> usize {
    vendor::judge(limit, Duration::from_secs(1), admitted.into_iter().flatten().map(|at| (at, 1)))
}

#[test]
fn four_processes_share_one_limit() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let mut nodes: Vec<Node> = (0..4).map(|i| node(&allocator, &format!("node-{i}"))).collect();
    nodes.iter_mut().for_each(|node| node.begin(3_000));
    let admitted = judge(nodes.iter_mut().map(Node::answer).collect::<Vec<_>>());
    // Three windows of 100, and 4,000 calls a second: most of the limit is used, and no permit twice.
    assert!((250..=400).contains(&admitted), "{admitted} admitted in 3 s");
    nodes.into_iter().for_each(Node::quit);
}

#[test]
fn what_a_killed_node_held_comes_back_and_is_never_spent_twice() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let (mut victim, mut survivor) = (node(&allocator, "victim"), node(&allocator, "survivor"));
    let first = victim.acquire(30, 2_000);
    assert_eq!(first.len(), 30);
    victim.running.kill();
    survivor.begin(2_500);
    let rest = survivor.answer();
    // The survivor alone may spend 100 in each window in which the victim spent nothing.
    let late = rest.iter().filter(|at| **at > first[29] + Duration::from_millis(1_200)).count();
    assert!(late >= 90, "{late} of 100 permits a second after the victim's window");
    judge([first, rest]);
}

#[test]
fn a_killed_allocator_comes_back_in_quarantine_and_then_lends_again() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let address = allocator.address().to_owned();
    let mut nodes = [node(&allocator, "a"), node(&allocator, "b")];
    nodes.iter_mut().for_each(|node| node.begin(8_000));
    // The nodes run for eight seconds, of which the first one and a half belong to the first allocator.
    std::thread::park_timeout(Duration::from_millis(1_500));
    allocator.running.kill();
    let died = CLOCK.now();
    let restarted = Allocator::start(CONFIG, &address, false);
    let admitted: Vec<Vec<Moment>> = nodes.iter_mut().map(Node::answer).collect();
    judge(admitted.clone());
    let after = |span: Duration| admitted.iter().flatten().filter(|at| **at > died + span).count();
    let quarantined = after(Duration::from_millis(50)) - after(Duration::from_millis(2_900));
    assert_eq!(quarantined, 0, "calls were admitted in the quarantine of 3 s");
    assert!(after(Duration::from_millis(2_900)) > 100, "the allocator lends again after the quarantine");
    drop(restarted);
}

/// Runs the demo with `args`, which makes its folders in `folder`, and returns its report.
fn demo(args: &str, folder: &Path) -> Value {
    let mut command = Command::new(lessor());
    command.args(["demo", "--json"]).args(args.split(' ')).env("TMPDIR", folder);
    let ran = command.output().expect("the command runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// Returns how many calls the vendor refused under each limit of a demo.
fn vendor_refused(report: &Value) -> [Option<u64>; 2] {
    [0, 1].map(|limit| report["limits"][limit]["vendor_429"].as_u64())
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("the folder can be read").next().is_none()
}

#[test]
fn a_demo_whose_allocator_is_killed_all_along_keeps_the_contract_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = demo("--nodes 2 --kill-every 2 --seconds 5 --store memory", folder.path());
    assert_eq!((report["kills"].as_u64(), vendor_refused(&report)), (Some(2), [Some(0); 2]), "{report}");
    // The books were in memory, so from the first kill on nothing is lent.
    let gap = report["longest_gap_ms"].as_u64().expect("a number");
    assert!((1_500..5_000).contains(&gap), "{report}");
    assert!(is_empty(folder.path()), "after a run");

    let long = |listen: &str| {
        let mut command = Command::new(lessor());
        command.args(["demo", "--nodes", "2", "--kill-every", "2", "--seconds", "60", "--listen", listen]);
        command.env("TMPDIR", folder.path());
        command
    };
    let mut stopped = long("127.0.0.1:0");
    let mut stopped =
        stopped.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut said = BufReader::new(stopped.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    let address =
        line.trim_end().strip_prefix("listening on http://").expect("the demo prints its address").to_owned();
    let pid = i32::try_from(stopped.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::INT).expect("the process is ours");
    assert!(stopped.wait().expect("the process ends").success());
    assert!(is_empty(folder.path()), "after Ctrl-C");
    let taken = TcpListener::bind(&address).expect("no process listens there any more");

    let failed = long(&address).output().expect("the command runs");
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(
        said.contains("did not come up") && said.contains(&format!("cannot listen on {address}")),
        "{said}"
    );
    assert!(is_empty(folder.path()), "after an error");
    drop(taken);
}

/// Certificates and tokens are renewed about sixteen times under the load of the demo. No call is refused and no
/// exchange fails because of it.
#[test]
fn in_a_demo_that_rotates_certificates_and_tokens_no_call_is_refused_for_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = demo("--nodes 4 --rotate-every 600ms --seconds 10", folder.path());
    let number = |name: &str| report["rotated"][name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    let rotations = number("rotations");
    assert!(rotations >= 8, "{report}");
    assert_eq!((number("new_clients"), number("new_clients_failed")), (rotations, 0), "{report}");
    // Each node showed nearly each token until it was refused, so tokens did rotate.
    assert!(number("tokens_refused") >= 2 * rotations, "{report}");
    assert_eq!((number("exchanges_failed"), number("calls_refused")), (0, 0), "{report}");
    assert!(report["limits"][0]["admitted"].as_u64() > Some(1_000), "{report}");
    assert_eq!((vendor_refused(&report), report["stranded"].as_u64()), ([Some(0); 2], Some(0)), "{report}");
    assert!(is_empty(folder.path()), "a key is left behind");
}

/// Two allocators and the one that they lease from: each is killed once, and one of them twice.
#[test]
fn in_a_demo_of_several_allocators_all_are_killed_and_the_contract_is_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = demo("--nodes 3 --allocators 2 --kill-every 2 --seconds 9", folder.path());
    assert_eq!((report["kills"].as_u64(), vendor_refused(&report)), (Some(4), [Some(0); 2]), "{report}");
    assert!(report["limits"][0]["admitted"].as_u64() > Some(1_000), "{report}");
    assert_eq!(report["stranded"].as_u64(), Some(0), "{report}");
}

/// The ten minutes of `export-per-user` in twenty seconds. Each user makes ten calls that must be granted.
#[test]
fn in_the_demo_of_exports_each_user_gets_what_he_must_and_no_more() {
    let demo = |store: &str| {
        let mut command = Command::new(lessor());
        command.args(["demo", "--scenario", "export-per-user", "--speed", "30", "--users", "5", "--json"]);
        command.args(["--store", store]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    };
    for (store, demo) in [("embedded", demo("embedded")), ("memory", demo("memory"))] {
        let ran = demo.wait_with_output().expect("the process ends");
        let said = String::from_utf8_lossy(&ran.stderr);
        let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert_eq!(ran.status.code(), Some(0), "{report} {said}");
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
        assert_eq!((number("users"), number("breaches"), report["store"].as_str()), (5, 0, Some(store)));
        assert_eq!((number("granted_must"), number("granted_may")), (10, 10));
        assert_eq!((number("granted_min"), number("granted_max")), (10, 10), "{report}");
    }
}

#[test]
fn a_process_stopped_past_its_deadline_spends_nothing_when_it_wakes() {
    let allocator = Allocator::start(&CONFIG.replace("limit = 100", "limit = 600"), "127.0.0.1:0", true);
    let mut sleeper = node(&allocator, "sleeper");
    // The sleeper calls, so now and then it holds a few of the 600 permits. It is stopped once it does.
    let mut first = vec![];
    let held = (0..50).find(|_| {
        sleeper.begin(100);
        first.extend(sleeper.answer());
        sleeper.available() > 2
    });
    sleeper.running.signal(Signal::STOP);
    assert!(held.is_some(), "the node was stopped with no permits: the test proves nothing");
    // Meanwhile its lease ends, a window passes, and another node takes all permits.
    let mut other = node(&allocator, "other");
    other.begin(3_000);
    let others = other.answer();
    sleeper.running.tell("spend 1500");
    sleeper.running.signal(Signal::CONT);
    let woken = sleeper.answer();
    judge_by(600, [first, others, woken]);
}

/// A limit so large that a process which calls as fast as it can always holds permits. Its leases last for longer than a
/// busy machine keeps a thread waiting.
const PLENTY: &str = r#"
[[limit]]
name = "vendor"
term = { max = "200ms" }
rules = [{ kind = "sliding_window", limit = 50_000_000, per = "1s", margin = "50ms" }]
"#;

/// How long leases last after the allocator was stopped: the term, and a request that was answered just before.
const ENDED: Duration = Duration::from_millis(220);

/// Asserts that no call was admitted between `from` and `until`, and that some were before.
fn none_between(from: Moment, until: Moment, admitted: &[Moment]) {
    assert!(admitted.iter().any(|at| *at < from), "nothing was admitted before: the test proves nothing");
    let late: Vec<Duration> =
        admitted.iter().filter(|at| **at > from && **at < until).map(|at| at.since(from)).collect();
    assert!(late.is_empty(), "admitted so long after all leases had ended: {late:?}");
}

#[test]
fn a_process_that_is_stopped_in_a_rush_spends_nothing_when_it_wakes() {
    let allocator = Allocator::start(PLENTY, "127.0.0.1:0", true);
    let mut sleeper = node(&allocator, "sleeper");
    for _ in 0..5 {
        sleeper.rush(1_000, 0);
        std::thread::park_timeout(Duration::from_millis(200));
        sleeper.running.signal(Signal::STOP);
        allocator.running.signal(Signal::STOP);
        let stopped = CLOCK.now();
        std::thread::park_timeout(2 * ENDED);
        // The process wakes with permits that it held, clocks that it read before, and no allocator to ask.
        sleeper.running.signal(Signal::CONT);
        let admitted = sleeper.answer();
        none_between(stopped + ENDED, CLOCK.now(), &admitted);
        allocator.running.signal(Signal::CONT);
    }
}

#[test]
fn a_process_that_is_starved_of_cores_spends_nothing_after_its_lease() {
    let allocator = Allocator::start(PLENTY, "127.0.0.1:0", true);
    let mut starved = node(&allocator, "starved");
    let (is_over, hogs) =
        (AtomicBool::new(false), 4 * std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // A call about every 300 µs: several in each step of the coarse clock, while the process holds permits.
        starved.rush(1_500, 300);
        std::thread::park_timeout(Duration::from_millis(500));
        allocator.running.signal(Signal::STOP);
        let stopped = CLOCK.now();
        let admitted = starved.answer();
        is_over.store(true, Ordering::Relaxed);
        none_between(stopped + ENDED, CLOCK.now(), &admitted);
    });
    allocator.running.signal(Signal::CONT);
}

#[test]
fn sigterm_ends_the_allocator_in_time_though_a_peer_holds_on() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let mut peer = TcpStream::connect(allocator.address()).expect("the server listens");
    peer.write_all(b"POST /v1/leases HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        .expect("the peer reads");
    let asked = CLOCK.now();
    allocator.running.signal(Signal::TERM);
    let status = allocator.running.wait();
    assert_eq!(status.code(), Some(0));
    assert!(CLOCK.now().since(asked) < Duration::from_secs(6), "within five seconds and a start-up's noise");
}

/// Systemd (`packaging/lessor.service`) is told when the allocator listens, and when it stops.
#[test]
fn a_service_manager_hears_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, heard) = (folder.path().join("lessor.toml"), folder.path().join("notify"));
    std::fs::write(&file, CONFIG).expect("a writable file");
    let manager = UnixDatagram::bind(&heard).expect("a socket in it");
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let hear = || {
        let mut said = [0; 64];
        let length = manager.recv(&mut said).expect("the manager is told");
        String::from_utf8_lossy(&said[..length]).into_owned()
    };
    let mut command = Command::new(lessor());
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).env("NOTIFY_SOCKET", &heard);
    let running = Running::start(&mut command);
    assert_eq!(hear().trim_end(), "READY=1");
    running.signal(Signal::TERM);
    assert_eq!(hear().trim_end(), "STOPPING=1");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn shells_and_manuals_know_every_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |args: &[&str]| {
        let output = Command::new(lessor()).args(args).output();
        let output = output.expect("the command runs");
        assert!(output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let path = folder.path().to_str().expect("a plain path");
    run(&["man", "--into", path]);
    for command in ["serve", "check", "limits", "demo", "replay"] {
        assert!(folder.path().join(format!("lessor-{command}.1")).exists(), "{command} has no page");
        for shell in ["bash", "zsh", "fish"] {
            assert!(run(&["completions", shell]).contains(command), "{shell} does not know {command}");
        }
    }
    assert!(run(&["man"]).contains("lessor"));
}

#[test]
fn a_bad_command_line_or_configuration_ends_with_code_2_and_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, CONFIG.replace("100", "-100")).expect("a writable file");
    let path = file.to_str().expect("a plain path");
    for args in
        [vec!["check", path], vec!["serve", "--config", path], vec!["serve", "--what"], vec!["nonsense"]]
    {
        let output = Command::new(lessor()).args(&args).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.is_empty() && !said.contains("panicked"), "{args:?}: {said}");
        if args.contains(&path) {
            assert!(
                said.contains("limit") && said.contains("-100"),
                "{args:?} names field and value: {said}"
            );
        }
    }
}

/// The bug: a reader that closed the pipe early, such as `head`, made the command fail.
#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("good.toml");
    std::fs::write(&file, CONFIG).expect("a writable file");
    for args in
        [vec!["check", file.to_str().expect("a plain path")], vec!["man"], vec!["completions", "bash"]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(lessor()).args(&args).stdout(writer).output();
        let output = output.expect("the command runs");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}
