//! What handles leave behind for the background task to see.

use super::*;
use crate::ticks::HotClock;

fn pool() -> Arc<LocalPool> {
    let name = PoolName { limit: "vendor-get".into(), key: None };
    let ticks = Ticks::try_new(HotClock::Coarse).expect("it needs no thread");
    LocalPool::new(None, ticks, name, false, Arc::default())
}

#[test]
fn calls_that_are_too_large_are_doubted_once_and_are_no_demand() {
    let pool = pool();
    let condition = Condition::Good;
    pool.set_standing(Standing { condition, ceiling: 5, chance: Moment::ORIGIN, rtt: Duration::ZERO });
    assert!(!pool.takes_doubt());
    for _ in 0..1_000 {
        assert_eq!(pool.try_acquire(6), Err(Refusal::TooLarge { limit: 5 }));
    }
    assert_eq!(pool.seen().refused, 0, "nothing that could be lent would serve them");
    assert!(pool.takes_doubt());
    assert!(!pool.takes_doubt(), "until the next one");
    pool.try_acquire(1).expect_err("nothing was lent");
    assert_eq!((pool.seen().refused, pool.takes_doubt()), (1, false));
}
