//! Calls whose cost is known afterwards, and calls that take a part or only look: the shipping client against the
//! shipping server, whose books must have what was spent.

use lessor::{Client, Refusal, Settled};
use scenarios::fleet::{Fleet, eventually};
use std::time::Duration;

const CONFIG: &str = r#"
[[limit]]
name = "tokens"
rules = [{ kind = "token_bucket", capacity = 100, refill = 0, per = "1s" }]

[[limit]]
name = "requests"
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]

[[limit]]
name = "flowing"
rules = [{ kind = "token_bucket", capacity = 20, refill = 20, per = "1s" }]

[[limit]]
name = "trial"
shadow = true
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s" }]
"#;

/// Shuts `client` down and returns the spent and outstanding permits of `limit` by the books.
async fn spent(fleet: &Fleet, client: Client, limit: &str) -> (u64, u64) {
    client.shutdown().await;
    (fleet.number(limit, "spent").await, fleet.number(limit, "outstanding").await)
}

#[tokio::test]
async fn what_a_call_did_not_need_is_spent_by_the_next_one() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let tokens = client.limit("tokens");
    // A hundred permits that never come back: thirty calls that reserve 10 and need 3 each take 90.
    for _ in 0..30 {
        let reserved = tokens.reserve_within(10, Duration::from_secs(10)).await.expect("enough are left");
        assert!(reserved.is_open());
        let settled = reserved.settle(3);
        assert_eq!((settled.returned, settled.taken, settled.owed), (7, 0, 0));
    }
    assert_eq!(spent(&fleet, client, "tokens").await, (90, 0));
    fleet.stop().await;
}

#[tokio::test]
async fn a_reservation_that_is_dropped_was_spent_and_one_that_is_refunded_was_not() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let tokens = client.limit("tokens");
    drop(tokens.reserve(10).await.expect("a hundred are there"));
    let mut refunded = tokens.reserve(20).await.expect("ninety are there");
    assert_eq!((refunded.refund(15), refunded.refund(15), refunded.permits()), (15, 5, 0));
    drop(refunded);
    // A future that is dropped reserves nothing.
    let mut wait = Box::pin(tokens.reserve(95));
    assert!(poll_once(&mut wait).await.is_none(), "more than the limit will ever have");
    drop(wait);
    let [calls, cost] =
        lessor::all([(&client.limit("requests"), 1), (&tokens, 40)]).reserve().await.expect("both are there");
    assert_eq!(cost.settle(30).returned, 10);
    drop(calls);
    assert_eq!(fleet.number("requests", "spent").await, 0, "nothing was reported yet");
    assert_eq!(spent(&fleet, client, "tokens").await, (40, 0));
    assert_eq!(fleet.number("requests", "spent").await, 1);
    fleet.stop().await;
}

/// Polls `future` once and returns its output if it is ready.
async fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

#[tokio::test]
async fn a_call_that_costs_more_than_it_reserved_is_paid_for_before_another_caller_gets_a_permit() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let tokens = client.limit("flowing");
    let reserved = tokens.reserve(20).await.expect("twenty are there");
    let Settled { returned, taken, owed, .. } = reserved.settle(35);
    assert_eq!((returned, taken + owed), (0, 15));
    assert!(owed > 0, "a second has not passed");
    assert!(tokens.try_acquire(1).is_err(), "the next permit pays the debt");
    tokens.acquire(1).await.expect("the debt is paid soon");
    assert_eq!(spent(&fleet, client, "flowing").await, (36, 0));
    fleet.stop().await;
}

#[tokio::test]
async fn in_shadow_mode_everything_is_reserved_and_nothing_is_owed() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let trial = client.limit("trial");
    trial.acquire(1).await.expect("a caller that waits learns that it is a trial, or gets a permit");
    for _ in 0..5 {
        let settled = trial.try_reserve(4).expect("nothing is refused").settle(9);
        assert_eq!(settled.owed, 0);
    }
    assert!(
        trial.shadow_refused() >= 5 * 9 + 1 - 5,
        "{} of 46 permits were let pass in shadow mode, five were free",
        trial.shadow_refused()
    );
    assert_eq!(trial.try_acquire_up_to(50), Ok(50));
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_caller_that_can_do_a_part_takes_what_there_is() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let tokens = client.limit("tokens");
    assert_eq!(tokens.try_acquire_up_to(0), Ok(0));
    let mut taken = 0;
    eventually("all permits are taken", async || {
        taken += tokens.try_acquire_up_to(1_000).unwrap_or(0);
        (taken >= 100).then_some(())
    })
    .await;
    assert_eq!(taken, 100);
    let refusal = tokens.try_acquire_up_to(1_000).expect_err("no permit is left");
    assert!(matches!(refusal, Refusal::Empty { .. }), "{refusal:?}");
    assert_eq!(spent(&fleet, client, "tokens").await, (100, 0));
    fleet.stop().await;
}

#[tokio::test]
async fn looking_says_what_a_call_would_be_told_and_lends_nothing() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let tokens = client.limit("tokens");
    let seen = eventually("a first lease", async || {
        let seen = tokens.peek(1);
        (seen.available > 0).then_some(seen)
    })
    .await;
    assert_eq!((seen.refusal, seen.ready_in()), (None, Some(Duration::ZERO)));
    let seen = tokens.peek(101);
    assert_eq!((seen.refusal, seen.ready_in()), (Some(Refusal::TooLarge { limit: 100 }), None));
    // The first lease goes back although a caller looks for more again and again: a look is no demand.
    let mut wanted = 0;
    eventually("the first lease is returned", async || {
        wanted += u64::from(tokens.peek(50).refusal.is_some());
        (fleet.number("tokens", "outstanding").await == 0).then_some(())
    })
    .await;
    assert!(wanted > 0);
    assert_eq!(tokens.peek(1).available, 0);
    assert!(tokens.peek(1).ready_in().is_some_and(|wait| wait > Duration::ZERO), "an exchange away");
    assert_eq!(spent(&fleet, client, "tokens").await, (0, 0));
    fleet.stop().await;
}
