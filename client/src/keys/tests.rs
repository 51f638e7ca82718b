//! Keys that are found, and keys that are not.

use super::*;
use crate::local_pool::PoolName;
use crate::tally::Tally;
use crate::ticks::{HotClock, Ticks};
use crate::wake_list::WakeList;
use lessor_protocol::Moment;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

fn pool(key: &str, hot_ref: HotRef) -> Arc<LocalPool> {
    pool_of(key, hot_ref, &Arc::default())
}

fn pool_of(key: &str, hot_ref: HotRef, wake_list: &Arc<WakeList>) -> Arc<LocalPool> {
    let name = PoolName { limit: "user".into(), key: Some(key.into()) };
    let tally = Arc::new(Tally::new("user".into()));
    LocalPool::new(hot_ref, ticks(HotClock::Coarse), name, false, wake_list.clone(), tally)
}

fn ticks(clock: HotClock) -> Ticks {
    Ticks::try_new(clock).expect("this clock needs no thread")
}

fn keys(clock: HotClock) -> Keys {
    Keys::new(ticks(clock))
}

#[test]
fn each_key_finds_its_own_pool_however_long_it_is() {
    let keys = keys(HotClock::Exact);
    let mut names: Vec<String> =
        (1..99).map(|len| "k".repeat(len)).chain(["é".repeat(20), "é".repeat(21)]).collect();
    // Each of these differs from another one in a single byte.
    let others = (1..45).map(|len| "k".repeat(len - 1) + "l");
    names.extend(others.chain((1..45).map(|len| format!("l{}", "k".repeat(len)))));
    names.iter().for_each(|name| drop(keys.get_or_insert(name, |hot_ref| pool(name, hot_ref))));
    for name in &names {
        assert_eq!(keys.get(name).expect("the key was inserted").key(), name);
    }
    assert!(keys.get("another").is_none() && keys.get("k\0").is_none());
    names.sort();
    names.dedup();
    assert_eq!(keys.pools().len(), names.len());
}

#[test]
fn the_first_pool_of_a_key_stays_until_it_is_forgotten() {
    let keys = keys(HotClock::Exact);
    let first = keys.get_or_insert("a", |hot_ref| pool("a", hot_ref));
    keys.get_or_insert("a", |_| panic!("the key has a pool"));
    assert!(Arc::ptr_eq(&keys.get("a").expect("the key was inserted"), &first));
    (0..SHARDS).for_each(|part| _ = keys.forget(part, |_| true));
    assert!(keys.get("a").is_some() && !first.is_forgotten());
    let looked: usize = (0..SHARDS).map(|part| keys.forget(part, |pool| !Arc::ptr_eq(pool, &first))).sum();
    assert_eq!(looked, 1);
    assert!(keys.get("a").is_none() && first.is_forgotten());
    assert_eq!(Arc::strong_count(&first), 1);
}

/// Threads spend by keys of one part and make missing pools, while another thread forgets pools with all they hold, and
/// other keys take their places. No key spends more than was put there for it.
#[test]
fn permits_of_a_forgotten_key_are_never_spent_by_another_one() {
    const NAMES: usize = 24;
    const NOTHING: usize = 0;
    let keys = keys(HotClock::Coarse);
    let wake_list = Arc::<WakeList>::default();
    let names = names_of_one_part(&keys, NAMES + 1);
    let counts = || -> Vec<AtomicU64> { (0..NAMES).map(|_| AtomicU64::new(0)).collect() };
    let (lent, spent) = (counts(), counts());
    let (all_spent, forgotten) = (AtomicU64::new(0), AtomicU64::new(0));
    // One pool in the last row stays, so that no row is freed.
    let made =
        names.iter().map(|name| keys.get_or_insert(name, |hot_ref| pool_of(name, hot_ref, &wake_list)));
    let _kept = made.last().expect("pools were made");
    let changes = Mutex::new(());
    let lock = || changes.lock().expect("no thread panics");
    let call = |number: usize| {
        let name = &names[number];
        match keys.try_acquire(name, 1) {
            Some(Ok(())) => {
                spent[number].fetch_add(1, Relaxed);
                all_spent.fetch_add(1, Relaxed);
            }
            Some(Err(_)) => {}
            None => {
                let lock = lock();
                let pool = keys.get_or_insert(name, |hot_ref| pool_of(name, hot_ref, &wake_list));
                drop(lock);
                // One key never gets anything, so that leftovers of other keys would show.
                let permits = if number == NOTHING { 0 } else { 100 };
                lent[number].fetch_add(permits, Relaxed);
                pool.slot().install(permits, 0, Moment::NEVER);
            }
        }
    };
    let forget = || {
        let mut known = vec![];
        wake_list.take(&mut known);
        known.drain(..).for_each(|pool| pool.let_go());
        // All keys are in the first part.
        let _lock = lock();
        keys.forget(0, |pool| {
            let is_needed = Arc::strong_count(pool) > 1;
            forgotten.fetch_add(u64::from(!is_needed), Relaxed);
            is_needed
        });
    };
    // Until both have happened often enough, however the machine shares out its time.
    let goes_on = || forgotten.load(Relaxed) < 1_000 || all_spent.load(Relaxed) < 10_000;
    std::thread::scope(|scope| {
        let (call, goes_on) = (&call, &goes_on);
        let callers = [1, 5].map(|stride| {
            scope.spawn(move || {
                (0..).step_by(stride).take_while(|_| goes_on()).for_each(|round| call(round / 7 % NAMES));
            })
        });
        while !callers.iter().all(|caller| caller.is_finished()) {
            forget();
        }
    });
    for (name, (spent, lent)) in names.iter().zip(spent.into_iter().zip(lent)) {
        let (spent, lent) = (spent.into_inner(), lent.into_inner());
        assert!(spent <= lent, "{name}: {spent} of {lent}");
    }
}

/// Two threads that make the pool of a key at the same time get the same pool.
#[test]
fn the_second_thread_to_make_a_pool_finds_the_pool_of_the_first() {
    let keys = keys(HotClock::Exact);
    let start = Barrier::new(2);
    for round in 0..500 {
        let name = format!("key-{round}");
        let make = || {
            start.wait();
            keys.get_or_insert(&name, |hot_ref| pool(&name, hot_ref))
        };
        let [one, other] = std::thread::scope(|scope| {
            let threads = [scope.spawn(make), scope.spawn(make)];
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert!(Arc::ptr_eq(&one, &other));
    }
    assert_eq!(keys.pools().len(), 500);
}

/// Returns keys that share a part of the map, and so reuse each other's places.
fn names_of_one_part(keys: &Keys, count: usize) -> Vec<String> {
    let is_first = |name: &String| std::ptr::eq(keys.shard(keys.hash(name)), &keys.shards[0]);
    (0_u32..).map(|number| number.to_string()).filter(is_first).take(count).collect()
}
