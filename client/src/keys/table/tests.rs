//! What a table finds, against a plain list, whatever was put in and taken out and wherever hashes point.

use super::*;
use crate::local_pool::{Blank, PoolName};
use crate::ticks::{HotClock, Ticks};
use proptest::prelude::*;

fn pool(key: u8) -> Arc<LocalPool> {
    let name = PoolName { limit: "user".into(), key: Some(key.to_string().into()) };
    let ticks = Ticks::try_new(HotClock::Exact).expect("it needs no thread");
    Blank::new(ticks).name(name, false, Arc::default())
}

/// Few places that hashes point to, at both ends of the array; and some keys have the same hash.
fn hash(key: u8) -> u64 {
    [0, 1, 3, 7, 15, u64::MAX, u64::MAX - 1, 1 << 40][usize::from(key % 8)]
}

proptest! {
    #[test]
    fn a_table_finds_what_was_put_in_and_not_taken_out(steps in prop::collection::vec((0_u8..24, any::<bool>()), 1..200)) {
        let mut table = Table::default();
        let mut list: Vec<u8> = vec![];
        for (key, adds) in steps {
            let text = key.to_string();
            if adds {
                table.insert(hash(key), pool(key));
                list.retain(|other| *other != key);
                list.push(key);
            } else {
                let removed = table.remove(hash(key), |pool| pool.key() != text);
                prop_assert_eq!(removed.is_some(), list.contains(&key));
                list.retain(|other| *other != key);
            }
            for key in 0..24 {
                let found = table.get(hash(key), &key.to_string()).map(|pool| pool.key().to_owned());
                prop_assert_eq!(found, list.contains(&key).then(|| key.to_string()));
            }
            prop_assert_eq!(table.pools().count(), list.len());
            prop_assert_eq!(table.unneeded(|_| false).len(), list.len());
        }
    }
}
