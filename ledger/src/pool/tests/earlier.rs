//! Tests of what a restored pool knows of the process before it.

use super::*;
use crate::rule::Gap;

/// A node that holds nothing goes by the deadline that it was told last. The pool that told it is full again, and
/// otherwise as good as new.
#[test]
fn it_is_not_forgotten_before_all_that_an_earlier_life_told_is_over() {
    let plan = plan(vec![bucket(10, 1_000, SECOND)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    let lent = grant(pool.renew(millis(0), A, 1, ask(0, 0, 0)));
    assert_eq!(lent.permits, 0);
    let (checkpoint, _) = pool.checkpoint(millis(1), Duration::ZERO).expect("it is kept");
    let mut after = Pool::from_checkpoint(plan, &checkpoint, Gap::Counted, millis(2)).expect("it is of use");
    assert_eq!(after.view(millis(2)).books.outstanding, 0);
    assert!(!after.is_forgettable(millis(2)), "a new one would not wait for that node");
    let over = ClockBounds::default().grantor_end(millis(0) + lent.term, lent.term);
    assert!(after.is_forgettable(over + SECOND));
}

/// The bug: a limit above that was written down later took a lease to last longer than the limit below did. A report
/// between both ends was not heard above, and its permits were never lent again.
#[test]
fn a_newcomer_is_taken_to_go_by_the_same_deadline_in_a_whole_family() {
    let plans = [plan(vec![bucket(10, 1_000, SECOND)]), plan(vec![sliding(100, 60 * SECOND)])];
    let [mut below, mut above] = plans.clone().map(|plan| Pool::new(plan, millis(0)));
    grant(above.renew(millis(0), B, 1, ask(0, 0, 1)));
    let [mut below, mut above] = [(&mut below, &plans[0]), (&mut above, &plans[1])].map(|(pool, plan)| {
        let (checkpoint, _) = pool.checkpoint(millis(1), Duration::ZERO).expect("it is kept");
        Pool::from_checkpoint(plan.clone(), &checkpoint, Gap::Counted, millis(2)).expect("it is of use")
    });
    let lent = |below: &mut Pool, above: &mut Pool, at, seq, said| {
        let mut above = [Above { pool: above, share: Share::EVEN }];
        below.renew_below(&mut above, millis(at), A, seq, said)
    };
    assert_eq!(grant(lent(&mut below, &mut above, 10, 1, ask(0, 0, 2))).permits, 2);
    let out = |pool: &mut Pool| pool.view(millis(1_000)).books.outstanding;
    // One permit that B was lent may be out above.
    assert_eq!((out(&mut below), out(&mut above)), (2, 3));
    lent(&mut below, &mut above, 1_000, 2, ask(1, 0, 0)).expect("true");
    assert_eq!((out(&mut below), out(&mut above)), (0, 1));
    assert_eq!(above.view(millis(70_000)).available, 100);
}

/// A bucket refills only from the moment since which its limit has this rule, if that is later than the quarantine.
#[test]
fn a_bucket_after_a_loss_refills_since_its_rule_holds() {
    let plan = plan(vec![bucket(10, 10, SECOND)]);
    let quarantined = millis(0) + plan.clocks.quarantine();
    for (since, begins) in [(millis(0), quarantined), (quarantined + 5 * SECOND, quarantined + 5 * SECOND)] {
        let mut pool = Pool::after_loss_by(plan.clone(), millis(0), since, millis(0));
        assert_eq!(pool.view(begins).available, 0, "since {since:?}");
        assert_eq!(pool.view(begins + SECOND * 51 / 100).available, 5, "since {since:?}");
    }
}
