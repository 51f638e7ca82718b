//! The client for code without async, outside of any runtime and inside each kind: it waits, and never panics. The
//! allocator is a process of its own, so only the client's own thread refills here.

use lessor::blocking::Client;
use lessor::{ExchangeError, Refusal};
use lessor_allocator::cells::private::HeldPort;
use scenarios::process::Allocator;
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[[limit]]
name = "few"
rules = [{ kind = "token_bucket", capacity = 5, refill = 50, per = "1s" }]

[[limit]]
name = "none"
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s", initial = 0 }]

[[limit]]
name = "paced"
rules = [{ kind = "leaky_bucket", refill = 1, per = "10ms" }]
"#;

/// Longer than any wait here on a machine that is busy with other work.
const LONG: Duration = Duration::from_secs(20);

/// Waits in every way that the client has.
fn use_it(url: &str) {
    let client = Client::connect(url).expect("the allocator answers");
    let few = client.limit("few");
    (0..12).for_each(|_| few.acquire(1).expect("the bucket refills"));
    few.acquire_within(5, LONG).expect("the bucket refills");
    #[expect(clippy::disallowed_methods, reason = "a deadline as callers have one")]
    few.acquire_by(1, Instant::now() + LONG).expect("the bucket refills");
    few.until_ready().expect("it refills");
    assert_eq!(few.reserve(5).expect("the bucket refills").settle(1).returned, 4);
    few.enter_within(1, LONG).expect("the bucket refills").finish();
    let paced = client.limit("paced");
    (0..3).for_each(|_| paced.acquire(1).expect("the limit flows"));
    client
        .wait(lessor::all([(few.as_async(), 1), (paced.as_async(), 1)]).acquire_within(LONG))
        .expect("both come");
    let none = client.limit("none");
    // Each wait ends by a timer of the client's own thread. A task that is polled this often without a pause has no
    // budget left for timers of its own runtime.
    for _ in 0..300 {
        let refusal = none.acquire_within(1, Duration::from_millis(1)).expect_err("it never refills");
        assert!(matches!(refusal, Refusal::Empty { .. }), "{refusal:?}");
    }
    client.shutdown();
    assert_eq!(few.acquire(1), Err(Refusal::Closed));
}

#[test]
fn it_waits_outside_of_a_runtime() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    use_it(&allocator.url);
}

#[tokio::test]
async fn it_waits_in_the_only_thread_of_a_runtime() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    use_it(&allocator.url);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_in_a_task_of_a_runtime_with_many_threads() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let url = allocator.url.clone();
    tokio::spawn(async move { use_it(&url) }).await.expect("no panic");
}

#[test]
fn many_threads_wait_in_one_line() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::connect(&allocator.url).expect("the allocator answers");
    let few = client.limit("few");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| few.acquire(1).expect("the bucket refills")));
        }
    });
    assert!(client.stats().failed_exchanges == 0);
    // Each clone of a client keeps it alive, until it is shut down.
    let again = client.clone();
    drop(client);
    few.acquire(1).expect("the bucket refills");
    again.shutdown();
    assert_eq!(few.acquire(1), Err(Refusal::Closed));
}

#[test]
fn without_an_allocator_it_refuses_or_says_so() {
    let silent = HeldPort::any().expect("a free port");
    let url = format!("http://{}", silent.address());
    assert!(matches!(Client::connect(&url), Err(ExchangeError::Unreachable(_))));
    assert!(matches!(Client::connect("nowhere"), Err(ExchangeError::Address { .. })));
    let client = lessor::Client::builder(&url).build_blocking().expect("a good address");
    let refusal =
        client.limit("few").acquire_within(1, Duration::from_millis(200)).expect_err("nothing is lent");
    assert!(matches!(refusal, Refusal::Unreachable { .. } | Refusal::Empty { .. }), "{refusal:?}");
}
