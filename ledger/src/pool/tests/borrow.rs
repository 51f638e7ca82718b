//! Tests of a pool that leases from another one: when it has something to say there, and what.

use super::*;
use lessor_protocol::{InFlight, Rate, Refusal, TERM_MAX};

mod refused;
mod unrecognised;

const RTT: Duration = Duration::from_millis(4);
const TERM: Duration = Duration::from_millis(100);

/// The grant of one permit, where the next one is two seconds away.
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

/// A pool that was lent one permit at 4 ms, for a session that waited.
fn lent_one() -> Pool {
    let mut pool = borrowing();
    let nothing = grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    assert_eq!(nothing.permits, 0);
    assert_eq!(pool.asks_above(millis(0), RTT), millis(0), "a session waits");
    assert!(pool.ask_above(millis(0), RTT).is_some_and(|ask| ask.want > 1 && ask.held == 0));
    assert_eq!(pool.on_grant_above(millis(4), millis(0), &last_one()), GrantOutcome::Believed);
    pool
}

/// The bug: the pool waited as long as it was told. Meanwhile the pool above took the permit for unspent, and its bucket did not
/// refill.
#[test]
fn what_was_all_spent_is_told_before_the_wait_is_over() {
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    assert!(pool.asks_above(millis(6), RTT) > millis(40), "what is lent on may come back yet");
    // It is spent, and A waits for another one.
    assert_eq!(grant(pool.renew(millis(7), A, 3, ask(1, 0, 1))).permits, 0);
    let due = pool.asks_above(millis(7), RTT);
    assert_eq!(due, millis(14), "an exchange and ten milliseconds after the last");
    assert_eq!(pool.ask_above(due, RTT).map(|ask| (ask.spent_total, ask.held)), Some((1, 0)));
    // Nothing is new: now the pool waits.
    let more = Grant { permits: 0, ..last_one() };
    assert_eq!(pool.on_grant_above(millis(18), due, &more), GrantOutcome::Believed);
    assert_eq!(pool.asks_above(millis(18), RTT), millis(118));
}

#[test]
fn a_session_that_waits_is_told_to_come_when_the_next_exchange_is_over() {
    let mut pool = lent_one();
    grant(pool.renew(millis(5), A, 2, ask(0, 0, 1)));
    let spent = grant(pool.renew(millis(7), A, 3, ask(1, 0, 1)));
    // Heard at 4 ms, two seconds from then, and an exchange of 4 ms.
    assert_eq!(spent.retry_after, Some(Duration::from_millis(2_001)));
}

/// The bug: the pool above did not hear of a call that takes nearly all there is, and eased off for it.
#[test]
fn what_a_large_call_lacks_is_told_the_one_above() {
    let mut pool = lent_one();
    let large = Ask { largest: 295, ..ask(0, 0, 295) };
    let one = grant(pool.renew(millis(5), A, 2, large));
    assert_eq!(one.permits, 0, "a part of it serves no call");
    let told = pool.ask_above(millis(5), RTT).expect("it lacks the others");
    assert_eq!((told.held, told.largest, told.waiting >= 294), (1, 295, true), "{told:?}");
    let again = pool.ask_above(millis(6), RTT).expect("it leases");
    assert_eq!(again.largest, 0, "no call has said so since then");
}

/// The bug: the pool said that nothing is left while it fetched permits from above, and callers took that for the last word.
#[test]
fn what_the_one_above_may_have_is_not_known_here() {
    let mut pool = lent_one();
    assert!(pool.knows_left(), "one is in hand");
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    assert!(pool.knows_left(), "the one above has said that the next one is two seconds away");
    grant(pool.renew(millis(2_100), A, 3, ask(1, 0, 1)));
    assert!(!pool.knows_left(), "by now it may have one");
    assert!(pool.ask_above(millis(2_100), RTT).is_some());
    pool.on_failure_above();
    assert!(pool.knows_left(), "nothing comes from there");
    let refusal = Refusal { reason: RefusalReason::Paused, retry_after: SECOND };
    assert!(pool.ask_above(millis(2_200), RTT).is_some());
    pool.on_refusal_above(millis(2_204), refusal);
    assert!(pool.knows_left());
    let new = waiting();
    assert!(!new.knows_left(), "it has not said anything yet");
}

/// The bug: a pool that was silent until the pool above had forgotten it made a pause before it asked from zero. Its nodes were told
/// that there is nothing until then.
#[test]
fn one_that_was_forgotten_asks_from_zero_at_once_and_then_after_a_pause() {
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    grant(pool.renew(millis(6), A, 3, ask(1, 0, 0)));
    // A minute later.
    let at = |millis_on: u64| millis(60_000 + millis_on);
    grant(pool.renew(at(0), A, 4, ask(1, 0, 1)));
    assert!(pool.ask_above(at(0), RTT).is_some_and(|ask| ask.spent_total == 1));
    pool.on_unrecognised_above(at(4));
    assert!(!pool.knows_left(), "it may have what is wanted");
    assert_eq!(pool.asks_above(at(4), RTT), at(4));
    assert!(pool.ask_above(at(4), RTT).is_some_and(|ask| ask.spent_total == 0 && ask.want > 0));
    pool.on_unrecognised_above(at(8));
    assert_eq!(pool.asks_above(at(8), RTT), at(58), "one that always says so is not asked all the time");
}

/// The bug: nodes held for a term what the pool above would have spread over windows, and an allocator that was killed burned it.
#[test]
fn those_below_hold_for_no_longer_than_the_one_above_says() {
    let mut pool = lent_one();
    let lent = |horizon| Grant { permits: 0, kept: 1, horizon, ask_after: Duration::ZERO, ..last_one() };
    let short = Duration::from_millis(20);
    for (at, seq, above, below) in
        [(20, 2, short, short), (40, 3, TERM, TERM / 2), (60, 4, Duration::ZERO, Duration::ZERO)]
    {
        assert!(pool.ask_above(millis(at), RTT).is_some());
        assert_eq!(pool.on_grant_above(millis(at + 4), millis(at), &lent(above)), GrantOutcome::Believed);
        let held = grant(pool.renew(millis(at + 5), A, seq, ask(0, u64::from(seq > 2), 1)));
        assert_eq!((held.term, held.horizon), (TERM / 2, below), "granted {above:?}");
    }
}

/// Returns the last ask of `pool`, if it is time for it.
fn leave(pool: &mut Pool, now: u64) -> Option<Ask> {
    pool.leaves_above(millis(now)).filter(|at| *at <= millis(now)).and_then(|_| pool.leave_above())
}

#[test]
fn one_that_stops_gives_back_what_is_not_lent_on_until_that_is_answered() {
    let mut pool = lent_one();
    let more = Grant { permits: 4, kept: 0, ..last_one() };
    assert!(pool.ask_above(millis(20), RTT).is_some_and(|ask| ask.held == 1 && ask.want < 4));
    // A grant of more than was wanted is not believed.
    assert_eq!(pool.on_grant_above(millis(24), millis(20), &more), GrantOutcome::Unfit);
    assert_eq!(grant(pool.renew(millis(25), A, 2, ask(0, 0, 1))).permits, 1);
    let left = leave(&mut pool, 26).expect("what it wanted may have been lent");
    assert_eq!((left.held, left.want), (1, 0), "that is lent on, until it ends");
    assert_eq!(grant(pool.renew(millis(27), A, 3, ask(0, 0, 0))).permits, 0);
    let left = leave(&mut pool, 28).expect("it came back");
    assert_eq!((left.spent_total, left.held, left.want), (0, 0, 0));
    pool.on_failure_above();
    assert_eq!(leave(&mut pool, 1_029), Some(left), "no answer came");
    let nothing = Grant { permits: 0, ..last_one() };
    assert_eq!(pool.on_grant_above(millis(1_030), millis(1_029), &nothing), GrantOutcome::Believed);
    assert_eq!(leave(&mut pool, 1_031), None);
}

/// The bugs: a last ask was taken for heard when the allocator above was stopping, or when others had changed the root. And an ask
/// that is repeated has to pause.
#[test]
fn what_was_not_looked_at_is_said_again_after_the_pause_that_was_told() {
    let mut pool = unspent();
    let refused = |reason, millis| Refusal { reason, retry_after: Duration::from_millis(millis) };
    let last = leave(&mut pool, 6).expect("a wait for more is no reason to wait");
    pool.on_refusal_above(millis(7), refused(RefusalReason::Stopping, 300));
    assert_eq!((leave(&mut pool, 306), leave(&mut pool, 307)), (None, Some(last)));
    pool.on_refusal_above(millis(308), refused(RefusalReason::Other, 20));
    assert_eq!(pool.leaves_above(millis(308)), Some(millis(358)));
    assert_eq!(leave(&mut pool, 358), Some(last));
    pool.on_refusal_above(millis(359), refused(RefusalReason::Paused, 300));
    assert_eq!((pool.leaves_above(millis(700)), pool.rests_above()), (None, true));
}

#[test]
fn one_that_is_not_answered_says_no_more_after_a_minute() {
    let mut pool = unspent();
    assert!(leave(&mut pool, 6).is_some() && leave(&mut pool, 60_005).is_some());
    assert_eq!((leave(&mut pool, 60_006), pool.rests_above()), (None, true));
    // A late answer is not believed.
    let more = Grant { permits: 0, ..last_one() };
    assert_eq!(pool.on_grant_above(millis(60_007), millis(60_005), &more), GrantOutcome::Unfit);
}

/// Spends are told again, too: a pool that has told all may be forgotten, and then it counts from zero in the same session.
#[test]
fn what_was_spent_is_told_again_where_the_root_could_not_be_asked() {
    let unheard = crate::roots::to_pool(None).expect("a refusal").answer;
    let Answer::Refusal(refusal) = unheard else { panic!("{unheard:?}") };
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    let goodbye = Goodbye { spent_total: 1, running: None, held: None, shadow_refused: 0 };
    assert_eq!(pool.leave(millis(7), A.id, 3, goodbye), Ok(0));
    let due = pool.asks_above(millis(7), RTT);
    let told = pool.ask_above(due, RTT);
    assert_eq!(told.map(|ask| (ask.spent_total, ask.held, ask.want)), Some((1, 0, 0)));
    pool.on_refusal_above(due, refusal);
    assert!(!pool.rests_above());
    assert_eq!(pool.asks_above(due, RTT), due + TERM);
    assert_eq!(pool.ask_above(due + TERM, RTT), told);
    pool.on_rejection_above(due + TERM, true);
    assert!(pool.rests_above(), "no limit is there, and it has heard of that");
}

/// The bug: a lease that ended with its window had a term of a millisecond. A report that the root did not hear was due again in the
/// same instant, and the allocator asked without end while it knew no time of the store.
#[test]
fn what_a_root_was_not_told_of_is_not_due_at_once_after_a_short_term() {
    let mut pool = lent_one();
    pool.ask_above(millis(15), RTT).expect("it leases");
    pool.on_grant_above(millis(19), millis(15), &Grant { term: Duration::from_millis(1), ..last_one() });
    let due = pool.asks_above(millis(21), RTT);
    pool.ask_above(due, RTT).expect("a permit has ended unspent");
    let refusal = Refusal { reason: RefusalReason::Other, retry_after: Duration::from_millis(20) };
    pool.on_refusal_above(due, refusal);
    assert_eq!(pool.asks_above(due, RTT), due + Duration::from_millis(50));
}

/// The bug: a node was told that there is nothing now, and to come back soon.
#[test]
fn while_the_one_above_is_in_quarantine_nodes_are_told_so() {
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
    pool.ask_above(millis(50), RTT).expect("it leases");
    let refusal = Refusal { reason: RefusalReason::Quarantine, retry_after: Duration::from_secs(60) };
    pool.on_refusal_above(millis(54), refusal);
    // A node that holds something goes on with that.
    assert_eq!(grant(pool.renew(millis(55), A, 3, ask(0, 1, 1))).kept, 1);
    let told = pool.renew(millis(56), A, 4, ask(1, 0, 1)).expect("it is known");
    let shut = |millis| Refusal { retry_after: Duration::from_millis(millis), ..refusal };
    assert_eq!(told, Answer::Refusal(shut(59_998)));
    assert_eq!(pool.renew(millis(56), A, 4, ask(1, 0, 1)).expect("it is known"), told, "again");
    // The pool goes on to ask, and hears if the quarantine is over sooner.
    let due = pool.asks_above(millis(56), RTT);
    assert!(due < millis(6_000), "{due:?}");
    assert!(pool.ask_above(due, RTT).is_some_and(|ask| ask.spent_total == 1 && ask.want > 0));
    assert_eq!(pool.on_grant_above(due + RTT, due, &last_one()), GrantOutcome::Believed);
    assert_eq!(grant(pool.renew(due + RTT, A, 5, ask(1, 0, 1))).permits, 1);
}

/// A pool whose last permit is unspent, and of which nothing is wanted any more.
fn unspent() -> Pool {
    let mut pool = lent_one();
    assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 0))).permits, 0);
    pool
}

/// The bug: a return was never told again once nothing was wanted any more. The pool above took the permit for spent.
#[test]
fn what_is_given_back_is_told_until_that_is_answered() {
    let mut pool = unspent();
    let due = pool.asks_above(millis(5), RTT);
    assert!(due < millis(104), "before it ends: {due:?}");
    let given_back = pool.ask_above(due, RTT).expect("it leases");
    assert_eq!((given_back.held, given_back.want), (0, 0));
    pool.on_failure_above();
    assert!(!pool.rests_above());
    let again = pool.asks_above(due, RTT);
    assert_eq!(again, due + TERM);
    assert_eq!(pool.ask_above(again, RTT), Some(given_back));
    let nothing = Grant { permits: 0, ..last_one() };
    assert_eq!(pool.on_grant_above(again, again, &nothing), GrantOutcome::Believed);
    assert_eq!((pool.asks_above(again, RTT), pool.rests_above()), (Moment::NEVER, true));
}

/// A lease that ended unspent is told, even late: by a pool that did not reach the pool above before, and by one that holds back.
#[test]
fn what_ended_unspent_is_told_though_nothing_is_wanted() {
    let mut late = unspent();
    assert_eq!(late.asks_above(millis(500), RTT), millis(100), "at once");
    assert_eq!(late.ask_above(millis(500), RTT).map(|ask| (ask.spent_total, ask.held)), Some((0, 0)));
    let mut careful = unspent();
    careful.hold_back_above(millis(6));
    assert_eq!(careful.asks_above(millis(6), RTT), millis(100));
}

/// A pool that has asked for what a session waits for.
fn waiting() -> Pool {
    let mut pool = borrowing();
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 5)));
    assert!(pool.ask_above(millis(0), RTT).is_some_and(|ask| ask.want > 0 && ask.waiting == 5));
    pool
}

/// A rule that cannot be lent on is asked for only while nodes want it.
#[test]
fn what_is_of_no_use_is_not_asked_for_again() {
    let flow = Grant { permits: 0, rate: Rate::Nothing, ..last_one() };
    // The bug: a pool was silent for as long as an answer said, which may be for ever.
    let silence = Grant { permits: 0, ask_after: TERM_MAX + RTT, ..last_one() };
    for useless in [flow, silence] {
        let mut pool = waiting();
        assert_eq!(pool.on_grant_above(millis(4), millis(0), &useless), GrantOutcome::Unfit);
        assert_eq!(pool.asks_above(millis(4), RTT), millis(5_004));
        grant(pool.renew(millis(5), A, 2, ask(0, 0, 0)));
        assert_eq!((pool.asks_above(millis(5), RTT), pool.rests_above()), (Moment::NEVER, true));
    }
}

/// An answer that was lost may have lent all that was wanted.
#[test]
fn what_may_have_been_lent_is_told_though_nothing_is_wanted_any_more() {
    let mut pool = waiting();
    pool.on_failure_above();
    grant(pool.renew(millis(1), A, 2, ask(0, 0, 0)));
    assert_eq!(pool.asks_above(millis(1), RTT), millis(0) + TERM);
    assert_eq!(pool.ask_above(millis(200), RTT).map(|ask| (ask.held, ask.want)), Some((0, 0)));
}

/// The grant of a cap on calls in flight above, which take a second at most.
fn capped(permits: u64, kept: u64, hold: Option<u64>) -> Grant {
    let in_flight = Some(InFlight { longest: SECOND, hold });
    Grant { kept, permits, ceiling: 9, ask_after: Duration::ZERO, retry_after: None, in_flight, ..last_one() }
}

/// A pool that was lent `permits` of a cap like [`capped`], and has lent all of them to A.
fn lent_of_a_cap(permits: u64, hold: Option<u64>) -> (Pool, Grant) {
    let mut pool = borrowing();
    assert_eq!(grant(pool.renew(millis(0), A, 1, ask(0, 0, permits))).in_flight, None, "it was not said");
    let said = pool.ask_above(millis(0), RTT).expect("it leases");
    assert_eq!((said.running, said.want >= permits), (None, true));
    assert_eq!(pool.on_grant_above(millis(4), millis(0), &capped(permits, 0, hold)), GrantOutcome::Believed);
    // The session that comes first is lent a part at first.
    let mut held = 0;
    loop {
        let lent = grant(pool.renew(millis(5), A, 2 + held, ask(0, held, permits - held)));
        assert!(lent.permits > 0, "{held} of {permits}");
        held += lent.permits;
        if held == permits {
            return (pool, lent);
        }
    }
}

#[test]
fn what_nodes_have_in_flight_is_what_a_pool_says_that_it_has() {
    let (mut pool, lent) = lent_of_a_cap(4, None);
    assert_eq!(lent.in_flight, Some(InFlight { longest: SECOND, hold: None }));
    let runs = |spent_total, held, running| Ask { running: Some(running), ..ask(spent_total, held, 0) };
    grant(pool.renew(millis(10), A, 14, runs(3, 1, 3)));
    let said = pool.ask_above(millis(20), RTT).expect("it leases");
    assert_eq!((said.spent_total, said.held, said.running), (3, 1, Some(3)));
    assert_eq!(pool.on_grant_above(millis(24), millis(20), &capped(0, 1, None)), GrantOutcome::Believed);
    // One call has ended: others may wait for it. Running calls are renewed like held permits.
    grant(pool.renew(millis(30), A, 15, runs(4, 0, 3)));
    assert!(pool.asks_above(millis(30), RTT) <= millis(70), "half of its term is over");
    let said = pool.ask_above(millis(70), RTT).expect("it leases");
    assert_eq!((said.spent_total, said.held, said.running), (4, 0, Some(3)));
    assert_eq!(pool.on_grant_above(millis(74), millis(70), &capped(0, 0, None)), GrantOutcome::Believed);
    assert!(!pool.rests_above(), "three are in flight");
    grant(pool.renew(millis(75), A, 16, runs(4, 0, 2)));
    assert_eq!(pool.asks_above(millis(76), RTT), millis(70) + TERM / 4, "one has ended");
    // A says nothing more: its calls in flight are over a second after its lease.
    assert_eq!(pool.view(millis(900)).in_flight, 2);
    let said = pool.ask_above(millis(900), RTT).expect("it leases");
    assert_eq!(said.running, Some(2));
    assert_eq!(pool.view(millis(1_400)).in_flight, 0);
    let said = pool.ask_above(millis(1_400), RTT).expect("it leases");
    assert_eq!((said.running, pool.rests_above()), (Some(0), false), "that is not answered yet");
    pool.on_failure_above();
    assert!(!pool.rests_above(), "others may wait for what has landed");
    assert_eq!(pool.asks_above(millis(1_410), RTT), millis(1_400) + TERM / 4);
    assert_eq!(pool.ask_above(millis(1_500), RTT).and_then(|said| said.running), Some(0));
    assert_eq!(
        pool.on_grant_above(millis(1_504), millis(1_500), &capped(0, 0, None)),
        GrantOutcome::Believed
    );
    assert!(pool.rests_above());
}

#[test]
fn where_permits_are_spent_again_no_more_is_held_than_the_one_above_says() {
    let (mut pool, lent) = lent_of_a_cap(6, Some(9));
    assert_eq!(lent.in_flight.and_then(|cap| cap.hold), Some(6));
    // Others want some of it now: four are this pool's share, and A's.
    pool.ask_above(millis(10), RTT).expect("it leases");
    assert_eq!(pool.on_grant_above(millis(14), millis(10), &capped(0, 6, Some(4))), GrantOutcome::Believed);
    let hold = grant(pool.renew(millis(15), A, 14, ask(0, 6, 0))).in_flight.and_then(|cap| cap.hold);
    assert_eq!(hold, Some(4));
    // A gives two back, and they are not kept for it.
    grant(pool.renew(millis(20), A, 15, ask(0, 4, 0)));
    let said = pool.ask_above(millis(21), RTT).expect("it leases");
    assert_eq!((said.held, said.want), (4, 0));
}

#[test]
fn what_was_in_flight_when_all_was_forgotten_above_is_not_said_again() {
    let (mut pool, _) = lent_of_a_cap(4, None);
    let runs = |spent_total, held, running| Ask { running: Some(running), ..ask(spent_total, held, 0) };
    grant(pool.renew(millis(10), A, 14, runs(4, 0, 4)));
    pool.ask_above(millis(20), RTT).expect("it leases");
    pool.on_unrecognised_above(millis(24));
    let said = pool.ask_above(millis(80), RTT).expect("it leases");
    assert_eq!(
        (said.spent_total, said.held, said.running),
        (0, 0, Some(0)),
        "an allocator that forgot it waits it out"
    );
    assert_eq!(
        pool.on_grant_above(millis(84), millis(80), &capped(said.want.min(3), 0, None)),
        GrantOutcome::Believed
    );
    let more = grant(pool.renew(millis(85), A, 15, Ask { running: Some(4), ..ask(4, 0, 2) })).permits;
    // Two more calls begin, and two end: which two is unknown. The calls that the pool above knows of are taken to go on.
    let now = grant(pool.renew(millis(90), A, 16, runs(4 + more, 0, 2 + more))).permits;
    assert_eq!(now, 0);
    let said = pool.ask_above(millis(91), RTT).expect("it leases");
    assert_eq!((said.spent_total, said.running), (more, Some(more)));
}

/// The first answer of a slow store tells a longer term: a session that was silent for three short terms still waits.
#[test]
fn a_session_shares_again_where_the_term_becomes_longer() {
    let mut pool = waiting();
    assert_eq!(pool.asks_above(millis(300), RTT), Moment::NEVER, "its only session is silent for long");
    let nothing =
        Grant { permits: 0, term: 2 * SECOND, horizon: SECOND, ask_after: Duration::ZERO, ..last_one() };
    assert_eq!(pool.on_grant_above(millis(400), millis(0), &nothing), GrantOutcome::Believed);
    assert!(pool.ask_above(millis(500), RTT).is_some_and(|ask| ask.waiting == 5));
}

/// A lease from above has to outlast an exchange with the session that is farthest away, while that session wants anything.
#[test]
fn it_is_as_far_away_as_the_session_that_is_farthest() {
    let mut pool = borrowing();
    assert_eq!(pool.distance_above(RTT), RTT);
    let at = |id, rtt| Holder { id: SessionId(id), share: Share::EVEN, rtt: Duration::from_millis(rtt) };
    let far = |pool: &mut Pool| (pool.distance_above(RTT) - RTT).as_millis();
    let asks = |pool: &mut Pool, now: u64, holder: Holder, want: u64| {
        pool.renew(millis(now), holder, now + 1, ask(0, 0, want)).expect("it is true");
        far(pool)
    };
    let said =
        [asks(&mut pool, 0, at(1, 20), 1), asks(&mut pool, 1, at(2, 70), 1), asks(&mut pool, 2, at(3, 5), 1)];
    assert_eq!(said, [40, 140, 140]);
    assert_eq!(asks(&mut pool, 3, at(2, 30), 1), 60, "it is nearer now");
    assert_eq!(asks(&mut pool, 4, at(2, 30), 0), 40, "it wants nothing any more");
    let active = pool.active().as_millis() as u64;
    asks(&mut pool, active + 1, at(3, 5), 1);
    assert_eq!(far(&mut pool), 10, "the first one has not asked for three terms");
}
