//! Limits in shadow mode: what is counted is what would have been refused, and all of it is told.

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

/// The bug: a check of a limit in shadow mode did not wait for the answer that would have admitted it, and counted a refusal.
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
