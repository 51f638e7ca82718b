//! What handles leave behind for the background task to see.

use super::*;
use crate::ticks::HotClock;

fn pool() -> Arc<LocalPool> {
    pool_by(HotClock::Coarse, &Arc::default())
}

fn pool_by(clock: HotClock, called: &Arc<Called>) -> Arc<LocalPool> {
    let name = PoolName { limit: "vendor-get".into(), key: None };
    let ticks = Ticks::try_new(clock).expect("it needs no thread");
    let tally = Arc::new(Tally::new("vendor-get".into()));
    LocalPool::new(Spot::alone(), ticks, name, false, called.clone(), tally)
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

fn tried(pool: &LocalPool, permits: u64) -> Result<(), Refusal> {
    pool.try_acquire_at(pool.front(), permits)
}

#[test]
fn the_next_call_is_timed_and_no_other() {
    let pool = pool();
    pool.slot().install(5, 0, CLOCK.now() + Duration::from_secs(3_600));
    tried(&pool, 1).expect("five are there");
    assert_eq!(pool.takes_timed(), None, "nobody asked");
    pool.time_next();
    tried(&pool, 0).expect("that is no call");
    assert_eq!(pool.takes_timed(), None);
    tried(&pool, 1).expect("four are there");
    let (took, admitted) = pool.takes_timed().expect("it was the next one");
    assert!(admitted && took < Duration::from_secs(60), "{took:?}");
    tried(&pool, 1).expect("three are there");
    assert_eq!((pool.takes_timed(), pool.slot().balance().free), (None, 2), "each spends once");
    pool.time_next();
    tried(&pool, 3).expect_err("two are there");
    let (_, admitted) = pool.takes_timed().expect("refusals are timed too");
    assert!(!admitted && pool.seen().refused == 3, "each is refused once");
}

#[test]
fn what_was_counted_is_not_counted_again() {
    let pool = pool();
    let tell = |pool: &LocalPool| {
        pool.count_up();
        pool.tally().totals()
    };
    tried(&pool, 1).expect_err("nothing was lent");
    assert_eq!(tell(&pool), Totals { refused: 1, ..Totals::default() });
    assert_eq!(tell(&pool), Totals { refused: 1, ..Totals::default() });
    tried(&pool, 2).expect_err("nothing was lent");
    pool.standby().told(true, lessor_protocol::Fallback::Closed);
    pool.mind_passing();
    tried(&pool, 3).expect("it is let pass");
    let expected = Totals { refused: 6, shadow: 3, ..Totals::default() };
    assert_eq!(tell(&pool), expected);
}

#[test]
fn a_lease_is_as_old_as_the_ask_for_it_and_no_older_than_it_lasts() {
    let pool = pool();
    assert_eq!(pool.stands().lease_age, Duration::ZERO, "there is none");
    let now = CLOCK.now();
    pool.slot().install(5, 0, now + Duration::from_secs(3_600));
    pool.leased(now.before(Duration::from_secs(2)));
    let stands = pool.stands();
    assert!(stands.lease_age >= Duration::from_secs(2), "{stands:?}");
    assert_eq!((stands.available, stands.waiting), (5, 0));
    pool.slot().end();
    assert_eq!(pool.stands().lease_age, Duration::ZERO, "it is over");
}
