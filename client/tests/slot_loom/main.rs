//! The orders in which threads can meet at a slot, tried by loom: the sum must balance in all of them. `tests/run`
//! tries the orders with at most five preemptions (`LOOM_MAX_PREEMPTIONS`). Without that bound, all orders are tried,
//! which takes a minute:
//!
//! `RUSTFLAGS="--cfg slot_loom" cargo test -p lessor --features loom --test slot_loom --release`
#![cfg(slot_loom)]

mod line;
mod pace;
mod refill;

use lessor::slot::{Quick, Slot, Time, Watch};
use lessor_protocol::moment::at;
use lessor_protocol::{Moment, Tick};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Makes a slot with `permits` until 100 ns, known to both threads from the start.
fn slot(permits: u64) -> Arc<Slot> {
    let slot = Slot::new();
    slot.install(permits, 0, at(100));
    Arc::new(slot)
}

/// Runs `other` beside the rest of the model.
fn beside<T: 'static>(slot: &Arc<Slot>, other: impl FnOnce(&Slot) -> T + 'static) -> thread::JoinHandle<T> {
    let slot = slot.clone();
    thread::spawn(move || other(&slot))
}

#[test]
fn two_spenders_never_share_a_permit() {
    loom::model(|| {
        let slot = slot(3);
        let other = beside(&slot, |slot| u64::from(slot.take(2, at(0)).is_ok()) * 2);
        let mine = u64::from(slot.take(2, at(0)).is_ok()) * 2;
        let spent = mine + other.join().expect("no panic");
        assert_eq!(spent, 2, "one call finds too few");
        assert_eq!(slot.balance().total(), 1);
    });
}

#[test]
fn a_spend_beside_an_install_is_counted_once() {
    loom::model(|| {
        let slot = slot(2);
        let spender = beside(&slot, |slot| u64::from(slot.take(1, at(0)).is_ok()));
        // Two permits were held, of which one is not kept; three are new.
        let lost = slot.install(3, 1, at(200));
        let spent = spender.join().expect("no panic");
        assert_eq!(lost, 1);
        assert_eq!(slot.balance().total(), 2 + 3 - lost - spent);
    });
}

#[test]
fn a_permit_of_an_ended_lease_is_never_spent_under_a_new_one() {
    loom::model(|| {
        // The old lease ended at 100 ns with two permits in hand. At 150 ns a new one brings one permit.
        let slot = slot(2);
        let spender = beside(&slot, |slot| (0..3).filter(|_| slot.take(1, at(150)).is_ok()).count() as u64);
        let lost = slot.install(1, 2, at(200));
        let spent = spender.join().expect("no panic");
        assert_eq!(lost, 2, "both old permits are dropped");
        assert!(spent <= 1, "{spent} permits spent of one live permit");
        assert_eq!(slot.balance().total(), 1 - spent);
    });
}

/// A lease until 100 ns is ended at 20, and the next one lasts until 40. A caller that reads the clock after that reads
/// 50.
#[test]
fn a_lease_that_was_ended_lends_its_deadline_to_no_other() {
    loom::model(|| {
        let (slot, clock) = (slot(1), Arc::new(AtomicU64::new(10)));
        let read = clock.clone();
        let spender = beside(&slot, move |slot| {
            // Both threads read the same clock.
            let now = read.load(Ordering::Acquire);
            (now, u64::from(slot.take(1, at(now)).is_ok()))
        });
        let ended = slot.end();
        slot.install(1, 0, at(40));
        clock.store(50, Ordering::Release);
        let (now, spent) = spender.join().expect("no panic");
        assert!(now < 40 || spent == 0, "spent at {now}");
        assert_eq!(ended + slot.balance().total() + spent, 2);
    });
}

#[test]
fn what_is_given_back_is_not_spent() {
    loom::model(|| {
        let slot = slot(2);
        let spender = beside(&slot, |slot| (0..2).filter(|_| slot.take(1, at(0)).is_ok()).count() as u64);
        let shed = slot.shed(0);
        let spent = spender.join().expect("no panic");
        assert_eq!(shed + spent + slot.balance().total(), 2);
    });
}

#[test]
fn a_held_permit_that_is_put_back_never_looks_spent() {
    loom::model(|| {
        let slot = slot(2);
        let all = beside(&slot, |slot| {
            if slot.hold(2, at(0)).is_ok() {
                slot.put_back(2);
            }
        });
        // A report reads one word: a call on several limits that is under way has spent nothing yet.
        assert_eq!(slot.balance().total(), 2);
        all.join().expect("no panic");
        assert_eq!(slot.balance().free, 2);
    });
}

#[test]
fn a_call_on_several_limits_and_a_single_one_share_what_is_there() {
    loom::model(|| {
        let slot = slot(2);
        let all = beside(&slot, |slot| {
            slot.hold(2, at(0)).map_or(0, |_| {
                slot.spend_held(2);
                2
            })
        });
        let single = u64::from(slot.take(1, at(0)).is_ok());
        let spent = single + all.join().expect("no panic");
        assert_eq!(spent + slot.balance().total(), 2);
    });
}

/// Makes a slot with two stripes of `permits` each, until 100 ns.
fn striped(permits: u64) -> Arc<Slot> {
    let slot = Slot::new();
    slot.stripe(2, 1);
    slot.install(2 * permits, 0, at(100));
    Arc::new(slot)
}

/// Spends from the stripe at `stripe_hint` at `nanos`.
fn spend(slot: &Slot, stripe_hint: usize, permits: u64, nanos: u64) -> bool {
    slot.spend(stripe_hint, permits, &Time { tick: None, late_ns: 0, shared: None, exact: || at(nanos) })
        .is_ok()
}

#[test]
fn spenders_on_two_stripes_take_all_that_there_is_and_no_more() {
    loom::model(|| {
        let slot = striped(1);
        let other = beside(&slot, |slot| (0..2).filter(|_| spend(slot, 1, 1, 0)).count());
        let mine = usize::from(spend(&slot, 0, 1, 0));
        let others = other.join().expect("no panic");
        // Two permits were there, on whichever stripe: only the third call was refused.
        assert_eq!((mine + others, slot.balance().total()), (2, 0));
    });
}

#[test]
fn a_large_call_collects_from_stripes_beside_a_small_one() {
    loom::model(|| {
        let slot = striped(1);
        let other = beside(&slot, |slot| usize::from(spend(slot, 1, 2, 0)) * 2);
        let mine = usize::from(spend(&slot, 0, 1, 0));
        let others = other.join().expect("no panic");
        assert!(mine + others == 1 || mine + others == 2, "one or both calls are admitted");
        assert_eq!(mine + others + slot.balance().free as usize, 2);
        assert_eq!(slot.balance().held, 0);
    });
}

#[test]
fn what_is_shared_out_to_stripes_beside_a_spend_is_neither_lost_nor_refused() {
    loom::model(|| {
        let slot = striped(1);
        let other =
            beside(&slot, |slot| usize::from(spend(slot, 0, 1, 0)) + usize::from(spend(slot, 0, 1, 0)));
        let lost = slot.install(2, 0, at(200));
        let spent = other.join().expect("no panic");
        assert_eq!((lost, spent), (0, 2), "two permits were free all the time");
        assert_eq!(slot.balance().total(), 2);
    });
}

#[test]
fn a_call_beside_the_striping_of_a_slot_is_not_refused() {
    for hold in [false, true] {
        loom::model(move || {
            let slot = slot(4);
            let other = beside(&slot, move |slot| match hold {
                true => slot.hold(1, at(0)).map(|_| slot.spend_held(1)).is_ok(),
                false => spend(slot, 0, 1, 0),
            });
            slot.stripe(2, 1);
            assert!(other.join().expect("no panic"), "three permits were free all the time");
            assert_eq!((slot.balance().total(), slot.balance().held), (3, 0));
        });
    }
}

/// The bug: a call that had set a permit aside in the slot's own word took it out of that word, from which another call
/// had taken it instead of one of its own in a stripe. Two preemptions show it; each more makes four times as many orders.
#[test]
fn what_is_set_aside_beside_the_striping_of_a_slot_is_spent_or_put_back_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.map(|bound| bound.min(3));
    for back in [false, true] {
        model.check(move || {
            let slot = slot(4);
            let other = beside(&slot, move |slot| {
                slot.hold(1, at(0)).expect("two permits are free all the time");
                match back {
                    true => slot.put_back(1),
                    false => _ = slot.spend_held(1),
                }
            });
            slot.stripe(2, 1);
            // More than a word has: one permit is set aside in a stripe.
            slot.hold(2, at(0)).expect("three permits were free all the time");
            slot.spend_held(2);
            other.join().expect("no panic");
            let balance = slot.balance();
            assert_eq!((balance.held, balance.free), (0, if back { 2 } else { 1 }));
        });
    }
}

#[test]
fn a_report_on_stripes_holds_all_that_may_still_be_spent() {
    loom::model(|| {
        let slot = striped(1);
        let other = beside(&slot, |slot| {
            let held = slot.hold(2, at(0)).is_ok();
            if held {
                slot.put_back(2);
            }
            usize::from(spend(slot, 0, 1, 0))
        });
        // The permits that it shows as gone were spent before it looked.
        let total = slot.balance().total();
        let spent = other.join().expect("no panic") as u64;
        assert!(total >= 2 - spent && total <= 2, "{total} of 2, {spent} spent");
        assert_eq!(slot.balance().total(), 2 - spent);
    });
}

#[test]
fn stripes_of_an_ended_lease_are_empty_under_a_new_one() {
    loom::model(|| {
        // As for one word: one permit on each stripe ended at 100 ns, and at 150 ns a new one comes.
        let slot = striped(1);
        let spender = beside(&slot, |slot| (0..2).filter(|_| spend(slot, 1, 1, 150)).count());
        let lost = slot.install(1, 2, at(200));
        let spent = spender.join().expect("no panic");
        assert!(spent <= 1, "{spent} permits spent of one live permit");
        assert_eq!((lost, slot.balance().total()), (2, 1 - spent as u64));
    });
}

#[test]
fn what_stripes_give_back_is_not_spent() {
    loom::model(|| {
        let slot = striped(1);
        let spender = beside(&slot, |slot| (0..2).filter(|_| spend(slot, 1, 1, 0)).count() as u64);
        let shed = slot.shed(0);
        let spent = spender.join().expect("no panic");
        assert_eq!(shed + spent + slot.balance().total(), 2);
    });
}

/// An exact clock that shows `nanos`, in `tick` of the coarse clock.
fn time(tick: u64, nanos: u64, shared: Option<&Watch>) -> Time<'_, impl Fn() -> Moment> {
    Time { tick: Some(Tick::of(tick)), late_ns: 10, shared, exact: move || at(nanos) }
}

#[test]
fn a_reading_of_another_tick_is_good_for_no_caller() {
    loom::model(|| {
        // The lease ends at 100 ns. One caller read the exact clock at 50, in tick 1. In tick 2 it is past 100.
        let slot = slot(2);
        let time = |tick, nanos| time(tick, nanos, None);
        let early = beside(&slot, move |slot| slot.spend(0, 1, &time(1, 50)).is_ok());
        assert!(slot.spend(0, 1, &time(2, 120)).is_err());
        let quick = slot.spend_quickly(|| 0, None, 1, Tick::of(2), 10);
        assert!(!matches!(quick, Quick::Spent(_)), "{quick:?} in a tick in which the lease was over");
        assert!(early.join().expect("no panic"));
    });
}

#[test]
fn a_shared_reading_of_another_tick_is_good_for_no_slot() {
    loom::model(|| {
        // The same with a watch that two slots share. The reading of one slot at 50 ns in tick 1 must not serve the
        // other in tick 2, in whichever order its parts are written.
        let (one, other, shared) = (slot(1), slot(1), Arc::new(Watch::new()));
        let watch = shared.clone();
        let early = beside(&one, move |slot| slot.spend(0, 1, &time(1, 50, Some(&watch))).is_ok());
        assert!(other.spend(0, 1, &time(2, 120, Some(&shared))).is_err());
        let quick = other.spend_quickly(|| 0, Some(&shared), 1, Tick::of(2), 10);
        assert!(!matches!(quick, Quick::Spent(_)), "{quick:?} in a tick in which the lease was over");
        assert!(early.join().expect("no panic"));
    });
}

#[test]
fn a_caller_that_finds_that_a_slot_was_looked_at_finds_what_was_seen() {
    loom::model(|| {
        // 512 permits are spent in tick 1, in which the coarse clock stands still. The next caller reads the exact
        // clock, at 120 ns. A concurrent caller reads the exact clock too, or finds that reading.
        let (slot, shared) = (slot(1_024), Arc::new(Watch::new()));
        assert!(slot.spend(0, 1, &time(1, 50, Some(&shared))).is_ok());
        let watch = shared.clone();
        let quick = beside(&slot, move |slot| slot.spend_quickly(|| 0, Some(&watch), 1, Tick::of(1), 10));
        assert!(slot.spend(0, 1, &time(1, 120, Some(&shared))).is_err());
        let quick = quick.join().expect("no panic");
        assert!(!matches!(quick, Quick::Spent(_)), "{quick:?} after the lease was over");
    });
}
