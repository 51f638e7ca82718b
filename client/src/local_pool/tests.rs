//! What calls by handles leave behind for the background task to see.

use super::*;
use crate::by_hand::{self, Caller, LEASED};
use crate::pace::BucketRate;
use crate::slot::{Short, Time};
use crate::ticks::HotClock;
use lessor_protocol::{ClockBounds, Fallback, Grant, InFlight, Rate, SafeShare, TERM_MAX};

fn pool() -> Arc<LocalPool> {
    pool_by(HotClock::Coarse, &Arc::default())
}

fn pool_by(clock: HotClock, wake_list: &Arc<WakeList>) -> Arc<LocalPool> {
    pool_named(None, clock, wake_list)
}

fn pool_of_key(key: &str) -> Arc<LocalPool> {
    pool_named(Some(key.into()), HotClock::Coarse, &Arc::default())
}

fn pool_named(key: Option<Box<str>>, clock: HotClock, wake_list: &Arc<WakeList>) -> Arc<LocalPool> {
    let name = PoolName { limit: "vendor-get".into(), key };
    let ticks = Ticks::try_new(clock).expect("this clock needs no thread");
    let tally = Arc::new(Tally::new("vendor-get".into()));
    LocalPool::new(HotRef::alone(), ticks, name, false, wake_list.clone(), tally)
}

#[test]
fn calls_that_are_too_large_are_doubted_once_and_are_no_demand() {
    let pool = pool();
    let condition = Condition::Good;
    pool.set_standing(Standing { condition, ceiling: 5, chance: Moment::ORIGIN, rtt: Duration::ZERO });
    assert!(!pool.takes_doubt());
    for _ in 0..1_000 {
        assert_eq!(pool.try_acquire_at(pool.hot_state(), 6), Err(Refusal::TooLarge { limit: 5 }));
    }
    assert_eq!(pool.seen().refused, 0, "a call that is too large is no demand");
    assert!(pool.takes_doubt());
    assert!(!pool.takes_doubt(), "a doubt is taken once");
    pool.try_acquire_at(pool.hot_state(), 1).expect_err("nothing was lent");
    assert_eq!((pool.seen().refused, pool.takes_doubt()), (1, false));
}

/// The bug: contention was noticed at the next refill, which may be two seconds away.
#[test]
fn threads_that_contend_for_a_pool_wake_the_task_that_can_part_them() {
    let wake_list = Arc::default();
    let pool = pool_by(HotClock::Exact, &wake_list);
    pool.slot().install(u64::from(u32::MAX), 0, Moment::NEVER);
    let woken = || {
        let mut known = vec![];
        wake_list.take(&mut known);
        known.len()
    };
    pool.try_acquire_at(pool.hot_state(), 1).expect("there are many");
    assert_eq!(woken(), 0, "one thread alone wakes no task");
    std::thread::scope(|scope| {
        let spend = || {
            // Until the threads have met often enough, which takes a while on a single core.
            while !pool.slot().is_crowded() {
                pool.try_acquire_at(pool.hot_state(), 1).expect("there are many");
            }
        };
        scope.spawn(spend);
        scope.spawn(spend);
    });
    assert_eq!(woken(), 1);
}

fn tried(pool: &LocalPool, permits: u64) -> Result<(), Refusal> {
    pool.try_acquire_at(pool.hot_state(), permits)
}

#[test]
fn the_next_call_is_timed_and_no_other() {
    let pool = pool();
    pool.slot().install(5, 0, CLOCK.now() + Duration::from_secs(3_600));
    tried(&pool, 1).expect("five are there");
    assert_eq!(pool.takes_timed(), None, "no call is to be timed");
    pool.time_next();
    tried(&pool, 0).expect("a call of no permits");
    assert_eq!(pool.takes_timed(), None);
    tried(&pool, 1).expect("four are there");
    let (took, admitted) = pool.takes_timed().expect("the next call was timed");
    assert!(admitted && took < Duration::from_secs(60), "{took:?}");
    tried(&pool, 1).expect("three are there");
    assert_eq!((pool.takes_timed(), pool.slot().balance().free), (None, 2), "each call spends once");
    pool.time_next();
    tried(&pool, 3).expect_err("two are there");
    let (_, admitted) = pool.takes_timed().expect("refusals are timed too");
    assert!(!admitted && pool.seen().refused == 3, "each call is refused once");
}

/// A process may have a million keys. The hot state of a key is in a row of its table; this is the rest.
#[test]
fn a_key_takes_no_more_room_than_is_said_of_it() {
    // Mutexes have another size on other systems. The counts of an `Arc` are in a line of their own.
    let pool = align_of::<LocalPool>() + size_of::<LocalPool>();
    assert!(
        pool <= 704 || cfg!(not(target_os = "linux")),
        "a key takes {pool} bytes: mend docs/design/client.md"
    );

    // Nothing else is allocated once a key was lent to, called and refused.
    let pool = pool_of_key("user-42");
    lend(&pool, 5, CLOCK.now(), TERM_MAX, None);
    pool.answered(Some(5), Some(1_000), false);
    pool.standby().on_grant(false, Fallback::SafeShare);
    pool.learn_pace(&pool.refill());
    tried(&pool, 5).expect("five are there");
    tried(&pool, 1).expect_err("the permits are spent");
    pool.call_first();
    pool.count_up();
    assert_eq!((pool.available(), pool.early_by(1, CLOCK.now())), (0, None));
    let Cold { keys, pace, line, feedback, .. } = &pool.cold;
    assert!(keys.get().is_none() && pace.get().is_none() && feedback.get().is_none());
    assert!(line.lock().expect("no panic").is_usual() && pool.standby().takes_no_room());
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
    pool.standby().on_grant(true, Fallback::Closed);
    pool.refresh_passes();
    tried(&pool, 3).expect("the call is let pass");
    let expected = Totals { refused: 6, shadow: 3, ..Totals::default() };
    assert_eq!(tell(&pool), expected);
}

#[test]
fn a_lease_is_as_old_as_the_ask_for_it_and_no_older_than_it_lasts() {
    let pool = pool();
    assert_eq!(pool.stands().lease_age, Duration::ZERO, "there is no lease");
    let now = CLOCK.now();
    pool.slot().install(5, 0, now + Duration::from_secs(3_600));
    pool.leased(now.before(Duration::from_secs(2)));
    let stands = pool.stands();
    assert!(stands.lease_age >= Duration::from_secs(2), "{stands:?}");
    assert_eq!((stands.available, stands.waiting), (5, 0));
    pool.slot().end();
    assert_eq!(pool.stands().lease_age, Duration::ZERO, "the lease is over");
}

/// The bug: the clock was read before waiting for the lock, and a call was admitted 300 ms after the end of its lease.
#[test]
fn a_call_that_waited_for_the_lock_past_the_end_of_the_lease_is_refused() {
    let pool = pool();
    pool.set_counts_flights(true);
    let (now, term) = (CLOCK.now(), Duration::from_millis(50));
    lend_of_calls(&pool, 5, now, term);
    let deadline = pool.slot().deadline();
    let is_about_to = AtomicBool::new(false);
    let entered = std::thread::scope(|scope| {
        let refill = pool.refill();
        let caller = scope.spawn(|| {
            is_about_to.store(true, Ordering::Release);
            pool.enter(1, false)
        });
        // Whether the caller reads the clock before or after this, the lease is over when it gets the lock.
        while !is_about_to.load(Ordering::Acquire) || CLOCK.now() < deadline {
            std::thread::yield_now();
        }
        drop(refill);
        caller.join().expect("no panic")
    });
    assert_eq!(entered, Err(Short::Expired));
}

/// The bug: one call of 2^53 permits made every later ask invalid.
#[test]
fn what_passes_in_shadow_mode_never_makes_an_ask_invalid() {
    let pool = pool();
    pool.standby().on_grant(true, Fallback::Closed);
    pool.refresh_passes();
    for _ in 0..3 {
        pool.try_acquire_at(pool.hot_state(), 1 << 53).expect("shadow mode refuses nothing");
        pool.try_acquire_at(pool.hot_state(), u64::MAX).expect("shadow mode refuses nothing");
        let ask = pool.refill().write(pool.slot(), pool.seen(), CLOCK.now(), Duration::from_millis(1));
        let body = lessor_protocol::wire::AskBody::of("vendor-get", None, ask);
        assert_eq!(body.out_of_range(), None, "{ask:?}");
        assert!(ask.shadow_refused > 0, "{ask:?}");
    }
}

/// The bug: the answer of an allocator that was still asking elsewhere counted as final, and permits in hand were not
/// added to those left in the pool.
#[test]
fn a_refusal_is_known_if_the_allocator_knows_and_what_is_there_is_too_little() {
    let (pool, now) = (pool(), CLOCK.now());
    let told = |left, wait| {
        let (condition, rtt) = (Condition::Good, Duration::ZERO);
        pool.set_standing(Standing { condition, ceiling: 100, chance: now + wait, rtt });
        pool.answered(left, None, !wait.is_zero());
    };
    let knows = |permits| pool.known_refusal(permits, now).is_some();
    let soon = Duration::from_millis(10);
    told(None, soon);
    assert!(!knows(1), "an answer is on its way");
    told(None, Duration::from_secs(30));
    assert!(knows(1), "no permit comes while a check waits");
    told(Some(0), soon);
    assert!(knows(1));
    pool.slot().install(5, 0, now + LEASED);
    told(Some(3), soon);
    assert_eq!([8, 9].map(knows), [false, true], "five permits are here, and three in the pool");
    told(Some(3), Duration::from_secs(30));
    assert!(knows(8), "the rest of the pool is not for this process");
    told(Some(3), Duration::ZERO);
    assert!(!knows(9), "another answer may bring the permits");
}

/// An idle pool does not hear that a pause or a quarantine is over.
#[test]
fn a_refusal_whose_time_is_over_is_not_known() {
    let (pool, now) = (pool(), CLOCK.now());
    pool.standby().set_stopped(true);
    let wait = Duration::from_secs(30);
    for condition in [Condition::Paused, Condition::Quarantine] {
        pool.set_standing(Standing { condition, ceiling: 100, chance: now + wait, rtt: Duration::ZERO });
        assert!(pool.known_refusal(1, now).is_some(), "{condition:?}");
        assert_eq!(pool.known_refusal(1, now + wait), None, "{condition:?}");
    }
}

/// The bug: callers that could have waited for the end of a call of this very process were refused at once.
#[test]
fn a_wait_for_a_call_of_this_process_is_not_in_vain() {
    let (pool, now) = (pool(), CLOCK.now());
    let (condition, rtt) = (Condition::Good, Duration::ZERO);
    let chance = now + Duration::from_secs(30);
    let patience = Duration::from_millis(100);
    lend_of_calls(&pool, 5, now, TERM_MAX);
    pool.set_counts_flights(true);
    pool.set_standing(Standing { condition, ceiling: 5, chance, rtt });
    for _ in 0..2 {
        pool.take(1, false).expect("five are there");
    }
    assert!(pool.in_vain(4, patience), "acquired permits are not handed back");
    for _ in 0..3 {
        assert_eq!(pool.enter(1, false), Ok(true));
    }
    assert!(!pool.in_vain(3, patience), "three may end at any time");
    assert!(pool.in_vain(4, patience));
    pool.hand_back(1);
    assert!(!pool.in_vain(3, patience));
    pool.set_standing(Standing { condition: Condition::Paused, ceiling: 5, chance, rtt });
    assert!(pool.in_vain(3, patience), "a paused limit spends nothing again");
}

/// The bug: an overdraft stood in line for permits that could not come, and no caller overtakes the line.
#[test]
fn an_overdraft_does_not_keep_callers_from_the_safe_share() {
    let pool = pool();
    let (condition, rtt) = (Condition::Good, Duration::ZERO);
    pool.set_standing(Standing { condition, ceiling: 100, chance: Moment::ORIGIN, rtt });
    // One permit a millisecond.
    let share = SafeShare { permits: 1_000, span: Duration::from_secs(1), lasts: Duration::from_secs(60) };
    pool.standby().on_grant(false, Fallback::SafeShare);
    pool.standby().tell_share(Some(share), CLOCK.now(), ClockBounds::default());
    assert_eq!(pool.overdraw(5), (0, 5), "no permit is free, and no outage has begun");
    assert!(pool.slow_path().has_line());
    pool.standby().begin_outage();
    pool.refresh_passes();
    pool.call_first();
    assert!(!pool.slow_path().has_line(), "the share pays");
    while tried(&pool, 1).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(pool.overdraw(5), (0, 5));
    assert!(!pool.slow_path().has_line());
}

/// The bug: an overdraft of a steady flow stood in line. It was paid only when a waker was called, and none is called
/// when a permit is due: a first in line took each of them, and without a line all calls were refused.
#[test]
fn an_overdraft_of_a_steady_flow_is_paid_before_another_call() {
    // Five permits at once at most, one a second, and none has been minted.
    let (now, second) = (CLOCK.now(), 1_000_000_000);
    let holding = |permits| {
        let pool = pool();
        let (condition, rtt) = (Condition::Good, Duration::ZERO);
        pool.set_standing(Standing { condition, ceiling: 5, chance: Moment::ORIGIN, rtt });
        pool.set_paced(true);
        let rate = BucketRate { interval: second, depth: 5 * second };
        pool.cold.pace.get_or_init(Arc::default).go(rate, 0, now);
        pool.slot().install(permits, 0, now + LEASED);
        pool
    };
    let after = |millis| now + Duration::from_millis(millis);
    let pool = holding(1_000);
    assert_eq!(pool.overdraw(3), (0, 3));
    assert_eq!((pool.slow_path().has_line(), pool.slot().balance().total()), (false, 997));
    for first in [true, false] {
        assert_eq!(pool.take_paced(1, first, after(3_999)), Err(Short::Early));
    }
    assert_eq!(pool.early_by(1, after(3_999)), Some(Duration::from_millis(1)));
    assert_eq!(pool.take_paced(1, false, after(4_000)), Ok(()));
    assert_eq!(pool.overdraw(9), (0, 1), "four have not been minted yet, and one call costs five at most");

    let pool = holding(2);
    assert_eq!((pool.overdraw(3), pool.slow_path().queued()), ((0, 3), 1), "one lacks in the slot too");
    pool.slot().install(5, 0, now + LEASED);
    pool.call_first();
    assert_eq!((pool.slow_path().has_line(), pool.slot().balance().total()), (false, 4));
    assert_eq!(pool.take_paced(1, true, after(3_999)), Err(Short::Early));
    assert_eq!(pool.take_paced(1, true, after(4_000)), Ok(()));
}

/// The bug: permits that came while an overdraft found too few and joined the line were left in the slot, and calls were
/// refused beside them until the next renewal.
#[test]
fn an_overdraft_is_paid_with_permits_that_came_before_it_stood_in_line() {
    let pool = pool();
    pool.slot().install(5, 0, CLOCK.now() + LEASED);
    pool.owe_in_line(3);
    assert_eq!((pool.slow_path().has_line(), pool.slot().balance().total()), (false, 2));
    pool.owe_in_line(3);
    assert_eq!((pool.slow_path().queued(), pool.slot().balance().total()), (1, 0));
}

/// The bug: a call that found no line set permits aside, and put them back because it was too early. A caller that
/// joined the line in between found none, and was not woken.
#[test]
fn a_call_that_comes_too_early_for_the_pace_wakes_the_first_in_line() {
    let shared = by_hand::shared();
    let limit = by_hand::limit(&shared, "vendor-get");
    let (pool, now) = (limit.pool(), CLOCK.now());
    pool.set_paced(true);
    // One permit is always due, and five at once never are.
    pool.cold.pace.get_or_init(Arc::default).go(BucketRate { interval: 1, depth: 1 }, 1, now);
    let mut first = Caller::new(limit.acquire(1));
    assert_eq!(first.run(), None, "no permit is free");
    // No caller is told of these permits.
    pool.slot().install(5, 0, now + LEASED);
    assert_eq!(pool.take_paced(5, true, now), Err(Short::Early));
    assert!(!first.is_woken(), "the first in line would wake itself for ever");
    assert_eq!(pool.take_paced(5, false, now), Err(Short::Early));
    assert_eq!(first.run(), Some(Ok(())));
    assert_eq!(pool.slot().balance().total(), 4);
}

/// Asks for `pool` and lends it permits that count calls in flight. Its callers are not told.
fn lend_of_calls(pool: &LocalPool, permits: u64, now: Moment, term: Duration) {
    let in_flight = Some(InFlight { longest: Duration::from_secs(1), hold: Some(permits) });
    lend(pool, permits, now, term, in_flight);
}

fn lend(pool: &LocalPool, permits: u64, now: Moment, term: Duration, in_flight: Option<InFlight>) {
    let seen = Seen { waiting: permits, ..Seen::default() };
    let grant = Grant {
        kept: 0,
        permits,
        term,
        horizon: term,
        ceiling: permits,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: Rate::Free,
        in_flight,
    };
    pool.refill().write(pool.slot(), seen, now, Duration::from_millis(1));
    pool.refill().believe(pool.slot(), &grant, ClockBounds::default(), now, now, 0);
}

/// Takes permits from the slot of a pool, for a caller that is first in line or not.
type FromSlot = fn(&LocalPool, u64, bool) -> Result<(), Short>;

const WAYS: [FromSlot; 4] = [
    |pool, permits, first| pool.set_aside(permits, first, CLOCK.now()),
    |pool, permits, first| pool.reserve_from_slot(permits, first).map(|_| ()),
    |pool, permits, first| pool.enter_from_slot(permits, first),
    |pool, permits, first| {
        let exact = || CLOCK.now();
        let time = Time { tick: None, late_ns: 0, shared: None, exact };
        pool.spend_from_slot(0, permits, first, &time).map_err(|(short, _)| short)
    },
];

/// The bug: a call that collected permits of several stripes, found too few and put them back did not wake the first in
/// line.
#[test]
fn a_call_that_finds_too_few_on_all_stripes_wakes_the_first_in_line() {
    for slow_path in WAYS {
        let shared = by_hand::shared();
        let limit = by_hand::limit(&shared, "vendor-get");
        let pool = limit.pool();
        pool.slot().stripe(2, 1);
        let mut first = Caller::new(limit.acquire(2));
        assert_eq!(first.run(), None, "no permit is free");
        lend_of_calls(pool, 4, CLOCK.now(), TERM_MAX);
        assert_eq!(slow_path(pool, 5, true), Err(Short::Empty));
        assert!(!first.is_woken(), "the first in line would wake itself for ever");
        assert_eq!(slow_path(pool, 5, false), Err(Short::Empty));
        assert_eq!(first.run(), Some(Ok(())));
        assert_eq!(pool.slot().balance().total(), 2);
    }
}
