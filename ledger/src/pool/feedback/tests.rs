//! Tests of how a pool reacts to its vendor's count, with figures worked out by hand.

use super::*;
use crate::fixtures::{SECOND, bucket, millis, sliding};
use crate::pool::{Holder, Plan, SessionId};
use crate::share::{Share, Sharing};
use lessor_protocol::{Answer, Ask};
use std::sync::Arc;

const A: Holder = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::ZERO };
const B: Holder = Holder { id: SessionId(2), share: Share::EVEN, rtt: Duration::ZERO };

fn pool_of(rule: Rule, trust: Trust) -> Pool {
    let sharing = Sharing { vendor: trust, ..Sharing::default() };
    let plan = Plan { lessees_max: 100, sharing, ..Plan::of(vec![rule]) };
    Pool::new(Arc::new(plan), millis(0))
}

/// Returns a pool of 1,000 permits in 30 s, of which `A` was lent ten.
fn pool(trust: Trust) -> Pool {
    let mut pool = pool_of(sliding(1_000, 30 * SECOND), trust);
    assert_eq!(ask(&mut pool, 0, A, 1, 10), Ok(10));
    pool
}

/// Returns how many of `want` permits are lent to `holder`, which holds nothing, or how long it is to wait.
fn ask(pool: &mut Pool, at: u64, holder: Holder, seq: u64, want: u64) -> Result<u64, Duration> {
    let ask = Ask { want, waiting: want, ..Ask::default() };
    match pool.renew(millis(at), holder, seq, ask).expect("a good ask") {
        Answer::Grant(grant) => Ok(grant.permits),
        Answer::Refusal(refusal) => Err(refusal.retry_after),
    }
}

fn refused(number: u64, wait: Duration) -> Observed {
    Observed { number, refused_total: number, wait: Some(wait), ..Observed::default() }
}

fn left(number: u64, permits: u64, lasts: Duration) -> Observed {
    Observed { number, left: Some(Left { permits, lasts: Some(lasts) }), ..Observed::default() }
}

fn announced(number: u64, limit: u64, per: Option<Duration>) -> Observed {
    Observed { number, announced: [Some(Announced { limit, per }), None, None, None], ..Observed::default() }
}

#[test]
fn a_vendor_that_refuses_is_left_alone_for_as_long_as_it_says_and_no_longer() {
    let mut pool = pool(Trust::default());
    let effect = pool.observe(millis(100), A.id, &refused(1, 2 * SECOND));
    assert_eq!((effect.refused, effect.pauses), (1, true));
    assert_eq!(ask(&mut pool, 200, A, 2, 10), Err(Duration::from_millis(1_900)));
    assert_eq!(pool.view(millis(200)).available, 0);
    // The same session says it again: no news.
    assert_eq!(pool.observe(millis(900), A.id, &refused(1, 2 * SECOND)), ObservationEffect::default());
    assert_eq!(ask(&mut pool, 1_000, A, 3, 10), Err(Duration::from_millis(1_100)));
    assert_eq!(ask(&mut pool, 2_100, A, 4, 1), Ok(1));
}

#[test]
fn what_comes_back_comes_back_slowly() {
    let mut pool = pool(Trust::default());
    pool.observe(millis(0), A.id, &refused(1, SECOND));
    assert_eq!(ask(&mut pool, 1_000, A, 2, 500), Ok(1), "one at once");
    // After a fifth of the time, a twenty-fifth of the limit, less what went already.
    assert_eq!(pool.view(millis(2_000)).available, 40);
    let lent = ask(&mut pool, 2_000, B, 1, 500).expect("there is something");
    assert_eq!(pool.view(millis(2_000)).available, 40 - lent);
    assert_eq!(pool.view(millis(5_000)).available, 640 - lent, "after four fifths");
    assert!(pool.view(millis(6_000)).available > 900, "and all that is left in the end");
}

#[test]
fn a_refusal_without_a_time_is_a_short_pause() {
    let mut pool = pool(Trust::default());
    pool.observe(millis(0), A.id, &refused(1, Duration::ZERO));
    assert_eq!(ask(&mut pool, 0, A, 2, 1), Err(DEFAULT_WAIT));
}

/// The bug: a session that was forgotten told its total of refusals again, and the pool took them for new ones.
#[test]
fn old_refusals_of_a_session_that_was_forgotten_are_no_news() {
    let mut pool = pool(Trust::default());
    let effect =
        pool.observe(millis(0), A.id, &Observed { refused_total: 7, wait: None, ..left(9, 500, SECOND) });
    assert_eq!((effect.refused, effect.pauses), (0, false));
    let effect = pool.observe(millis(0), A.id, &Observed { refused_total: 8, ..refused(10, SECOND) });
    assert_eq!((effect.refused, effect.pauses), (1, true));
}

/// However often refusals are reported, a limit is closed for at most `longest` in a row, and for half of the time.
#[test]
fn no_node_can_close_a_limit_for_more_than_half_of_the_time() {
    let mut pool = pool(Trust { longest: 10 * SECOND, ..Trust::default() });
    let (mut closed, mut row, mut longest_row) = (0, 0, 0);
    for step in 1..=6_000 {
        let at = step * 100;
        pool.observe(millis(at), A.id, &refused(step, Duration::from_secs(1 << 40)));
        match pool.view(millis(at)).vendor_pause.is_zero() {
            true => row = 0,
            false => (closed, row) = (closed + 1, row + 1),
        }
        longest_row = longest_row.max(row);
        // The session stays known.
        let _ = ask(&mut pool, at, A, step + 1, 0);
    }
    assert!((100..=101).contains(&longest_row), "10 s in a row: {longest_row}");
    assert!((2_900..=3_101).contains(&closed), "half of ten minutes: {closed}");
}

#[test]
fn no_more_is_lent_than_the_vendor_has_left_until_it_ends() {
    let mut pool = pool(Trust { ease: SECOND, ..Trust::default() });
    assert!(pool.observe(millis(10), A.id, &left(1, 300, 5 * SECOND)).had_less);
    let available = pool.view(millis(10)).available;
    assert!((280..=300).contains(&available), "{available} of 300, A holds up to 10 of them");
    assert_eq!(pool.view(millis(5_000)).available, available, "until the vendor said");
    assert!((600..=700).contains(&pool.view(millis(5_500)).available), "half of it is back");
    assert_eq!(pool.view(millis(6_100)).available, 990);
}

#[test]
fn the_newest_count_of_the_vendor_is_the_one_that_counts() {
    let mut pool = pool(Trust::default());
    pool.observe(millis(10), A.id, &left(1, 300, 5 * SECOND));
    pool.observe(millis(20), A.id, &left(2, 600, 5 * SECOND));
    assert!((580..=600).contains(&pool.view(millis(20)).available));
    pool.observe(millis(30), A.id, &left(3, 1 << 50, 5 * SECOND));
    assert_eq!(pool.view(millis(30)).available, 990, "and never more than the rules have");
}

#[test]
fn a_part_is_always_left() {
    let mut pool = pool(Trust::default());
    pool.observe(millis(10), A.id, &left(1, 0, SECOND));
    assert_eq!(pool.view(millis(10)).available, 90, "a tenth of 1,000, of which A holds 10");
}

#[test]
fn a_contract_that_is_lower_is_kept_and_one_that_is_higher_only_counted() {
    let mut pool = pool(Trust { ease: SECOND, ..Trust::default() });
    let window = Some(30 * SECOND);
    assert!(pool.observe(millis(0), A.id, &announced(1, 2_000, window)).higher);
    assert_eq!(pool.view(millis(0)).available, 990);
    let effect = pool.observe(millis(0), A.id, &announced(2, 500, window));
    assert_eq!((effect.lower, effect.higher), (true, false));
    assert_eq!(pool.view(millis(0)).available, 490);
    // What a contract with another window means here is unknown.
    let effect = pool.observe(millis(0), A.id, &announced(3, 1, Some(SECOND)));
    assert_eq!((effect.lower, effect.higher), (false, false));
    assert_eq!(pool.view(millis(29_999)).available, 490, "as long as such a window lasts");
    assert_eq!(pool.view(millis(31_000)).available, 990, "it is not said any more");
}

#[test]
fn nodes_are_told_once_that_they_hold_what_the_vendor_has_not() {
    let mut pool = pool(Trust::default());
    assert!(matches!(ask(&mut pool, 0, B, 1, 900), Ok(200..)));
    let lent = 1_000 - pool.view(millis(0)).available;
    let _ = ask(&mut pool, 1, B, 2, 0);
    assert!(lent > 100);
    for seq in 3..20 {
        // B holds all that it can.
        let held = pool.view(millis(2)).books.outstanding - 10;
        let ask = Ask { held, want: 900, waiting: 900, ..Ask::default() };
        pool.renew(millis(2), B, seq, ask).expect("a good ask");
    }
    assert!(pool.view(millis(2)).available < 100);
    assert!(pool.observe(millis(3), A.id, &left(1, 0, SECOND)).is_over);
    assert!(!pool.observe(millis(4), A.id, &left(2, 0, SECOND)).is_over, "it is over already");
    let held = pool.view(millis(5)).books.outstanding - 10;
    let grant = pool.renew(millis(5), B, 30, Ask { held, ..Ask::default() }).expect("a good ask");
    assert_eq!(grant.grant().map(|grant| (grant.kept, grant.term)), Some((held, Duration::ZERO)));
}

#[test]
fn what_is_not_to_be_believed_is_counted_and_nothing_else() {
    let mut pool = pool(Trust { believe: Believe::Off, ..Trust::default() });
    let effect = pool.observe(millis(0), A.id, &refused(1, SECOND));
    assert_eq!((effect.refused, effect.pauses), (1, false));
    assert!(pool.observe(millis(0), A.id, &left(2, 0, SECOND)).had_less);
    assert!(pool.observe(millis(0), A.id, &announced(3, 5, None)).lower);
    assert_eq!(pool.view(millis(0)).available, 990);
    assert_eq!(
        pool.observe(millis(0), SessionId(9), &refused(1, SECOND)),
        ObservationEffect::default(),
        "a stranger"
    );
}

#[test]
fn a_bucket_is_not_made_slower_by_a_lower_level() {
    let mut pool = pool_of(bucket(100, 100, SECOND), Trust::default());
    assert_eq!(ask(&mut pool, 0, A, 1, 1), Ok(1));
    let effect = pool.observe(millis(0), A.id, &announced(1, 50, Some(SECOND)));
    assert_eq!((effect.lower, effect.higher), (false, false));
    assert!(pool.observe(millis(0), A.id, &left(2, 40, SECOND)).had_less);
    assert_eq!(pool.view(millis(0)).available, 39, "what it has left holds for a bucket too");
}

#[test]
fn a_pool_is_not_forgotten_while_the_vendor_is_not_content() {
    let trust = Trust { longest: SECOND, ease: SECOND, ..Trust::default() };
    let mut pool = pool(trust);
    let ask = Ask { spent_total: 0, held: 0, ..Ask::default() };
    pool.renew(millis(0), A, 2, ask).expect("a good ask");
    pool.observe(millis(0), A.id, &refused(1, SECOND));
    assert!(!pool.vendor_is_content());
    pool.view(millis(1_999));
    assert!(!pool.vendor_is_content());
    pool.view(millis(2_000));
    assert!(pool.vendor_is_content());
    assert!(pool.is_forgettable(millis(60_000)));
}
