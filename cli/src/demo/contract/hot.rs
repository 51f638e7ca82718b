//! How long `try_acquire` takes in a loop without a pause. The contract has too few permits for that: the loop spends a
//! limit of its own, which a second allocator in this process lends, after the nodes have left.

use crate::demo::allocator::Hosted;
use crate::demo::latency::{Timed, Took};
use crate::failure::Failure;
use lessor::Client;
use lessor_protocol::Clock;
use std::time::Duration;

const CONFIG: &str = r#"
[[limit]]
name = "demo/hot"
rules = [{ kind = "token_bucket", capacity = 1_000_000, refill = 1_000_000, per = "1s" }]
"#;

/// Samples of calls, and of the clock alone.
const SAMPLES: usize = 100_000;

/// Longest time until the allocator lends something.
const WITHIN: Duration = Duration::from_secs(5);

/// Measures `try_acquire`, a hit each time.
pub(super) async fn run() -> Result<Took, Failure> {
    let allocator = Hosted::open(CONFIG, None, None).await?;
    let took = measure(allocator.books().url()).await;
    allocator.close().await;
    took
}

async fn measure(url: &str) -> Result<Took, Failure> {
    let broken = |what: String| Failure::Run(format!("the hot loop: {what}"));
    let client = Client::connect(url).await.map_err(|error| broken(error.to_string()))?;
    let limit = client.limit("demo/hot");
    let (clock, mut timed) = (Clock::since_boot(), Timed::new());
    let mut samples = 0;
    while samples < SAMPLES {
        limit.acquire_within(1, WITHIN).await.map_err(|refusal| broken(refusal.to_string()))?;
        loop {
            let began = clock.now();
            let is_hit = limit.try_acquire(1).is_ok();
            let ended = clock.now();
            timed.clock.record(clock.now().since(ended));
            if !is_hit || samples == SAMPLES {
                break;
            }
            timed.calls.record(ended.since(began));
            samples += 1;
        }
    }
    client.shutdown().await;
    Ok(timed.took())
}
