//! A pool whose limit changes while permits are out.

use super::*;
use crate::Rule;
use crate::fixtures::{self, SECOND, first_use};
use crate::pool::{Holder, SessionId};
use crate::rule::TokenBucket;
use crate::share::Share;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Refusal, RefusalReason};
use std::time::Duration;

mod central;

fn plan(rules: Vec<Rule>) -> Arc<Plan> {
    let clocks = ClockBounds::try_new(0).expect("no drift");
    Arc::new(Plan { clocks, lessees_max: 10, ..Plan::of(rules) })
}

fn sliding(limit: u64) -> Rule {
    fixtures::sliding(limit, 30 * SECOND)
}

fn bucket(capacity: u64) -> Rule {
    fixtures::bucket(capacity, capacity, 30 * SECOND)
}

fn fixed(limit: u64, per_ms: u64) -> Rule {
    fixtures::fixed(limit, Duration::from_millis(per_ms))
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos((1_000_000 + millis) * 1_000_000)
}

const WHO: Holder = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::ZERO };

/// Session 1 asks, and is granted what it queues for.
fn renew(pool: &mut Pool, millis: u64, seq: u64, (spent_total, held, want): (u64, u64, u64)) -> Grant {
    let ask = Ask { spent_total, held, want, waiting: want, ..Ask::default() };
    let answer = pool.renew(at(millis), WHO, seq, ask).expect("a true ask");
    answer.grant().expect("it is open")
}

/// Returns a pool of 100 permits, 20 of which are out to session 1 for a second.
fn lent(rule: Rule) -> Pool {
    let mut pool = Pool::new(plan(vec![rule]), at(0));
    assert_eq!(renew(&mut pool, 0, 1, (0, 0, 20)).permits, 20);
    pool
}

/// In every mode, outstanding permits are charged to whatever rules follow.
#[test]
fn what_is_out_stays_charged_however_it_is_carried_over() {
    for carry_over in CarryOver::ALL {
        for (before, after) in
            [(sliding(100), sliding(50)), (bucket(100), bucket(50)), (sliding(100), bucket(50))]
        {
            let mut pool = lent(before);
            pool.change(plan(vec![after]), carry_over, at(10));
            let view = pool.view(at(10));
            assert!(view.available + 20 <= 50, "{carry_over:?} {after:?}: {view:?}");
            assert_eq!(view.books.outstanding, 20);
        }
    }
}

/// A limit lowered below what is out lends and extends nothing until the outstanding leases have ended.
#[test]
fn leases_beyond_a_lowered_limit_end_and_are_not_extended() {
    let mut pool = lent(sliding(100));
    pool.change(plan(vec![sliding(5)]), CarryOver::AsIs, at(10));
    assert_eq!((pool.view(at(10)).available, pool.view(at(10)).over), (0, 15));
    let grant = renew(&mut pool, 500, 2, (0, 20, 20));
    assert_eq!((grant.kept, grant.permits, grant.term), (20, 0, Duration::ZERO));
    assert_eq!(pool.view(at(1_000)).books.outstanding, 20, "a lease of a second, and the slack");
    assert_eq!(pool.view(at(1_001)).books.burned, 20);
    // All burned permits prove unspent: there is room again.
    assert_eq!(renew(&mut pool, 1_100, 3, (0, 0, 2)).permits, 2);
    assert_eq!(pool.view(at(1_100)).over, 0);
}

/// A lease that was lent without windows may be spent beyond the edge of a window that came later. It is charged on
/// both sides of the edge, and its holder is lent nothing more until the lease is over.
#[test]
fn a_new_window_charges_old_leases_on_both_sides_of_its_edge() {
    let mut pool = lent(sliding(100));
    let rules = plan(vec![fixed(30, 500)]);
    pool.change(rules, CarryOver::AsIs, at(10));
    assert_eq!(pool.view(at(10)).available, 10);
    assert_eq!(renew(&mut pool, 20, 2, (0, 20, 5)).permits, 0, "its lease ends in the next window");
    assert_eq!(pool.view(at(500)).available, 10, "charged anew");
    assert_eq!(pool.view(at(1_000)).available, 10);
    assert_eq!(pool.view(at(1_500)).available, 30, "over");
    assert_eq!(renew(&mut pool, 1_510, 3, (0, 0, 5)).permits, 5);
}

#[test]
fn a_rule_that_is_gone_charges_nothing_and_one_that_is_kept_goes_on() {
    let mut pool = lent(sliding(100));
    assert_eq!(renew(&mut pool, 10, 2, (20, 0, 0)).permits, 0);
    pool.change(plan(vec![fixed(1_000, 500), sliding(50)]), CarryOver::AsIs, at(20));
    assert_eq!(pool.view(at(20)).available, 30);
    pool.change(plan(vec![bucket(40)]), CarryOver::AsIs, at(30));
    assert_eq!(pool.view(at(30)).available, 40);
}

/// The bug: each rule took over the balance of the first old rule of its kind and period. So the second bucket had the
/// level of the first one once that was removed, or came after it.
#[test]
fn a_bucket_keeps_its_own_level_beside_another_one_of_the_same_period() {
    let bucket = |capacity, refill| {
        let bucket = TokenBucket::try_new(capacity, refill, Duration::from_secs(1), capacity);
        Rule::TokenBucket(bucket.expect("valid"))
    };
    let (large, small) = (bucket(100, 10), bucket(10, 50));
    let spent = |rules: Vec<Rule>| {
        let mut pool = Pool::new(plan(rules), at(0));
        for seq in 1..=20 {
            let spent_total = pool.view(at(0)).books.granted;
            renew(&mut pool, 0, seq, (spent_total, 0, 10 - spent_total));
        }
        assert_eq!((pool.view(at(0)).books.spent, pool.view(at(0)).available), (10, 0));
        pool
    };
    let left = |rules: Vec<Rule>, carry_over| {
        let mut pool = spent(vec![large, small]);
        pool.change(plan(rules), carry_over, at(0));
        pool.view(at(0)).available
    };
    for carry_over in [CarryOver::AsIs, CarryOver::Proportional, CarryOver::Additive] {
        assert_eq!(left(vec![small], carry_over), 0, "{carry_over:?}");
        assert_eq!(left(vec![large], carry_over), 90, "{carry_over:?}");
        assert_eq!(left(vec![small, large], carry_over), 0, "{carry_over:?}");
    }
    // In the other order, the first one is still as full as before: it has 90 once the second one is gone.
    let mut pool = spent(vec![large, small]);
    pool.change(plan(vec![small, large]), CarryOver::AsIs, at(0));
    pool.change(plan(vec![large]), CarryOver::AsIs, at(0));
    assert_eq!(pool.view(at(0)).available, 90);
    // Neither is as before: either may have been the empty one.
    assert_eq!(left(vec![bucket(200, 10), bucket(20, 50)], CarryOver::AsIs), 0);
    assert_eq!(left(vec![bucket(20, 50)], CarryOver::AsIs), 0);
}

/// A window keeps a top-up for as long as a spend counts, a bucket until it is spent, also beyond its capacity.
#[test]
fn a_top_up_is_lent_once_and_beyond_the_limit() {
    for rule in [sliding(20), bucket(20), fixed(20, 10_000)] {
        let mut pool = Pool::new(plan(vec![rule]), at(0));
        assert_eq!(renew(&mut pool, 0, 1, (0, 0, 20)).permits, 10, "half of it at a time");
        pool.top_up(15, at(1));
        assert_eq!(pool.view(at(1)).available, 25, "{rule:?}");
        let mut lent = 10;
        for seq in 2..40 {
            lent += renew(&mut pool, 1, seq, (lent, 0, 20)).permits;
        }
        assert_eq!(lent, 35, "{rule:?}");
    }
}

/// The bug: a top-up that was not added was answered as if it had been.
#[test]
fn a_window_that_is_not_known_takes_no_top_up() {
    let rules = |rule| plan(vec![rule]);
    let mut pool = Pool::after_loss(rules(first_use(100, 10 * SECOND)), at(0), at(0));
    let opens = at(0) + pool.view(at(0)).quarantine;
    assert!(!pool.top_up(50, at(1)));
    assert_eq!(pool.view(opens).available, 100);
    assert!(pool.top_up(50, opens));
    assert_eq!(pool.view(opens).available, 150);
    let mut pool = Pool::after_loss(rules(bucket(100)), at(0), at(0));
    assert!(pool.top_up(50, at(1)), "a bucket keeps it");
}

#[test]
fn while_nothing_is_lent_reports_count_and_old_grants_are_not_told_again() {
    let mut pool = lent(sliding(100));
    let refusal = Refusal { reason: RefusalReason::Paused, retry_after: Duration::from_secs(5) };
    let said = |spent_total, held| Ask { spent_total, held, want: 9, ..Ask::default() };
    let answer = pool.settle_only(at(10), WHO, 1, said(0, 0), refusal);
    assert_eq!(answer, Ok(Answer::Refusal(refusal)), "a repetition of what was granted");
    assert_eq!(pool.view(at(10)).books.outstanding, 20, "and not believed twice");
    assert_eq!(pool.settle_only(at(20), WHO, 2, said(5, 0), refusal), Ok(Answer::Refusal(refusal)));
    let books = pool.view(at(20)).books;
    assert_eq!((books.spent, books.returned, books.outstanding), (5, 15, 0));
    assert!(pool.settle_only(at(30), WHO, 3, said(6, 0), refusal).is_err(), "more than it was lent");
    let stranger = Holder { id: SessionId(2), ..WHO };
    assert_eq!(pool.settle_only(at(30), stranger, 1, said(0, 0), refusal), Ok(Answer::Refusal(refusal)));
    assert_eq!(pool.view(at(30)).sessions, 1);
}

#[test]
fn buckets_carry_over_what_is_in_them() {
    // 60 of 100 permits are left and none is out. The capacity is halved, or doubled.
    for (carry_over, half, double) in [
        (CarryOver::AsIs, 50, 60),
        (CarryOver::Proportional, 30, 120),
        (CarryOver::Additive, 10, 160),
        (CarryOver::Reset, 50, 200),
    ] {
        let after = |capacity| {
            let mut pool = Pool::new(plan(vec![bucket(100)]), at(0));
            assert_eq!(renew(&mut pool, 0, 1, (0, 0, 40)).permits, 40);
            renew(&mut pool, 0, 2, (40, 0, 0));
            pool.change(plan(vec![bucket(capacity)]), carry_over, at(0));
            pool.view(at(0)).available
        };
        assert_eq!((after(50), after(200)), (half, double), "{carry_over:?}");
    }
}

/// A change of a copy does not change the pool.
#[test]
fn a_copy_is_a_pool_of_its_own() {
    let mut pool = lent(sliding(100));
    let mut copy = pool.clone();
    copy.change(plan(vec![sliding(5)]), CarryOver::Reset, at(10));
    copy.top_up(5, at(10));
    assert_eq!((pool.view(at(10)).available, copy.view(at(10)).available), (80, 0));
}
