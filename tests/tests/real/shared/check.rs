//! Checks of keys that are new to an allocator: it has to ask the store first.

use super::*;
use lessor::Refusal;

on_stores!(each: a_check_of_a_new_key_is_decided_by_what_the_store_has;);

/// Keys, and permits of each. An etcd that other tests use, too, answers for this many keys in much less than a second.
/// An exchange that fails would look as if there were no permits.
const KEYS: usize = 20;
const EACH: u64 = 3;

/// A check waits for a second at most. A check that takes nearly as long was ended by that bound, because the store was
/// slow, and counts for nothing.
const NEARLY_ALL: Duration = Duration::from_millis(900);

/// Far longer than a call of the store, and far shorter than the wait of an empty bucket that refills one permit an
/// hour.
const SOON: Duration = Duration::from_secs(5);

/// The bug: the client took for final what the allocator answered while it was still asking the store.
async fn a_check_of_a_new_key_is_decided_by_what_the_store_has(kind: StoreKind) {
    let store = Store::shared(kind, "check").await;
    let east = store.allocator("east").await;
    let client = east.client("a").await;
    let user = client.limit("user");
    let mut keys = tokio::task::JoinSet::new();
    for key in 0..KEYS {
        let user = user.key(&format!("user-{key}"));
        keys.spawn(async move {
            let mut got = vec![];
            for _ in 0..=EACH {
                let began = CLOCK.now();
                got.push(user.check(1).await);
                if CLOCK.now().since(began) >= NEARLY_ALL {
                    return None;
                }
            }
            let headers = user.headers(None);
            let policy = headers.get("ratelimit-policy");
            Some((got, policy.map(|policy| policy.to_str().expect("text").to_owned())))
        });
    }
    let decided: Vec<_> = keys.join_all().await.into_iter().flatten().collect();
    assert!(decided.len() >= KEYS / 2, "{} of {KEYS} keys were decided in time", decided.len());
    for (got, policy) in decided {
        let [admitted @ .., last] = &got[..] else { panic!("no answers") };
        assert!(admitted.iter().all(Result::is_ok), "{got:?}");
        assert!(matches!(last, Err(Refusal::Empty { retry_after }) if *retry_after > SOON), "{last:?}");
        assert_eq!(policy.as_deref(), Some("\"user\";q=3"));
    }
    client.shutdown().await;
    east.stop().await;
}
