//! One lookup and one call, among one, a thousand and a million keys, beside a bare map and a peer on the same keys in
//! the same order. The text of a key is in the cache, as for a caller that has just read a request. Looked up in a list
//! of a million, it would cost two more waits for memory a call, in every row. No allocator extends a million leases
//! every two seconds, so the pools are stocked by hand; lookup and call are the shipped ones.

use crate::sample::Case;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use lessor::Limit;
use lessor::bench_support::bench_support;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::LazyLock;

pub(crate) const MANY: usize = 1_000_000;

type Governor = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

/// The prefix of all keys.
const USER: &str = "user-";

static KEYS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..MANY).map(|user| format!("{USER}{user:06}")).collect());
/// The numbers of three digits, one after the other.
static DIGITS: LazyLock<String> = LazyLock::new(|| (0..1_000).map(|number| format!("{number:03}")).collect());
static ONE: LazyLock<Limit> = LazyLock::new(|| limit(1));
static THOUSAND: LazyLock<Limit> = LazyLock::new(|| limit(1_000));
static MILLION: LazyLock<Limit> = LazyLock::new(|| limit(MANY));
static BARE: LazyLock<HashMap<String, u64>> =
    LazyLock::new(|| KEYS.iter().map(|key| (key.clone(), 1)).collect());
static PEER: LazyLock<Governor> = LazyLock::new(|| {
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    let limiter = RateLimiter::dashmap(quota);
    KEYS.iter().for_each(|key| assert!(limiter.check_key(key).is_ok(), "its first call"));
    limiter
});

fn limit(keys: usize) -> Limit {
    bench_support(KEYS[..keys].iter().map(String::as_str))
}

thread_local! {
    static DICE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    static KEY: RefCell<String> = RefCell::new(USER.to_owned());
}

/// Makes a call by a random one of the first `keys`, so that no cache holds its state.
#[inline]
fn by_chance(keys: usize, call: impl FnOnce(&String) -> bool) -> bool {
    let mut dice = DICE.get();
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    DICE.set(dice);
    let user = ((u128::from(dice) * keys as u128) >> 64) as usize;
    KEY.with_borrow_mut(|key| {
        write_key(key, user);
        call(key)
    })
}

/// Turns a key into another one of [`KEYS`]. It allocates nothing and takes less time than `write!`, which would be a
/// part of each row.
#[inline]
fn write_key(key: &mut String, user: usize) {
    let digits = |number: usize| &DIGITS[3 * number..][..3];
    key.truncate(USER.len());
    key.push_str(digits(user / 1_000));
    key.push_str(digits(user % 1_000));
}

/// Returns functions that make each map with a million keys. The maps are never freed.
pub(crate) fn maps() -> [(&'static str, fn()); 3] {
    LazyLock::force(&KEYS);
    [
        ("map", || {
            LazyLock::force(&BARE);
        }),
        ("lessor", || {
            LazyLock::force(&MILLION);
        }),
        ("governor", || {
            LazyLock::force(&PEER);
        }),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let ours = |name, limit: &'static LazyLock<Limit>, keys| {
        let call = move || by_chance(keys, |key| black_box(limit).try_acquire_key(key, 1).is_ok());
        Case::new(name, call).prepared_by(move || {
            LazyLock::force(limit);
            Ok(())
        })
    };
    let bare = || by_chance(MANY, |key| black_box(&BARE).get(key).is_some());
    let peer = || by_chance(MANY, |key| black_box(&PEER).check_key(key).is_ok());
    vec![
        Case::new("floor/map-1m", bare).prepared_by(|| {
            LazyLock::force(&BARE);
            Ok(())
        }),
        ours("lessor/keyed-1", &ONE, 1),
        ours("lessor/keyed-1k", &THOUSAND, 1_000),
        ours("lessor/keyed-1m", &MILLION, MANY),
        Case::new("governor/keyed-1m", peer).prepared_by(|| {
            LazyLock::force(&PEER);
            Ok(())
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_the_maps_have_it() {
        let mut key = USER.to_owned();
        for user in [0, 7, 40, 123_456, MANY - 1] {
            write_key(&mut key, user);
            assert_eq!(key, KEYS[user]);
        }
    }
}
