//! The bucket of a node, worked out by hand: what it lets through and when, and what an undone call leaves behind.

use super::*;
use lessor_protocol::moment::at;

/// Makes a bucket that holds up to `cap` permits, gains one each 100 ns, and is empty at 1,000 ns.
fn pace(cap: u64) -> Pace {
    let pace = Pace::new();
    pace.go(BucketRate { interval: 100, depth: 100 * cap }, 0, at(1_000));
    pace
}

fn early(nanos: u64) -> Early {
    Early { wait: Some(Duration::from_nanos(nanos)) }
}

#[test]
fn permits_come_an_interval_apart_and_not_a_nanosecond_sooner() {
    let pace = pace(1);
    assert_eq!(pace.take(1, at(1_099)).map(|_| ()), Err(early(1)));
    assert!(pace.take(1, at(1_100)).is_ok());
    assert_eq!(pace.take(1, at(1_100)).map(|_| ()), Err(early(100)));
    // A late permit does not bring the next one forward: the interval counts from the last take.
    assert!(pace.take(1, at(1_350)).is_ok());
    assert_eq!(pace.take(1, at(1_449)).map(|_| ()), Err(early(1)));
    assert!(pace.take(1, at(1_450)).is_ok());
}

#[test]
fn a_silence_saves_up_a_burst_and_no_more() {
    let pace = pace(3);
    assert!(pace.take(3, at(9_000)).is_ok());
    assert_eq!(pace.take(1, at(9_000)).map(|_| ()), Err(early(100)));
    assert_eq!(pace.take(4, at(99_000)).map(|_| ()), Err(Early { wait: None }), "never");
}

#[test]
fn nothing_is_let_through_before_a_rate_is_lent_or_after_it_was_let_go() {
    assert_eq!(Pace::new().take(1, at(u64::MAX - 1)).map(|_| ()), Err(Early { wait: None }));
    let pace = pace(1);
    assert_eq!(pace.stop(at(1_030)), Some(30));
    assert_eq!(pace.take(1, at(5_000)).map(|_| ()), Err(Early { wait: None }));
    assert_eq!(pace.stop(at(5_000)), None);
}

#[test]
fn an_undone_take_leaves_no_trace() {
    let pace = pace(1);
    let taken = pace.take(1, at(1_100)).expect("one is there");
    pace.put_back(taken);
    assert!(pace.take(1, at(1_100)).is_ok());
    assert!(pace.take(1, at(1_100)).is_err());
}

/// If it were put back, two would pass at 1,200: the undone one and the one after it.
#[test]
fn what_was_undone_too_late_is_lost() {
    let pace = pace(1);
    let taken = pace.take(1, at(1_100)).expect("one is there");
    pace.take(1, at(1_200)).expect("the next one");
    pace.put_back(taken);
    assert!(pace.take(1, at(1_200)).is_err());
}

#[test]
fn what_is_owed_is_minted_before_anything_is_let_through() {
    let pace = pace(3);
    pace.owe(4, at(1_100));
    assert_eq!((pace.owed(at(1_100)), pace.owed(at(1_101)), pace.available(at(1_100))), (3, 3, 0));
    assert_eq!(pace.take(1, at(1_499)).map(|_| ()), Err(early(1)));
    assert!(pace.take(1, at(1_500)).is_ok());
    // The bucket is full: what it holds pays first.
    pace.owe(4, at(9_000));
    assert_eq!(pace.take(1, at(9_199)).map(|_| ()), Err(early(1)));
    for _ in 0..2 {
        pace.owe(u64::MAX, at(9_200));
    }
    assert_eq!(pace.take(1, at(9_199 + DEBT_MAX)).map(|_| ()), Err(early(101)), "no debt is for ever");
}

#[test]
fn what_is_owed_outlasts_the_rate_by_which_it_was_to_be_paid() {
    let pace = pace(3);
    pace.owe(3, at(1_000));
    assert_eq!(pace.stop(at(1_100)), Some(0));
    pace.owe(1, at(1_150));
    assert_eq!(pace.owed(at(9_000)), 3, "nothing is minted meanwhile");
    pace.go(BucketRate { interval: 10, depth: 30 }, 0, at(9_000));
    assert_eq!(pace.take(1, at(9_039)).map(|_| ()), Err(early(1)));
    assert!(pace.take(1, at(9_040)).is_ok());
    assert_eq!(pace.owed(at(9_040)), 0);
    // The allocator has forgotten the lease.
    pace.owe(3, at(9_040));
    assert_eq!(pace.stop(Moment::ORIGIN), Some(0));
    assert_eq!(pace.owed(at(9_040)), 0);
}

#[test]
fn a_slower_rate_takes_nothing_out_of_the_bucket() {
    let pace = pace(1);
    let saved = pace.stop(at(1_080)).expect("a rate was lent");
    // Four fifths of a permit, and each permit takes ten times as long from now on.
    pace.go(BucketRate { interval: 1_000, depth: 1_000 }, saved * 10, at(1_080));
    assert_eq!(pace.take(1, at(1_279)).map(|_| ()), Err(early(1)));
    assert!(pace.take(1, at(1_280)).is_ok());
}

#[test]
fn a_bucket_may_hold_what_took_longer_to_mint_than_the_clock_has_run() {
    let second = 1_000_000_000;
    let rate = BucketRate { interval: 36 * second, depth: 3_600 * second };
    let (pace, now) = (Pace::new(), at(600 * second));
    pace.go(rate, rate.depth, now);
    assert_eq!(pace.available(now), 100);
    assert_eq!(pace.stop(now), Some(rate.depth));
    pace.go(rate, rate.depth, now);
    assert!(pace.take(100, now).is_ok());
    assert_eq!(pace.take(1, now).map(|_| ()), Err(early(36 * second)));
    // The slowest flow that can be told, on a clock that has just begun.
    let rate = BucketRate { interval: FILLS_MAX / 8, depth: FILLS_MAX };
    let pace = Pace::new();
    pace.go(rate, rate.depth, at(1));
    assert_eq!(pace.available(at(1)), 8);
}

/// The bucket takes 76 days to fill.
#[test]
fn a_rate_that_changes_all_the_time_never_uses_the_words_up() {
    let slow = BucketRate { interval: 1 << 50, depth: 6 << 50 };
    let fast = BucketRate { interval: 1 << 49, depth: 6 << 49 };
    let (pace, mut now) = (Pace::new(), 1_000);
    pace.go(fast, fast.depth, at(now));
    for change in 0..40_000 {
        now += 1_000_000_000;
        let saved = pace.stop(at(now)).expect("a rate is lent");
        let (rate, saved) = if change % 2 == 0 { (slow, saved * 2) } else { (fast, saved / 2) };
        pace.go(rate, saved, at(now));
        assert_eq!(pace.available(at(now)), 6, "{change}");
    }
    pace.take(6, at(now)).expect("the bucket is full");
}
