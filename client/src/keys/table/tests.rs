//! A table against a plain list, whatever is added and removed and whatever the hashes are.

use super::*;
use crate::local_pool::PoolName;
use crate::tally::Tally;
use crate::ticks::{HotClock, Ticks};
use lessor_protocol::Moment;
use proptest::prelude::*;

fn pool(key: u8, hot_ref: HotRef) -> Arc<LocalPool> {
    named(&key.to_string(), hot_ref)
}

fn named(key: &str, hot_ref: HotRef) -> Arc<LocalPool> {
    let name = PoolName { limit: "user".into(), key: Some(key.into()) };
    let ticks = Ticks::try_new(HotClock::Exact).expect("this clock needs no thread");
    let tally = Arc::new(Tally::new("user".into()));
    LocalPool::new(hot_ref, ticks, name, false, Arc::default(), tally)
}

/// A few hashes that point to both ends of the array; some keys share a hash.
fn hash(key: u8) -> u64 {
    [0, 1, 3, 7, 15, u64::MAX, u64::MAX - 1, 1 << 40][usize::from(key % 8)]
}

proptest! {
    #[test]
    fn a_table_finds_what_was_put_in_and_not_taken_out(steps in prop::collection::vec((0_u8..24, any::<bool>(), any::<bool>()), 1..200)) {
        let mut table = Table::default();
        let mut list: Vec<u8> = vec![];
        for (key, adds, trims) in steps {
            let text = key.to_string();
            if adds {
                if table.find(hash(key), &text).is_none() {
                    table.insert(hash(key), |hot_ref| pool(key, hot_ref));
                }
                list.retain(|other| *other != key);
                list.push(key);
            } else {
                let found = table.find(hash(key), &text).map(|(index, _)| index);
                prop_assert_eq!(found.is_some(), list.contains(&key));
                if let Some(index) = found {
                    table.remove(index);
                }
                list.retain(|other| *other != key);
                if trims {
                    table.trim();
                }
            }
            for key in 0..24 {
                let found = table.find(hash(key), &key.to_string()).map(|(index, _)| table.pool(index).key().to_owned());
                prop_assert_eq!(found, list.contains(&key).then(|| key.to_string()));
            }
            prop_assert_eq!(table.pools().count(), list.len());
            prop_assert_eq!(table.unneeded(|_| false).len(), list.len());
            // No two pools share a hot state.
            let mut hot_states: Vec<_> = table.pools().map(|pool| std::ptr::from_ref(pool.slot())).collect();
            hot_states.sort();
            hot_states.dedup();
            prop_assert_eq!(hot_states.len(), list.len());
        }
    }
}

/// Each index has its own hot state, and a row is used up before the next one begins.
#[test]
fn rows_are_filled_one_after_the_other() {
    let mut next = (0, 0);
    for index in 0..100_000 {
        assert_eq!(hot_ref(index), next, "of {index}");
        let (row, at) = next;
        next = if at + 1 < ROW_MIN << row { (row, at + 1) } else { (row + 1, 0) };
    }
    // The highest index that an entry can hold: nothing overflows.
    let last = INDEX_MASK as usize - 1;
    assert_eq!(Entry::new(u64::MAX, last).index(), last);
    assert!(hot_ref(last).1 < ROW_MIN << hot_ref(last).0);
}

#[test]
fn the_front_of_a_key_is_that_of_its_pool() {
    let mut table = Table::default();
    for key in 0..=u8::MAX {
        let index = table.insert(hash(key), |hot_ref| pool(key, hot_ref));
        assert_eq!(index, usize::from(key));
    }
    for key in 0..=u8::MAX {
        let (index, hot_state) = table.find(hash(key), &key.to_string()).expect("the key was inserted");
        assert_eq!(hot_state.is_of(&key.to_string()), Some(true));
        assert!(std::ptr::eq(hot_state.slot(), table.pool(index).slot()));
    }
}

/// The state of a forgotten pool does not reach the next pool in its place: permits, deadline, calls.
#[test]
fn nothing_is_left_of_a_pool_for_the_next_one_in_its_place() {
    let mut table = Table::default();
    let mut places = vec![];
    // Longer and shorter keys than the one before, and keys too long to be kept inline.
    for (round, len) in [9, 40, 8, 41, 3, 99, 17, 16, 1].into_iter().enumerate() {
        let key = "k".repeat(len);
        let index = table.insert(0, |hot_ref| named(&key, hot_ref));
        let found = (1..100).filter(|other| table.find(0, &"k".repeat(*other)).is_some());
        assert_eq!(found.collect::<Vec<_>>(), [len], "only this key is found");
        let pool = table.pool(index).clone();
        let slot = pool.slot();
        places.push(std::ptr::from_ref(slot).addr());
        assert_eq!((slot.balance().total(), slot.deadline(), slot.refused()), (0, Moment::ORIGIN, 0));
        assert!(slot.take(1, Moment::ORIGIN).is_err());
        assert!(!slot.take_contended());
        assert!(!pool.is_paced() && pool.seen().waiting == 0 && pool.low_water() == 0);
        // All state that a pool can come to have.
        pool.set_low_water(7);
        pool.set_paced(true);
        pool.line().1.join(3);
        // Stripes stay, and their permits go. Without stripes, all permits are in the slot's own word.
        if round == 3 {
            slot.stripe(4, 1);
        }
        slot.install(100, 0, Moment::NEVER);
        slot.take(1, Moment::ORIGIN).expect("the pool is there");
        slot.hold(1, Moment::ORIGIN).expect("the pool is there");
        (0..4).for_each(|stripe_hint| slot.refuse(stripe_hint, 1));
        drop(pool);
        table.remove(index);
        assert!(table.find(0, &key).is_none());
    }
    places.dedup();
    assert_eq!(places.len(), 1, "all pools had the same place");
}

/// A handle to a forgotten pool keeps the hot state of the pool, even after the row is gone.
#[test]
fn a_front_that_a_handle_keeps_is_given_to_no_other_pool() {
    let mut table = Table::default();
    let kept: Vec<_> = (0..=u8::MAX)
        .map(|key| {
            let index = table.insert(hash(key), |hot_ref| pool(key, hot_ref));
            let kept = table.pool(index).clone();
            table.remove(index);
            if key % 16 == 0 {
                table.trim();
            }
            kept
        })
        .collect();
    for (key, pool) in kept.iter().enumerate() {
        assert_eq!(pool.slot().balance().free, 0, "the front belongs to another pool");
        pool.slot().install(key as u64 + 1, 0, Moment::NEVER);
    }
}

/// Keys that are forgotten free their memory: places are reused, and rows at the end are freed.
#[test]
fn a_table_that_was_large_is_small_again() {
    let mut table = Table::default();
    let numbers = || 0..1_000_u64;
    let fill = |table: &mut Table| {
        for number in numbers() {
            table.insert(number, |hot_ref| named(&number.to_string(), hot_ref));
        }
    };
    fill(&mut table);
    let (rows, places) = (table.rows.len(), table.places.len());
    // The pools of the first two rows stay.
    (12..1_000).for_each(|index| table.remove(index));
    let row = Arc::downgrade(&table.rows[rows - 1]);
    table.trim();
    assert_eq!((table.rows.len(), table.places.len(), table.rest.free.len()), (2, 16, 0));
    assert!(row.upgrade().is_none(), "the memory of the row is free");
    assert!(numbers().all(|number| table.find(number, &number.to_string()).is_some() == (number < 12)));

    // Free places are filled from the first one on, before another row is added.
    [3, 7, 5].into_iter().for_each(|index| table.remove(index));
    let filled: Vec<_> = (0..4)
        .map(|number| table.insert(number, |hot_ref| named(&format!("new-{number}"), hot_ref)))
        .collect();
    assert_eq!(filled, [3, 5, 7, 12]);
    (0..13).for_each(|index| table.remove(index));
    table.trim();
    assert_eq!((table.rows.len(), table.places.len(), table.rest.pools.capacity()), (0, 0, 0));
    fill(&mut table);
    assert_eq!((table.rows.len(), table.places.len()), (rows, places));
}
