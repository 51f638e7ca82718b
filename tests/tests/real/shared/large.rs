//! Callers that wait for nearly all permits of a window.

use super::*;

on_stores!(each: a_caller_that_waits_for_nearly_all_of_a_window_has_it;);

/// The limit of a window of ten seconds.
const WINDOW: u64 = 300;

/// The bug: the allocator told the root that the call lacks more than it did. The root lent the last tenth slowly, and
/// again and again the client gave all permits back before the last ones came.
async fn a_caller_that_waits_for_nearly_all_of_a_window_has_it(kind: StoreKind) {
    let store = Store::shared(kind, "large").await;
    let limit = format!(
        "[[limit]]\nname = \"window\"\nrules = [{{ kind = \"sliding_window\", limit = {WINDOW}, per = \"10s\" }}]\n"
    );
    let east = Fleet::start(&(store.head(&store.url, "east", 1) + &limit)).await;
    let client = east.client("a").await;
    let window = client.limit("window");
    assert_eq!(window.acquire_within(295, Duration::from_secs(20)).await, Ok(()), "of {WINDOW}");
    client.shutdown().await;
    east.stop().await;
}
