//! Calls on several limits whose permits the test lends, polled by hand.

use super::*;
use crate::by_hand::{Caller, lend, limit, run, shared};
use crate::fallback;
use crate::local_pool::{CLOCK, Condition, Standing};
use crate::priority::Priority;
use crate::shared::Shared;
use lessor_protocol::{ClockBounds, Fallback, Moment, SafeShare};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::{Arc, mpsc};

/// Runs `what` on a thread of its own, so that a call that never ends fails the test.
fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(what()));
    receive.recv_timeout(Duration::from_secs(20)).expect("the call ends in time")
}

fn waits_for<const N: usize>(parts: [(&Limit, u64); N]) -> Caller<'_, Result<(), Refusal>> {
    Caller::new(async move { all(parts).acquire().await })
}

fn set_ceiling(limit: &Limit, ceiling: u64) {
    let (condition, chance, rtt) = (Condition::Good, Moment::ORIGIN, Duration::ZERO);
    limit.pool().set_standing(Standing { condition, ceiling, chance, rtt });
}

/// The bug: the second part found the line in which the first part stood, and one poll looped for ever.
#[test]
fn a_limit_that_is_named_twice_costs_the_sum_and_waits_as_one() {
    let left = in_time(|| {
        let shared = shared();
        let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
        set_ceiling(&a, 4);
        lend(&b, 10);
        let parts = [(&a, 1), (&b, 1), (&a, 2)];
        let mut waits = waits_for(parts);
        assert_eq!(waits.run(), None, "no permit is free");
        lend(&a, 2);
        assert_eq!(waits.run(), None, "three are wanted");
        lend(&a, 1);
        assert_eq!(waits.run(), Some(Ok(())));
        lend(&a, 4);
        let refused = all([(&a, 2), (&b, 1), (&a, 3)]).try_acquire();
        assert_eq!(refused, Err(Refusal::TooLarge { limit: 4 }), "the costs of one limit add up");
        let guards = all([(&a, 1), (&a, 3)]).try_enter().expect("four are there");
        drop(guards);
        (a.available(), b.available())
    });
    assert_eq!(left, (0, 9));
}

/// The bug: one poll never ended, so the time-out could not end the wait.
#[tokio::test]
async fn a_call_that_names_a_limit_twice_gives_up_when_its_time_is_over() {
    let shared = shared();
    let a = limit(&shared, "a");
    lend(&a, 2);
    let refused = all([(&a, 1), (&a, 2)]).acquire_within(Duration::from_millis(20)).await;
    assert!(matches!(refused, Err(Refusal::Empty { .. })), "{refused:?}");
    assert_eq!(a.available(), 2, "nothing is spent");
}

#[test]
fn a_vector_of_limits_is_taken_as_a_whole_or_not_at_all() {
    let shared = shared();
    let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
    lend(&a, 3);
    lend(&b, 1);
    let call = || all(vec![(a.clone(), 1), (b.clone(), 1)]);
    assert_eq!(call().try_acquire(), Ok(()));
    assert!(call().try_acquire().is_err(), "limit b is empty");
    assert_eq!((a.available(), b.available()), (2, 0));
}

/// Lets calls on one limit or the other wait in lines that never end, and then one call on both. Returns how many calls
/// were served before it, or `None` if it was not served.
fn served_before(rounds: usize, permits: [u64; 2], lines: usize, priority: Priority) -> Option<usize> {
    let shared = shared();
    let limits = [limit(&shared, "a"), limit(&shared, "b")];
    let urgent = [0, 1].map(|of: usize| limits[of].with_priority(priority));
    let call = |number: usize| match number {
        2 => (2, waits_for([(&urgent[0], 1), (&urgent[1], 1)])),
        one => (one, Caller::new(limits[one].acquire(1))),
    };
    let mut callers: Vec<_> = (0..2 * lines).map(|number| call(number % 2)).collect();
    callers.push(call(2));
    run(&mut callers, |_, _| panic!("no permit is free"));
    let (mut served, mut is_served) = (0, false);
    for round in 0..rounds {
        lend(&limits[round % 2], permits[round % 2]);
        loop {
            let mut ended = vec![];
            run(&mut callers, |number, got| {
                got.expect("the limit is open");
                ended.push(number);
            });
            if ended.is_empty() {
                break;
            }
            is_served |= ended.contains(&2);
            served += ended.iter().filter(|number| **number != 2).count();
            callers.extend(ended.into_iter().filter(|number| *number != 2).map(call));
        }
        if is_served {
            return Some(served);
        }
    }
    None
}

/// The bug: each time the other limit was short, the call left one line for the back of the other.
#[test]
fn a_call_on_two_limits_is_served_where_both_always_have_a_line() {
    for (permits, lines, priority) in [
        ([1, 1], 3, Priority::Normal),
        ([1, 1], 40, Priority::Normal),
        ([5, 1], 40, Priority::Normal),
        ([1, 7], 40, Priority::Normal),
        ([1, 1], 40, Priority::High),
        ([1, 1], 3, Priority::Low),
    ] {
        let served = served_before(4_000, permits, lines, priority);
        println!("{permits:?} at a time, {lines} in line, {priority:?}: served after {served:?} others");
        // All calls that came before it, as many again of the faster limit for each round, and two rounds more.
        let before = 2 * lines * 8 + 16;
        assert!(served.is_some_and(|served| served <= before), "{permits:?} {lines}: {served:?}");
    }
}

/// The bug: a call that was first in one line, and found the other limit short, went to the back of that line.
#[test]
fn those_who_wait_for_two_limits_are_served_in_their_order_once_both_open() {
    let shared = shared();
    let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
    lend(&a, 5);
    let mut callers: Vec<_> = (0..571).map(|number| (number, waits_for([(&a, 1), (&b, 1)]))).collect();
    run(&mut callers, |_, _| panic!("one limit is empty"));
    let mut served = vec![];
    for _ in 0..60 {
        lend(&a, 10);
        run(&mut callers, |number, _| served.push(number));
        lend(&b, 10);
        run(&mut callers, |number, _| served.push(number));
    }
    println!("{} served, the first of them {:?}", served.len(), &served[..served.len().min(12)]);
    assert_eq!(served, (0..571).collect::<Vec<_>>());
    assert!(callers.iter().all(|(_, caller)| caller.polls() < 1_000));
}

#[test]
fn a_call_that_waits_for_one_limit_keeps_no_caller_from_the_other() {
    let shared = shared();
    let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
    let mut both = waits_for([(&a, 1), (&b, 1)]);
    assert_eq!(both.run(), None, "no permit is free");
    lend(&a, 1);
    assert_eq!(both.run(), None, "limit b is empty");
    a.try_acquire(1).expect("the call waits for the other limit");
    let mut single = Caller::new(a.acquire(1));
    assert_eq!(single.run(), None);
    lend(&a, 1);
    assert_eq!((both.run(), single.run()), (None, Some(Ok(()))));
}

/// The call stands in both lines because each was short in turn; then one limit gives no more.
#[test]
fn a_call_that_stands_in_all_lines_lets_others_pass_when_one_limit_is_paused() {
    let shared = shared();
    let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
    let mut both = waits_for([(&a, 1), (&b, 1)]);
    assert_eq!(both.run(), None, "no permit is free");
    lend(&a, 1);
    assert_eq!(both.run(), None, "limit b is empty");
    a.try_acquire(1).expect("the call waits in the line of b");
    lend(&b, 1);
    assert_eq!(both.run(), None, "limit a is empty again");
    assert!(b.available() == 1 && b.try_acquire(1).is_err(), "the call stands in both lines");
    a.pool().set_condition(Condition::Paused);
    a.pool().call_first();
    assert_eq!(both.run(), None);
    b.try_acquire(1).expect("no caller waits for what a paused limit may give");
    a.pool().set_condition(Condition::Good);
    lend(&a, 1);
    assert_eq!(both.run(), None);
    lend(&b, 1);
    assert_eq!(both.run(), Some(Ok(())));
}

/// Returns how many waits for each of two limits ended in `outcome`, by the metrics.
fn waits_that_ended(metrics: &PrometheusHandle, outcome: &str) -> [u64; 2] {
    let text = metrics.render();
    ["a", "b"].map(|limit| {
        let of = format!("lessor_client_wait_seconds_count{{limit=\"{limit}\",outcome=\"{outcome}\"}} ");
        let count = text.lines().find_map(|line| line.strip_prefix(&of));
        count.map_or(0, |count| count.parse().expect("a number"))
    })
}

/// The bug: a call that went from one line to another counted as admitted in the line that it left, in metrics and for
/// the turns of priorities.
#[test]
fn a_call_that_turns_to_another_line_is_not_admitted_by_that() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let shared = shared();
        let (a, b) = (limit(&shared, "a"), limit(&shared, "b"));
        let turned = || {
            let mut both = waits_for([(&a, 1), (&b, 1)]);
            assert_eq!(both.run(), None, "no permit is free");
            lend(&a, 1);
            assert_eq!(both.run(), None, "the call turns to the line of b");
            a.try_acquire(1).expect("the call waits for the other limit");
            both
        };
        // The eighth admitted caller would be the one that has waited longest, whatever its priority.
        (0..7).for_each(|_| drop(turned()));
        assert_eq!(waits_that_ended(&metrics, "admitted"), [0, 0]);
        assert_eq!(waits_that_ended(&metrics, "left"), [7, 7]);
        let [low, high] = [Priority::Low, Priority::High].map(|priority| a.with_priority(priority));
        let (mut low, mut high) = (Caller::new(low.acquire(1)), Caller::new(high.acquire(1)));
        assert_eq!((low.run(), high.run()), (None, None));
        lend(&a, 1);
        assert_eq!((low.run(), high.run()), (None, Some(Ok(()))), "the call was not admitted by turning");
        lend(&a, 1);
        assert_eq!(low.run(), Some(Ok(())));
        let mut both = turned();
        lend(&b, 1);
        assert_eq!(both.run(), None, "the call turns to the line of a again");
        assert_eq!(waits_that_ended(&metrics, "admitted"), [2, 0], "waits of the two calls on one limit");
        lend(&a, 1);
        assert_eq!(both.run(), Some(Ok(())));
        drop(both);
        assert_eq!(waits_that_ended(&metrics, "admitted"), [3, 1], "one wait more for each limit");
        assert_eq!(waits_that_ended(&metrics, "left"), [7, 7]);
    });
}

/// Makes limits for which no allocator answers: `a` goes on with a safe share, `b` refuses.
fn apart(shared: &Arc<Shared>) -> (Limit, Limit) {
    let (a, b) = (limit(shared, "a"), limit(shared, "b"));
    let share = SafeShare { permits: 10, span: Duration::from_secs(1_000), lasts: Duration::from_secs(600) };
    a.pool().standby().tell_share(Some(share), CLOCK.now(), ClockBounds::default());
    a.pool().standby().on_grant(false, Fallback::SafeShare);
    b.pool().standby().on_grant(false, Fallback::Closed);
    fallback::enter(shared, &shared.pools(), CLOCK.now());
    (a, b)
}

/// The bug: permits of a safe share that one limit let pass were gone when the next limit had none.
#[test]
fn a_call_that_fails_spends_nothing_of_the_reserve_either() {
    let shared = shared();
    let (a, b) = apart(&shared);
    (0..5).for_each(|_| assert!(try_all([(&a, 1), (&b, 1)]).is_err()));
    a.try_acquire(1).expect("the share of a is unspent");
    assert!(a.try_acquire(1).is_err(), "the next permit is due in a hundred seconds");
}

/// The bug: the wait set a timer on a runtime that did not exist.
#[test]
fn a_wait_for_a_part_of_the_reserve_needs_no_runtime() {
    let shared = shared();
    let (a, _) = apart(&shared);
    a.try_acquire(1).expect("the first is due");
    assert_eq!(Caller::new(a.acquire(1)).run(), None, "the next permit is due in a hundred seconds");
}
