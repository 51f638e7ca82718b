//! An allocator whose disk is slow or fails, whose wall clock is set, that is stopped, cut off, or dies at any of the
//! calls by which it writes its store ([`deaths`]); and clocks that a daemon slews ([`slewed`]). The vendor is the
//! judge, and the cost of each trouble is printed.

mod deaths;
mod slewed;

use lessor_protocol::{CLOCK, Moment};
use rustix::process::Signal;
use scenarios::faults::Faulty;
use scenarios::fleet::eventually;
use scenarios::process::{Node, Running, folder_with, lessor};
use scenarios::proxy::Proxy;
use scenarios::proxy::fault::Fault;
use scenarios::shim::Shim;
use scenarios::vendor::judge;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SPENDER: &str = env!("CARGO_BIN_EXE_spender");

/// The vendor's limit in any window: so much that two nodes hold permits after a second, and three quarters of what
/// they want later on. Leases are long, so that they outlast the delays of a busy machine.
const LIMIT: u64 = 3_000;
const PER: Duration = Duration::from_secs(2);
const CONFIG: &str = r#"
[[limit]]
name = "vendor"
term = { min = "400ms", max = "400ms" }
rules = [{ kind = "sliding_window", limit = 3000, per = "2s", margin = "50ms" }]
"#;

/// How long permits lent before can last: a lease, the rest of a block, and an answer that was under way.
const LENT_ENDS: Duration = Duration::from_millis(400 + 250 + 200);

/// How long a node may be silent once the trouble is over: a pause between two tries, a lease, and a start.
const SOON: Duration = Duration::from_secs(3);

/// Two windows. The second one begins when all that was spent before has left it.
const TWO_WINDOWS: Duration = Duration::from_secs(4);

/// How long a sync takes on a disk that hangs: longer than five seconds, after which the store counts as failing.
const HANG: Duration = Duration::from_secs(8);

fn pause(span: Duration) {
    std::thread::park_timeout(span);
}

/// Nodes that each call once a millisecond, until they are told to stop.
struct Crowd {
    is_over: Arc<AtomicBool>,
    nodes: Vec<JoinHandle<Vec<Moment>>>,
}

impl Crowd {
    /// Starts this many nodes at `url`.
    fn of(nodes: usize, url: &str) -> Crowd {
        Crowd::at(&vec![url; nodes])
    }

    /// Starts a node at each of `urls`.
    fn at(urls: &[&str]) -> Crowd {
        let is_over = Arc::new(AtomicBool::new(false));
        let node = |(number, url): (usize, &&str)| {
            let is_over = is_over.clone();
            // Nodes start before the fault, because a node that has never reached the allocator cannot start.
            let mut node = Node::start(SPENDER, url, "vendor", &format!("node-{number}"));
            std::thread::spawn(move || {
                let mut admitted = vec![];
                while !is_over.load(Ordering::Relaxed) {
                    node.begin(200);
                    admitted.extend(node.answer());
                }
                admitted
            })
        };
        let nodes = urls.iter().enumerate().map(node).collect();
        Crowd { is_over, nodes }
    }

    /// Ends the nodes and judges their calls. Returns the instants of all admissions, in order.
    fn end(self) -> Vec<Moment> {
        in_order(self.end_each())
    }

    /// Ends the nodes and judges their calls. Returns the admissions of each node.
    fn end_each(self) -> Vec<Vec<Moment>> {
        self.is_over.store(true, Ordering::Relaxed);
        let each: Vec<Vec<Moment>> =
            self.nodes.into_iter().map(|node| node.join().expect("no panic")).collect();
        judge(LIMIT, PER, in_order(each.clone()).into_iter().map(|at| (at, 1)));
        each
    }
}

fn in_order(each: Vec<Vec<Moment>>) -> Vec<Moment> {
    let mut all: Vec<Moment> = each.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

/// Returns how many calls were admitted between two instants.
fn between(admitted: &[Moment], from: Moment, until: Moment) -> usize {
    admitted.iter().filter(|at| (from..until).contains(at)).count()
}

/// Returns how long it took from `since` until a call was admitted.
fn back_after(admitted: &[Moment], since: Moment) -> Duration {
    admitted.iter().find(|at| **at > since).expect("some call is admitted later").since(since)
}

/// The calls of two nodes around a fault that lasts for a while.
struct Outage {
    admitted: Vec<Moment>,
    began: Moment,
    ended: Moment,
}

impl Outage {
    /// Lets two nodes call while `begin` does something to the allocator and `end` undoes it.
    fn of(allocator: &mut Faulty, begin: impl FnOnce(&mut Faulty), end: impl FnOnce(&mut Faulty)) -> Outage {
        let crowd = Crowd::of(2, &allocator.url());
        pause(PER / 4);
        begin(allocator);
        let began = CLOCK.now();
        pause(lasts());
        end(allocator);
        let ended = CLOCK.now();
        pause(TWO_WINDOWS);
        Outage { admitted: crowd.end(), began, ended }
    }

    /// Asserts that nodes go on with what they have, and then get nothing until the fault is over. Returns how long the
    /// next call took after that.
    fn judge(&self, what: &str) -> Duration {
        let Outage { admitted, began, ended } = self;
        let on = between(admitted, *began, *began + LENT_ENDS);
        let silent = between(admitted, *began + LENT_ENDS, *ended);
        let back = back_after(admitted, *ended);
        println!(
            "{what} for {:?}: {on} calls on what was lent, {silent} after that, the next {back:?} after its end",
            ended.since(*began)
        );
        assert!(on > 0, "no call was admitted from the leases of before");
        assert_eq!(silent, 0, "calls were admitted after the leases ended");
        back
    }
}

/// Returns how long a fault lasts: two seconds, or `LESSOR_FAULT_SECONDS`.
fn lasts() -> Duration {
    let seconds = std::env::var("LESSOR_FAULT_SECONDS").ok();
    Duration::from_secs(seconds.map_or(2, |seconds| seconds.parse().expect("seconds")))
}

#[test]
fn while_the_allocator_is_stopped_nodes_spend_what_they_hold_and_go_on_when_it_does() {
    let mut allocator = Faulty::start(CONFIG);
    let outage = Outage::of(
        &mut allocator,
        |allocator| allocator.running().signal(Signal::STOP),
        |allocator| allocator.running().signal(Signal::CONT),
    );
    assert!(outage.judge("stopped") < SOON);
}

/// The bug: SIGHUP killed an allocator that was opening its store.
#[test]
fn sighup_during_a_start_kills_no_allocator() {
    let (shim, folder) = (Shim::new(), folder_with(CONFIG));
    shim.set("sync_ms 500\n");
    let mut command = std::process::Command::new(lessor());
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.path().join("lessor.toml"));
    let mut running = Running::start(command.envs(shim.environment()));
    let began = CLOCK.now();
    while !folder.path().join("lessor.redb.new").exists() {
        assert!(CLOCK.now().since(began) < SOON, "the allocator makes no store");
        pause(Duration::from_millis(2));
    }
    running.signal(Signal::HUP);
    running.listens();
    running.kill();
}

#[test]
fn on_a_disk_that_takes_seconds_to_sync_nothing_is_lent_that_is_not_durable() {
    let mut allocator = Faulty::start(CONFIG);
    let slow = format!("sync_ms {}", lasts().as_millis());
    let outage = Outage::of(&mut allocator, |allocator| allocator.set(&slow), |allocator| allocator.set(""));
    // One sync may have begun just before the end.
    assert!(outage.judge("syncs that take as long,") < lasts() + SOON);
}

/// The bug: a disk that hangs reports no error. The allocator lent nothing and was ready, and no alert fired.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_is_said_while_it_does() {
    let allocator = Faulty::start(CONFIG);
    let read = async |path: &str| {
        let answer = reqwest::get(format!("{}{path}", allocator.url())).await.expect("the server answers");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    };
    let is_ready = async |ready: u16| {
        let looks = async || (read("/readyz").await.0 == ready).then_some(());
        eventually(&format!("{ready} by /readyz"), looks).await;
    };
    let crowd = Crowd::of(1, &allocator.url());
    pause(PER / 4);
    allocator.set(&format!("sync_ms {}", HANG.as_millis()));
    is_ready(503).await;
    let (readyz, (_, metrics)) = (read("/readyz").await.1, read("/metrics").await);
    assert!(readyz.contains("the store cannot be used: a write has taken "), "{readyz}");
    for line in ["lessor_store_failing 1", "lessor_ready 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    allocator.set("");
    is_ready(200).await;
    let (_, metrics) = read("/metrics").await;
    for line in ["lessor_store_failing 0", "lessor_ready 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    crowd.end();
}

#[test]
fn after_a_failed_sync_nothing_is_lent_until_there_is_a_new_file() {
    use std::os::unix::fs::MetadataExt;
    let mut allocator = Faulty::start(CONFIG);
    let file = |allocator: &Faulty| {
        std::fs::metadata(allocator.file("lessor.redb")).expect("the file is there").ino()
    };
    let before = file(&allocator);
    let outage =
        Outage::of(&mut allocator, |allocator| allocator.set("sync_errno 5"), |allocator| allocator.set(""));
    assert!(outage.judge("syncs that fail,") < SOON);
    assert_ne!(file(&allocator), before, "the allocator went on with a file that failed to sync");
    let crowd = Crowd::of(1, &allocator.url());
    assert!(allocator.live(), "the allocator starts with the new file");
    pause(TWO_WINDOWS);
    assert!(!crowd.end().is_empty());
    assert!(!allocator.file("lessor.redb.lost").exists());
}

/// The bug: such a start took the store for a damaged one, and set it aside. Its limits began in quarantine.
#[test]
fn a_start_on_a_disk_that_fails_leaves_the_store_as_it_is() {
    let mut allocator = Faulty::start(CONFIG);
    let crowd = Crowd::of(1, &allocator.url());
    pause(PER / 4);
    assert!(!crowd.end().is_empty());
    allocator.kill();
    allocator.set("sync_errno 5");
    assert!(!allocator.live(), "the allocator started on a disk that fails");
    assert_eq!(allocator.ended(), Some(2));
    assert!(!allocator.file("lessor.redb.lost").exists());
    allocator.set("");
    assert!(allocator.live(), "the allocator starts again");
    let crowd = Crowd::of(1, &allocator.url());
    // A quarantine lasts for longer than a window.
    pause(PER);
    assert!(!crowd.end().is_empty(), "the allocator does not go on with its store");
}

#[test]
fn on_a_disk_that_cannot_be_written_any_more_nothing_is_lent_that_is_not_durable() {
    let mut allocator = Faulty::start(CONFIG);
    let outage =
        Outage::of(&mut allocator, |allocator| allocator.set("read_only 1"), |allocator| allocator.set(""));
    assert!(outage.judge("a disk that is read-only") < SOON);
    allocator.set("read_only 1");
    assert!(!allocator.live(), "the allocator started on a read-only disk");
    assert_eq!(allocator.ended(), Some(2));
    allocator.set("");
    assert!(allocator.live(), "the allocator starts again");
    let crowd = Crowd::of(1, &allocator.url());
    pause(TWO_WINDOWS);
    assert!(!crowd.end().is_empty());
}

/// Returns the origin of the clock in the store.
fn origin(allocator: &Faulty) -> i128 {
    let mut command = std::process::Command::new(lessor());
    let exported = command.args(["store", "export"]).arg(allocator.file("lessor.redb")).output();
    let exported: serde_json::Value =
        serde_json::from_slice(&exported.expect("the command runs").stdout).expect("JSON");
    exported["origin"].as_i64().expect("nanoseconds").into()
}

/// The wall clock is read once, when a clock begins. If it is set while the allocator runs, nothing changes. If it is
/// set before a start, charges last as long as before.
#[test]
fn a_wall_clock_that_is_set_to_and_fro_changes_nothing() {
    const HOUR: i64 = 3_600;
    // With leases of the usual length, the use of the limit shows whether anything changed.
    let mut allocator = Faulty::start(&CONFIG.replace("term = { min = \"400ms\", max = \"400ms\" }", ""));
    let crowd = Crowd::of(2, &allocator.url());
    pause(2 * PER);
    let began = CLOCK.now();
    for hours in [3, -5, 1, -1, 12, -12, 24, 0] {
        allocator.set(&format!("shift_s {}", hours * HOUR));
        pause(PER / 4);
    }
    let ended = CLOCK.now();
    allocator.kill();
    let before = origin(&allocator);
    allocator.set(&format!("shift_s {}", 3 * HOUR));
    assert!(allocator.live());
    let back = CLOCK.now();
    pause(TWO_WINDOWS);
    let admitted = crowd.end();
    allocator.kill();
    let moved = (origin(&allocator) - before) / 1_000_000_000;
    let while_set = between(&admitted, began, ended);
    let may = LIMIT * ended.since(began).as_millis() as u64 / PER.as_millis() as u64;
    println!(
        "{while_set} of {may} calls while it was set eight times by up to 24 hours; after a start with it three hours ahead the next call after {:?}",
        back_after(&admitted, back)
    );
    assert!(while_set as u64 > may * 85 / 100, "{while_set} of {may}");
    assert!(
        (3 * HOUR as i128 - 2..=3 * HOUR as i128 + 2).contains(&moved),
        "the wall clock was moved by {moved} s"
    );
    assert!(!allocator.file("lessor.redb.lost").exists());
}

/// A lease, and the longest pause between two tries.
const AGAIN: Duration = Duration::from_millis(400 + 1_000);

#[test]
fn nodes_that_are_cut_off_go_on_a_pause_and_a_lease_after_the_network_does() {
    let mut allocator = Faulty::start(CONFIG);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let proxy = runtime.block_on(Proxy::start(allocator.address()));
    let (near, cut) = (allocator.url(), proxy.url());
    let crowd = Crowd::at(&[&near, &cut, &cut]);
    pause(PER / 4);
    proxy.set(Fault::Cut);
    let began = CLOCK.now();
    pause(lasts());
    proxy.set(Fault::None);
    let ended = CLOCK.now();
    pause(TWO_WINDOWS);
    let mut each = crowd.end_each();
    let rest = in_order(vec![each.remove(0)]);
    let outage = Outage { admitted: in_order(each), began, ended };
    let back = outage.judge("cut off");
    assert!(between(&rest, began + LENT_ENDS, ended) > 0, "the node that is not cut off gets the rest");
    // By then a node may have what the vendor's window has room for, which the other node was using.
    assert!(back < AGAIN + PER, "{back:?}");
    allocator.kill();
}
