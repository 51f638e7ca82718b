//! Permits that a caller has set aside when their lease ends, one step after another.

use super::*;
use crate::permits::Short;

/// Holds ten permits, all of them set aside when an ask is written that is answered after their end.
fn ended(permits: u64) -> (Hand, Refill) {
    let (slot, mut refill) = holding(10);
    slot.hold(10, millis(10)).expect("ten are there");
    let seen = Seen { waiting: 20, ..Seen::default() };
    let ask = refill.write(&slot, seen, millis(900), RTT);
    assert_eq!((ask.spent_total, ask.held), (0, 10));
    assert_eq!(answer(&slot, &mut refill, permits, 1_100), Belief::Installed);
    (slot, refill)
}

fn answer(slot: &Hand, refill: &mut Refill, permits: u64, at: u64) -> Belief {
    refill.believe(slot, &grant(0, permits), exact(), millis(at), millis(at), 0)
}

#[test]
fn nothing_that_is_put_back_after_its_end_can_be_spent() {
    let (slot, mut refill) = ended(4);
    slot.put_back(10);
    assert_eq!(slot.take(1, millis(1_100)), Err(Short::Expired), "six of ten have burned");
    // The next exchange takes them out.
    let ask = refill.write(&slot, Seen { waiting: 9, ..Seen::default() }, millis(1_110), RTT);
    assert_eq!(ask.spent_total, 0);
    answer(&slot, &mut refill, 5, 1_120);
    assert_eq!((slot.balance().free, slot.balance().held), (5, 0));
    assert_eq!(slot.take(5, millis(1_120)), Ok(0));
}

#[test]
fn one_of_the_next_lease_goes_for_each_that_is_set_aside() {
    let (slot, refill) = ended(12);
    assert_eq!(slot.balance().free, 2);
    slot.put_back(10);
    assert_eq!((slot.take(12, millis(1_100)), refill.spent(&slot)), (Ok(0), 12));
}

#[test]
fn what_is_set_aside_when_a_process_leaves_counts_as_spent() {
    let (slot, mut refill) = holding(10);
    slot.hold(3, millis(10)).expect("ten are there");
    spend(&slot, 2, millis(10));
    assert_eq!(refill.close(&slot), 5);
    // It does not matter what becomes of them.
    slot.put_back(1);
    slot.spend_held(2);
    assert_eq!(refill.spent(&slot), 4);
}
