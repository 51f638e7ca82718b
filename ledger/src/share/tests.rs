//! Tests of sharing, with figures worked out by hand.

use super::*;
use crate::sizing::{Asker, Claim, Claims, grant};
use lessor_protocol::Moment;

const TERM: Duration = Duration::from_secs(1);

fn claim(need: u64, priority: u64) -> Claim {
    let share = Share { priority, ..Share::EVEN };
    Claim { mean: u128::from(need) * PERMIT, need, bare: need, share, holds: 0 }
}

fn supply(left: u64) -> Supply {
    Supply {
        left,
        stock: left,
        soon: 0,
        within_term: left,
        sustained: 100 * PERMIT,
        term: TERM,
        poll: TERM / 4,
    }
}

/// Returns what a session that needs 50 permits gets of 100 beside `others`.
fn granted(priority: u64, others: Vec<Claim>) -> u64 {
    let mut claims = Claims::default();
    others.into_iter().enumerate().for_each(|(id, claim)| claims.insert(id, claim));
    let supply = after(claims.before(priority), supply(100));
    let asker =
        Asker { want: 50, claim: claim(50, priority), since: TERM, accrues_for: TERM, turn: TERM / 4 };
    grant(asker, claims.peers(priority), supply).permits
}

#[test]
fn a_lower_priority_gets_what_higher_ones_do_not_need() {
    assert_eq!(granted(0, vec![claim(1_000, 1)]), 0, "all of it is needed above");
    assert_eq!(granted(0, vec![claim(90, 1)]), 5, "ten are left, of which it has half");
    assert_eq!(granted(1, vec![claim(1_000, 0)]), 50, "a claim below is not seen");
    let served = Claim { holds: 90, ..claim(90, 1) };
    assert_eq!(granted(0, vec![served]), 50, "what the higher one holds it does not lack");
}

#[test]
fn what_is_guaranteed_is_kept_and_comes_back_within_a_window() {
    let at = |seconds: u64| Moment::ORIGIN + TERM * u32::try_from(seconds).expect("few");
    let mut kept = Guarantees::new(&[20, 30], 10 * TERM, at(0));
    assert_eq!([kept.kept_from(None), kept.kept_from(Some(0)), kept.kept_from(Some(1))], [50, 30, 20]);
    kept.lent(Some(0), 25);
    assert_eq!((kept.owed(Some(0)), kept.owed(Some(1)), kept.owed(None)), (0, 30, 0));
    kept.advance(at(1));
    assert_eq!(kept.owed(Some(0)), 2, "20 in ten seconds");
    kept.returned(Some(0), 100);
    assert_eq!(kept.owed(Some(0)), 20, "never more than that");
    kept.lent(Some(1), 30);
    kept.lent(None, 10);
    kept.advance(at(100));
    assert_eq!((kept.kept_from(None), kept.kept_at_most(Some(1))), (50, 20));
}

#[test]
fn where_less_is_left_than_is_guaranteed_each_group_has_its_part() {
    let kept = Guarantees::new(&[20, 30], TERM, Moment::ORIGIN);
    let parts = |left| [0, 1].map(|group| kept.part_of(group, left));
    assert_eq!(parts(60), [30, 40], "what the other one does not have");
    assert_eq!(parts(50), [20, 30]);
    assert_eq!(parts(40), [16, 24]);
    assert_eq!(parts(1), [1, 1], "the first one that comes");
    assert_eq!(parts(0), [0, 0]);
    assert_eq!(Guarantees::NONE.part_of(0, 7), 7);
}
