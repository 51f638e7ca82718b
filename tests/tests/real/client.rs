//! The shipping client against the shipping server, in one process, from the callers' view.

use lessor::{Client, Limit, Refusal};
use lessor_allocator::cells::private::HeldPort;
use lessor_protocol::Clock;
use scenarios::fleet::{Fleet, eventually};
use std::time::Duration;
use tokio::net::TcpListener;

const CONFIG: &str = r#"
[[limit]]
name = "plenty"
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]

[[limit]]
name = "few"
rules = [{ kind = "token_bucket", capacity = 5, refill = 5, per = "1s" }]

[[limit]]
name = "none"
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s", initial = 0 }]

[[limit]]
name = "user"
keyed = true
rules = [{ kind = "fixed_window", limit = 3, per = "1h" }]

[[limit]]
name = "paced"
rules = [{ kind = "leaky_bucket", refill = 1, per = "20ms" }]

[[limit]]
name = "rare"
rules = [{ kind = "leaky_bucket", refill = 1, per = "20s" }]

[[limit]]
name = "trial"
shadow = true
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s" }]
"#;

#[tokio::test]
async fn a_call_is_admitted_locally_once_there_is_a_lease() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let plenty = client.limit("plenty");
    plenty.acquire(1).await.expect("there are thousands");
    assert!(plenty.try_acquire(0).is_ok(), "a probe costs nothing");
    let before = client.stats().exchanges;
    eventually("a lease to spend from", async || (plenty.available() > 0).then_some(())).await;
    assert!(plenty.try_acquire(1).is_ok());
    assert!(client.stats().exchanges <= before + 2, "spending makes no exchange");
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_refusal_says_what_can_be_done_about_it() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let few = client.limit("few");
    few.acquire(1).await.expect("five are there");
    assert_eq!(few.try_acquire(6), Err(Refusal::TooLarge { limit: 5 }), "the bucket holds five at most");
    assert_eq!(few.acquire(6).await, Err(Refusal::TooLarge { limit: 5 }), "waiting would not help");
    let empty = std::iter::from_fn(|| few.try_acquire(1).err()).next().expect("not more than five");
    assert!(empty.retry_after().is_some_and(|wait| wait <= Duration::from_secs(1)), "{empty:?}");
    let unknown = client.limit("not/configured/at/all");
    assert_eq!(unknown.acquire(1).await, Err(Refusal::UnknownLimit));
    assert_eq!(client.limit("no such name!").try_acquire(1), Err(Refusal::UnknownLimit));
    client.shutdown().await;
    assert_eq!(few.try_acquire(1), Err(Refusal::Closed));
    assert_eq!(few.acquire(1).await, Err(Refusal::Closed));
    assert_eq!(client.limit("plenty").try_acquire(1), Err(Refusal::Closed));
    fleet.stop().await;
}

#[tokio::test]
async fn a_wait_that_cannot_end_in_time_fails_at_once() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let none = client.limit("none");
    let patience = Duration::from_millis(300);
    let first = none.acquire_within(1, patience).await.expect_err("it never refills");
    assert!(matches!(first, Refusal::Empty { .. }), "{first:?}");
    // The client knows by now when to look again, which is later than this deadline. So the second call ends before it
    // waits.
    let second = tokio::select! {
        biased;
        second = none.acquire_within(1, Duration::from_millis(1)) => second,
        () = std::future::ready(()) => panic!("the call waits, though no permit can come in time"),
    };
    assert!(matches!(second, Err(Refusal::Empty { .. })), "{second:?}");
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn no_caller_overtakes_a_caller_in_line() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let few = client.limit("few");
    let large = tokio::spawn({
        let few = few.clone();
        async move { few.acquire(5).await }
    });
    // While the large call waits for all five, calls of one permit are refused, or they would starve it.
    while !large.is_finished() {
        assert!(few.try_acquire(1).is_err() || large.is_finished());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    large.await.expect("no panic").expect("five fit");
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn giving_up_a_wait_loses_nothing() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let few = client.limit("few");
    let mut waits: Vec<_> = (0..50)
        .map(|_| {
            let few = few.clone();
            tokio::spawn(async move { few.acquire(1).await })
        })
        .collect();
    few.acquire(1).await.expect("the bucket refills");
    // Every other wait is cancelled, wherever it is. Others must still be served.
    let rest: Vec<_> = waits
        .drain(..)
        .enumerate()
        .filter(|(i, wait)| {
            i % 2 == 0 || {
                wait.abort();
                false
            }
        })
        .collect();
    for (_, wait) in rest.into_iter().take(5) {
        wait.await.expect("not cancelled").expect("served");
    }
    client.shutdown().await;
    assert_eq!(fleet.number("few", "outstanding").await, 0);
    fleet.stop().await;
}

#[tokio::test]
async fn several_limits_are_spent_together_or_not_at_all() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let (plenty, few, none) = (client.limit("plenty"), client.limit("few"), client.limit("none"));
    lessor::all([(&plenty, 1), (&few, 5)]).acquire().await.expect("both are there");
    let in_hand = eventually("a lease", async || (plenty.available() > 0).then(|| plenty.available())).await;
    for _ in 0..100 {
        assert!(lessor::try_all([(&plenty, 1), (&none, 1)]).is_err());
    }
    assert_eq!(plenty.available(), in_hand, "nothing was taken on the way to a refusal");
    let patience = Duration::from_millis(50);
    assert!(lessor::all([(&plenty, 1), (&none, 1)]).acquire_within(patience).await.is_err());
    client.shutdown().await;
    assert_eq!(fleet.number("plenty", "spent").await, 1);
    fleet.stop().await;
}

/// Two clients share one flow. Forty calls take at least 39 intervals, from before the first to after the last.
#[tokio::test]
async fn calls_on_a_steady_flow_are_spaced_whichever_client_makes_them() {
    let fleet = Fleet::start(CONFIG).await;
    let (clock, spacing) = (Clock::since_boot(), Duration::from_millis(20));
    let (one, two) = (fleet.client("one").await, fleet.client("two").await);
    let calls = async |client: Client| {
        let paced = client.limit("paced");
        let mut times = vec![];
        for _ in 0..20 {
            let before = clock.now();
            paced.acquire(1).await.expect("the limit flows");
            times.push((before, clock.now()));
        }
        times
    };
    let (one, two) = tokio::join!(calls(one), calls(two));
    let mut times: Vec<_> = one.into_iter().chain(two).collect();
    times.sort_unstable_by_key(|&(_, after)| after);
    let (first, last) = (times[0].0, times[times.len() - 1].1);
    assert!(last.since(first) >= 39 * spacing, "forty calls took only {:?}", last.since(first));
    fleet.stop().await;
}

#[tokio::test]
async fn a_call_that_is_too_early_says_by_how_much_and_takes_nothing_elsewhere() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let (rare, plenty) = (client.limit("rare"), client.limit("plenty"));
    plenty.acquire(1).await.expect("there are thousands");
    // On a starved machine the lease of the first permit may end before it is spent. Then the call waits for the next
    // one.
    let (clock, interval) = (Clock::since_boot(), Duration::from_secs(20));
    let before = clock.now();
    lessor::all([(&plenty, 1), (&rare, 1)]).acquire().await.expect("the limit flows");
    let refused = || lessor::try_all([(&plenty, 1), (&rare, 1)]).expect_err("the next one is not due yet");
    // While there is no lease of the other limit, that limit refuses for a moment.
    let wait = async || refused().retry_after().filter(|wait| *wait > Duration::from_secs(1));
    let wait = eventually("a refusal for the flow", wait).await;
    let latest = wait + clock.now().since(before);
    assert!(latest >= interval * 59 / 60 && wait < interval * 61 / 60, "{wait:?} is not an interval");
    client.shutdown().await;
    assert_eq!(fleet.number("plenty", "spent").await, 2);
    fleet.stop().await;
}

#[tokio::test]
async fn each_key_has_a_pool_of_its_own() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let user = client.limit("user");
    let spend = async |key: &Limit| {
        let mut admitted = 0;
        while key.acquire_within(1, Duration::from_millis(200)).await.is_ok() {
            admitted += 1;
        }
        admitted
    };
    assert_eq!(spend(&user.key("ann")).await, 3);
    assert_eq!(spend(&user.key("bob")).await, 3);
    assert_eq!(spend(&user.key("ann")).await, 0, "three an hour are spent");
    assert_eq!(user.try_acquire(1), Err(Refusal::UnknownLimit), "a keyed limit without a key");
    user.try_acquire_key("cat", 1).expect_err("the key is new");
    eventually("a lease for the key", async || user.try_acquire_key("cat", 1).ok()).await;
    assert_eq!(spend(&user.key("cat")).await, 2, "a handle of the key spends from the same pool");
    assert!(user.try_acquire_key("cat", 1).is_err() && user.try_acquire_key("", 1).is_err());
    client.shutdown().await;
    fleet.stop().await;
}

/// Of 12 calls on 5 permits that never come back, 7 would be refused, in whatever way they are made. No call is
/// refused, no caller waits, and the operator sees the 7. A limit that is not in shadow mode still refuses.
#[tokio::test]
async fn in_shadow_mode_nothing_is_refused_and_what_would_have_been_is_counted() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let (trial, none) = (client.limit("trial"), client.limit("none"));
    trial.acquire(1).await.expect("a caller that waits learns that it is a trial, or gets a permit");
    for _ in 0..5 {
        trial.acquire_within(1, Duration::ZERO).await.expect("no call waits");
        trial.try_acquire(1).expect("nothing is refused");
    }
    assert!(
        lessor::all([(&trial, 1), (&none, 1)]).try_acquire().is_err(),
        "the other limit is not in shadow mode"
    );
    lessor::all([(&trial, 1)]).try_acquire().expect("all of one");
    let passed = trial.shadow_refused();
    assert!((7..=12).contains(&passed), "{passed} of 12 passed in shadow mode, with at most 5 permits");
    // The count is reported as a total, with the next ask.
    let told = async || (fleet.number("trial", "shadow_refused").await == passed).then_some(());
    eventually("the allocator counts the calls let pass", told).await;
    trial.try_acquire(1 << 40).expect("also what no pool could ever hold");
    client.shutdown().await;
    assert_eq!(trial.try_acquire(1), Err(Refusal::Closed), "a client that was shut down lets nothing pass");
    fleet.stop().await;
}

#[tokio::test]
async fn shutting_down_gives_everything_back_and_tells_what_was_spent() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let plenty = client.limit("plenty");
    for _ in 0..200 {
        plenty.acquire(1).await.expect("there are thousands");
    }
    client.shutdown().await;
    for (field, permits) in [("spent", 200), ("outstanding", 0), ("burned", 0)] {
        assert_eq!(fleet.number("plenty", field).await, permits, "{field}");
    }
    fleet.stop().await;
}

#[tokio::test]
async fn an_idle_process_gives_its_surplus_back_by_itself() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let plenty = client.limit("plenty");
    for _ in 0..100 {
        plenty.acquire(1).await.expect("there are thousands");
    }
    let empty = async || (fleet.number("plenty", "outstanding").await == 0).then_some(());
    eventually("everything is back", empty).await;
    assert_eq!(fleet.number("plenty", "burned").await, 0, "given back, not burned");
    client.shutdown().await;
    fleet.stop().await;
}

#[test]
fn a_client_outside_a_runtime_is_an_error_and_no_panic() {
    let built = Client::builder("http://127.0.0.1:1").build();
    assert!(built.is_err_and(|error| error.to_string().contains("tokio runtime")));
}

#[tokio::test]
async fn a_client_without_an_allocator_starts_and_refuses() {
    let silent = HeldPort::any().expect("a free port");
    let url = format!("http://{}", silent.address());
    assert!(Client::connect(&url).await.is_err());
    let client = Client::builder(&url).build().expect("a good address");
    let limit = client.limit("plenty");
    let failed = async || (client.stats().failed_exchanges > 0).then_some(());
    eventually("a failed exchange", failed).await;
    assert!(matches!(limit.try_acquire(1), Err(Refusal::Unreachable { .. })));
    client.shutdown().await;
}

/// Returns the exchanges that a client makes in 400 ms to acquire a permit, from an allocator that answers every ask
/// with `grant`.
async fn asked_of(grant: &'static str) -> u64 {
    let answer = move |request: axum::Json<serde_json::Value>| async move {
        let (session, seq) = (&request["session"], &request["seq"]);
        let grants = if request["asks"] == serde_json::json!([]) { "" } else { grant };
        let body = format!(r#"{{"epoch":1,"session":{session},"seq":{seq},"grants":[{grants}]}}"#);
        ([(axum::http::header::CONTENT_TYPE, "application/json")], body)
    };
    let router = axum::Router::new().route("/v1/leases", axum::routing::post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::builder(&url).build().expect("a good address");
    let refused = client.limit("plenty").acquire_within(1, Duration::from_millis(400)).await;
    assert!(refused.is_err(), "an impossible grant was spent");
    server.abort();
    client.stats().exchanges
}

#[tokio::test]
async fn an_allocator_whose_answers_are_no_use_is_not_asked_at_network_speed() {
    // The bug: such answers counted as good exchanges and set no pause, so the next ask followed at once.
    let unknown =
        r#"{"limit":"plenty","permits":0,"term_ms":0,"error":{"code":"lease_unknown","detail":"who?"}}"#;
    let too_much = r#"{"limit":"plenty","permits":999999,"held":0,"term_ms":1000}"#;
    let disputed =
        r#"{"limit":"plenty","permits":0,"term_ms":0,"error":{"code":"totals_wrong","detail":"no"}}"#;
    for grant in [unknown, too_much, disputed] {
        let exchanges = asked_of(grant).await;
        assert!((1..=12).contains(&exchanges), "{exchanges} exchanges in 400 ms for {grant}");
    }
}
