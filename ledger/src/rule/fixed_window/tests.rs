//! Fixed windows, one after the other.

use super::*;
use crate::rule::{Calendar, Gap, Unit, Zone};
use lessor_protocol::moment::millis;

fn ledger(limit: u64, now: u64) -> FixedLedger {
    let per = Duration::from_millis(100);
    let rule = FixedWindow::try_new(limit, per).expect("valid");
    FixedLedger::new(&rule, millis(now))
}

#[test]
fn each_window_has_its_own_count_and_they_are_aligned() {
    let mut ledger = ledger(3, 250);
    ledger.charge(3);
    ledger.settle(3, millis(260));
    ledger.advance(millis(299));
    assert_eq!(ledger.available(), 0);
    assert_eq!(ledger.ready_at(1, &mut std::iter::empty()), Some(millis(300)));
    ledger.advance(millis(300));
    assert_eq!(ledger.available(), 3);
}

#[test]
fn a_lease_may_reach_into_the_next_window_and_no_further() {
    let ends = |now| (ledger(3, now).lease_end(), ledger(3, now).lease_end_ahead());
    assert_eq!(ends(250), (Some(millis(300)), Some(millis(400))));
    assert_eq!(ends(300), (Some(millis(400)), Some(millis(500))));
}

#[test]
fn what_can_be_spent_in_two_windows_is_charged_to_both() {
    let mut ledger = ledger(10, 250);
    ledger.charge(8);
    ledger.charge_ahead(3, millis(300));
    ledger.charge_ahead(5, millis(301));
    assert_eq!(ledger.room_ahead(millis(300), (0, millis(0))), u64::MAX);
    assert_eq!(ledger.room_ahead(millis(301), (0, millis(0))), 5);
    assert_eq!(ledger.room_ahead(millis(301), (5, millis(301))), 10, "its own may stay");
    // One comes back and one was spent, both before the boundary: neither counts beyond it.
    ledger.release_ahead(2, millis(301));
    ledger.release(1);
    ledger.settle(1, millis(290));
    ledger.advance(millis(300));
    ledger.settle(3, millis(300));
    assert_eq!((ledger.available(), ledger.outstanding()), (7, 3));
    // A spent permit stays charged, whenever it was spent; an unspent one does not.
    ledger.settle(2, millis(310));
    ledger.release(1);
    assert_eq!((ledger.available(), ledger.outstanding()), (8, 0));
    ledger.advance(millis(400));
    assert_eq!(ledger.available(), 10);
}

#[test]
fn windows_that_pass_unseen_leave_nothing_charged() {
    let mut ledger = ledger(10, 250);
    ledger.charge(5);
    ledger.charge_ahead(5, millis(400));
    // The lease ends exactly with the window that it reaches into.
    ledger.advance(millis(400));
    ledger.settle(5, millis(400));
    assert_eq!((ledger.available(), ledger.lease_end()), (10, Some(millis(500))));
    ledger.credit(5, millis(400));
    assert_eq!(ledger.available(), 10, "it could be spent in the two windows before only");
    ledger.charge(1);
    ledger.settle(1, millis(410));
    ledger.advance(millis(1_234));
    assert_eq!((ledger.available(), ledger.lease_end()), (10, Some(millis(1_300))));
}

#[test]
fn what_is_charged_ahead_is_not_promised_at_the_boundary() {
    let mut ledger = ledger(10, 250);
    ledger.charge(10);
    ledger.charge_ahead(4, millis(310));
    assert_eq!(ledger.ready_at(6, &mut std::iter::empty()), Some(millis(300)));
    assert_eq!(ledger.ready_at(7, &mut std::iter::empty()), Some(millis(400)));
    assert_eq!(ledger.ready_at(11, &mut std::iter::empty()), None);
}

#[test]
fn a_month_ends_by_the_clock_of_its_zone() {
    // 1 March 2024 in Berlin begins at 23:00 UTC.
    let berlin = Zone::try_new("Europe/Berlin").expect("a zone");
    let months = Windows::Calendar(Calendar::new(Unit::Month, berlin));
    let rule = FixedWindow::of(3, months).expect("valid");
    let march = Moment::from_nanos(1_709_247_600_000_000_000);
    let mut ledger = FixedLedger::new(&rule, march.before(Duration::from_secs(5)));
    ledger.charge(2);
    assert_eq!((ledger.lease_end(), ledger.available()), (Some(march), 1));
    assert_eq!(ledger.ready_at(2, &mut std::iter::empty()), Some(march));
    ledger.advance(march.before(Duration::from_nanos(1)));
    assert_eq!(ledger.available(), 1);
    ledger.advance(march);
    ledger.settle(2, march);
    ledger.credit(2, march);
    assert_eq!(ledger.available(), 3, "the lease ended with February");
    let april = march + Duration::from_secs(31 * 86_400 - 3_600);
    assert_eq!(ledger.lease_end(), Some(april), "an hour less, for the clock is put forward");
    assert_eq!(ledger.forget(march), april);
}

/// The bug: a window that was to end earlier by the time zones of an earlier build counted as over, and lent all again.
#[test]
fn a_window_that_was_to_end_earlier_stays_charged() {
    let per = Duration::from_secs(1);
    let rule = FixedWindow::try_new(100, per).expect("valid");
    let restored = |ends| {
        let mut ledger = FixedLedger::new(&rule, millis(500));
        let since = Since {
            gap: Gap::Counted,
            written: millis(400).into(),
            now: millis(500),
            clocks: ClockBounds::default(),
        };
        let saved = Saved::Fixed { ends: millis(ends).into(), charged: 10, extra: 5, since: None };
        assert!(ledger.restore(&saved, since, (0, millis(400))));
        ledger
    };
    let mut ledger = restored(900);
    assert_eq!((ledger.available(), ledger.lease_end()), (95, Some(millis(1_000))));
    ledger.advance(millis(950));
    assert_eq!(ledger.available(), 95);
    ledger.advance(millis(1_000));
    assert_eq!(ledger.available(), 100);
    let mut ledger = restored(1_200);
    ledger.advance(millis(1_199));
    assert_eq!(ledger.available(), 95);
    ledger.advance(millis(1_200));
    assert_eq!(ledger.available(), 100);
    assert_eq!(restored(500).available(), 100, "over");
}

#[test]
fn a_late_credit_helps_only_the_window_it_was_lent_in() {
    let mut ledger = ledger(3, 250);
    ledger.charge(3);
    ledger.settle(3, millis(280));
    ledger.credit(1, millis(280));
    assert_eq!(ledger.available(), 1);
    ledger.charge(1);
    ledger.advance(millis(300));
    ledger.settle(1, millis(300));
    ledger.credit(1, millis(300));
    assert_eq!(ledger.available(), 3, "the lease ended at the boundary: it was lent before it");
    assert!(ledger.is_sound());
}

/// The bug: a top-up had allowed more charges than the limit, and what is charged, scaled, did not fit 64 bits.
#[test]
fn in_proportion_no_more_is_charged_than_there_can_be() {
    let mut first = ledger(1, 0);
    first.top_up(10_000);
    first.charge(3_001);
    first.settle(3_000, millis(10));
    let per = Duration::from_millis(100);
    let most = Rule::FixedWindow(FixedWindow::try_new(PERMITS_MAX, per).expect("valid"));
    let clocks = ClockBounds::try_new(0).expect("no drift");
    assert!(first.change(&most, clocks, CarryOver::Proportional));
    assert_eq!((first.available(), first.is_sound()), (0, true));
    let since = Since { gap: Gap::Counted, written: millis(10).into(), now: millis(10), clocks };
    let mut again = ledger(PERMITS_MAX, 10);
    assert!(again.restore(&first.save(), since, (1, millis(90))));
    assert_eq!(again.available(), 0);
}
