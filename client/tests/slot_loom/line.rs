//! Callers in line beside threads that may have to wake them: a caller that puts permits back, and the background task
//! before its look.

use super::at;
use super::slot;
use lessor::doorbell::Doorbell;
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
