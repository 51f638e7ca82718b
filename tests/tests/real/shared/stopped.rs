//! Allocators that are stopped give back what they have not lent on. Those permits are not lost, and no client waits
//! until their term ends.

use super::Store;
use lessor_allocator::cells::StoreKind;
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use scenarios::fleet::{Fleet, eventually};
use std::time::Duration;
use tokio::time::sleep;

pub(super) async fn one_that_is_stopped_strands_nothing(kind: StoreKind) {
    let store = Store::shared(kind, "stopped").await;
    stopped_in_turn(&store, async |allocator| allocator.stop().await).await;
}

/// The allocator gives them back even if the store answers no exchange for a moment.
pub(super) async fn one_that_stops_beside_a_slow_store_strands_nothing(kind: StoreKind) {
    let store = Store::own(kind).await;
    stopped_in_turn(&store, async |allocator| {
        store.server.stop();
        let goes_on = async {
            sleep(EXCHANGE_TIMEOUT + Duration::from_millis(200)).await;
            store.server.go_on();
        };
        tokio::join!(allocator.stop(), goes_on);
    })
    .await;
}

/// Starts three allocators, one after another. At each, a client takes a third of all permits before the allocator is
/// stopped.
async fn stopped_in_turn(store: &Store, stop: impl AsyncFn(Fleet)) {
    let mut admitted = 0;
    for node in ["east", "west", "north"] {
        let allocator = store.allocator(node).await;
        let client = allocator.client(node).await;
        let yearly = client.limit("yearly");
        for _ in 0..20 {
            admitted += u64::from(yearly.acquire_within(1, Duration::from_secs(5)).await.is_ok());
        }
        client.shutdown().await;
        // The allocator looks at the others in the store some time after its start.
        let here = eventually("the status names an allocator", async || {
            let status = reqwest::get(format!("{}/v1/status", allocator.url)).await.ok()?;
            let status: serde_json::Value = serde_json::from_str(&status.text().await.ok()?).ok()?;
            status["sharing"].as_array().filter(|here| !here.is_empty()).cloned()
        });
        assert_eq!(here.await, [node], "a stopped allocator has left the list");
        stop(allocator).await;
    }
    assert_eq!(admitted, 60, "of 60 in a year");
}
