//! Limits in shadow mode count exactly the calls that would have been refused, and clients report all of them.

use scenarios::fleet::Fleet;

const CONFIG: &str = r#"
[[limit]]
name = "tried"
shadow = true
rules = [{ kind = "token_bucket", capacity = 1000, refill = 1, per = "1h" }]

[[limit]]
name = "user"
keyed = true
shadow = true
rules = [{ kind = "token_bucket", capacity = 5, refill = 1, per = "1h" }]

[[limit]]
name = "window"
shadow = true
rules = [{ kind = "sliding_window", limit = 5, per = "60s" }]
"#;

/// The bug: a check of a limit in shadow mode did not wait for the answer that would have admitted it, and counted a
/// refusal.
#[tokio::test]
async fn what_a_check_would_have_had_is_not_counted_as_refused() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let (tried, user) = (client.limit("tried"), client.limit("user"));
    for _ in 0..500 {
        tried.check(1).await.expect("nothing is refused");
    }
    assert_eq!(tried.shadow_refused(), 0, "500 of 1,000");
    for key in ["ann", "bob", "carol"] {
        for _ in 0..8 {
            drop(user.key(key).check_enter(1).await.expect("nothing is refused"));
        }
        assert_eq!(user.key(key).shadow_refused(), 3, "{key} has 5, and called 8 times");
    }
    user.check_key("ann", 1_000).await.expect("also what could never be had");
    assert_eq!(user.key("ann").shadow_refused(), 1_003);
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: a client that was shut down did not report the calls that it had let pass since its last ask.
#[tokio::test]
async fn a_client_that_is_shut_down_tells_all_that_it_let_pass() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let window = client.limit("window");
    window.check(1).await.expect("the first answer says that it is tried out");
    for _ in 0..200 {
        window.try_acquire(1).expect("nothing is refused");
    }
    client.shutdown().await;
    let passed = window.shadow_refused();
    assert!(passed >= 196, "{passed} of 201, and five may be had");
    assert_eq!(fleet.number("window", "shadow_refused").await, passed);
    fleet.stop().await;
}
