//! What a pool answers to one ask after another, worked out by hand.

use super::*;
use crate::fixtures::{SECOND, at_intervals, bucket, first_use, fixed, flow, log, millis, sliding};
use crate::rule::{FixedWindow, TokenBucket, Windows};
use crate::share::{Share, Sharing};
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, PERMITS_MAX, Refusal, RefusalReason};

mod ahead;
mod borrow;
mod callers;
mod claims_above;
mod earlier;
mod family;
mod flow;
mod forecast;
mod goodbye;
mod greed;
mod groups;
mod identities;
mod in_flight;
mod kept;
mod large;
mod patience;
mod reset;
mod resting;
mod rows;
mod safe_shares;
mod seats;
mod snapshot;

/// A pool that leases from another one.
fn borrowing() -> Pool {
    Pool::new(Arc::new(Plan { is_borrowed: true, ..(*plan(vec![])).clone() }), millis(0))
}

fn plan(rules: Vec<Rule>) -> Arc<Plan> {
    Arc::new(Plan { lessees_max: 100, ..Plan::of(rules) })
}

fn pool(rules: Vec<Rule>) -> Pool {
    Pool::new(plan(rules), millis(0))
}

const A: Holder = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::ZERO };
const B: Holder = Holder { id: SessionId(2), share: Share::EVEN, rtt: Duration::ZERO };

fn ask(spent_total: u64, held: u64, waiting: u64) -> Ask {
    Ask { spent_total, held, want: waiting, waiting, ..Ask::default() }
}

/// The goodbye of a session that gives back all that it did not spend.
fn goodbye(spent_total: u64, running: Option<u64>) -> Goodbye {
    Goodbye { spent_total, running, held: Some(PERMITS_MAX), shadow_refused: 0 }
}

fn grant(answer: Result<Answer, AskError>) -> Grant {
    answer.expect("a good ask").grant().expect("not refused")
}

#[test]
fn a_grant_is_lent_kept_and_settled() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    let first = grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    assert_eq!((first.kept, first.permits, first.term, first.ceiling), (0, 100, SECOND, 1_000));
    // 40 spent, 60 held, 10 more wanted.
    let second = grant(pool.renew(millis(500), A, 2, ask(40, 60, 10)));
    assert_eq!((second.kept, second.permits), (60, 10));
    let books = Books { granted: 110, spent: 40, returned: 0, burned: 0, outstanding: 70 };
    assert_eq!(pool.view(millis(500)).books, books);
    assert_eq!(pool.view(millis(500)).available, 890);
}

#[test]
fn holding_less_gives_back() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND), bucket(500, 1, 60 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    grant(pool.renew(millis(10), A, 2, ask(30, 20, 0)));
    let view = pool.view(millis(10));
    assert_eq!(view.books, Books { granted: 100, spent: 30, returned: 50, burned: 0, outstanding: 20 });
    assert_eq!(view.available, 450, "the bucket has 500 - 30 - 20, the window 1,000 - 30 - 20");
}

#[test]
fn a_replayed_sequence_gets_the_same_grant_with_its_remaining_term() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    let first = grant(pool.renew(millis(0), A, 7, ask(0, 0, 100)));
    let again = grant(pool.renew(millis(400), A, 7, ask(0, 0, 100)));
    assert_eq!(again, Grant { term: Duration::from_millis(600), ..first });
    assert_eq!(pool.view(millis(400)).books.granted, 100, "granted once");
    let late = grant(pool.renew(millis(5_000), A, 7, ask(0, 0, 100)));
    assert_eq!(late.term, Duration::ZERO, "too late to spend any of it");
    let stale = pool.renew(millis(5_000), A, 6, ask(0, 0, 100));
    assert_eq!(stale, Err(AskError::Stale { seq: 6, last: 7 }));
}

#[test]
fn claims_that_cannot_be_true_change_nothing() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    let before = pool.view(millis(1));
    let lie = pool.renew(millis(1), A, 2, ask(90, 11, 5));
    assert_eq!(lie, Err(AskError::Totals { spent_total: 90, held: 11, spent: 0, out: 100 }));
    let stranger = pool.renew(millis(1), B, 1, ask(5, 0, 5));
    assert_eq!(stranger, Err(AskError::LeaseUnknown { spent_total: 5, held: 0 }));
    assert_eq!(pool.view(millis(1)), before);
    // The sequence number of the lie is still good for the truth.
    grant(pool.renew(millis(1), A, 2, ask(90, 10, 5)));
}

#[test]
fn a_lease_without_a_report_burns_and_a_late_report_gives_back() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    let end = ClockBounds::default().grantor_end(millis(0), SECOND);
    let just_before = Moment::from_nanos(end.as_nanos() - 1);
    assert_eq!(pool.view(just_before).books.outstanding, 100);
    assert_eq!(pool.view(end).books.burned, 100);
    assert_eq!(pool.view(end).available, 900);
    let late = grant(pool.renew(millis(2_000), A, 2, ask(60, 0, 0)));
    assert_eq!((late.kept, late.permits), (0, 0));
    let view = pool.view(millis(2_000));
    assert_eq!(view.books, Books { granted: 100, spent: 60, returned: 40, burned: 0, outstanding: 0 });
    assert_eq!(view.available, 940);
}

#[test]
fn a_burned_permit_of_a_bucket_is_gone_for_good() {
    let mut pool = pool(vec![bucket(100, 1, 3_600 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 50)));
    grant(pool.renew(millis(3_000), A, 2, ask(0, 0, 0)));
    let view = pool.view(millis(3_000));
    assert_eq!((view.available, view.books.returned), (50, 50));
}

#[test]
fn what_was_held_when_the_lease_ended_is_not_kept() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    // Written while the lease was live, arrived after its end.
    let late = grant(pool.renew(millis(1_100), A, 2, ask(70, 30, 20)));
    assert_eq!((late.kept, late.permits), (0, 20));
    assert_eq!(pool.view(millis(1_100)).books.burned, 30, "it may have been spent until the end");
}

#[test]
fn a_renewal_never_shortens_what_the_node_goes_by() {
    // The window that B opens ends at 1,000 ms: it clips the second term, and leaves no room for a third.
    let mut pool = pool(vec![first_use(1_000, SECOND)]);
    grant(pool.renew(millis(0), B, 1, ask(0, 0, 1)));
    grant(pool.renew(millis(10), B, 2, ask(1, 0, 0)));
    let first = grant(pool.renew(millis(970), A, 1, ask(0, 0, 10)));
    let second = grant(pool.renew(millis(990), A, 2, ask(0, 10, 10)));
    assert!(second.term < Duration::from_millis(10) && first.term > second.term);
    let third = grant(pool.renew(millis(999).before(Duration::from_micros(100)), A, 3, ask(0, 20, 5)));
    assert_eq!((third.kept, third.permits, third.term), (20, 0, Duration::ZERO), "what is held stays held");
    assert_eq!(pool.view(millis(1_000)).books.burned, 20);
    let next = grant(pool.renew(millis(1_000), B, 3, ask(1, 0, 500)));
    assert_eq!(next.permits, 500, "a new window");
}

#[test]
fn several_rules_are_charged_all_or_none() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND), bucket(10, 1, 60 * SECOND)]);
    let first = grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    assert_eq!((first.permits, first.ceiling), (5, 10), "half of what the tighter one has");
    assert_eq!(pool.view(millis(0)).available, 5);
}

#[test]
fn retry_after_is_when_there_is_a_permit_and_not_before() {
    let mut pool = pool(vec![sliding(4, SECOND)]);
    let mut held = 0;
    for seq in 1..=3 {
        held += grant(pool.renew(millis(0), A, seq, ask(0, held, 4))).permits;
    }
    assert_eq!(held, 4);
    grant(pool.renew(millis(10), A, 4, ask(4, 0, 0)));
    let refused = grant(pool.renew(millis(20), B, 1, ask(0, 0, 1)));
    assert_eq!(refused.permits, 0);
    let wait = refused.retry_after.expect("it will be back");
    let ready = millis(20) + wait;
    let mut seq = 2;
    for early in [Duration::from_millis(500), Duration::from_millis(1)] {
        let still = grant(pool.renew(ready.before(early), B, seq, ask(0, 0, 1)));
        assert_eq!(still.permits, 0);
        seq += 1;
    }
    assert_eq!(grant(pool.renew(ready, B, seq, ask(0, 0, 1))).permits, 1);
}

#[test]
fn leaving_returns_everything() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    assert_eq!(pool.leave(millis(10), A.id, 2, goodbye(30, None)), Ok(70));
    assert_eq!(pool.leave(millis(11), A.id, 2, goodbye(30, None)), Ok(0), "said twice, done once");
    assert_eq!(pool.view(millis(11)).books.outstanding, 0);
}

#[test]
fn after_a_loss_nothing_is_lent_until_no_session_can_be_spending() {
    let mut pool = Pool::after_loss(plan(vec![sliding(10, SECOND)]), millis(0), millis(0));
    let refusal = pool.renew(millis(100), A, 1, ask(3, 4, 5)).expect("a refusal is an answer");
    let Answer::Refusal(refusal) = refusal else { panic!("it was granted {refusal:?}") };
    assert_eq!(refusal.reason, RefusalReason::Quarantine);
    // Two seconds of term, stretched, then a window of one second, stretched.
    assert!(refusal.retry_after > Duration::from_millis(2_900 + 5));
    assert!(refusal.retry_after < Duration::from_millis(2_900 + 15));
    let opens = millis(100) + refusal.retry_after;
    assert_eq!(grant(pool.renew(opens, A, 2, ask(0, 0, 5))).permits, 5);
}

#[test]
fn sessions_are_bounded_and_idle_ones_make_room() {
    let plan = Plan { lessees_max: 2, ..(*plan(vec![sliding(10, SECOND)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let holder = |id| Holder { id: SessionId(id), share: Share::EVEN, rtt: Duration::ZERO };
    grant(pool.renew(millis(0), holder(1), 1, ask(0, 0, 1)));
    grant(pool.renew(millis(0), holder(2), 1, ask(0, 0, 1)));
    assert_eq!(pool.renew(millis(1), holder(3), 1, ask(0, 0, 1)), Err(AskError::Full { max: 2 }));
    // Both leases have burned, and a window has passed since.
    grant(pool.renew(millis(1_200), holder(3), 1, ask(0, 0, 1)));
}

#[test]
fn a_pool_can_be_dropped_only_when_it_cannot_be_told_from_a_new_one() {
    let mut pool = pool(vec![sliding(10, SECOND)]);
    assert!(pool.is_forgettable(millis(0)));
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    assert!(!pool.is_forgettable(millis(10)));
    grant(pool.renew(millis(10), A, 2, ask(1, 0, 0)));
    assert!(!pool.is_forgettable(millis(1_010)), "a spent permit still counts");
    assert!(!pool.is_forgettable(millis(10_000)), "a session that is remembered");
    assert!(!pool.is_forgettable(millis(10_040)), "its node may go by a lease of 33 ms that holds nothing");
    assert!(pool.is_forgettable(millis(10_050)));
}

/// The bug: the pool was dropped as soon as its bucket was full again. The session that went on using it, with its totals, was then
/// unknown to the new pool.
#[test]
fn a_pool_is_not_dropped_under_a_session_that_uses_it() {
    let mut pool = pool(vec![bucket(10, 10, SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    grant(pool.renew(millis(50), A, 2, ask(1, 0, 0)));
    grant(pool.renew(millis(120), A, 3, ask(1, 0, 0)));
    assert!(!pool.is_forgettable(millis(151)), "full again, but the session may go on");
    assert!(pool.is_forgettable(millis(10_160)));
}

/// The bug: sessions that had burned a lease were remembered for a whole window. With windows of a month, a fleet that restarts often
/// enough was locked out for weeks.
#[test]
fn at_the_bound_a_session_with_nothing_live_makes_room() {
    let month = 30 * 24 * 3_600 * SECOND;
    let plan = Plan { lessees_max: 1, ..(*plan(vec![sliding(10, month)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    let early = pool.renew(millis(5_000), B, 1, ask(0, 0, 1));
    assert_eq!(early, Err(AskError::Full { max: 1 }), "A may have asked a term ago");
    grant(pool.renew(millis(9_000), B, 1, ask(0, 0, 1)));
    let view = pool.view(millis(9_000));
    assert_eq!((view.books.burned, view.available), (1, 8), "what A burned stays charged");
}

/// The bug: the need of such a session was taken for zero, so no share was too much for it: each ask got half of what was left.
#[test]
fn who_says_it_needs_nothing_and_wants_everything_gets_a_share() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    let holder = |id| Holder { id: SessionId(id), share: Share::EVEN, rtt: Duration::ZERO };
    for id in 1..=4 {
        grant(pool.renew(millis(0), holder(id), 1, Ask { want: 1, ..Ask::default() }));
        grant(pool.renew(millis(1), holder(id), 2, Ask { demand_milli: 2_000_000, ..Ask::default() }));
    }
    let silent = holder(5);
    grant(pool.renew(millis(1), silent, 1, Ask { want: 1, ..Ask::default() }));
    let lent = grant(pool.renew(millis(2), silent, 2, Ask { want: 1_000_000, ..Ask::default() })).permits;
    // Four sessions need 2,000 a second each and the silent one wants more than there is: what is left is halved, and shared by need.
    assert!(lent <= 100, "a fifth of that is even, it got {lent}");
}

#[test]
fn easing_off_spreads_the_last_tenth() {
    let plan = Plan { ease_off: true, ..(*plan(vec![sliding(1_000, 30 * SECOND)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let (mut seq, mut spent) = (0, 0);
    let mut lent_in = |pool: &mut Pool, at: u64| {
        seq += 1;
        let permits = grant(pool.renew(millis(at), A, seq, ask(spent, 0, 1_000))).permits;
        spent += permits;
        permits
    };
    let burst: u64 = (0..20).map(|step| lent_in(&mut pool, step)).sum();
    // Half of what is left at a time, until less than a tenth is left.
    assert!((900..=950).contains(&burst), "{burst} at once");
    // A thirtieth of the window later, about a thirtieth of the rest may go.
    let eased: u64 = (20..=1_020).map(|step| lent_in(&mut pool, step)).sum();
    assert!((2..=5).contains(&eased), "{eased} in the next second");
}

/// The bug: a call that takes more than nine tenths of an unused window waited until the next one, and then again.
#[test]
fn a_call_that_takes_nearly_all_there_is_does_not_wait_while_it_eases_off() {
    let day = Duration::from_secs(86_400);
    for rule in [fixed(1_000, day), sliding(1_000, day)] {
        let plan = Plan { ease_off: true, ..(*plan(vec![rule])).clone() };
        let mut pool = Pool::new(Arc::new(plan), millis(0));
        let mut held = 0;
        for step in 0..20 {
            let ask = Ask { largest: 980, ..ask(0, held, 980 - held) };
            held += grant(pool.renew(millis(step * 250), A, step + 1, ask)).permits;
        }
        assert_eq!(held, 980);
        // The last permits go one by one.
        let one = grant(pool.renew(millis(5_000), B, 1, Ask { largest: 1, ..ask(0, 0, 20) }));
        assert!(one.permits <= 1, "{one:?}");
    }
}

/// A pool of 100 per window of which `sharing` keeps something back.
fn shared(sharing: Sharing) -> Pool {
    let plan = Plan { sharing, ..(*plan(vec![sliding(100, 30 * SECOND)])).clone() };
    Pool::new(Arc::new(plan), millis(0))
}

/// Takes all that `holder` can get in 20 asks.
fn drain(pool: &mut Pool, holder: Holder, at: u64) -> u64 {
    let mut held = 0;
    for step in 0..20 {
        let (now, ask) = (millis(at + step * 250), ask(0, held, 200));
        held += grant(pool.renew(now, holder, at + step + 1, ask)).permits;
    }
    held
}

#[test]
fn a_reserve_is_never_lent() {
    let mut pool = shared(Sharing { reserve: 30, ..Sharing::default() });
    assert_eq!((pool.view(millis(0)).available, pool.call_max()), (70, 70));
    assert_eq!(drain(&mut pool, A, 0), 70);
    assert_eq!(pool.view(millis(6_000)).available, 0);
}

#[test]
fn no_lease_holds_more_or_lasts_longer_than_configured() {
    let bounds = (Duration::from_millis(100), Duration::from_millis(300));
    let sharing = Sharing { lease_max: 20, term_min: bounds.0, term_max: bounds.1, ..Sharing::default() };
    let mut pool = shared(sharing.clone());
    let far = Holder { rtt: SECOND, ..A };
    let first = grant(pool.renew(millis(0), far, 1, ask(0, 0, 50)));
    assert_eq!((first.permits, first.ceiling, first.term), (20, 20, bounds.1));
    let idle = Ask { held: 20, want: 5, ..Ask::default() };
    let second = grant(pool.renew(millis(10), far, 2, idle));
    assert_eq!(
        (second.kept, second.permits, second.term),
        (20, 0, bounds.1),
        "rich, slow and far, and yet no longer"
    );
    // A rule whose leases would be shorter than that.
    let plan = Plan { sharing, ..(*plan(vec![sliding(100, SECOND)])).clone() };
    assert_eq!(plan.term(), bounds.0);
}

#[test]
fn a_group_gets_what_is_guaranteed_whatever_others_took_before() {
    let mut pool = shared(Sharing { guaranteed: vec![25], ..Sharing::default() });
    let member = Holder { share: Share { group: Some(0), ..Share::EVEN }, ..B };
    assert_eq!(drain(&mut pool, A, 0), 75, "the rest is kept");
    assert_eq!(drain(&mut pool, member, 6_000), 25);
}

/// A session of a lower priority is lent what sessions above it do not lack, and is told when to ask again.
#[test]
fn a_higher_priority_comes_first() {
    let mut pool = shared(Sharing::default());
    let above = Holder { share: Share { priority: 1, ..Share::EVEN }, ..B };
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    grant(pool.renew(millis(0), above, 1, Ask { demand_milli: 500_000, ..ask(0, 0, 500) }));
    let lower = grant(pool.renew(millis(10), A, 2, ask(1, 0, 10)));
    assert_eq!(lower.permits, 0);
    assert!(!lower.ask_after.is_zero());
    assert!(
        grant(pool.renew(millis(10), above, 2, Ask { demand_milli: 500_000, ..ask(0, 0, 500) })).permits > 0
    );
}

/// When little is left in a window, the permits owed to a session that wants little are kept while it asks. They are not kept for as
/// long as the pool remembers the session: otherwise a session that dies would stop all others.
#[test]
fn who_does_not_come_again_keeps_nothing_from_others() {
    let plan = Plan { ease_off: true, ..(*plan(vec![sliding(900, 30 * SECOND)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let wants =
        |permits: u64, demand: u64| Ask { want: permits, demand_milli: demand * 1_000, ..Ask::default() };
    let (greedy, modest) = (wants(812, 500), wants(20, 10));
    // Half of what is left at a time, until the pool eases off.
    let (mut seq, mut lent) = (0, 0);
    while lent < 812 {
        seq += 1;
        lent +=
            grant(pool.renew(millis(seq), A, seq, Ask { want: 812 - lent, held: lent, ..greedy })).permits;
    }
    let mut more = |pool: &mut Pool, at: u64| {
        seq += 1;
        let ask = Ask { want: 50, held: 0, spent_total: lent, ..greedy };
        let permits = grant(pool.renew(millis(at), A, seq, ask)).permits;
        lent += permits;
        permits
    };
    let mut spent = 0;
    for (seq, at) in (1..).zip((1_000..=9_000).step_by(250)) {
        spent += grant(pool.renew(millis(at), B, seq, Ask { spent_total: spent, ..modest })).permits;
        more(&mut pool, at);
    }
    assert!(spent > 0, "it was served meanwhile");
    let while_awaited: u64 = (9_250..=10_500).step_by(250).map(|at| more(&mut pool, at)).sum();
    let later: u64 = (10_750..=11_750).step_by(250).map(|at| more(&mut pool, at)).sum();
    assert_eq!(while_awaited, 0, "what the other one is owed is kept");
    assert!(later > 1, "{later} of what trickles in while no other asks");
}

/// The bug: a blocked node that goes on asking had its share of a limit, which no other node was lent.
#[test]
fn a_node_that_is_blocked_keeps_nothing_from_others() {
    let mut pool = pool(vec![sliding(1_000, 60 * SECOND)]);
    let refusal = Refusal { reason: RefusalReason::Blocked, retry_after: SECOND };
    let (mut spent, first) = (0, Share { priority: 1, ..Share::EVEN });
    for seq in 1..=30 {
        let at = 500 * (seq - 1);
        let ask = |spent_total, demand| Ask { demand_milli: 1_000 * demand, ..ask(spent_total, 0, demand) };
        let blocked = Holder { share: first, ..A };
        let refused = match seq {
            1 => pool.renew(millis(at), blocked, seq, ask(0, 0)),
            _ => pool.settle_only(millis(at), blocked, seq, ask(0, 300), refusal),
        };
        refused.expect("a good ask");
        spent += grant(pool.renew(millis(at + 250), B, seq, ask(spent, 100))).permits;
    }
    assert!(spent >= 950, "{spent} of 1,000");
}
