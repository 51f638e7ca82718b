//! What a pool with a steady flow answers to those who take turns.

use super::*;
use lessor_protocol::rule::LeakyBucket;
use lessor_protocol::{Rate, RateClaim};

/// Twenty that want all of a permit each 10 ms, of which the first held it alone until now. For how long it may go on.
fn turn_of_twenty(waiting: u64) -> Duration {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![Rule::LeakyBucket(LeakyBucket::try_new(1, 1, ten).expect("valid"))]);
    let wants = Ask { want: 5, demand_milli: 10_000, largest: 1, waiting, ..Ask::default() };
    let first = grant(pool.renew(millis(0), A, 1, wants));
    let Rate::Lent { lease, turn: false, .. } = first.rate else { panic!("nobody else is there: {first:?}") };
    for other in 2..=20 {
        let other = Holder { id: LesseeId(other), ..A };
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

/// Whoever only tries asked after a call, and its next one would come when the turn is over: for ever, if it is regular.
#[test]
fn a_turn_of_somebody_who_only_tries_lasts_until_its_next_calls() {
    assert_eq!(turn_of_twenty(0), Duration::from_millis(200));
}
