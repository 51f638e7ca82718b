//! What a pool with a steady flow answers to those who take turns.

use super::*;
use crate::CarryOver;
use crate::rule::LeakyBucket;
use lessor_protocol::{Rate, RateClaim};

/// Twenty that want all of a permit each 10 ms, of which the first held it alone until now. For how long it may go on.
fn turn_of_twenty(waiting: u64) -> Duration {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![Rule::LeakyBucket(LeakyBucket::try_new(1, 1, ten).expect("valid"))]);
    let wants = Ask { want: 5, demand_milli: 10_000, largest: 1, waiting, ..Ask::default() };
    let first = grant(pool.renew(millis(0), A, 1, wants));
    let Rate::Lent { lease, turn: false, .. } = first.rate else { panic!("no other is there: {first:?}") };
    for other in 2..=20 {
        let other = Holder { id: SessionId(other), ..A };
        assert_eq!(grant(pool.renew(millis(1), other, 1, wants)).rate, Rate::Nothing);
    }
    let goes_on = Ask { held: first.permits, rate: RateClaim::Holds(lease), ..wants };
    let second = grant(pool.renew(millis(2), A, 2, goes_on));
    assert!(matches!(second.rate, Rate::Lent { turn: true, .. }), "{second:?}");
    second.horizon
}

#[test]
fn a_turn_lasts_for_its_part_of_a_round() {
    assert_eq!(turn_of_twenty(1), Duration::from_millis(50));
}

/// A session whose callers only try asked after a call. Its next call would come when the turn is over: for ever, if it is
/// regular.
#[test]
fn a_turn_of_a_session_that_only_tries_lasts_until_its_next_calls() {
    assert_eq!(turn_of_twenty(0), Duration::from_millis(200));
}

/// While more is out than a lowered limit allows, no lease is dated: a rate that was told would be charged for ever.
#[test]
fn no_rate_is_told_while_a_lowered_limit_is_exceeded() {
    let flow = Rule::LeakyBucket(LeakyBucket::try_new(20, 1, Duration::from_millis(10)).expect("valid"));
    let window = |limit| {
        let second = Duration::from_secs(1);
        Rule::SlidingWindow(SlidingWindow::try_new(limit, second, Duration::ZERO).expect("valid"))
    };
    let mut pool = pool(vec![window(100), flow]);
    let wants = Ask { want: 10, demand_milli: 10_000, largest: 1, waiting: 10, ..Ask::default() };
    let first = grant(pool.renew(millis(0), A, 1, wants));
    assert!(first.permits > 3, "{first:?}");
    let plan = Plan { rules: vec![window(3), flow], ..(*pool.plan).clone() };
    pool.change(Arc::new(plan), CarryOver::AsIs, millis(1));
    let other = Holder { id: SessionId(2), ..A };
    let none = grant(pool.renew(millis(2), other, 1, wants));
    assert_eq!((none.permits, none.rate, none.term), (0, Rate::Nothing, Duration::ZERO));
    // Both are silent from now on, and all of it comes back.
    pool.advance(millis(20_000));
    assert!(pool.flow.as_ref().expect("there is one").is_fresh(), "{:?}", pool.flow);
}
