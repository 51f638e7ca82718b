//! Tests of caps on calls in flight, of steady flows, and of a vendor's word, that go on as they were written down;
//! worked out by hand.

use super::in_flight::{in_flight, says};
use super::*;
use crate::rule::Gap;
use lessor_protocol::{Left, Observed, Rate, RateClaim};

/// At most 25 in flight and 1,000 in 30 s.
fn beside_a_window() -> Arc<Plan> {
    plan(vec![sliding(1_000, 30 * SECOND), in_flight(25)])
}

/// Twenty at once, and one more each 10 ms: leases last for 500 ms.
fn slow_flow() -> Arc<Plan> {
    plan(vec![flow(20, 1, Duration::from_millis(10))])
}

/// An ask for a part of a flow.
fn wants(claim: RateClaim) -> Ask {
    Ask { demand_milli: 100_000, largest: 1, rate: claim, ..ask(0, 0, 5) }
}

/// Returns the `pool` of `plan` as it was written down at `written`, with nothing ahead, and read at `read`.
fn restored(plan: &Arc<Plan>, pool: &mut Pool, written: Moment, gap: Gap, read: Moment) -> Pool {
    let (checkpoint, _) = pool.checkpoint(written, Duration::ZERO).expect("it is kept");
    Pool::from_checkpoint(plan.clone(), &checkpoint, gap, read).expect("there was such a pool")
}

#[test]
fn what_was_free_is_lent_at_once_and_what_was_in_flight_when_it_has_landed() {
    let plan = beside_a_window();
    let mut pool = Pool::new(plan.clone(), millis(0));
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    pool.renew(millis(500), A, 2, says(6, 4, 4, 0)).expect("true");
    // Four run, and four are held until about 2,505 ms. The latter may be spent until then, and all calls end 60,060 ms
    // later.
    let mut after = restored(&plan, &mut pool, millis(600), Gap::Counted, millis(700));
    for (at, in_flight, out) in [(700, 4, 4), (2_400, 4, 4), (2_600, 8, 0), (62_500, 8, 0), (62_600, 0, 0)] {
        let view = after.view(millis(at));
        assert_eq!((view.in_flight, view.books.outstanding), (in_flight, out), "at {at} ms");
        assert_eq!(view.available, 25 - in_flight - out, "at {at} ms");
    }
    assert!(after.is_forgettable(millis(62_600)));
    // How long this clock stood still is unknown: the 1,905 ms that were left begin anew, a little longer.
    let mut other = restored(&plan, &mut pool, millis(600), Gap::Unknown, millis(700));
    assert_eq!(grant(other.renew(millis(700), B, 1, ask(0, 0, 10))).permits, 8, "half of what is left");
    assert_eq!(other.leave(millis(701), B.id, 2, goodbye(0, Some(0))), Ok(8));
    assert_eq!(other.view(millis(62_600)).available, 17);
    assert_eq!(other.view(millis(62_700)).available, 25);
}

#[test]
fn calls_that_a_session_left_behind_are_in_flight_with_nothing_out() {
    let plan = beside_a_window();
    let mut pool = Pool::new(plan.clone(), millis(0));
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    assert_eq!(pool.leave(millis(500), A.id, 2, goodbye(6, Some(4))), Ok(4));
    // A lease that was renewed just after the checkpoint would be over at about 1,603 ms.
    let mut after = restored(&plan, &mut pool, millis(600), Gap::Counted, millis(700));
    let view = after.view(millis(700));
    assert_eq!((view.available, view.in_flight, view.books.outstanding), (21, 4, 0));
    assert!(!after.is_forgettable(millis(61_500)));
    assert_eq!((after.view(millis(61_600)).available, after.view(millis(61_700)).available), (21, 25));
    // All leases are over when the pool is written down: its calls in flight are taken to last for the longest call.
    let mut late = restored(&plan, &mut pool, millis(10_000), Gap::Counted, millis(10_100));
    assert_eq!((late.view(millis(70_000)).available, late.view(millis(70_100)).available), (21, 25));
    let mut later = restored(&plan, &mut pool, millis(10_000), Gap::Counted, millis(80_000));
    assert_eq!((later.view(millis(80_000)).available, later.is_forgettable(millis(80_000))), (25, true));
}

/// A possible bug: an allocator that is killed again and again would take the same calls to have begun anew each time.
#[test]
fn what_an_earlier_life_left_in_flight_lands_when_it_would_have_in_that() {
    let plan = beside_a_window();
    let mut pool = Pool::new(plan.clone(), millis(0));
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    pool.renew(millis(500), A, 2, says(10, 0, 10, 0)).expect("true");
    // As above, ten calls end at about 61,663 ms. Three permits that the second process lends are out until 21 s, and
    // their calls end after 81 s.
    let mut second = restored(&plan, &mut pool, millis(600), Gap::Counted, millis(700));
    assert_eq!(grant(second.renew(millis(20_000), B, 1, ask(0, 0, 3))).permits, 3);
    assert_eq!(second.view(millis(20_000)).available, 12);
    let mut third = restored(&plan, &mut second, millis(20_100), Gap::Counted, millis(20_200));
    for at in [40_000, 60_000] {
        third = restored(&plan, &mut third, millis(at), Gap::Counted, millis(at + 100));
        assert_eq!(
            (third.view(millis(at + 100)).in_flight, third.view(millis(at + 200)).available),
            (13, 12)
        );
    }
    assert_eq!((third.view(millis(61_600)).available, third.view(millis(61_700)).available), (12, 22));
    assert_eq!((third.view(millis(81_000)).available, third.view(millis(81_700)).available), (22, 25));
    // Where the clock stood still, it is unknown how much of that time is over.
    let mut fourth = restored(&plan, &mut second, millis(20_100), Gap::Unknown, millis(50_000));
    assert_eq!((fourth.view(millis(91_500)).available, fourth.view(millis(91_700)).available), (12, 22));
}

#[test]
fn a_record_that_counts_two_things_in_flight_was_never_written() {
    let plan = plan(vec![in_flight(25), in_flight(30)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    let (checkpoint, _) = pool.checkpoint(millis(1), SECOND).expect("it is kept");
    let written = serde_json::to_value(&checkpoint).expect("plain data");
    let of = |first: u64| {
        let mut written = written.clone();
        written["rules"][0]["in_flight"]["in_flight"] = first.into();
        let checkpoint: Checkpoint = serde_json::from_value(written).expect("numbers");
        Pool::from_checkpoint(plan.clone(), &checkpoint, Gap::Counted, millis(2)).is_some()
    };
    assert_eq!((of(0), of(3)), (true, false));
}

#[test]
fn a_flow_goes_on_empty_when_the_last_rate_is_over() {
    let plan = slow_flow();
    let mut pool = Pool::new(plan.clone(), millis(0));
    let first = grant(pool.renew(millis(0), A, 1, wants(RateClaim::None)));
    assert!(matches!(first.rate, Rate::Lent { .. }) && first.term == SECOND / 2, "{first:?}");
    // Its lease is over at about 502 ms, and at 602 ms if it was renewed just after the checkpoint. Until then nothing
    // is minted here, and no session is told a rate.
    let mut after = restored(&plan, &mut pool, millis(100), Gap::Counted, millis(150));
    assert!(after.view(millis(150)).quarantine.is_zero());
    let none = grant(after.renew(millis(150), B, 1, wants(RateClaim::None)));
    assert_eq!((none.permits, none.rate), (0, Rate::Nothing));
    let wait = none.retry_after.expect("a session has it until an instant");
    assert!((450..455).contains(&wait.as_millis()), "{wait:?}");
    for (at, level) in [(600, 0), (610, 0), (700, 9), (800, 19), (810, 20), (5_000, 20)] {
        assert_eq!(after.view(millis(at)).available, level, "at {at} ms");
    }
    assert!(matches!(
        grant(after.renew(millis(5_000), B, 2, wants(RateClaim::None))).rate,
        Rate::Lent { .. }
    ));
    // A rate that was told before the clock stood still may be used for as long again: 502 ms from 150 ms on.
    let mut other = restored(&plan, &mut pool, millis(100), Gap::Unknown, millis(150));
    assert_eq!((other.view(millis(652)).available, other.view(millis(752)).available), (0, 9));
}

#[test]
fn a_lease_that_holds_a_rate_alone_is_known_before_it_is_answered() {
    let plan = slow_flow();
    let mut pool = Pool::new(plan, millis(0));
    let first = grant(pool.renew(millis(0), A, 1, wants(RateClaim::None)));
    let Rate::Lent { lease, .. } = first.rate else { panic!("no other is there: {first:?}") };
    assert!(!pool.is_covered());
    let (_, block) = pool.checkpoint(millis(1), Duration::ZERO).expect("it is kept");
    pool.raise_high_water(block);
    assert!(pool.is_covered());
    let goes_on = Ask { rate: RateClaim::Holds(lease), demand_milli: 100_000, largest: 1, ..ask(5, 0, 0) };
    let second = grant(pool.renew(millis(100), A, 2, goes_on));
    assert!(second.permits == 0 && second.rate != Rate::Nothing, "{second:?}");
    assert!(!pool.is_covered(), "it lasts for longer than what is written down");
}

#[test]
fn a_flow_that_waits_for_rates_of_lost_books_still_does() {
    let plan = slow_flow();
    let mut pool = Pool::after_loss(plan.clone(), millis(0), millis(10));
    let opens = millis(10) + pool.view(millis(10)).quarantine;
    let mut after = restored(&plan, &mut pool, millis(20), Gap::Counted, millis(30));
    for wait in [0, 50, 100, 500] {
        let at = opens + Duration::from_millis(wait);
        assert_eq!(after.view(at).available, pool.view(at).available, "{wait} ms after it opens");
    }
}

#[test]
fn the_word_of_a_vendor_holds_for_as_long_as_was_left_of_it() {
    let plan = plan(vec![sliding(1_000, 30 * SECOND)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    let left = Some(Left { permits: 500, lasts: Some(20 * SECOND) });
    let refused =
        Observed { number: 1, refused_total: 1, wait: Some(5 * SECOND), left, ..Observed::default() };
    assert!(pool.observe(millis(100), A.id, &refused).pauses);
    let (pause, withheld) = (pool.vendor_pause(), pool.withheld());
    assert_eq!((pause, withheld > 400), (5 * SECOND, true));
    // The time between writing and reading counts where the clock went on.
    for (gap, left) in [(Gap::Counted, 4_400), (Gap::Unknown, 4_500)] {
        let mut after = restored(&plan, &mut pool, millis(600), gap, millis(700));
        assert_eq!(after.withheld(), withheld, "{gap:?}");
        let pause = after.view(millis(700)).vendor_pause.as_millis();
        assert!((left..left + 10).contains(&pause), "{gap:?}: {pause} ms of {left}");
    }
}
