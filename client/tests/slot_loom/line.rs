//! Callers and debts in line beside threads that may have to wake or pay them: a caller that puts permits back, and the
//! background task that brings permits or looks.

use super::at;
use super::slot;
use lessor::doorbell::Doorbell;
use lessor::overdraft::Overdraft;
use lessor::slot::Slot;
use lessor::slow_path_flags::SlowPathFlags;
use loom::sync::Arc;
use loom::thread;

#[test]
fn permits_that_are_put_back_are_taken_or_the_line_is_called() {
    loom::model(|| {
        let (slot, slow_path) = (slot(1), Arc::new(SlowPathFlags::default()));
        slot.hold(1, at(0)).expect("it is there");
        let waits = thread::spawn({
            let (slot, slow_path) = (slot.clone(), slow_path.clone());
            move || {
                slow_path.join(1);
                slot.take(1, at(0)).is_ok()
            }
        });
        slot.put_back(1);
        let calls = slow_path.has_line_after_change();
        let took = waits.join().expect("no panic");
        assert!(took || calls, "the caller sleeps while its permit is free");
    });
}

#[test]
fn a_caller_in_line_is_seen_by_the_task_or_wakes_it() {
    loom::model(|| {
        let (doorbell, slow_path) = (Arc::new(Doorbell::default()), Arc::new(SlowPathFlags::default()));
        assert!(doorbell.ring(), "the task knows, and is about to look");
        let waits = thread::spawn({
            let (doorbell, slow_path) = (doorbell.clone(), slow_path.clone());
            move || {
                slow_path.join(1);
                !doorbell.is_rung() && doorbell.ring()
            }
        });
        doorbell.listen(true);
        let seen = slow_path.queued() > 0;
        let wakes = waits.join().expect("no panic");
        assert!(seen || wakes, "the caller sleeps, and the task does not know of it");
    });
}

/// Pays `overdraft` from `slot`, as each thread does that has put permits there.
fn pay(overdraft: &Overdraft, slow_path: &SlowPathFlags, slot: &Slot) {
    let pay = |owed| {
        assert!(owed > 0, "a payment of nothing would take a permit");
        (0..owed).filter(|_| slot.take(1, at(0)).is_ok()).count() as u64
    };
    overdraft.pay(slow_path, pay, || slot.balance().free > 0);
}

#[test]
fn an_overdraft_beside_a_grant_is_paid() {
    loom::model(|| {
        let (slot, line) = (slot(0), Arc::new((Overdraft::default(), SlowPathFlags::default())));
        let owes = thread::spawn({
            let (slot, line) = (slot.clone(), line.clone());
            move || {
                if slot.take(1, at(0)).is_err() {
                    line.0.owe(1, &line.1);
                    pay(&line.0, &line.1, &slot);
                }
            }
        });
        slot.install(1, 0, at(200));
        pay(&line.0, &line.1, &slot);
        owes.join().expect("no panic");
        assert_eq!((line.0.owed(), line.1.queued(), slot.balance().free), (0, 0, 0));
    });
}

#[test]
fn a_grant_that_comes_while_another_thread_tries_to_pay_is_used() {
    loom::model(|| {
        let (slot, line) = (slot(0), Arc::new((Overdraft::default(), SlowPathFlags::default())));
        line.0.owe(2, &line.1);
        let pays = thread::spawn({
            let (slot, line) = (slot.clone(), line.clone());
            move || pay(&line.0, &line.1, &slot)
        });
        slot.install(1, 0, at(200));
        pay(&line.0, &line.1, &slot);
        pays.join().expect("no panic");
        assert_eq!((line.0.owed(), line.1.queued(), slot.balance().free), (1, 1, 0));
    });
}
