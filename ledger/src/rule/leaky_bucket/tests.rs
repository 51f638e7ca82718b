//! The books of a steady flow, worked out by hand: what is lent, given back and lost, and the largest numbers.

use super::*;
use lessor_protocol::moment::millis;

const SECOND: Duration = Duration::from_secs(1);

/// A flow of `refill` permits a second with `burst`, on clocks without drift.
fn flow(burst: u64, refill: u64) -> Flow {
    let rule = LeakyBucket::try_new(burst, refill, SECOND).expect("valid");
    Flow::new(&rule, ClockBounds::try_new(0).expect("no drift"), Moment::ORIGIN)
}

fn part(cap: u64, share: u64) -> Part {
    Part { cap, share }
}

#[test]
fn what_is_not_lent_is_minted_at_the_centre() {
    let mut flow = flow(10, 10);
    assert_eq!(flow.take(10, 0), 10 * flow.permit());
    flow.recharge(Part::default(), part(4, SHARES / 2));
    flow.advance(millis(400));
    assert_eq!(flow.level(), 2, "half of ten a second");
    flow.advance(millis(60_000));
    assert_eq!(flow.level(), 6, "the rest of the room is lent");
}

#[test]
fn what_is_let_go_takes_its_bucket_along_and_what_is_lost_comes_back_empty() {
    let mut flow = flow(10, 10);
    flow.take(10, 0);
    flow.recharge(Part::default(), part(4, SHARES));
    let interval = flow.interval(SHARES).expect("it flows");
    flow.give_back(part(4, SHARES), 2 * interval, interval);
    assert_eq!(flow.level(), 2);
    flow.recharge(Part::default(), part(4, SHARES));
    flow.lose(part(4, SHARES));
    assert_eq!(flow.level(), 2);
    // No session can have saved up more than its bucket holds.
    flow.recharge(Part::default(), part(4, SHARES));
    flow.give_back(part(4, SHARES), 100 * interval, interval);
    assert_eq!(flow.level(), 6);
}

#[test]
fn a_share_mints_no_faster_than_its_part_of_the_rate() {
    let flow = flow(1, 3);
    let interval = flow.interval(SHARES).expect("it flows");
    assert_eq!(interval, Duration::from_nanos(333_333_334));
    let seventh = nanos(flow.interval(SHARES / 7).expect("it flows"));
    assert!(u128::from(seventh) * 3 * u128::from(SHARES / 7) >= 1_000_000_000 * u128::from(SHARES));
    assert_eq!(flow.interval(0), None);
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let most = LeakyBucket::try_new(PERMITS_MAX, PERMITS_MAX, 104 * 86_400 * SECOND).expect("valid");
    let clocks = ClockBounds::try_new(ClockBounds::DRIFT_PPM_MAX).expect("valid");
    let mut flow = Flow::new(&most, clocks, Moment::ORIGIN);
    assert_eq!((flow.level(), flow.is_fresh()), (PERMITS_MAX, true));
    flow.advance(Moment::NEVER);
    let interval = flow.interval(1).expect("it flows");
    let taken = flow.take(PERMITS_MAX, 0);
    flow.recharge(Part::default(), part(PERMITS_MAX, SHARES));
    flow.give_back(part(PERMITS_MAX, SHARES), flow.credit(taken, interval), interval);
    assert!(flow.is_sound());
    assert_eq!(flow.speed().share_of(u64::MAX).min(SHARES), SHARES);
}

#[test]
fn a_flow_whose_books_were_lost_starts_empty() {
    let mut flow = flow(5, 10);
    flow.advance(millis(2_100));
    flow.forget(millis(2_000));
    assert_eq!(flow.level(), 1);
}

#[test]
fn a_demand_is_a_share_of_the_flow() {
    // Ten a second: 5,000 permits in 1,000 s are half of it.
    let flow = flow(5, 10);
    assert_eq!(flow.speed().share_of(5_000), SHARES / 2);
    assert_eq!((flow.speed().share_of(10_000), flow.speed().share_of(20_000)), (SHARES, 2 * SHARES));
    assert_eq!((flow.speed().share_of(0), flow.speed().share_of(1)), (0, SHARES.div_ceil(10_000)));
}

#[test]
fn what_is_kept_in_reserve_is_not_taken() {
    let mut flow = flow(10, 10);
    assert_eq!(flow.take(10, 4), 6 * flow.permit());
    assert_eq!((flow.take(10, 4), flow.level()), (0, 4));
    assert_eq!(flow.take(10, 5), 0);
}

/// The bug: permits of a slow flow were dropped, because the time in which they are minted could not be told.
#[test]
fn all_that_a_bucket_holds_can_be_told() {
    const DAY: Duration = Duration::from_secs(86_400);
    let error = LeakyBucket::try_new(105, 1, DAY).expect_err("it cannot be told");
    assert_eq!(
        error.to_string(),
        "burst is 105, a bucket that fills in 105 days: use one that fills in 104 days at most"
    );
    let slow = LeakyBucket::try_new(104, 1, DAY).expect("valid");
    let flow = Flow::new(&slow, ClockBounds::try_new(0).expect("no drift"), Moment::ORIGIN);
    for permits in [1, 3, 50, 104] {
        let share = flow.speed().least_share(permits);
        assert_eq!(flow.fitting(part(permits, share)), part(permits, share));
        assert!(flow.fitting(part(permits, share - 1)).cap < permits, "{permits}");
        let interval = flow.interval(share).expect("it can be told");
        let told = flow.credit(u128::from(permits) * flow.permit(), interval);
        assert_eq!(nanos(told), permits * nanos(interval));
    }
}
