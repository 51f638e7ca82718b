//! The client's examples do what they say: each runs against a server with the limits that it names.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/batch.rs"]
mod batch;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/blocking_worker.rs"]
mod blocking_worker;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/llm_tokens.rs"]
mod llm_tokens;

use scenarios::fleet::Fleet;

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "token_bucket", capacity = 30, refill = 100, per = "1s" }]

[[limit]]
name = "model/requests"
rules = [{ kind = "sliding_window", limit = 100, per = "1m" }]

# Too few for three calls, were not each to give back what it did not need.
[[limit]]
name = "model/tokens"
rules = [{ kind = "token_bucket", capacity = 600, refill = 0, per = "1m" }]
"#;

#[tokio::test]
async fn a_batch_job_sends_all_it_has() {
    let fleet = Fleet::start(CONFIG).await;
    assert_eq!(batch::run(&fleet.url).await.expect("the example ends without an error"), 100);
    assert_eq!(fleet.number("vendor%2Frest", "spent").await, 100);
    fleet.stop().await;
}

#[tokio::test]
async fn calls_to_a_model_cost_what_they_used() {
    let fleet = Fleet::start(CONFIG).await;
    let used = llm_tokens::run(&fleet.url).await.expect("the example ends without an error");
    assert_eq!(fleet.number("model%2Ftokens", "spent").await, used);
    assert_eq!(fleet.number("model%2Frequests", "spent").await, 3);
    fleet.stop().await;
}

#[tokio::test]
async fn blocking_workers_make_the_calls_that_are_not_cancelled() {
    let fleet = Fleet::start(CONFIG).await;
    let url = fleet.url.clone();
    // This thread must go on to serve.
    let made = tokio::task::spawn_blocking(move || {
        blocking_worker::run(&url).expect("the example ends without an error")
    });
    assert_eq!(made.await.expect("no panic"), 32);
    assert_eq!(fleet.number("vendor%2Frest", "spent").await, 32);
    fleet.stop().await;
}
