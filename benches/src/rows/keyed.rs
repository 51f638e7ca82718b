//! One lookup and one call, among one, a thousand and a million keys, beside a bare map and a peer on the same keys in the
//! same order. No allocator extends a million leases every two seconds, so here the pools are stocked by hand; lookup and
//! call are the shipping ones.

use crate::sample::Case;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use lessor::Limit;
use lessor::stocked::stocked;
use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::LazyLock;

pub(crate) const MANY: usize = 1_000_000;

type Governor = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| (0..MANY).map(|user| format!("user-{user}")).collect());
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
    stocked(KEYS[..keys].iter().map(String::as_str))
}

thread_local! {
    static DICE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// One of the first `keys`, as by chance: no cache holds what comes next.
fn next(keys: usize) -> &'static String {
    let mut dice = DICE.get();
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    DICE.set(dice);
    &KEYS[((u128::from(dice) * keys as u128) >> 64) as usize]
}

/// Makes each map that has as many keys. It stays.
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
        let call = move || black_box(limit).try_acquire_key(next(keys), 1).is_ok();
        Case::new(name, call).prepared_by(move || {
            LazyLock::force(limit);
            Ok(())
        })
    };
    vec![
        Case::new("floor/map-1m", || black_box(&BARE).get(next(MANY)).is_some()).prepared_by(|| {
            LazyLock::force(&BARE);
            Ok(())
        }),
        ours("lessor/keyed-1", &ONE, 1),
        ours("lessor/keyed-1k", &THOUSAND, 1_000),
        ours("lessor/keyed-1m", &MILLION, MANY),
        Case::new("governor/keyed-1m", || black_box(&PEER).check_key(next(MANY)).is_ok()).prepared_by(|| {
            LazyLock::force(&PEER);
            Ok(())
        }),
    ]
}
