//! When a pool that leases from another one has something to say there, and what.

use super::*;
use lessor_protocol::Rate;

const RTT: Duration = Duration::from_millis(4);
const TERM: Duration = Duration::from_millis(100);

/// A permit was granted, and the next is two seconds away.
fn last_one() -> Grant {
    Grant {
        kept: 0,
        permits: 1,
        term: TERM,
        horizon: TERM,
        ceiling: 1,
        ask_after: TERM,
        retry_after: Some(2 * SECOND),
        rate: Rate::Free,
        in_flight: None,
    }
}

/// A pool that was lent one permit at 4 ms, for which one waited.
fn lent_one() -> Pool {
    let borrowed = Plan { is_borrowed: true, ..(*plan(vec![])).clone() };
    let mut pool = Pool::new(Arc::new(borrowed), millis(0));
    let nothing = grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    assert_eq!(nothing.permits, 0);
    assert_eq!(pool.asks_above(millis(0), RTT), millis(0), "somebody waits");
    assert!(pool.ask_above(millis(0), RTT).is_some_and(|ask| ask.want > 1 && ask.held == 0));
    assert_eq!(pool.hear_above(millis(4), millis(0), &last_one()), HeardAbove::Believed);
    pool
}

/// The bug: it waited as long as it was told, and the one above took the permit for unspent meanwhile, which is when a bucket
/// refills.
#[test]
fn what_was_all_spent_is_told_before_the_wait_is_over() {
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    assert!(pool.asks_above(millis(6), RTT) > millis(40), "what is lent on may come back yet");
    // It is spent, and A waits for another one.
    assert_eq!(grant(pool.renew(millis(7), A, 3, ask(1, 0, 1))).permits, 0);
    let told = pool.asks_above(millis(7), RTT);
    assert_eq!(told, millis(14), "an exchange and ten milliseconds after the last");
    assert_eq!(pool.ask_above(told, RTT).map(|ask| (ask.spent_total, ask.held)), Some((1, 0)));
    // There is nothing new: now it waits.
    let more = Grant { permits: 0, ..last_one() };
    assert_eq!(pool.hear_above(millis(18), told, &more), HeardAbove::Believed);
    assert_eq!(pool.asks_above(millis(18), RTT), millis(118));
}

#[test]
fn whoever_waits_is_told_to_come_when_the_next_exchange_is_over() {
    let mut pool = lent_one();
    grant(pool.renew(millis(5), A, 2, ask(0, 0, 1)));
    let spent = grant(pool.renew(millis(7), A, 3, ask(1, 0, 1)));
    // Heard at 4 ms, two seconds from then, and an exchange of 4 ms.
    assert_eq!(spent.retry_after, Some(Duration::from_millis(2_001)));
}

#[test]
fn one_that_stops_gives_back_what_is_not_lent_on_and_says_so_once() {
    let mut pool = lent_one();
    let more = Grant { permits: 4, kept: 0, ..last_one() };
    assert!(pool.ask_above(millis(20), RTT).is_some_and(|ask| ask.held == 1 && ask.want < 4));
    // More than was wanted is not believed.
    assert_eq!(pool.hear_above(millis(24), millis(20), &more), HeardAbove::Unfit);
    assert_eq!(grant(pool.renew(millis(25), A, 2, ask(0, 0, 1))).permits, 1);
    assert_eq!(pool.leave_above(millis(26)), None, "it is lent on, until that ends");
    assert_eq!(grant(pool.renew(millis(27), A, 3, ask(0, 0, 0))).permits, 0);
    let left = pool.leave_above(millis(28)).expect("it came back");
    assert_eq!((left.spent_total, left.held, left.want), (0, 0, 0));
    assert_eq!(pool.leave_above(millis(29)), None);
}
