//! What a pool that was restored knows of the life before it.

use super::*;
use crate::rules::Gap;

/// A node that holds nothing goes by the deadline that it was told last. The pool that told it is full again, and as good as
/// new but for that.
#[test]
fn it_is_not_forgotten_before_all_that_an_earlier_life_told_is_over() {
    let plan = plan(vec![bucket(10, 1_000, SECOND)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    let told = grant(pool.renew(millis(0), A, 1, ask(0, 0, 0)));
    assert_eq!(told.permits, 0);
    let (record, _) = pool.write_down(millis(1), Duration::ZERO).expect("it is kept");
    let mut after = Pool::restored(plan, &record, Gap::Counted, millis(2)).expect("it is of use");
    assert_eq!(after.view(millis(2)).books.outstanding, 0);
    assert!(!after.is_forgettable(millis(2)), "a new one would not wait for that node");
    let over = Terms::default().grantor_end(millis(0) + told.term, told.term);
    assert!(after.is_forgettable(over + SECOND));
}
