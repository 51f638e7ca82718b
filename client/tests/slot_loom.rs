//! Every order in which threads can meet at a slot, tried by loom; the sum must balance in all of them.
//!
//! `RUSTFLAGS="--cfg slot_loom" cargo test -p lessor --test slot_loom --release`
#![cfg(slot_loom)]

use lessor::slot::Slot;
use lessor_protocol::Moment;
use loom::sync::Arc;
use loom::thread;

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

/// A slot with `permits` until 100 ns, known to both threads from the start.
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
        assert_eq!(spent, 2, "one of them finds too few");
        assert_eq!(slot.balance().total(), 1);
    });
}

#[test]
fn a_spend_beside_an_install_is_counted_once() {
    loom::model(|| {
        let slot = slot(2);
        let spender = beside(&slot, |slot| u64::from(slot.take(1, at(0)).is_ok()));
        // Two were held, one of them is not kept; three are new.
        let lost = slot.install(3, 1, at(200));
        let spent = spender.join().expect("no panic");
        assert_eq!(lost, 1);
        assert_eq!(slot.balance().total(), 2 + 3 - lost - spent);
    });
}

#[test]
fn a_permit_of_an_ended_lease_is_never_spent_under_a_new_one() {
    loom::model(|| {
        // The old lease ended at 100 with two in hand. At 150 a new one brings one permit.
        let slot = slot(2);
        let spender = beside(&slot, |slot| (0..3).filter(|_| slot.take(1, at(150)).is_ok()).count() as u64);
        let lost = slot.install(1, 2, at(200));
        let spent = spender.join().expect("no panic");
        assert_eq!(lost, 2, "both old ones are dropped");
        assert!(spent <= 1, "{spent} spent of one that is live");
        assert_eq!(slot.balance().total(), 1 - spent);
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
        // A report reads one word: whatever a call on several limits is doing, nothing of it was spent yet.
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
