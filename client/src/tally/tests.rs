//! Metrics from the counts of pools.

use super::*;
use crate::by_hand;
use crate::local_pool::CLOCK;
use metrics_exporter_prometheus::PrometheusBuilder;

fn tally() -> Tally {
    Tally::new("vendor".into())
}

#[test]
fn what_the_slots_count_is_for_emptiness_unless_it_is_known_to_be_for_something_else() {
    let tally = tally();
    tally.refuse(Reason::Paused, 3);
    tally.refuse(Reason::Unreachable, 4);
    tally.refuse(Reason::Unknown, 5);
    tally.refuse(Reason::TooLarge, u64::MAX);
    tally.refuse(Reason::Empty, 2);
    // Of twenty refusals that the slots counted, seven are counted above, six passed in shadow mode and one in
    // fallback.
    let totals = Totals { refused: 20, shadow: 6, fallback: 1, ..Totals::default() };
    let most = u64::from(u32::MAX);
    assert_eq!(tally.refused.by_reason(totals), [20 - 7 - 7 + 2, 3, 4, 5, most, 0]);
    assert_eq!(tally.refused.by_reason(Totals::default())[0], 2, "a count is never below zero");
}

#[test]
fn threads_that_are_all_refused_are_all_counted() {
    let tally = tally();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..1_000).for_each(|_| tally.refuse(Reason::Paused, 1)));
        }
    });
    assert_eq!(tally.refused.by_reason(Totals::default())[Reason::Paused as usize], 20_000);
}

#[test]
fn a_total_that_fell_adds_nothing_and_is_not_added_again() {
    let more = |admitted| Totals { admitted, ..Totals::default() };
    assert_eq!(more(5).since(more(7)), Totals::default());
    assert_eq!(more(5).max(more(7)), more(7));
}

/// The bug: of two clients in a process, the one that reported last overwrote what the other one showed. A client that
/// ended in an outage showed its fallback for ever.
#[test]
fn gauges_are_of_all_clients_of_a_process_that_have_not_ended() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let shows = |gauge: &str, value: u64| {
            let line = format!("{gauge} {value}");
            let shown = handle.render();
            assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
        };
        let (available, fallback) = (
            "lessor_client_available_permits{limit=\"two-clients\"}",
            "lessor_client_fallback{limit=\"two-clients\",fallback=\"open\"}",
        );
        let [one, other] = [5, 7].map(|available| {
            let tally = Tally::new("two-clients".into());
            tally.add_now(Now { available, ..Now::default() });
            tally
        });
        one.publish(Some(Fallback::Open));
        other.publish(None);
        shows(available, 12);
        shows(fallback, 1);
        drop(one);
        shows(available, 7);
        shows(fallback, 0);
    });
}

#[test]
fn a_client_that_has_ended_shows_nothing() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let shared = by_hand::shared();
        let (pool, until) = (shared.pool("ended-client", None), CLOCK.now() + by_hand::LEASED);
        pool.slot().install(0, 0, until);
        pool.line().1.join(1);
        shared.fallen().insert(pool.name().limit.clone(), Fallback::Open);
        pool.tally().add_now(pool.stands());
        pool.tally().publish(Some(Fallback::Open));
        let shows = |value: u64| {
            let shown = handle.render();
            let gauges = [
                "waiting_permits{limit=\"ended-client\"}",
                "fallback{limit=\"ended-client\",fallback=\"open\"}",
            ];
            gauges.map(|gauge| shown.contains(&format!("lessor_client_{gauge} {value}\n")))
        };
        assert_eq!(shows(1), [true; 2]);
        shared.close();
        assert_eq!(shows(0), [true; 2]);
        // The caller has not left the line yet, and the background task publishes once more.
        assert_eq!((pool.stands(), shared.fallen().len()), (Now::default(), 0));
    });
}

#[test]
fn of_a_limit_the_oldest_lease_counts_and_all_permits() {
    let tally = tally();
    let pool = |available, millis| Now { available, waiting: 1, lease_age: Duration::from_millis(millis) };
    tally.add_now(pool(1, 50));
    tally.begin();
    tally.add_now(pool(5, 20));
    tally.add_now(pool(6, 30));
    tally.add_now(pool(0, 0));
    let expected = Now { available: 11, waiting: 3, lease_age: Duration::from_millis(30) };
    assert_eq!(tally.sums.lock_anyway().now, expected);
}
