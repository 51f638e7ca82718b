//! The pace of a steady flow, which calls take from beside the slot.

use super::at;
use lessor::pace::{BucketRate, Pace};
use loom::sync::Arc;
use loom::thread;

/// Makes a bucket of one permit that mints one each 10 ns, empty at 100 ns.
fn pace() -> Arc<Pace> {
    let pace = Pace::new();
    pace.go(BucketRate { interval: 10, depth: 10 }, 0, at(100));
    Arc::new(pace)
}

fn take(pace: &Pace, nanos: u64) -> u64 {
    u64::from(pace.take(1, at(nanos)).is_ok())
}

#[test]
fn two_calls_at_one_time_never_share_the_permit_that_is_due() {
    loom::model(|| {
        let pace = pace();
        let other = { pace.clone() };
        let other = thread::spawn(move || take(&other, 110));
        let mine = take(&pace, 110);
        assert_eq!(mine + other.join().expect("no panic"), 1);
    });
}

#[test]
fn a_call_beside_a_change_of_rate_pays_the_old_one_or_the_new_one() {
    // From one permit each 10 ns to one each 50 ns, or each 5 ns: the bucket keeps its content.
    for interval in [50, 5] {
        loom::model(move || {
            let pace = pace();
            let other = { pace.clone() };
            let caller = thread::spawn(move || take(&other, 115));
            let saved = pace.stop(at(115)).expect("a rate was lent");
            pace.go(BucketRate { interval, depth: interval }, saved * interval / 10, at(115));
            let taken = caller.join().expect("no panic");
            // Whether the call paid the old rate or the new one, the next permit is due after the new interval and not
            // earlier.
            assert_eq!(taken + take(&pace, 115), 1);
            assert_eq!((take(&pace, 114 + interval), take(&pace, 115 + interval)), (0, 1));
        });
    }
}

#[test]
fn nothing_is_taken_at_a_rate_that_was_let_go() {
    loom::model(|| {
        let pace = pace();
        let other = { pace.clone() };
        let caller = thread::spawn(move || take(&other, 110));
        let saved = pace.stop(at(110)).expect("a rate was lent");
        let taken = caller.join().expect("no panic");
        // Only what is left is handed over, never a permit that was taken too.
        assert_eq!(saved, 10 - 10 * taken);
    });
}

#[test]
fn a_call_that_is_undone_beside_another_lets_no_second_one_through() {
    loom::model(|| {
        let pace = pace();
        let other = { pace.clone() };
        let undone = thread::spawn(move || {
            if let Ok(taken) = other.take(1, at(110)) {
                other.put_back(taken);
            }
        });
        let mine = take(&pace, 110);
        undone.join().expect("no panic");
        assert_eq!(mine + take(&pace, 110), 1, "only one permit is due");
    });
}
