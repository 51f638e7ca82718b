//! A part of a limit that is guaranteed to some nodes, where several allocators share a store.

use super::Store;
use lessor::Client;
use lessor_allocator::cells::StoreKind;
use scenarios::fleet::Fleet;
use std::time::Duration;
use tokio::task::JoinSet;

on_stores!(postgres: a_group_has_what_is_guaranteed_at_any_allocator;);

const LIMIT: &str = "[[limit]]\nname = \"all\"\nguaranteed = { \"checkout-*\" = 180 }\n\
    rules = [{ kind = \"sliding_window\", limit = 300, per = \"1s\", margin = \"0s\" }]\n";

/// Calls for `lasts`, with 40 callers. Returns how many calls were admitted.
async fn calls(client: Client, lasts: Duration) -> usize {
    let mut callers = JoinSet::new();
    for _ in 0..40 {
        let limit = client.limit("all");
        callers.spawn(async move {
            let mut passed = 0;
            let calling = async {
                while limit.acquire(1).await.is_ok() {
                    passed += 1;
                }
            };
            let _ = tokio::time::timeout(lasts, calling).await;
            passed
        });
    }
    callers.join_all().await.into_iter().sum()
}

/// Three nodes want all permits, and six tenths are guaranteed to one of them.
async fn a_group_has_what_is_guaranteed_at_any_allocator(kind: StoreKind) {
    let store = Store::shared(kind, "guaranteed").await;
    let config = |node: &str| store.head(&store.url, node, 1) + LIMIT;
    let fleets = [Fleet::start(&config("east")).await, Fleet::start(&config("west")).await];
    let clients =
        [fleets[0].client("a").await, fleets[1].client("b").await, fleets[1].client("checkout-1").await];
    let lasts = Duration::from_secs(6);
    let [a, b, checkout] = clients.map(|client| tokio::spawn(calls(client, lasts)));
    let passed = [a.await, b.await, checkout.await].map(|passed| passed.expect("it ends"));
    println!("{passed:?} calls were let through, the last of them guaranteed");
    assert!(passed[2] > passed[0] + passed[1], "{passed:?}");
    for fleet in fleets {
        fleet.stop().await;
    }
}
