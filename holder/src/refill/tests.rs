//! One node's side of one pool, one step after another, worked out by hand.

use super::*;
use crate::hand::{Bucket, Hand};
use lessor_protocol::moment::millis;
use lessor_protocol::{Rate, RateClaim, RateLease};

mod aside;
mod due;
mod in_flight;
mod reserved;
mod stopped;
mod unrecognised;

type Refill = super::Refill<Bucket>;

const RTT: Duration = Duration::from_millis(10);
const TERM: Duration = Duration::from_secs(1);

fn grant(kept: u64, permits: u64) -> Grant {
    Grant {
        kept,
        permits,
        term: TERM,
        horizon: TERM,
        ceiling: 1_000,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: lessor_protocol::Rate::Free,
        in_flight: None,
    }
}

fn exact() -> ClockBounds {
    ClockBounds::try_new(0).expect("no drift")
}

/// Creates a refill that holds `permits` since 0 ms.
fn holding(permits: u64) -> (Hand, Refill) {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    let seen = Seen { refused: 0, waiting: permits, ..Seen::default() };
    assert_eq!(refill.write(&slot, seen, millis(0), RTT).want, permits);
    let belief = refill.believe(&slot, &grant(0, permits), exact(), millis(0), millis(1), 0);
    assert_eq!(belief, Belief::Installed);
    (slot, refill)
}

/// A process may have a million keys: state that few of them need must take no memory in the others.
#[test]
fn a_pool_of_ordinary_calls_takes_no_room_for_the_rest() {
    let is_small =
        |refill: &Refill| refill.calls.is_usual() && refill.reserved.is_usual() && refill.pace().is_none();
    let (slot, mut refill) = holding(10);
    spend(&slot, 7, millis(2));
    slot.refuse(3);
    let seen = Seen { refused: 3, waiting: 3, largest: 3, shadow_refused: 0 };
    let want = refill.write(&slot, seen, millis(500), RTT).want;
    refill.on_event(millis(501), true, 0);
    refill.doubt(millis(501));
    refill.believe(&slot, &grant(3, want), exact(), millis(500), millis(510), 0);
    refill.stop(&slot);
    refill.write(&slot, seen, millis(520), RTT);
    refill.on_unrecognised(&slot, millis(530));
    refill.begin_session(&slot, millis(540), 0);
    assert!(is_small(&refill));
    refill.close(&slot);
    assert!(is_small(&refill));

    let (slot, mut refill) = holding(10);
    refill.reserve(&slot, 1, millis(2)).expect("it is there");
    assert!(!refill.reserved.is_usual());
}

/// Returns the bucket of a limit that was once lent a rate.
fn pace(refill: &Refill) -> &Bucket {
    refill.pace().expect("a rate was lent")
}

fn spend(slot: &Hand, permits: u64, now: Moment) {
    slot.take(permits, now).expect("it is there");
}

#[test]
fn an_eager_limit_asks_at_once_and_a_quiet_key_when_it_is_called() {
    let slot = Hand::new();
    let mut eager = Refill::new(millis(5), true);
    assert_eq!(eager.due(&slot, Seen::default(), millis(5), RTT), millis(5));
    assert_eq!(eager.write(&slot, Seen::default(), millis(5), RTT).want, FIRST_WANT);
    let quiet = Refill::new(millis(5), false);
    assert_eq!(quiet.due(&slot, Seen::default(), millis(5), RTT), Moment::NEVER);
    let refused = Seen { refused: 1, waiting: 0, ..Seen::default() };
    assert_eq!(quiet.due(&slot, refused, millis(5), RTT), millis(5));
}

#[test]
fn totals_say_what_was_spent_and_what_is_held() {
    let (slot, mut refill) = holding(100);
    spend(&slot, 30, millis(10));
    let ask = refill.write(&slot, Seen { refused: 5, waiting: 20, ..Seen::default() }, millis(100), RTT);
    // 35 tries in 100 ms and a queue of 20: the target is 58, and the rest is returned.
    assert_eq!((ask.spent_total, ask.held, ask.want), (30, 58, 0));
    assert!(ask.demand_milli > 0);
    // Permits spent while the ask is on its way come off the permits that the answer keeps.
    spend(&slot, 10, millis(105));
    refill.believe(&slot, &grant(58, 0), exact(), millis(100), millis(110), 0);
    assert_eq!(slot.balance().free, 48);
    assert_eq!(refill.spent(&slot), 40);
    assert_eq!(slot.deadline(), millis(1_100));
}

#[test]
fn what_is_not_kept_is_dropped() {
    let (slot, mut refill) = holding(100);
    spend(&slot, 1, millis(500));
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 150, ..Seen::default() }, millis(900), RTT);
    assert_eq!(ask.held, 99);
    refill.believe(&slot, &grant(0, 20), exact(), millis(900), millis(1_500), 0);
    assert_eq!(slot.balance().free, 20);
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 20, ..Seen::default() }, millis(1_500), RTT);
    assert_eq!((ask.spent_total, ask.held), (1, 20));
}

#[test]
fn an_answer_that_cannot_be_is_not_installed() {
    let (slot, mut refill) = holding(10);
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 12, ..Seen::default() }, millis(10), RTT);
    assert_eq!((ask.held, ask.want), (10, 2));
    let endless = Grant { term: 3 * TERM, ..grant(10, 2) };
    let silence = Grant { ask_after: 3 * TERM, ..grant(10, 2) };
    for rubbish in [grant(11, 0), grant(10, 3), endless, silence] {
        let belief = refill.believe(&slot, &rubbish, exact(), millis(10), millis(20), 0);
        assert_eq!(belief, Belief::Invalid);
    }
    assert_eq!(slot.balance().free, 10);
}

#[test]
fn it_asks_again_a_few_round_trips_before_it_runs_dry() {
    let (slot, mut refill) = holding(1_000);
    // 400/s for six seconds, renewed on the way: the rate is known.
    let mut now = 0;
    for _ in 0..60 {
        now += 100;
        spend(&slot, 40, millis(now));
        let ask = refill.write(&slot, Seen::default(), millis(now), RTT);
        refill.believe(&slot, &grant(ask.held, ask.want), exact(), millis(now), millis(now), 0);
    }
    let free = slot.balance().free;
    assert!((440..=460).contains(&free), "a term's worth and three deviations: {free}");
    // Low water is 3 round trips and 10 ms: 40 ms, 16 permits. But a quarter of the term is kept for renewing.
    let low_water = refill.low_water(RTT);
    assert!((26..=29).contains(&low_water), "with three deviations: {low_water}");
    assert_eq!(refill.nudge_below(RTT), low_water / 2);
    let due = refill.due(&slot, Seen::default(), millis(now), RTT);
    assert_eq!(due, millis(now + 750));
    spend(&slot, free - low_water - 4, millis(now));
    let due = refill.due(&slot, Seen::default(), millis(now), RTT);
    assert!((millis(now + 5)..=millis(now + 15)).contains(&due), "{due:?}");
}

/// The bug: a lease of four round trips ended before its renewal came, and each time callers waited for a while.
#[test]
fn a_short_lease_is_renewed_before_it_ends() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    let term = 4 * RTT;
    let short = |kept, permits| Grant { term, horizon: term, ..grant(kept, permits) };
    refill.write(&slot, Seen { waiting: 10, ..Seen::default() }, millis(0), RTT);
    refill.believe(&slot, &short(0, 10), exact(), millis(0), millis(10), 0);
    // An exchange and the guard before the end at 40 ms.
    assert_eq!(refill.due(&slot, Seen::default(), millis(10), RTT), millis(20));
    // Nothing can be saved of a lease that is over before an answer can come: no more than an ask each round trip.
    refill.write(&slot, Seen::default(), millis(20), RTT);
    let over = Grant { term: RTT, ..short(10, 0) };
    refill.believe(&slot, &over, exact(), millis(20), millis(30), 0);
    assert_eq!(refill.due(&slot, Seen::default(), millis(30), RTT), millis(40));
}

#[test]
fn it_does_not_ask_sooner_than_it_was_told() {
    let (slot, mut refill) = holding(10);
    let waiting = Seen { refused: 0, waiting: 50, ..Seen::default() };
    refill.write(&slot, waiting, millis(10), RTT);
    let later = Grant { ask_after: Duration::from_millis(100), ..grant(10, 5) };
    refill.believe(&slot, &later, exact(), millis(10), millis(20), 7);
    assert_eq!(refill.due(&slot, waiting, millis(30), RTT), millis(127));
}

#[test]
fn a_term_without_a_call_gives_everything_back() {
    let (slot, mut refill) = holding(100);
    spend(&slot, 40, millis(10));
    let mut now = millis(10);
    let mut renewals = 0;
    while !refill.is_idle() {
        let due = refill.due(&slot, Seen::default(), now, RTT);
        assert!(due < now + TERM, "before the lease ends: {due:?} after {now:?}");
        now = due;
        let ask = refill.write(&slot, Seen::default(), now, RTT);
        assert_eq!(ask.spent_total, 40);
        refill.believe(&slot, &grant(ask.held, ask.want), exact(), now, now, 0);
        renewals += 1;
    }
    assert!(renewals <= 4 && now < millis(10) + 3 * TERM, "{renewals} renewals until {now:?}");
    assert_eq!(slot.balance().total(), 0);
    assert_eq!(refill.due(&slot, Seen::default(), now, RTT), Moment::NEVER);
}

#[test]
fn an_ended_lease_is_given_back_and_never_spent() {
    let (slot, mut refill) = holding(100);
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 50, ..Seen::default() }, millis(1_000), RTT);
    assert_eq!((ask.spent_total, ask.held, ask.want), (0, 0, 50));
}

#[test]
fn a_line_that_does_not_move_steps_back_so_that_others_can_finish() {
    // Five are in hand, the first in line wants nine, and no other node gives anything back.
    let (slot, mut refill) = holding(5);
    let waiting = Seen { refused: 0, waiting: 9, ..Seen::default() };
    let mut now = millis(500);
    let mut backed_off = 0;
    for _ in 0..22 {
        let ask = refill.write(&slot, waiting, now, RTT);
        if ask.want == 0 {
            assert_eq!((ask.held, slot.balance().total()), (0, 0), "all permits go back");
            backed_off += 1;
        }
        let permits = ask.want.min(5 - ask.held);
        refill.believe(&slot, &grant(ask.held, permits), exact(), now, now, 0);
        now = now + TERM / 2;
    }
    assert_eq!(backed_off, 3, "once in three terms, eleven terms long");
}

#[test]
fn a_line_whose_permits_still_grow_keeps_them() {
    let (slot, mut refill) = holding(5);
    for (held, now) in (5..45).zip((1..).map(|half| millis(500 * half))) {
        assert_eq!(refill.write(&slot, Seen { waiting: 100, ..Seen::default() }, now, RTT).held, held);
        refill.believe(&slot, &grant(held, 1), exact(), now, now, 0);
    }
}

#[test]
fn one_permit_is_kept_for_the_next_call() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    // The demand of one call in ten seconds needs nothing for a term of 20 ms.
    let short = |kept, permits| Grant { horizon: Duration::from_millis(20), ..grant(kept, permits) };
    refill.write(&slot, Seen::default(), millis(1), RTT);
    refill.believe(&slot, &short(0, 0), exact(), millis(1), millis(2), 0);
    let refused = Seen { refused: 1, waiting: 0, ..Seen::default() };
    assert_eq!(refill.due(&slot, refused, millis(10_000), RTT), millis(10_000));
    assert_eq!(refill.write(&slot, refused, millis(10_000), RTT).want, 1);
    refill.believe(&slot, &short(0, 1), exact(), millis(10_000), millis(10_001), 0);
    assert_eq!(refill.write(&slot, refused, millis(10_900), RTT).held, 1, "kept, and no more is wanted");
    refill.believe(&slot, &short(1, 0), exact(), millis(10_900), millis(10_901), 0);
    assert_eq!(refill.write(&slot, refused, millis(11_100), RTT).held, 0, "but not for long");
}

/// Permits reported and believed before the allocator forgot the session are not reported again, and the others are.
#[test]
fn what_was_let_pass_is_told_in_totals_and_never_twice() {
    let (slot, mut refill) = holding(10);
    let seen = |shadow_refused| Seen { refused: shadow_refused, waiting: 0, shadow_refused, largest: 0 };
    assert_eq!(refill.write(&slot, seen(4), millis(100), RTT).shadow_refused, 4);
    refill.believe(&slot, &grant(0, 0), exact(), millis(100), millis(110), 0);
    assert_eq!(refill.write(&slot, seen(6), millis(200), RTT).shadow_refused, 6);
    refill.forget(&slot);
    assert_eq!(refill.write(&slot, seen(7), millis(300), RTT).shadow_refused, 3);
}

/// A pool whose callers wait asks at once after an event, but at most ten times a second.
#[test]
fn what_is_heard_is_acted_on_at_once_and_never_in_a_storm() {
    let (slot, rtt) = (Hand::new(), Duration::from_millis(1));
    let waits = Seen { waiting: 5, ..Seen::default() };
    let at = |millis: u64| Moment::from_nanos((1_000 + millis) * 1_000_000);
    let mut refill = Refill::new(at(0), false);
    refill.write(&slot, waits, at(0), rtt);
    refill.refused(at(0), Duration::from_secs(60), 0);
    assert!(refill.due(&slot, waits, at(1), rtt) > at(50_000), "told to wait");
    let mut asked = 0;
    for millis in 1..=2_000 {
        refill.on_event(at(millis), true, 0);
        if refill.due(&slot, waits, at(millis), rtt) <= at(millis) {
            asked += 1;
            assert_eq!(asked == 1, millis == 1, "at once");
            refill.write(&slot, waits, at(millis), rtt);
            refill.refused(at(millis), Duration::from_secs(60), 0);
        }
    }
    assert!((20..=24).contains(&asked), "{asked} asks in two seconds");
}

const INTERVAL: Duration = Duration::from_millis(10);

/// Grants `permits` and a rate of one each 10 ms, with the number 7 and a bucket of one.
fn paced(permits: u64, credit: Duration, turn: bool) -> Grant {
    let lease = RateLease { number: 7, cap: 1, interval: INTERVAL };
    Grant { rate: Rate::Lent { lease, credit, turn }, ..grant(0, permits) }
}

fn believe(refill: &mut Refill, slot: &Hand, grant: &Grant, now: Moment) {
    refill.write(slot, Seen { waiting: 50, ..Seen::default() }, now, RTT);
    let held = slot.balance().total();
    let belief = refill.believe(slot, &Grant { kept: held, ..*grant }, exact(), now, now, 0);
    assert_eq!(belief, Belief::Installed);
}

#[test]
fn a_new_rate_mints_from_when_it_came_and_a_renewal_brings_no_burst() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    believe(&mut refill, &slot, &paced(20, Duration::ZERO, false), millis(100));
    assert!(refill.is_paced());
    assert!(pace(&refill).take(1, millis(109)).is_err(), "the bucket of a new lease is empty");
    assert!(pace(&refill).take(1, millis(110)).is_ok());
    believe(&mut refill, &slot, &paced(0, Duration::ZERO, false), millis(112));
    assert!(pace(&refill).take(1, millis(119)).is_err());
    assert!(pace(&refill).take(1, millis(120)).is_ok());
}

#[test]
fn a_turn_is_handed_over_with_what_the_bucket_holds() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    let short = Grant { horizon: Duration::from_millis(100), ..paced(20, INTERVAL, true) };
    believe(&mut refill, &slot, &short, millis(0));
    let waiting = Seen { waiting: 50, ..Seen::default() };
    assert_eq!(refill.due(&slot, waiting, millis(1), RTT), millis(100), "not before the turn is over");
    assert!(pace(&refill).take(1, millis(94)).is_ok());
    let ask = refill.write(&slot, waiting, millis(100), RTT);
    // One was taken 6 ms ago.
    let let_go = RateClaim::LetGo { number: 7, credit: Duration::from_millis(6) };
    assert_eq!((ask.rate, ask.held), (let_go, 0));
    assert!(pace(&refill).take(1, millis(900)).is_err(), "the bucket mints no more");
    // The answer was lost: the next ask says the same.
    assert_eq!(refill.write(&slot, waiting, millis(200), RTT).rate, let_go);
}

#[test]
fn a_rate_that_no_caller_wants_is_let_go() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    believe(&mut refill, &slot, &paced(0, Duration::ZERO, false), millis(0));
    let ask = refill.write(&slot, Seen::default(), millis(1_500), RTT);
    assert_eq!(ask.rate, RateClaim::LetGo { number: 7, credit: INTERVAL });
}

#[test]
fn a_rate_that_cannot_be_is_not_believed() {
    for (cap, interval, credit) in
        [(0, INTERVAL, Duration::ZERO), (1, Duration::ZERO, Duration::ZERO), (1, INTERVAL, 2 * INTERVAL)]
    {
        let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
        refill.write(&slot, Seen { waiting: 5, ..Seen::default() }, millis(0), RTT);
        let rate = Rate::Lent { lease: RateLease { number: 7, cap, interval }, credit, turn: false };
        let grant = Grant { rate, ..grant(0, 5) };
        assert_eq!(refill.believe(&slot, &grant, exact(), millis(0), millis(1), 0), Belief::Invalid);
    }
}

#[test]
fn who_doubts_what_it_was_told_asks_ten_times_a_second_at_most_and_wants_nothing() {
    let slot = Hand::new();
    let mut refill = Refill::new(millis(0), false);
    refill.doubt(millis(0));
    assert_eq!(refill.due(&slot, Seen::default(), millis(0), RTT), Moment::NEVER, "nothing was told");
    refill.write(&slot, Seen { refused: 1, ..Seen::default() }, millis(0), RTT);
    refill.believe(&slot, &grant(0, 0), exact(), millis(0), millis(10), 0);
    let seen = Seen { refused: 1, ..Seen::default() };
    // The one call is old by now, and its node silent.
    let mut now = millis(10);
    while refill.due(&slot, seen, now, RTT) != Moment::NEVER {
        now = now.max(refill.due(&slot, seen, now, RTT));
        refill.write(&slot, seen, now, RTT);
        refill.believe(&slot, &grant(0, 0), exact(), now, now + RTT, 0);
    }
    let (from, mut asks) = (now, 0);
    for at in 0..1_000 {
        let now = from + Duration::from_millis(at);
        refill.doubt(now);
        if refill.due(&slot, seen, now, RTT) <= now {
            assert_eq!(refill.write(&slot, seen, now, RTT).want, 0, "{at} ms");
            refill.believe(&slot, &grant(0, 0), exact(), now, now, 0);
            asks += 1;
        }
    }
    assert!((10..=13).contains(&asks), "{asks} asks in a second");
}

/// The bug: a caller works off a batch now and then, and tries no more until the next one. The permits it wanted when the
/// allocator restarted were not asked for before the next batch.
#[test]
fn what_was_asked_for_in_vain_is_asked_for_again_though_no_caller_tries_once_more() {
    let (slot, mut refill) = holding(10);
    spend(&slot, 10, millis(10));
    let tried = Seen { refused: 5, ..Seen::default() };
    assert_eq!(refill.due(&slot, tried, millis(20), RTT), millis(20));
    assert!(refill.write(&slot, tried, millis(20), RTT).want > 0);
    assert!(
        refill.due(&slot, tried, millis(60), RTT) > millis(200),
        "not due while an answer may be on its way"
    );
    refill.unanswered();
    assert_eq!(refill.due(&slot, tried, millis(60), RTT), millis(60));
    let ask = refill.write(&slot, tried, millis(60), RTT);
    assert!(ask.want > 0 && ask.demand_milli < 20_000_000, "a refused try counts once: {ask:?}");

    // A key that was tried once and had nothing waits until it is tried again.
    let mut quiet = Refill::new(millis(0), false);
    assert!(quiet.write(&slot, tried, millis(30), RTT).want > 0);
    quiet.unanswered();
    assert_eq!(quiet.due(&slot, tried, millis(60), RTT), Moment::NEVER);
}

#[test]
fn what_may_have_been_granted_unheard_is_not_forgotten() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    assert!(refill.is_forgettable(&slot, millis(0)), "no allocator was asked");
    let refused = Seen { refused: 1, ..Seen::default() };
    assert!(refill.write(&slot, refused, millis(1), RTT).want > 0);
    refill.unanswered();
    assert!(refill.is_idle() && !refill.is_forgettable(&slot, millis(2)));
    assert!(
        !refill.is_forgettable(&slot, millis(3_001)),
        "the ask may have come late, and its lease lasts two seconds"
    );
    assert!(refill.is_forgettable(&slot, millis(6_001)));
    // An answer leaves nothing unheard.
    refill.write(&slot, refused, millis(7_000), RTT);
    refill.believe(&slot, &grant(0, 0), exact(), millis(7_000), millis(7_001), 0);
    while !refill.is_idle() {
        let now = refill.due(&slot, refused, millis(7_002), RTT);
        refill.write(&slot, refused, now, RTT);
        refill.believe(&slot, &grant(0, 0), exact(), now, now, 0);
    }
    assert!(refill.is_forgettable(&slot, millis(7_002)));
}
