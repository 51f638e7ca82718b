//! What a slot gives, keeps and refuses, by one thread and by several.

use super::*;
use lessor_protocol::moment::at;

fn slot(permits: u64) -> Slot {
    let slot = Slot::new();
    slot.install(permits, 0, at(100));
    slot
}

#[test]
fn permits_are_spent_until_none_is_left() {
    let slot = slot(5);
    assert_eq!(slot.take(3, at(0)), Ok(2));
    assert_eq!(slot.take(3, at(0)), Err(Short::Empty));
    assert_eq!(slot.take(2, at(99)), Ok(0));
    assert_eq!(slot.balance(), Balance { free: 0, held: 0 });
}

#[test]
fn nothing_is_spent_at_or_after_the_deadline() {
    let slot = slot(5);
    assert_eq!(slot.take(1, at(100)), Err(Short::Expired));
    assert_eq!(slot.hold(1, at(u64::MAX)), Err(Short::Expired));
    assert_eq!(slot.balance().free, 5);
}

#[test]
fn held_permits_are_neither_free_nor_spent() {
    let slot = slot(5);
    assert_eq!(slot.hold(4, at(0)), Ok(1));
    assert_eq!(slot.balance(), Balance { free: 1, held: 4 });
    assert_eq!(slot.take(2, at(0)), Err(Short::Empty));
    slot.put_back(4);
    assert_eq!(slot.balance(), Balance { free: 5, held: 0 });
    slot.hold(5, at(0)).expect("five are free");
    assert_eq!(slot.spend_held(5), 0);
    assert_eq!(slot.balance().total(), 0);
}

#[test]
fn an_install_adds_and_drops_and_never_moves_the_deadline_back() {
    let slot = slot(5);
    assert_eq!(slot.install(10, 2, at(50)), 2);
    assert_eq!((slot.balance().free, slot.deadline()), (13, at(100)));
    assert_eq!(slot.install(1, 100, at(300)), 14, "no more is dropped than is free");
    assert_eq!((slot.balance().free, slot.deadline()), (0, at(300)));
}

#[test]
fn shedding_keeps_what_it_is_told_and_what_is_held() {
    let slot = slot(10);
    slot.hold(4, at(0)).expect("ten are free");
    assert_eq!(slot.shed(2), 4);
    assert_eq!(slot.balance(), Balance { free: 2, held: 4 });
    assert_eq!(slot.shed(2), 0);
}

#[test]
fn a_full_slot_stays_within_its_half() {
    let slot = slot(SLOT_MAX);
    slot.hold(SLOT_MAX, at(0)).expect("all of it");
    assert_eq!(slot.balance(), Balance { free: 0, held: SLOT_MAX });
    slot.put_back(SLOT_MAX);
    assert_eq!(slot.balance(), Balance { free: SLOT_MAX, held: 0 });
}

#[test]
fn eight_threads_spend_every_permit_once() {
    let slot = slot(80_000);
    let spent: u64 = std::thread::scope(|scope| {
        let spend = || (0..20_000).filter(|_| slot.take(1, at(0)).is_ok()).count() as u64;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(spend)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((spent, slot.balance().free), (80_000, 0));
}

/// A coarse clock that stays at `tick`, and an exact clock that shows `nanos`.
fn time(tick: u64, nanos: u64) -> Time<'static, impl Fn() -> Moment> {
    Time { tick: Some(Tick::of(tick)), late_ns: 10, shared: None, exact: move || at(nanos) }
}

fn is_quick(slot: &Slot, tick: u64) -> bool {
    is_quick_by(None, slot, tick)
}

fn is_quick_by(shared: Option<&Watch>, slot: &Slot, tick: u64) -> bool {
    matches!(slot.spend_quickly(|| 0, shared, 1, Tick::of(tick), 10), Quick::Spent(_))
}

#[test]
fn a_reading_is_good_while_the_coarse_clock_shows_the_same() {
    let slot = slot(5_000);
    assert!(!is_quick(&slot, 1), "no caller has read the exact clock");
    slot.spend(0, 1, &time(1, 50)).expect("the time is 50, and the lease ends at 100");
    assert!(is_quick(&slot, 1) && !is_quick(&slot, 2));
    // A suspend: the coarse clock has moved at least one step, and the exact clock by hours.
    assert_eq!(slot.spend(0, 1, &time(2, 1 << 40)).err(), Some((Short::Expired, at(1 << 40))));
    assert!(!is_quick(&slot, 2));
}

#[test]
fn what_a_reading_may_be_late_by_is_taken_off_the_deadline() {
    let slot = slot(5_000);
    slot.spend(0, 1, &time(1, 89)).expect("the time is 89");
    assert!(is_quick(&slot, 1), "the time is 99 at most");
    slot.spend(0, 1, &time(2, 90)).expect("the time is 90");
    assert!(!is_quick(&slot, 2), "the time may be 100");
    slot.spend(0, 1, &time(2, 99)).expect("the clock is read again: 99");
    assert!(slot.spend(0, 1, &time(2, 100)).is_err());
}

#[test]
fn a_coarse_clock_that_stands_still_is_trusted_for_some_permits_only() {
    // A machine that its host had stopped wakes: hours have passed, and the coarse clock has not moved yet.
    let slot = slot(100_000);
    slot.spend(0, 1, &time(1, 50)).expect("the lease is live");
    let late = (0..100_000).filter(|_| is_quick(&slot, 1) || slot.spend(0, 1, &time(1, 1 << 40)).is_ok());
    assert!(late.count() as u64 <= watch::LOOK_EVERY);
}

#[test]
fn an_older_reading_that_comes_late_moves_time_back_for_no_caller() {
    let slot = slot(5_000);
    slot.spend(0, 1, &time(7, 95)).expect("the time is 95");
    // A thread that was stopped after reading both clocks notes these old readings.
    slot.spend(0, 1, &time(3, 10)).expect("the reading was 10");
    assert!(!is_quick(&slot, 7) && !is_quick(&slot, 3));
}

#[test]
fn a_refusal_for_emptiness_needs_no_exact_clock() {
    let slot = slot(1);
    slot.take(1, at(0)).expect("one is there");
    slot.spend(0, 1, &time(1, 95)).expect_err("none is left");
    let never = Time { tick: Some(Tick::of(1)), late_ns: 10, shared: None, exact: || panic!("read") };
    assert_eq!(slot.spend(0, 1, &never), Err((Short::Empty, at(95))));
}

#[test]
fn a_shared_reading_is_good_for_slots_that_never_read_one() {
    let (one, other, shared) = (slot(5_000), slot(5_000), Watch::new());
    assert!(!is_quick_by(Some(&shared), &one, 1), "no caller has read the exact clock");
    one.spend(0, 1, &Time { shared: Some(&shared), ..time(1, 50) })
        .expect("the time is 50, and the lease ends at 100");
    assert!(is_quick_by(Some(&shared), &other, 1) && !is_quick_by(Some(&shared), &other, 2));
    // Without the shared watch, the other slot's callers have no reading.
    assert!(is_quick(&one, 1) && !is_quick(&other, 1));
    let late = Time { shared: Some(&shared), ..time(2, 100) };
    assert_eq!(one.spend(0, 1, &late).err(), Some((Short::Expired, at(100))));
    assert!(!is_quick_by(Some(&shared), &other, 2), "the lease is over for all slots");
}

#[test]
fn a_shared_reading_is_good_for_so_many_permits_of_each_slot() {
    // The coarse clock stands still and the slot is at a multiple of 512. One spend crosses it, then 511 need no exact
    // reading.
    let (one, other, shared) = (slot(1_024), slot(5_000), Watch::new());
    let read = |nanos| Time { shared: Some(&shared), ..time(1, nanos) };
    one.spend(0, 1, &read(50)).expect("the time is 50");
    let quick = (0..1_024).take_while(|_| is_quick_by(Some(&shared), &one, 1)).count();
    // The first one reads the exact clock itself: the spend before it crossed a multiple.
    assert_eq!(quick, 0);
    one.spend(0, 1, &read(50)).expect("the time is 50");
    let quick = (0..1_024).take_while(|_| is_quick_by(Some(&shared), &one, 1)).count();
    assert_eq!(quick, 511, "as many as a stripe spends without a look");
    assert!(!is_quick(&one, 1), "a handle needs a look too");
    assert!(is_quick_by(Some(&shared), &other, 1), "the other slot has spent nothing");
    assert_eq!(one.spend(0, 1, &read(100)).err(), Some((Short::Expired, at(100))));
    assert!(!is_quick_by(Some(&shared), &other, 1), "a reading for one slot holds for the other");
}

/// Makes a slot with `permits` on `stripes`.
fn striped(stripes: usize, permits: u64) -> Slot {
    let slot = Slot::new();
    slot.stripe(stripes, 1);
    slot.install(permits, 0, at(100));
    slot
}

fn spend(slot: &Slot, stripe_hint: usize, permits: u64) -> bool {
    slot.spend(stripe_hint, permits, &time(1, 50)).is_ok()
}

#[test]
fn no_call_is_refused_while_any_stripe_has_what_it_wants() {
    let slot = striped(4, 40);
    for spent in 0..40 {
        assert!(spend(&slot, 0, 1), "{spent} of 40 are spent");
    }
    assert!(!spend(&slot, 0, 1));
    let slot = striped(4, 40);
    assert!(spend(&slot, 3, 38) && !spend(&slot, 1, 3) && spend(&slot, 2, 2));
    assert_eq!(slot.balance(), Balance::default());
}

#[test]
fn stripes_are_filled_from_what_comes_in_and_from_each_other() {
    let slot = striped(2, 100);
    for _ in 0..50 {
        assert!(spend(&slot, 0, 1));
    }
    assert_eq!(slot.balance().free, 50, "one stripe has all permits");
    slot.install(10, 0, at(100));
    // A caller at the other stripe finds half of the permits there, and does not search.
    let stripe_hint = |slot: &Slot| slot.spend(0, 1, &time(1, 50)).expect("sixty are there").free;
    assert_eq!(stripe_hint(&slot), 29);
}

#[test]
fn what_is_set_aside_on_stripes_is_spent_or_put_back() {
    let slot = striped(2, 10);
    slot.hold(8, at(0)).expect("the stripes have five and three");
    assert_eq!(slot.balance(), Balance { free: 2, held: 8 });
    assert_eq!(slot.hold(3, at(0)), Err(Short::Empty));
    slot.put_back(3);
    assert_eq!(slot.spend_held(5), 5);
    assert_eq!((slot.balance(), slot.shed(1)), (Balance { free: 5, held: 0 }, 4));
    assert_eq!(slot.install(1, 9, at(200)), 2, "no more is dropped than is free");
}

#[test]
fn a_slot_that_threads_contend_for_says_so_once() {
    let slot = slot(SLOT_MAX);
    assert!(!slot.take_contended());
    std::thread::scope(|scope| {
        let spend = || {
            // Until the threads have met often enough, which takes a while on a single core.
            while slot.clashes.load(Ordering::Relaxed) < CLASHES {
                slot.take(1, at(0)).expect("four billion are there");
            }
        };
        scope.spawn(spend);
        scope.spawn(spend);
    });
    assert!(slot.take_contended() && !slot.take_contended());
}

#[test]
fn eight_threads_spend_every_permit_of_the_stripes_once() {
    let slot = striped(4, 80_000);
    let spent: usize = std::thread::scope(|scope| {
        let slot = &slot;
        let spend = move |stripe_hint| (0..20_000).filter(|_| spend(slot, stripe_hint, 1)).count();
        let threads: Vec<_> = (0..8).map(|stripe_hint| scope.spawn(move || spend(stripe_hint))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((spent, slot.balance().free), (80_000, 0));
}

mod beside_a_hand {
    //! The holder's own tests keep permits in a `Hand`, which must behave like a slot, or the tests would say nothing
    //! about the shipped code.

    use super::*;
    use crate::pace::{BucketRate, Pace};
    use lessor_holder::hand::{Bucket, Hand};
    use lessor_holder::permits::Pacer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_and_a_hand_do_the_same(
            stripes in 1usize..4,
            steps in proptest::collection::vec((0u8..7, 0u64..9, 0u64..9, 0u64..60), 1..60),
        ) {
            let (slot, hand) = (Slot::new(), Hand::new());
            slot.stripe(stripes, 1);
            for (step, a, b, time) in steps {
                match step {
                    0 | 1 => {
                        let both = [Permits::install(&slot, a, b, at(time)), hand.install(a, b, at(time))];
                        prop_assert_eq!(both[0], both[1]);
                    }
                    // Where both reasons hold, a striped slot returns the other one.
                    2 => prop_assert_eq!(Permits::take(&slot, a, at(time)).ok(), hand.take(a, at(time)).ok()),
                    3 => prop_assert_eq!(slot.hold(a, at(time)).is_ok(), hand.hold(a, at(time)).is_ok()),
                    4 => {
                        let held = hand.balance().held;
                        slot.put_back(a.min(held));
                        hand.put_back(a.min(held));
                        let held = held - a.min(held);
                        prop_assert_eq!(Permits::spend_held(&slot, b.min(held)), hand.spend_held(b.min(held)));
                    }
                    5 => prop_assert_eq!(Permits::shed(&slot, a), hand.shed(a)),
                    _ => prop_assert_eq!(Permits::end(&slot), hand.end()),
                }
                prop_assert_eq!(Permits::balance(&slot), hand.balance());
                prop_assert_eq!(Permits::deadline(&slot), hand.deadline());
            }
        }

        #[test]
        fn a_pace_and_a_bucket_do_the_same(
            interval in 1u64..9,
            cap in 1u64..6,
            steps in proptest::collection::vec((0u8..8, 0u64..9, 0u64..40), 1..60),
        ) {
            let (pace, bucket) = (Pace::new(), Bucket::default());
            let mut now = 1_000;
            for (step, permits, later) in steps {
                now += later;
                match step {
                    0 => {
                        let rate = BucketRate { interval, depth: interval * cap };
                        prop_assert_eq!(Pacer::stop(&pace, at(now)), bucket.stop(at(now)));
                        Pacer::go(&pace, rate, permits, at(now));
                        bucket.go(rate, permits, at(now));
                    }
                    1 => prop_assert_eq!(Pacer::stop(&pace, at(now)), bucket.stop(at(now))),
                    _ => prop_assert_eq!(
                        pace.take(permits, at(now)).is_ok(),
                        bucket.take(permits, at(now)).is_ok()
                    ),
                }
            }
        }
    }
}
