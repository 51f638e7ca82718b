//! Buckets of every kind, one instant after another, worked out by hand.

use super::*;
use crate::rule::{Gap, RefillStyle, RuleError, WarmUp};
use lessor_protocol::moment::millis;

fn bucket(capacity: u64, refill: u64, per_ms: u64, initial: u64) -> BucketLedger {
    let rule = TokenBucket::try_new(capacity, refill, Duration::from_millis(per_ms), initial);
    let clocks = ClockBounds::try_new(0).expect("no drift");
    BucketLedger::new(&rule.expect("valid"), clocks, Moment::ORIGIN)
}

#[test]
fn refill_pauses_while_the_bucket_is_out() {
    let mut bucket = bucket(10, 10, 1_000, 10);
    bucket.charge(10);
    bucket.advance(millis(5_000));
    assert_eq!(bucket.available(), 0, "ten are out: there is no room");
    bucket.settle(10, millis(5_000));
    bucket.advance(millis(5_099));
    assert_eq!(bucket.available(), 0);
    bucket.advance(millis(5_100));
    assert_eq!(bucket.available(), 1);
}

#[test]
fn fractions_survive_takes_but_never_exceed_the_cap() {
    let mut bucket = bucket(2, 3, 1_000, 0);
    for step in 1..=100 {
        bucket.advance(millis(step * 10));
        if bucket.available() > 0 {
            bucket.charge(1);
            bucket.settle(1, millis(step * 10));
        }
    }
    // 3 a second for a second, looked at every 10 ms: the third falls due at exactly 1,000 ms.
    assert_eq!((bucket.available(), bucket.outstanding()), (0, 0));
    bucket.advance(millis(10_100));
    assert_eq!(bucket.available(), 2);
    // A full bucket has no part of another permit: the next takes all of its third of a second.
    bucket.charge(1);
    bucket.settle(1, millis(10_100));
    bucket.advance(millis(10_433));
    assert_eq!(bucket.available(), 1);
    bucket.advance(millis(10_434));
    assert_eq!(bucket.available(), 2);
}

#[test]
fn ready_is_the_first_instant_at_which_it_is_there() {
    let mut bucket = bucket(10, 3, 1_000, 0);
    for permits in 1..=10 {
        let ready = bucket.ready_at(permits, &mut std::iter::empty()).expect("it refills");
        let mut early = bucket.clone();
        early.advance(Moment::from_nanos(ready.as_nanos() - 1));
        assert!(early.available() < permits);
        early.advance(ready);
        assert!(early.available() >= permits);
    }
    bucket.advance(millis(60_000));
    bucket.charge(10);
    // Nine come back spent at 61 s; from then on there is room.
    let mut ends = vec![(millis(61_000), 9), (millis(90_000), 1)].into_iter();
    assert_eq!(bucket.ready_at(3, &mut ends), Some(millis(62_000)));
}

#[test]
fn a_bucket_that_never_refills_is_never_ready() {
    assert_eq!(bucket(10, 0, 1_000, 4).ready_at(5, &mut std::iter::empty()), None);
    assert_eq!(bucket(10, 0, 1_000, 4).ready_at(4, &mut std::iter::empty()), Some(Moment::ORIGIN));
}

/// `rule` on clocks without drift, from the origin on.
fn ledger(rule: Result<TokenBucket, RuleError>) -> BucketLedger {
    BucketLedger::new(&rule.expect("valid"), ClockBounds::try_new(0).expect("no drift"), Moment::ORIGIN)
}

fn rule(capacity: u64, refill: u64) -> TokenBucket {
    TokenBucket::try_new(capacity, refill, Duration::from_secs(1), capacity).expect("valid")
}

/// Lends `permits` that are spent and reported at once.
fn spend(bucket: &mut BucketLedger, permits: u64) {
    let now = bucket.now;
    bucket.charge(permits);
    bucket.settle(permits, now);
}

#[test]
fn what_comes_at_intervals_comes_all_at_once_as_far_as_there_is_room() {
    // Four a second, in a bucket of ten that was emptied at half a second.
    let mut bucket = ledger(rule(10, 4).with_refill_style(RefillStyle::Interval));
    bucket.advance(millis(500));
    spend(&mut bucket, 10);
    assert_eq!(bucket.ready_at(5, &mut std::iter::empty()), Some(millis(2_000)));
    for (at, level) in [(999, 0), (1_000, 4), (1_999, 4), (2_000, 8), (3_000, 10), (9_500, 10)] {
        bucket.advance(millis(at));
        assert_eq!(bucket.available(), level, "after {at} ms");
    }
    // A second is over since the last refill, not since the permit was taken.
    spend(&mut bucket, 1);
    bucket.advance(millis(10_000));
    assert_eq!(bucket.available(), 10);
    // Outstanding permits take their room at a refill, and nothing comes for them later.
    bucket.charge(10);
    bucket.advance(millis(11_500));
    bucket.settle(10, millis(11_500));
    assert_eq!((bucket.available(), bucket.arriving(Duration::from_millis(499))), (0, 0));
    assert_eq!(bucket.arriving(Duration::from_millis(500)), 4);
    bucket.advance(millis(12_000));
    assert_eq!(bucket.available(), 4);
}

#[test]
fn an_interval_begins_anew_where_books_were_lost() {
    let mut bucket = ledger(rule(10, 4).with_refill_style(RefillStyle::Interval));
    bucket.forget(millis(700));
    for (at, level) in [(1_699, 0), (1_700, 4), (2_700, 8)] {
        bucket.advance(millis(at));
        assert_eq!(bucket.available(), level, "after {at} ms");
    }
}

#[test]
fn a_bucket_goes_into_the_red_as_far_as_it_may_and_lends_nothing_until_it_is_out() {
    let mut bucket = ledger(rule(5, 1).with_debt(3));
    assert_eq!(bucket.available(), 8);
    spend(&mut bucket, 8);
    let ready = |bucket: &BucketLedger, permits| bucket.ready_at(permits, &mut std::iter::empty());
    assert_eq!(
        [1, 4, 5, 8].map(|permits| ready(&bucket, permits)),
        [4, 4, 5, 8].map(|s| Some(millis(s * 1_000)))
    );
    assert_eq!(ready(&bucket, 9), None);
    bucket.advance(millis(3_999));
    assert_eq!((bucket.available(), bucket.level), (0, 0), "out of the red, and empty");
    bucket.advance(millis(4_000));
    assert_eq!((bucket.available(), bucket.arriving(Duration::from_secs(1))), (4, 1));
    // Permits that come back unspent lower the debt.
    bucket.charge(4);
    assert_eq!((bucket.available(), bucket.level), (0, -3));
    bucket.release(3);
    assert_eq!((bucket.available(), bucket.level), (0, 0));
    assert!(bucket.is_sound());
    assert_eq!((bucket.forget(millis(4_000)), bucket.level), (millis(4_000), -3), "it may have been taken");
}

#[test]
fn a_cold_bucket_is_three_times_slower_and_half_the_permits_make_it_twice() {
    // 100 a second over 10 s: 500 permits of coldness, 30 ms a permit while it is cold, 10 ms while it is warm.
    let warm_up = WarmUp::try_new(Duration::from_secs(10), 3).expect("valid");
    let mut bucket = ledger(rule(1_000, 100).with_warm_up(warm_up));
    let next = |bucket: &BucketLedger| {
        let ready = bucket.ready_at(bucket.available() + 1, &mut std::iter::empty());
        ready.expect("it refills").since(bucket.now).as_millis()
    };
    bucket.charge(1_000);
    assert_eq!(bucket.ready_at(1, &mut [(millis(5), 1_000)].into_iter()), Some(millis(35)), "burned");
    bucket.settle(250, millis(0));
    assert_eq!(next(&bucket), 20, "half of the coldness was spent");
    // Burned permits make room, but do not warm the bucket.
    bucket.burn(500, millis(0));
    assert_eq!(next(&bucket), 20);
    bucket.settle(250, millis(0));
    assert_eq!(next(&bucket), 10);
    // Full again after 10 s, and half as cold as it can be 5 s later.
    bucket.advance(millis(10_000));
    assert_eq!((bucket.available(), bucket.is_fresh()), (1_000, false));
    bucket.advance(millis(15_000));
    spend(&mut bucket, 0);
    bucket.charge(1);
    bucket.burn(1, millis(15_000));
    assert_eq!(next(&bucket), 20);
    bucket.advance(millis(15_020));
    bucket.charge(1_000);
    bucket.advance(millis(60_000));
    bucket.release(1_000);
    bucket.charge(1);
    bucket.burn(1, millis(60_000));
    assert_eq!(next(&bucket), 20, "while something is out it does not cool");
    bucket.advance(millis(75_100));
    assert!(bucket.is_fresh(), "{bucket:?}");
}

#[test]
fn a_bucket_that_may_have_been_emptied_starts_empty() {
    let mut bucket = bucket(10, 10, 1_000, 10);
    assert_eq!(bucket.forget(millis(2_000)), millis(2_000));
    bucket.advance(millis(2_100));
    assert_eq!(bucket.available(), 1);
}

/// Twice the rate, twice the capacity: the level stays, and refills at intervals keep their instants.
#[test]
fn a_bucket_that_is_changed_goes_on_if_it_gains_permits_in_the_same_time() {
    let goes_on = |bucket: &mut BucketLedger, rule: TokenBucket| {
        bucket.change(&Rule::TokenBucket(rule), ClockBounds::try_new(0).expect("no drift"), CarryOver::AsIs)
    };
    let at_intervals = |capacity, refill| rule(capacity, refill).with_refill_style(RefillStyle::Interval);
    let mut bucket = ledger(at_intervals(10, 4));
    spend(&mut bucket, 10);
    bucket.advance(millis(600));
    let mut evenly = bucket.clone();
    assert!(goes_on(&mut evenly, rule(20, 8)));
    evenly.advance(millis(724));
    assert_eq!(evenly.available(), 0);
    evenly.advance(millis(725));
    assert_eq!(evenly.available(), 1, "an eighth of the time from the change on");
    let slower = TokenBucket::try_new(10, 4, Duration::from_millis(1_001), 10).expect("valid");
    assert!(!goes_on(&mut bucket, slower));
    assert!(goes_on(&mut bucket, at_intervals(20, 8).expect("valid")));
    bucket.advance(millis(999));
    assert_eq!(bucket.available(), 0);
    bucket.advance(millis(1_000));
    assert_eq!(bucket.available(), 8);
}

/// A debt stays as it is, however little debt the new rule allows.
#[test]
fn a_bucket_in_the_red_stays_there_when_it_is_changed() {
    for carry_over in [CarryOver::AsIs, CarryOver::Proportional, CarryOver::Additive] {
        let mut bucket = ledger(rule(5, 1).with_debt(3));
        spend(&mut bucket, 8);
        let less = Rule::TokenBucket(rule(4, 1));
        assert!(bucket.change(&less, ClockBounds::try_new(0).expect("no drift"), carry_over));
        assert_eq!((bucket.level, bucket.excess()), (-3, 0), "{carry_over:?}");
        bucket.advance(millis(3_999));
        assert_eq!(bucket.available(), 0);
        bucket.advance(millis(4_000));
        assert_eq!(bucket.available(), 1);
    }
}

/// More is outstanding than the bucket may hold now. Nothing is lent and nothing minted until enough of it is gone.
#[test]
fn a_bucket_that_is_made_smaller_than_what_is_out_waits_for_it() {
    let mut bucket = ledger(Ok(rule(10, 10)));
    bucket.charge(8);
    assert!(bucket.change(
        &Rule::TokenBucket(rule(5, 10)),
        ClockBounds::try_new(0).expect("no drift"),
        CarryOver::AsIs
    ));
    assert_eq!((bucket.available(), bucket.excess()), (0, 3));
    bucket.advance(millis(1_000));
    bucket.release(2);
    assert_eq!((bucket.available(), bucket.excess()), (0, 1), "given back, and no room for it");
    bucket.settle(3, millis(1_000));
    assert_eq!((bucket.available(), bucket.excess()), (0, 0));
    bucket.advance(millis(1_200));
    assert_eq!(bucket.available(), 2);
}

/// The true time at which a permit is settled may be later than the allocator's clock shows.
#[test]
fn what_a_full_bucket_has_not_gained_until_it_was_told_it_does_not_gain() {
    let ready = |bucket: &BucketLedger, permits| bucket.ready_at(permits, &mut std::iter::empty());
    let mut bucket = bucket(2, 1, 1_000, 2);
    bucket.charge(2);
    bucket.advance(millis(100));
    bucket.doubt(millis(108));
    bucket.settle(1, millis(100));
    assert_eq!(ready(&bucket, 1), Some(millis(1_108)), "both were out: it begins as late as that may be");
    // The bucket was not full, and would not have been, so what it has gained since counts.
    bucket.advance(millis(1_090));
    bucket.doubt(millis(1_098));
    bucket.settle(1, millis(1_090));
    assert_eq!(ready(&bucket, 1), Some(millis(1_108)));
    // Full but for 2 ms of a permit: in 6 of those 8 ms it would have gained nothing.
    bucket.advance(millis(1_108));
    bucket.charge(1);
    bucket.advance(millis(2_106));
    bucket.doubt(millis(2_114));
    bucket.settle(1, millis(2_106));
    assert_eq!(ready(&bucket, 1), Some(millis(2_114)));
}

/// The time of a bucket may be ahead of the time at which it was written down.
#[test]
fn one_that_began_late_goes_on_so() {
    let mut first = bucket(1, 1, 1_000, 1);
    first.charge(1);
    first.advance(millis(100));
    first.doubt(millis(108));
    first.settle(1, millis(100));
    let saved = first.save();
    for (gap, now, ready) in [(Gap::Counted, 103, 1_108), (Gap::Unknown, 9_000, 10_008)] {
        let clocks = ClockBounds::try_new(0).expect("no drift");
        let since = Since { gap, written: millis(100).into(), now: millis(now), clocks };
        let mut again = bucket(1, 1, 1_000, 1);
        again.advance(since.moment(millis(100).into()));
        assert!(again.restore(&saved, since, (0, millis(100))));
        again.advance(millis(now));
        assert_eq!(again.ready_at(1, &mut std::iter::empty()), Some(millis(ready)), "{gap:?}");
    }
}

#[test]
fn a_bucket_keeps_what_comes_back_unless_it_fills_meanwhile() {
    let keeps = |capacity, refill, per_ms, style| {
        let bucket = TokenBucket::try_new(capacity, refill, Duration::from_millis(per_ms), 0).expect("valid");
        bucket.with_refill_style(style).expect("valid").keeps(Duration::from_millis(200))
    };
    let (greedy, interval) = (RefillStyle::Greedy, RefillStyle::Interval);
    assert!(keeps(100, 100, 1_000, greedy) && keeps(21, 100, 1_000, greedy) && keeps(1, 0, 1_000, greedy));
    assert!(!keeps(20, 100, 1_000, greedy) && !keeps(5, 100, 1_000, greedy));
    // An interval may end at any time.
    assert!(keeps(101, 100, 1_000, interval) && keeps(21, 10, 100, interval));
    assert!(!keeps(100, 100, 1_000, interval) && !keeps(20, 10, 100, interval));
}
