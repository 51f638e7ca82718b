//! Crowds that wait in one process: the shipping client against the shipping server, over its real transport. No caller
//! waits past its deadline. Callers of one priority are served in the order in which they came. A caller that leaves
//! takes no permits along.

use lessor::{Client, Limit, Priority, Refusal};
use lessor_protocol::{CLOCK, Moment};
use scenarios::fleet::{Fleet, eventually};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// `a`, `b` and `c` refill at rates at which only some callers are served in time. The books of buckets never forget
/// what was spent.
const CONFIG: &str = r#"
[[limit]]
name = "a"
rules = [{ kind = "token_bucket", capacity = 40, refill = 150, per = "1s", initial = 0 }]

[[limit]]
name = "b"
rules = [{ kind = "token_bucket", capacity = 40, refill = 60, per = "1s", initial = 0 }]

[[limit]]
name = "c"
rules = [{ kind = "token_bucket", capacity = 40, refill = 20, per = "1s", initial = 0 }]

[[limit]]
name = "slow"
rules = [{ kind = "token_bucket", capacity = 100, refill = 100, per = "1s", initial = 0 }]

[[limit]]
name = "window"
rules = [{ kind = "sliding_window", limit = 300, per = "1h" }]

[[limit]]
name = "kept"
rules = [{ kind = "sliding_window", limit = 1000, per = "30s" }]
guaranteed = { "checkout-*" = 100 }
"#;

const LIMITS: [&str; 3] = ["a", "b", "c"];
const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
const TASKS: usize = 1_000;

/// How late a timer or a task may be on a machine that is busy with a thousand tasks and with other work. A task that
/// forgot its deadline would wait far longer.
const LATE: Duration = Duration::from_secs(5);

/// A task that waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    number: usize,
    limit: usize,
    priority: Priority,
    permits: u64,
    patience: Duration,
}

/// The outcome of one waiter.
#[derive(Debug)]
struct Outcome {
    waiter: Waiter,
    /// The instants at which the wait began and ended.
    began: Moment,
    ended: Moment,
    got: Result<(), Refusal>,
}

/// Draws a thousand waiters on three limits, of three priorities, for one to four permits each, with patience for one
/// to five seconds.
fn crowd(dice: &mut fastrand::Rng) -> Vec<Waiter> {
    let waiter = |number| Waiter {
        number,
        limit: dice.usize(..LIMITS.len()),
        priority: PRIORITIES[dice.usize(..3)],
        permits: dice.u64(1..=4),
        patience: Duration::from_millis(dice.u64(1_000..5_000)),
    };
    (0..TASKS).map(waiter).collect()
}

/// Spawns a task that waits as `waiter` says. Outcomes are recorded in the order in which waits end.
fn wait(client: &Client, waiter: Waiter, outcomes: &Arc<Mutex<Vec<Outcome>>>) -> JoinHandle<()> {
    let limit = client.limit(LIMITS[waiter.limit]).with_priority(waiter.priority);
    let outcomes = outcomes.clone();
    tokio::spawn(async move {
        let began = CLOCK.now();
        let got = limit.acquire_within(waiter.permits, waiter.patience).await;
        let ended = CLOCK.now();
        outcomes.lock().expect("no panic").push(Outcome { waiter, began, ended, got });
    })
}

/// On one thread, tasks wait in the order in which they are spawned, and outcomes are recorded in the order in which
/// they are served.
#[tokio::test]
async fn of_a_thousand_tasks_none_waits_past_its_deadline_and_those_of_one_priority_keep_their_order() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let mut dice = fastrand::Rng::with_seed(7);
    let outcomes = Arc::new(Mutex::new(vec![]));
    let waiters = crowd(&mut dice);
    let tasks: Vec<_> = waiters.iter().map(|&waiter| wait(&client, waiter, &outcomes)).collect();
    // All tasks have begun before any is cancelled.
    tokio::task::yield_now().await;
    let mut gone: Vec<usize> = (0..TASKS).collect();
    dice.shuffle(&mut gone);
    gone.truncate(TASKS / 2);
    for &number in &gone {
        tasks[number].abort();
        if dice.u32(..20) == 0 {
            // Some tasks are served in between.
            tokio::time::sleep(Duration::from_millis(dice.u64(1..30))).await;
        }
    }
    for task in tasks {
        if let Err(error) = task.await {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    let outcomes = std::mem::take(&mut *outcomes.lock().expect("no panic"));
    assert!(outcomes.len() >= TASKS / 2, "only {} calls ended by themselves", outcomes.len());
    for outcome in &outcomes {
        let waited = outcome.ended.since(outcome.began);
        assert!(waited <= outcome.waiter.patience + LATE, "{waited:?}: {outcome:?}");
    }
    in_order(&outcomes);
    balance(&fleet, client, &outcomes).await;
    fleet.stop().await;
}

/// Asserts that callers of one limit and priority were served in the order in which they came. A caller that was
/// overtaken must have given up.
fn in_order(outcomes: &[Outcome]) {
    let mut served = 0;
    for (limit, name) in LIMITS.iter().enumerate() {
        for priority in PRIORITIES {
            let of =
                |outcome: &&Outcome| outcome.waiter.limit == limit && outcome.waiter.priority == priority;
            let numbers = outcomes.iter().filter(|outcome| outcome.got.is_ok()).filter(of);
            let numbers: Vec<usize> = numbers.map(|outcome| outcome.waiter.number).collect();
            assert!(numbers.is_sorted(), "{name} {priority:?}: {numbers:?}");
            served += numbers.len();
        }
    }
    assert!(served > 50, "{served} were served");
}

/// Asserts that every permit that was lent was spent by a caller that says so, or was returned.
async fn balance(fleet: &Fleet, client: Client, outcomes: &[Outcome]) {
    client.shutdown().await;
    for (limit, name) in LIMITS.iter().enumerate() {
        let of = outcomes.iter().filter(|outcome| outcome.waiter.limit == limit && outcome.got.is_ok());
        let spent: u64 = of.map(|outcome| outcome.waiter.permits).sum();
        assert_eq!(fleet.number(name, "outstanding").await, 0, "{name}");
        assert_eq!(fleet.number(name, "spent").await, spent, "{name}");
    }
}

/// Spawns a task that waits for `permits` at `priority`, and is recorded when it is served.
fn queue(
    limit: &Limit,
    priority: Priority,
    permits: u64,
    order: &Arc<Mutex<Vec<Priority>>>,
) -> JoinHandle<()> {
    let (limit, order) = (limit.with_priority(priority), order.clone());
    tokio::spawn(async move {
        limit.acquire(permits).await.expect("the bucket refills");
        order.lock().expect("no panic").push(priority);
    })
}

/// Starts an allocator that lends at most one permit to each ask. It records what each ask reported: spent so far, and
/// held.
async fn one_by_one() -> (String, Arc<Mutex<Vec<(u64, u64)>>>, JoinHandle<std::io::Result<()>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let noted = asked.clone();
    let answer = move |request: axum::Json<Value>| async move {
        let (session, seq) = (&request["session"], &request["seq"]);
        let grant = request["asks"].get(0).map(|ask| {
            let of = |field: &str| ask[field].as_u64().expect("a number");
            noted.lock().expect("no panic").push((of("spent_total"), of("held")));
            json!({ "limit": "few", "permits": of("want").min(1), "held": of("held"), "term_ms": 1_000 })
        });
        let grants = grant.as_slice();
        axum::Json(json!({ "epoch": 1, "session": session, "seq": seq, "grants": grants }))
    };
    let router = axum::Router::new().route("/v1/leases", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    (url, asked, tokio::spawn(async move { axum::serve(listener, router).await }))
}

/// The bug: while others waited too, the next ask was written before the first caller in line had taken its permit. The
/// ask said that the permit was still held. A bucket of one refilled only a term later, when the next ask corrected
/// that.
#[tokio::test]
async fn what_the_first_in_line_takes_is_told_with_the_next_ask() {
    let (url, asked, server) = one_by_one().await;
    let client = Client::builder(&url).build().expect("a good address");
    let few = client.limit("few");
    let waits: Vec<_> = (0..5).map(|_| queue(&few, Priority::Normal, 1, &Arc::default())).collect();
    for wait in waits {
        wait.await.expect("the call was served");
    }
    server.abort();
    let asked = asked.lock().expect("no panic");
    assert_eq!(asked[..5], [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
}

/// A stream of callers of high priority would use up all permits for ever. Beside it, a caller of low priority wants
/// nearly all that the limit can hold, and a normal caller wants one permit. Both are served within some dozens of the
/// stream, and no caller takes what the large call waits for.
#[tokio::test]
async fn a_large_call_of_low_priority_is_served_beside_a_high_stream_that_never_ends() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let slow = client.limit("slow");
    let order = Arc::new(Mutex::new(vec![]));
    // Two dozen callers of high priority wait at any time, from before the others come.
    let stream: Vec<_> = (0..24)
        .map(|_| {
            let (slow, order) = (slow.with_priority(Priority::High), order.clone());
            tokio::spawn(async move {
                loop {
                    slow.acquire(1).await.expect("the bucket refills");
                    order.lock().expect("no panic").push(Priority::High);
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let large = queue(&slow, Priority::Low, 90, &order);
    let normal = queue(&slow, Priority::Normal, 1, &order);
    eventually("both", async || (large.is_finished() && normal.is_finished()).then_some(())).await;
    stream.iter().for_each(JoinHandle::abort);
    let order = std::mem::take(&mut *order.lock().expect("no panic"));
    let low = order.iter().position(|priority| *priority == Priority::Low).expect("the call was served");
    let normal =
        order.iter().position(|priority| *priority == Priority::Normal).expect("the call was served");
    // One in eight served callers is the one that has waited longest, and 24 came before these two.
    assert!(low.max(normal) <= 8 * 28, "the low call was served as number {low}, the normal one as {normal}");
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: the last tenth of a window is lent slowly, and a client did not say that one call needs it at once. That
/// call was never admitted, although the window was unused.
#[tokio::test]
async fn a_caller_that_waits_for_nearly_all_of_a_window_has_it() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let window = client.limit("window");
    assert_eq!(window.acquire_within(295, Duration::from_secs(20)).await, Ok(()), "of 300");
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: the node was told that a call may take the whole limit. The call waited for ever, and so did all calls
/// behind it.
#[tokio::test]
async fn a_call_that_would_take_what_other_nodes_are_guaranteed_holds_up_no_other() {
    let fleet = Fleet::start(CONFIG).await;
    for (node, most) in [("web-1", 900), ("checkout-1", 1_000)] {
        let client = fleet.client(node).await;
        let kept = client.limit("kept");
        let calls = async { tokio::join!(kept.acquire(most + 1), kept.acquire(1)) };
        let (large, small) =
            tokio::time::timeout(Duration::from_secs(30), calls).await.expect("neither waits");
        assert_eq!((large, small), (Err(Refusal::TooLarge { limit: most }), Ok(())), "{node}");
        client.shutdown().await;
    }
    fleet.stop().await;
}
