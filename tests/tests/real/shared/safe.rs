//! Nodes that go on with safe shares while no allocator answers, where several allocators share a store.

use super::Store;
use lessor::{Client, Refusal};
use lessor_allocator::cells::StoreKind;
use lessor_protocol::Clock;
use scenarios::fleet::{Fleet, eventually};
use std::time::Duration;

on_stores!(redis: nodes_of_all_allocators_share_the_reserve;);

const LONG: Duration = Duration::from_secs(20);

const LIMIT: &str = "[[limit]]\nname = \"safe\"\nfallback = \"safe_share\"\nreserve = 20\nsafe = { nodes = 2, lasts = \"1m\" }\n\
    rules = [{ kind = \"sliding_window\", limit = 50, per = \"1s\", margin = \"0s\" }]\n";

/// Calls until `client` has asked a few times. Once a node asks for a safe share, the allocator asks the store for it,
/// and tells the node in a later answer.
async fn asks(client: &Client) {
    let enough = client.stats().exchanges + 8;
    eventually("a few exchanges", async || {
        client.limit("safe").acquire_within(1, LONG).await.expect("fifty a second are enough");
        (client.stats().exchanges >= enough).then_some(())
    })
    .await;
}

/// The reserve has two shares of ten calls a second. A node of each allocator gets one, and a third node gets none,
/// whichever allocator it asks.
async fn nodes_of_all_allocators_share_the_reserve(kind: StoreKind) {
    let store = Store::shared(kind, "safe").await;
    let config = |node: &str| store.head(&store.url, node, 1) + LIMIT;
    let fleets = [Fleet::start(&config("east")).await, Fleet::start(&config("west")).await];
    let clients = [fleets[0].client("a").await, fleets[1].client("b").await];
    let third = fleets[1].client("c").await;
    for client in clients.iter().chain([&third]) {
        asks(client).await;
    }
    for fleet in fleets {
        fleet.stop().await;
    }
    let clock = Clock::since_boot();
    for client in &clients {
        let limit = client.limit("safe");
        eventually("the client goes on without a lease", async || {
            let _ = limit.try_acquire(1);
            (limit.fallback_passed() > 0).then_some(())
        })
        .await;
        let began = clock.now();
        for _ in 0..5 {
            limit.acquire_within(1, LONG).await.expect("ten a second");
        }
        let took = clock.now().since(began);
        assert!(took >= Duration::from_millis(500), "five more in {took:?}");
        assert!(limit.fallback_passed() >= 5);
    }
    eventually("the third client is refused", async || {
        matches!(third.limit("safe").try_acquire(1), Err(Refusal::Unreachable { .. })).then_some(())
    })
    .await;
}
