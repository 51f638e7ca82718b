//! Calls beside the background task, which reports and installs under the lock of the pool.

use super::at;
use lessor::pace::Refill;
use lessor::slot::Slot;
use lessor_holder::refill::Seen;
use lessor_protocol::{Ask, ClockBounds, Grant, InFlight, Rate};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::time::Duration;

/// A node's side of a pool that caps calls in flight, with `permits` for a second; with `hold`, permits are spent
/// again.
fn counted(permits: u64, hold: Option<u64>) -> Arc<(Slot, Mutex<Refill>)> {
    lent(permits, Some(InFlight { longest: Duration::from_secs(1), hold }))
}

/// A node's side of a pool, with `permits` for a second.
fn lent(permits: u64, in_flight: Option<InFlight>) -> Arc<(Slot, Mutex<Refill>)> {
    let (slot, mut refill) = (Slot::new(), Refill::new(at(0), false));
    refill.write(&slot, Seen { waiting: permits, ..Seen::default() }, at(0), Duration::ZERO);
    refill.believe(&slot, &grant(permits, in_flight), ClockBounds::default(), at(0), at(0), 0);
    Arc::new((slot, Mutex::new(refill)))
}

/// Makes a grant of `permits` for a second that keeps nothing of the previous lease.
fn grant(permits: u64, in_flight: Option<InFlight>) -> Grant {
    let term = Duration::from_secs(1);
    Grant {
        kept: 0,
        permits,
        term,
        horizon: term,
        ceiling: permits,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: Rate::Free,
        in_flight,
    }
}

/// Writes the ask of a node whose callers wait for more than there is, so that it gives nothing back.
fn report(pool: &(Slot, Mutex<Refill>)) -> Ask {
    let seen = Seen { waiting: 10, ..Seen::default() };
    pool.1.lock().expect("no panic").write(&pool.0, seen, at(1), Duration::ZERO)
}

#[test]
fn a_call_that_ends_beside_a_report_is_held_once() {
    loom::model(|| {
        let pool = counted(2, Some(2));
        pool.1.lock().expect("no panic").enter(&pool.0, 1, at(0)).expect("two are there");
        let caller = pool.clone();
        let ends = thread::spawn(move || {
            let reused = caller.1.lock().expect("no panic").hand_back(&caller.0, 1, at(1));
            u64::from(caller.0.take(1, at(1)).is_ok()) + reused
        });
        let ask = report(&pool);
        assert_eq!(ends.join().expect("no panic"), 2, "one permit is handed back, and one is taken");
        // Each permit is in use, free, or taken by a caller that hands nothing back.
        assert_eq!(ask.held + ask.spent_total, 2);
        assert_eq!(ask.unguarded, ask.spent_total);
        let ask = report(&pool);
        assert_eq!((ask.spent_total, ask.held, ask.unguarded, ask.busy), (1, 1, 1, 0));
    });
}

#[test]
fn what_a_report_says_is_spent_it_says_is_running_until_it_ends() {
    loom::model(|| {
        let pool = counted(2, None);
        let caller = pool.clone();
        let calls = thread::spawn(move || {
            caller.1.lock().expect("no panic").enter(&caller.0, 1, at(0)).expect("one is left for it");
            caller.1.lock().expect("no panic").hand_back(&caller.0, 1, at(1));
        });
        let other = pool.clone();
        let acquires = thread::spawn(move || other.0.take(1, at(0)).expect("one is left for it"));
        let ask = report(&pool);
        let running = ask.running.expect("it is counted") + ask.unguarded;
        assert_eq!(ask.held + ask.spent_total, 2);
        // The call that was entered may have ended; the call that was acquired never reports its end.
        assert!(running <= ask.spent_total && ask.spent_total <= running + 1, "{ask:?}");
        calls.join().expect("no panic");
        acquires.join().expect("no panic");
        let ask = report(&pool);
        assert_eq!((ask.running, ask.unguarded), (Some(0), 1));
    });
}

#[test]
fn what_is_reserved_beside_a_spend_and_a_report_is_held_until_it_is_settled() {
    loom::model(|| {
        let pool = lent(2, None);
        let caller = pool.clone();
        let reserves = thread::spawn(move || {
            let reserved = caller.1.lock().expect("no panic").reserve(&caller.0, 2, at(1));
            let Ok((number, _)) = reserved else { return 0 };
            let mut refill = caller.1.lock().expect("no panic");
            assert_eq!(refill.give_back(&caller.0, number, 1, at(1)), 1);
            refill.settle(number);
            1
        });
        let other = pool.clone();
        let spends = thread::spawn(move || u64::from(other.0.take(1, at(1)).is_ok()));
        let ask = report(&pool);
        assert_eq!(ask.held + ask.spent_total, 2);
        let spent = reserves.join().expect("no panic") + spends.join().expect("no panic");
        assert!((1..=2).contains(&spent), "{spent} of two");
        let ask = report(&pool);
        assert_eq!((ask.spent_total, ask.held), (spent, 2 - spent));
    });
}

#[test]
fn what_is_given_back_beside_the_end_of_its_lease_is_spent_or_free_and_never_both() {
    loom::model(|| {
        let pool = lent(2, None);
        let (number, _) = pool.1.lock().expect("no panic").reserve(&pool.0, 2, at(1)).expect("two are there");
        // The end of the lease for this node.
        let end = pool.0.deadline();
        let caller = pool.clone();
        let settles = thread::spawn(move || {
            let mut refill = caller.1.lock().expect("no panic");
            let back = refill.give_back(&caller.0, number, 2, end.before(Duration::from_nanos(1)));
            refill.settle(number);
            back
        });
        let seen = Seen { waiting: 10, ..Seen::default() };
        let ask = pool.1.lock().expect("no panic").write(&pool.0, seen, end, Duration::ZERO);
        let back = settles.join().expect("no panic");
        // If the report came first, it has told that both were spent, and nothing comes back afterwards.
        assert_eq!(ask.spent_total, 2 - back);
        assert_eq!(pool.0.balance().total(), 0, "nothing of an ended lease is in hand");
    });
}

#[test]
fn what_is_put_back_beside_the_end_of_its_lease_is_not_spent_in_the_next() {
    loom::model(|| {
        let pool = lent(3, None);
        let held = pool.0.hold(2, at(0)).expect("three are there");
        assert_eq!(held, 1);
        let caller = pool.clone();
        let puts_back = thread::spawn(move || caller.0.put_back(2));
        let ask = report(&pool);
        assert_eq!(ask.held, 3);
        // The old lease had been over for long when the next one came, of one permit.
        let now = at(0) + Duration::from_secs(2);
        let mut refill = pool.1.lock().expect("no panic");
        refill.believe(&pool.0, &grant(1, None), ClockBounds::default(), now, now, 0);
        puts_back.join().expect("no panic");
        let spent = [1, 1].map(|permits| u64::from(pool.0.take(permits, now).is_ok()));
        assert!(spent.iter().sum::<u64>() <= 1, "one permit was lent: {spent:?}");
    });
}
