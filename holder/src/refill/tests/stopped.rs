//! A node that is told to stop: what it gives back, and which answer ends the stop.

use super::*;
use crate::permits::Short;

/// A node that is told to stop has nothing left to spend, and reports with its next ask that it holds nothing.
#[test]
fn who_is_told_to_stop_gives_everything_back() {
    let (slot, rtt, now) = (Hand::new(), Duration::from_millis(1), Moment::from_nanos(1_000_000_000));
    let mut refill = Refill::new(now, true);
    refill.write(&slot, Seen::default(), now, rtt);
    let grant = grant(0, 5);
    assert_eq!(refill.believe(&slot, &grant, ClockBounds::default(), now, now, 0), Belief::Installed);
    slot.take(2, now).expect("five are there");
    refill.stop(&slot);
    assert_eq!((slot.take(1, now).is_ok(), refill.spent(&slot)), (false, 2));
    let ask = refill.write(&slot, Seen::default(), now, rtt);
    assert_eq!((ask.spent_total, ask.held), (2, 0));
}

/// The bug: a vendor refused a call while an ask was under way, and the answer brought permits to spend all the same.
#[test]
fn an_answer_to_an_ask_from_before_a_stop_does_not_end_it() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), true));
    let grants_five = |refill: &mut Refill, slot: &Hand| {
        refill.believe(slot, &grant(0, 5), exact(), millis(10), millis(10), 0)
    };
    refill.write(&slot, Seen::default(), millis(0), RTT);
    refill.stop(&slot);
    assert_eq!(grants_five(&mut refill, &slot), Belief::Installed);
    assert_eq!(slot.take(1, millis(11)), Err(Short::Empty));
    let ask = refill.write(&slot, Seen { waiting: 5, ..Seen::default() }, millis(20), RTT);
    assert_eq!((ask.spent_total, ask.held, ask.want), (0, 0, 5), "the five are given back");
    assert_eq!(grants_five(&mut refill, &slot), Belief::Installed);
    assert!(slot.take(5, millis(21)).is_ok(), "the allocator has heard of the stop");
}
