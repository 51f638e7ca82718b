//! Tests of what a loan reports to the allocator above, and how it applies the answers.

use super::*;
use lessor_protocol::moment::at;

/// The bug: an allocator panicked where the allocator above took back more than it granted.
#[test]
fn an_answer_may_take_back_more_than_it_grants() {
    let mut loan = Loan::new(at(0));
    let came = |permits, unkept| Came {
        lent: permits,
        permits,
        unkept,
        end: at(100),
        ceiling: 10,
        chance: at(0),
        is_ample: true,
        cap: None,
    };
    loan.came(came(10, 0));
    loan.charge(2);
    loan.came(came(1, 6));
    assert_eq!((loan.available(), loan.outstanding(), loan.excess()), (3, 2, 0));
    loan.came(came(1, 6));
    assert_eq!(
        (loan.available(), loan.outstanding(), loan.excess()),
        (1, 2, 2),
        "what is out is not extended"
    );
}

/// The bug: permits that were wrongly reported as spent in one window were taken off what was spent in the next one.
#[test]
fn what_was_told_as_spent_hides_nothing_that_is_spent_later() {
    let mut loan = Loan::new(at(0));
    let (end, chance) = (at(100), at(0));
    loan.came(Came { permits: 10, lent: 10, unkept: 0, end, ceiling: 10, chance, is_ample: true, cap: None });
    loan.charge(3);
    loan.advance(at(1));
    loan.burn(1, at(1));
    assert_eq!(loan.report(0), (1, 9));
    loan.advance(at(2));
    loan.settle(1, at(2));
    loan.credit(1, at(1));
    loan.burn(1, at(2));
    loan.credit(1, at(2));
    assert_eq!(loan.report(0), (2, 7), "the last one was not reported yet");
}

/// The clock by which the loan ends may be late.
#[test]
fn one_that_holds_back_extends_nothing_that_is_out() {
    let mut loan = Loan::new(at(0));
    let (end, chance) = (at(100), at(0));
    loan.came(Came { permits: 10, lent: 10, unkept: 0, end, ceiling: 10, chance, is_ample: true, cap: None });
    loan.charge(4);
    loan.hold_back();
    assert_eq!((loan.free(), loan.out(), loan.excess()), (0, 4, 4));
}
