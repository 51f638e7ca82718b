//! Every order in which threads can meet at a slot, tried by loom; the sum must balance in all of them.
//!
//! `RUSTFLAGS="--cfg slot_loom" cargo test -p lessor --test slot_loom --release`
#![cfg(slot_loom)]

use lessor::pace::{Gait, Pace};
use lessor::refill::{Refill, Seen};
use lessor::slot::{Quick, Slot, Time, Watch};
use lessor_protocol::{Ask, Grant, InFlight, Moment, Rate, Terms, Tick};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::time::Duration;

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

/// A slot with two stripes, `permits` in each, until 100 ns.
fn striped(permits: u64) -> Arc<Slot> {
    let slot = Slot::new();
    slot.stripe(2, 1);
    slot.install(2 * permits, 0, at(100));
    Arc::new(slot)
}

/// Spends from the stripe `near` the caller at `nanos`.
fn spend(slot: &Slot, near: usize, permits: u64, nanos: u64) -> bool {
    slot.spend(near, permits, &Time { tick: None, late_ns: 0, shared: None, exact: || at(nanos) }).is_ok()
}

#[test]
fn spenders_on_two_stripes_take_all_that_there_is_and_no_more() {
    loom::model(|| {
        let slot = striped(1);
        let other = beside(&slot, |slot| (0..2).filter(|_| spend(slot, 1, 1, 0)).count());
        let mine = usize::from(spend(&slot, 0, 1, 0));
        let others = other.join().expect("no panic");
        // Two were there, wherever they were: whoever came third was refused, and nobody else.
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
        assert!(mine + others == 1 || mine + others == 2, "one of them was first");
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
        assert_eq!((lost, spent), (0, 2), "there were two all the time");
        assert_eq!(slot.balance().total(), 2);
    });
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
        // What it shows as gone was spent before it looked.
        let total = slot.balance().total();
        let spent = other.join().expect("no panic") as u64;
        assert!(total >= 2 - spent && total <= 2, "{total} of 2, {spent} spent");
        assert_eq!(slot.balance().total(), 2 - spent);
    });
}

#[test]
fn stripes_of_an_ended_lease_are_empty_under_a_new_one() {
    loom::model(|| {
        // As for one word: two in each ended at 100, and at 150 one new permit comes.
        let slot = striped(1);
        let spender = beside(&slot, |slot| (0..2).filter(|_| spend(slot, 1, 1, 150)).count());
        let lost = slot.install(1, 2, at(200));
        let spent = spender.join().expect("no panic");
        assert!(spent <= 1, "{spent} spent of one that is live");
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

/// The exact clock shows `nanos`, in a `tick` of the coarse one.
fn time(tick: u64, nanos: u64, shared: Option<&Watch>) -> Time<'_, impl Fn() -> Moment> {
    Time { tick: Some(Tick::of(tick)), late_ns: 10, shared, exact: move || at(nanos) }
}

#[test]
fn a_reading_of_another_tick_is_good_for_nobody() {
    loom::model(|| {
        // The lease ends at 100. One caller read the exact clock at 50, in tick 1; it is past 100 in tick 2.
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
        // The same by a watch of two slots: what was read at 50 in tick 1, for one of them, is not good for the other in
        // tick 2, in whichever order its parts are written.
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
fn whoever_finds_that_a_slot_was_looked_at_finds_what_was_seen() {
    loom::model(|| {
        // 512 permits are spent in tick 1, in which the coarse clock stands still: the next to call reads the exact one,
        // at 120. Whoever comes beside it reads it too, or finds that.
        let (slot, shared) = (slot(1_024), Arc::new(Watch::new()));
        assert!(slot.spend(0, 1, &time(1, 50, Some(&shared))).is_ok());
        let watch = shared.clone();
        let quick = beside(&slot, move |slot| slot.spend_quickly(|| 0, Some(&watch), 1, Tick::of(1), 10));
        assert!(slot.spend(0, 1, &time(1, 120, Some(&shared))).is_err());
        let quick = quick.join().expect("no panic");
        assert!(!matches!(quick, Quick::Spent(_)), "{quick:?} after the lease was over");
    });
}

/// A bucket of one that mints a permit each 10 ns, empty as of 100 ns.
fn pace() -> Arc<Pace> {
    let pace = Pace::new();
    pace.go(Gait { interval: 10, depth: 10 }, 0, at(100));
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
    loom::model(|| {
        let pace = pace();
        let other = { pace.clone() };
        let caller = thread::spawn(move || take(&other, 115));
        // From one each 10 ns to one each 50 ns: what is in the bucket stays.
        let saved = pace.stop(at(115)).expect("a rate was lent");
        pace.go(Gait { interval: 50, depth: 50 }, saved * 5, at(115));
        let taken = caller.join().expect("no panic");
        // Whether it paid the old rate or the new one: the next permit is due 50 ns later, and not sooner.
        assert_eq!(taken + take(&pace, 115), 1);
        assert_eq!((take(&pace, 164), take(&pace, 165)), (0, 1));
    });
}

#[test]
fn nothing_is_taken_at_a_rate_that_was_let_go() {
    loom::model(|| {
        let pace = pace();
        let other = { pace.clone() };
        let caller = thread::spawn(move || take(&other, 110));
        let saved = pace.stop(at(110)).expect("a rate was lent");
        let taken = caller.join().expect("no panic");
        // What is handed over is what is left: never a permit that was taken too.
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
        assert_eq!(mine + take(&pace, 110), 1, "one is due, and one alone");
    });
}

/// A node's side of a pool that caps what is in flight, with `permits` for a second; spent again if they are to be held.
fn counted(permits: u64, hold: Option<u64>) -> Arc<(Slot, Mutex<Refill>)> {
    lent(permits, Some(InFlight { longest: Duration::from_secs(1), hold }))
}

/// A node's side of a pool, with `permits` for a second.
fn lent(permits: u64, in_flight: Option<InFlight>) -> Arc<(Slot, Mutex<Refill>)> {
    let (slot, mut refill) = (Slot::new(), Refill::new(at(0), false));
    refill.write(&slot, Seen { waiting: permits, ..Seen::default() }, at(0), Duration::ZERO);
    refill.believe(&slot, &grant(permits, in_flight), Terms::default(), at(0), at(0), 0);
    Arc::new((slot, Mutex::new(refill)))
}

/// Of `permits` for a second, and nothing of what there was.
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

/// The ask of a node where callers wait for more than there is, so that it gives nothing back.
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
        assert_eq!(ends.join().expect("no panic"), 2, "it is handed back, and one is taken");
        // In use, free, or taken by somebody who hands nothing back.
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
        // The one that was entered may have ended; the one that was acquired never says so.
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
            refill.settle(&caller.0, number, at(1));
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
        // At its end for this node.
        let end = pool.0.deadline();
        let caller = pool.clone();
        let settles = thread::spawn(move || {
            let mut refill = caller.1.lock().expect("no panic");
            let back = refill.give_back(&caller.0, number, 2, end.before(Duration::from_nanos(1)));
            refill.settle(&caller.0, number, end);
            back
        });
        let seen = Seen { waiting: 10, ..Seen::default() };
        let ask = pool.1.lock().expect("no panic").write(&pool.0, seen, end, Duration::ZERO);
        let back = settles.join().expect("no panic");
        // Where the report came first it has said that both were spent, and nothing comes back after that.
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
        // That was over for long when the next one came: of one permit.
        let now = at(0) + Duration::from_secs(2);
        let mut refill = pool.1.lock().expect("no panic");
        refill.believe(&pool.0, &grant(1, None), Terms::default(), now, now, 0);
        puts_back.join().expect("no panic");
        let spent = [1, 1].map(|permits| u64::from(pool.0.take(permits, now).is_ok()));
        assert!(spent.iter().sum::<u64>() <= 1, "one was lent: {spent:?}");
    });
}
