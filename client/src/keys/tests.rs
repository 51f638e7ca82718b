//! Keys that are found, and that are not.

use super::*;
use crate::local_pool::PoolName;
use crate::ticks::{HotClock, Ticks};

fn pool(key: &str) -> Arc<LocalPool> {
    let name = PoolName { limit: "user".to_owned(), key: Some(key.to_owned()) };
    let ticks = Ticks::try_new(HotClock::Exact).expect("it needs no thread");
    LocalPool::new(name, false, ticks, Arc::default())
}

#[test]
fn each_key_finds_its_own_pool_however_long_it_is() {
    let keys = Keys::new();
    let names: Vec<String> =
        (0..64).map(|len| "k".repeat(len)).chain(["é".repeat(15), "é".repeat(16)]).collect();
    names.iter().for_each(|name| keys.insert(pool(name)));
    for name in &names {
        assert_eq!(keys.with(name, |pool| pool.name.key.clone()), Some(Some(name.clone())));
    }
    assert_eq!(keys.with("another", |_| ()), None);
}

#[test]
fn the_first_pool_of_a_key_stays_until_it_is_removed() {
    let keys = Keys::new();
    let first = pool("a");
    keys.insert(first.clone());
    keys.insert(pool("a"));
    assert_eq!(keys.with("a", |pool| std::ptr::eq(pool, &*first)), Some(true));
    keys.remove("a");
    assert_eq!((keys.with("a", |_| ()), Arc::strong_count(&first)), (None, 1));
}
