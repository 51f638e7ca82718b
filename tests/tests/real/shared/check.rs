//! Checks of keys that an allocator has not heard of: the store has what there is, and the allocator has to ask for it first.

use super::*;
use lessor::Refusal;

on_each_store!(a_check_of_a_new_key_is_decided_by_what_the_store_has);

/// A limit of a server, with permits for three checks of each key. An etcd that other tests ask too takes so many keys at once in much less
/// than a second: an exchange that fails says that there is nothing.
const KEYS: usize = 20;
const EACH: u64 = 3;

/// A check waits for a second at most. One that takes nearly as long is decided by that, where the store is slow for another reason.
const NEARLY_ALL: Duration = Duration::from_millis(900);

/// Far more than a call of the store takes, and far less than what is told of a bucket that is empty for an hour.
const SOON: Duration = Duration::from_secs(5);

/// The bug: the allocator's first answer, given while it fetched what there is, was taken for its last word.
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
