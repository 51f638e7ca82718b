//! What handles leave behind for the background task to see.

use super::*;
use crate::ticks::HotClock;

fn pool() -> Arc<LocalPool> {
    pool_by(HotClock::Coarse, &Arc::default())
}

fn pool_by(clock: HotClock, called: &Arc<Called>) -> Arc<LocalPool> {
    let name = PoolName { limit: "vendor-get".into(), key: None };
    let ticks = Ticks::try_new(clock).expect("it needs no thread");
    LocalPool::new(Spot::alone(), ticks, name, false, called.clone())
}

#[test]
fn calls_that_are_too_large_are_doubted_once_and_are_no_demand() {
    let pool = pool();
    let condition = Condition::Good;
    pool.set_standing(Standing { condition, ceiling: 5, chance: Moment::ORIGIN, rtt: Duration::ZERO });
    assert!(!pool.takes_doubt());
    for _ in 0..1_000 {
        assert_eq!(pool.try_acquire_at(pool.front(), 6), Err(Refusal::TooLarge { limit: 5 }));
    }
    assert_eq!(pool.seen().refused, 0, "nothing that could be lent would serve them");
    assert!(pool.takes_doubt());
    assert!(!pool.takes_doubt(), "until the next one");
    pool.try_acquire_at(pool.front(), 1).expect_err("nothing was lent");
    assert_eq!((pool.seen().refused, pool.takes_doubt()), (1, false));
}

/// The bug: it was noticed at the next refill, which may be two seconds away.
#[test]
fn threads_that_contend_for_a_pool_wake_the_task_that_can_part_them() {
    let called = Arc::default();
    let pool = pool_by(HotClock::Exact, &called);
    pool.slot().install(u64::from(u32::MAX), 0, Moment::NEVER);
    let woken = || {
        let mut known = vec![];
        called.take(&mut known);
        known.len()
    };
    pool.try_acquire_at(pool.front(), 1).expect("there are many");
    assert_eq!(woken(), 0, "one thread alone needs nothing");
    std::thread::scope(|scope| {
        let spend = || {
            // Until they have met often enough: on a machine of one core that takes a while.
            while !pool.slot().is_crowded() {
                pool.try_acquire_at(pool.front(), 1).expect("there are many");
            }
        };
        scope.spawn(spend);
        scope.spawn(spend);
    });
    assert_eq!(woken(), 1);
}
