//! Calls that take time, by real processes against a real allocator. No more are in flight at once than the contract
//! allows. The calls of a killed process free their permits when they must have ended, not before.

use lessor::{Client, Limit};
use lessor_protocol::{CLOCK, Moment};
use scenarios::fleet::eventually;
use scenarios::process::{Allocator, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SPENDER: &str = env!("CARGO_BIN_EXE_spender");

/// The `longest` call of most limits here.
const LONGEST: Duration = Duration::from_secs(2);

/// Three calls at once; in `both` also a hundred a second.
const CONFIG: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "concurrency", limit = 3, longest = "2s" }]

[[limit]]
name = "long"
rules = [{ kind = "concurrency", limit = 3, longest = "60s" }]

[[limit]]
name = "both"
rules = [
    { kind = "concurrency", limit = 3, longest = "2s" },
    { kind = "sliding_window", limit = 100, per = "1s" },
]

[[limit]]
name = "rate"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]
"#;

/// Length of a call that does not end within the test, in milliseconds.
const FOR_EVER_MS: u64 = 3_600_000;

/// Enters `calls` calls of `millis` each, one after another, and returns the instants just before their admissions.
fn enter(node: &mut Node, calls: u64, millis: u64) -> Vec<Moment> {
    node.running.tell(&format!("enter {calls} {millis} 20000"));
    node.answer()
}

fn a_killed_process_is_waited_for(limit: &str) {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let mut victim = Node::start(SPENDER, &allocator.url, limit, "victim");
    let mut survivor = Node::start(SPENDER, &allocator.url, limit, "survivor");
    assert_eq!(enter(&mut victim, 3, FOR_EVER_MS).len(), 3);
    // While the process lives its leases are renewed, and its calls count however long they take.
    std::thread::park_timeout(LONGEST + LONGEST / 2);
    survivor.running.tell("enter 1 10 1");
    assert_eq!(survivor.answer(), [], "the three calls of the killed process still count");
    victim.running.tell("leave");
    assert_eq!(victim.answer(), []);
    let begun = enter(&mut victim, 3, FOR_EVER_MS);
    assert_eq!(begun.len(), 3);
    victim.running.kill();
    // Counted from when the calls began, not from when the process died: a process that is slow to renew may have lost
    // its lease before its death.
    let admitted = enter(&mut survivor, 1, 10);
    let [first] = admitted[..] else { panic!("{admitted:?} within 20 s") };
    assert!(
        first >= begun[0] + LONGEST,
        "admitted {:?} after the killed process began its calls",
        first.since(begun[0])
    );
    survivor.quit();
}

#[test]
fn what_a_killed_process_had_in_flight_comes_back_once_its_calls_must_have_ended() {
    a_killed_process_is_waited_for("vendor");
}

#[test]
fn the_same_beside_a_window() {
    a_killed_process_is_waited_for("both");
}

#[test]
fn a_call_that_ends_makes_room_in_another_process() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    for limit in ["vendor", "both"] {
        let mut first = Node::start(SPENDER, &allocator.url, limit, "first");
        let mut second = Node::start(SPENDER, &allocator.url, limit, "second");
        let begun = enter(&mut first, 3, 300);
        let [admitted] = enter(&mut second, 1, 10)[..] else { panic!("{limit}: not within 20 s") };
        assert!(
            admitted >= begun[0] + Duration::from_millis(300),
            "{limit}: admitted before the first of three calls ended"
        );
        // Processes that end in good order leave no calls behind, or the calls of the next limit would have to wait.
        let all = [enter(&mut second, 2, 1), enter(&mut first, 1, 1)].concat();
        assert_eq!(all.len(), 3, "{limit}");
        first.quit();
        second.quit();
    }
}

/// Makes `calls` calls one after another, and records the most that were in flight at once.
async fn work(limit: Limit, calls: u64, now: Arc<AtomicU64>, most: Arc<AtomicU64>) {
    for _ in 0..calls {
        let guard = limit.enter(1).await.expect("a permit comes");
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        now.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

/// A permit that is handed back is spent again at once: a thousand calls do not take a thousand exchanges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_calls_share_a_few_permits_without_asking_for_each() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::builder(&allocator.url).node("busy").connect().await.expect("the allocator answers");
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> =
        (0..8).map(|_| tokio::spawn(work(client.limit("vendor"), 125, now.clone(), most.clone()))).collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?} of 3 at once");
    let exchanges = client.stats().exchanges;
    assert!(exchanges < 500, "{exchanges} exchanges for 1,000 calls");
    client.shutdown().await;
}

/// The bug: a caller with little patience was refused at once although all calls in flight were of its own process and
/// would have ended in time.
#[tokio::test]
async fn a_caller_waits_for_a_call_of_its_own_process_to_end() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::builder(&allocator.url).node("full").connect().await.expect("the allocator answers");
    let limit = client.limit("long");
    let mut guards = vec![];
    for _ in 0..3 {
        guards.push(limit.enter(1).await.expect("three at once"));
    }
    let patience = Duration::from_millis(100);
    let parts = lessor::all([(&limit, 1)]);
    for is_all in [false, true] {
        // By then the process was told when to look again at its allocator. That is later than the caller's patience.
        eventually("a long wait is told", async || {
            let refused = limit.try_enter(1).expect_err("all three are in flight");
            refused.retry_after().is_some_and(|wait| wait > patience).then_some(())
        })
        .await;
        let first = guards.pop();
        let ends = async {
            tokio::time::sleep(patience / 4).await;
            drop(first);
        };
        let entered = async {
            if !is_all {
                return limit.enter_within(1, patience).await;
            }
            parts.enter_within(patience).await.map(|[entered]| entered)
        };
        // Where this thread comes late to both, the call ends first.
        let ((), entered) = tokio::join!(biased; ends, entered);
        guards.push(entered.expect("one has ended meanwhile"));
    }
    drop(guards);
    client.shutdown().await;
}

#[tokio::test]
async fn all_parts_of_a_call_are_in_flight_until_it_ends() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::builder(&allocator.url).node("all").connect().await.expect("the allocator answers");
    let (vendor, rate) = (client.limit("vendor"), client.limit("rate"));
    let long = Duration::from_secs(20);
    let guards = lessor::all([(&vendor, 3), (&rate, 1)]).enter_within(long).await.expect("a permit comes");
    assert!(vendor.try_enter(1).is_err() && lessor::all([(&vendor, 1), (&rate, 1)]).try_enter().is_err());
    drop(guards);
    // Three calls at once are possible again. Permits that are not handed back count for as long as a call may take.
    vendor.enter_within(3, long).await.expect("the permits are back").forget();
    assert!(vendor.try_enter(1).is_err());
    let forgotten = CLOCK.now();
    vendor.enter_within(1, long).await.expect("the forgotten calls have lapsed").finish();
    assert!(CLOCK.now() >= forgotten + LONGEST, "forgotten calls count for `longest`");
    // So do permits that are only acquired.
    vendor.acquire_within(3, long).await.expect("none is in flight");
    let acquired = CLOCK.now();
    vendor.enter_within(1, long).await.expect("the forgotten calls have lapsed").finish();
    assert!(CLOCK.now() >= acquired + LONGEST);
    // Without a cap on calls in flight a guard has nothing to hand back.
    let guard = rate.enter_within(1, long).await.expect("a hundred a second");
    guard.finish();
    client.shutdown().await;
}
