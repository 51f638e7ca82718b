//! Keys that are found, and that are not.

use super::*;
use crate::local_pool::{Blank, PoolName};
use crate::ticks::{HotClock, Ticks};

fn pool(key: &str) -> Arc<LocalPool> {
    let name = PoolName { limit: "user".into(), key: Some(key.into()) };
    let ticks = Ticks::try_new(HotClock::Exact).expect("it needs no thread");
    Blank::new(ticks).name(name, false, Arc::default())
}

#[test]
fn each_key_finds_its_own_pool_however_long_it_is() {
    let keys = Keys::new();
    let names: Vec<String> =
        (0..99).map(|len| "k".repeat(len)).chain(["é".repeat(27), "é".repeat(28)]).collect();
    names.iter().for_each(|name| keys.insert(pool(name)));
    for name in &names {
        assert_eq!(keys.get(name).expect("it was put there").key(), name);
    }
    assert!(keys.get("another").is_none());
    assert_eq!(keys.pools().len(), names.len());
}

#[test]
fn the_first_pool_of_a_key_stays_until_it_is_forgotten() {
    let keys = Keys::new();
    let first = pool("a");
    keys.insert(first.clone());
    keys.insert(pool("a"));
    assert!(Arc::ptr_eq(&keys.get("a").expect("it was put there"), &first));
    keys.forget(|| (), |_| true);
    assert!(keys.get("a").is_some() && !first.is_forgotten());
    keys.forget(|| (), |pool| !Arc::ptr_eq(pool, &first));
    assert!(keys.get("a").is_none() && first.is_forgotten());
    assert_eq!(Arc::strong_count(&first), 1);
}
