//! What becomes of a lease that the allocator does not know any more.

use super::*;
use crate::dispute::{DISPUTE_PAUSE, disown};

#[test]
fn an_allocator_that_forgot_is_told_from_zero() {
    let (slot, mut refill) = holding(100);
    spend(&slot, 40, millis(10));
    refill.forget(&slot);
    // What it is lent next may end before what it was lent before: the slot does not go by the old deadline.
    let waiting = Seen { refused: 0, waiting: 7, ..Seen::default() };
    assert!(refill.due(&slot, waiting, millis(20), RTT) <= millis(20), "nothing to wait for");
    assert_eq!(slot.deadline(), Moment::ORIGIN);
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 7, ..Seen::default() }, millis(20), RTT);
    assert_eq!((ask.spent_total, ask.held), (0, 0));
    let short = Grant { term: TERM / 2, ..grant(0, 7) };
    refill.believe(&slot, &short, exact(), millis(20), millis(25), 0);
    assert_eq!(slot.deadline(), exact().holder_end(millis(20), TERM / 2), "though the old one was later");
    spend(&slot, 3, millis(30));
    assert_eq!(
        refill.write(&slot, Seen { refused: 0, waiting: 4, ..Seen::default() }, millis(40), RTT).spent_total,
        3
    );
    assert_eq!(refill.close(&slot), 3);
}

/// What was lent is spent, and nothing is asked that an allocator could not understand.
#[test]
fn what_an_allocator_forgot_is_used_up_before_anything_is_asked() {
    let due = |refill: &Refill, slot: &Slot, seen, now| refill.due(slot, seen, millis(now), RTT);
    let quiet = Seen::default();
    let forgotten = || {
        let (slot, mut refill) = holding(100);
        disown(&mut refill, &slot, millis(10), 0);
        (slot, refill)
    };
    let (slot, mut refill) = forgotten();
    assert_eq!(due(&refill, &slot, quiet, 20), millis(1_000), "it ends then, and nobody spends");
    spend(&slot, 40, millis(30));
    spend(&slot, 60, millis(40));
    assert_eq!(due(&refill, &slot, quiet, 50), millis(50), "all is spent");
    let ask = refill.write(&slot, quiet, millis(50), RTT);
    assert_eq!((ask.spent_total, ask.held), (0, 0));
    // What is left does not do for who waits, or was refused.
    let (slot, refill) = forgotten();
    let waiting = |waiting| Seen { waiting, ..quiet };
    assert_eq!(due(&refill, &slot, waiting(100), 20), millis(1_000));
    assert_eq!(due(&refill, &slot, waiting(101), 20), millis(20));
    slot.refuse(0, 200);
    assert_eq!(due(&refill, &slot, quiet, 20), millis(20));
    // It is not held beyond its end, nor told of after it.
    let (slot, mut refill) = forgotten();
    let ask = refill.write(&slot, quiet, millis(1_000), RTT);
    assert_eq!((ask.spent_total, ask.held, slot.balance().total()), (0, 0, 0));
}

#[test]
fn who_was_forgotten_asks_again_at_once_and_then_waits() {
    // Granted nothing at 0 ms, for a second; forgotten long after.
    let (slot, mut refill) = (Slot::new(), Refill::new(millis(0), false));
    refill.write(&slot, Seen::default(), millis(0), RTT);
    let belief = refill.believe(&slot, &grant(0, 0), exact(), millis(0), millis(1), 0);
    assert_eq!(belief, Belief::Installed);
    let (seen, now) = (Seen { refused: 1, waiting: 0, ..Seen::default() }, millis(60_000));
    let mut asks_in_vain = || {
        assert_eq!(refill.write(&slot, seen, now, RTT).want, 1);
        disown(&mut refill, &slot, now, 0);
        refill.due(&slot, seen, now, RTT)
    };
    assert_eq!(asks_in_vain(), now, "the call that was refused still wants a permit");
    assert_eq!(asks_in_vain(), now + DISPUTE_PAUSE, "nothing was granted between");
}
