//! Tests of what a pool with a steady flow answers to sessions that take turns.

use super::*;
use crate::CarryOver;
use crate::share::Owner;
use lessor_protocol::{Rate, RateClaim, RateLease};

/// Twenty sessions want all of a flow of one permit each 10 ms, which the first held alone until now. Returns how long
/// the first may go on.
fn turn_of_twenty(waiting: u64) -> Duration {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![flow(1, 1, ten)]);
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

/// A session whose callers only try asked after a call. A shorter turn would be over when its next call comes, every
/// time if its calls are regular.
#[test]
fn a_turn_of_a_session_that_only_tries_lasts_until_its_next_calls() {
    assert_eq!(turn_of_twenty(0), Duration::from_millis(200));
}

/// While more is out than a lowered limit allows, no lease is dated: a rate that was told would be charged for ever.
#[test]
fn no_rate_is_told_while_a_lowered_limit_is_exceeded() {
    let flow = flow(20, 1, Duration::from_millis(10));
    let window = |limit| sliding(limit, SECOND);
    let mut pool = pool(vec![window(100), flow]);
    let wants = Ask { want: 10, demand_milli: 10_000, largest: 1, waiting: 10, ..Ask::default() };
    let first = grant(pool.renew(millis(0), A, 1, wants));
    assert!(first.permits > 3, "{first:?}");
    let plan = Plan { rules: vec![window(3), flow], ..(*pool.plan).clone() };
    pool.change(Arc::new(plan), CarryOver::AsIs, millis(1));
    let other = Holder { id: SessionId(2), ..A };
    let none = grant(pool.renew(millis(2), other, 1, wants));
    assert_eq!((none.permits, none.rate, none.term), (0, Rate::Nothing, Duration::ZERO));
    // Both sessions are silent from now on, and the whole flow comes back.
    pool.advance(millis(20_000));
    assert!(pool.flow.as_ref().expect("there is one").is_fresh(), "{:?}", pool.flow);
}

/// A session that wants all of a flow, and asks when it is told to.
struct Taker {
    holder: Holder,
    seq: u64,
    asks: u64,
    has: Option<RateLease>,
    /// How long its turns were in all, in milliseconds, and their number.
    had: (u64, u64),
}

impl Taker {
    fn new(owner: u64, id: u64) -> Self {
        let share = Share { owner: Owner(owner), ..Share::EVEN };
        let holder = Holder { id: SessionId(id), share, rtt: Duration::ZERO };
        Taker { holder, seq: 0, asks: 0, has: None, had: (0, 0) }
    }

    fn step(&mut self, pool: &mut Pool, now: u64) {
        if now < self.asks {
            return;
        }
        self.seq += 1;
        let rate = match self.has.take() {
            Some(RateLease { number, .. }) => RateClaim::LetGo { number, credit: Duration::ZERO },
            None => RateClaim::None,
        };
        let wants = Ask { want: 5, demand_milli: 100_000, largest: 1, waiting: 1, rate, ..Ask::default() };
        let told = grant(pool.renew(millis(now), self.holder, self.seq, wants));
        let wait = |span: Duration| u64::try_from(span.as_millis()).expect("short").max(1);
        self.asks = now + wait(told.ask_after);
        if let Rate::Lent { lease, .. } = told.rate {
            let lasts = wait(told.horizon);
            (self.has, self.asks) = (Some(lease), now + lasts);
            self.had = (self.had.0 + lasts, self.had.1 + 1);
        }
    }
}

/// Returns how long each identity had a flow of one permit each 10 ms, in milliseconds of 15 s. `counts` has the number
/// of sessions of each.
fn turns_of(counts: &[u64]) -> Vec<u64> {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![flow(1, 1, ten)]);
    let mut takers = vec![];
    for (owner, count) in (1..).zip(counts) {
        takers.extend((0..*count).map(|id| Taker::new(owner, owner * 1_000 + id)));
    }
    for now in 0..15_000 {
        takers.iter_mut().for_each(|taker| taker.step(&mut pool, now));
    }
    assert!(takers.iter().all(|taker| taker.had.1 > 0), "each has had a turn");
    let of = |owner| takers.iter().filter(move |taker| taker.holder.share.owner == Owner(owner));
    (1..=counts.len() as u64).map(|owner| of(owner).map(|taker| taker.had.0).sum()).collect()
}

/// The bug: turns went from session to session, so an identity with twenty sessions had ten times what one with two had.
#[test]
fn identities_have_turns_of_a_flow_for_as_long_as_each_other() {
    for counts in [&[2, 20][..], &[1, 3, 12], &[5, 5, 5, 5]] {
        let turns = turns_of(counts);
        println!("{counts:?}: {turns:?} ms");
        let (least, most) = (turns.iter().min().expect("some"), turns.iter().max().expect("some"));
        assert!(*least * 10 >= *most * 8, "{counts:?}: {turns:?} ms");
        assert!(turns.iter().sum::<u64>() >= 12_000, "{counts:?}: {turns:?} ms of 15,000");
    }
}

/// Where the burst covers the largest calls of all sessions together, all have a part at once.
#[test]
fn identities_share_the_rate_of_a_flow_and_their_sessions_the_part_of_each() {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![flow(100, 1, ten)]);
    let wants = Ask { want: 5, demand_milli: 1_000_000, largest: 1, waiting: 1, ..Ask::default() };
    let mut intervals = vec![];
    for round in 0..40 {
        intervals = (0..11)
            .map(|id| {
                let holder = Taker::new(if id == 0 { 1 } else { 2 }, id).holder;
                let told = grant(pool.renew(millis(round * 100 + id), holder, round + 1, wants));
                let Rate::Lent { lease, turn: false, .. } = told.rate else { return Duration::MAX };
                lease.interval
            })
            .collect();
    }
    let (one, ten) = (intervals[0], &intervals[1..]);
    println!("a permit each {one:?} for the one, each {ten:?} for the ten of the other");
    assert!(one <= Duration::from_millis(22), "half of the flow is one in 20 ms: {one:?}");
    assert!(ten.iter().all(|each| (180..=260).contains(&each.as_millis())), "{ten:?}");
}

/// Returns how long two sessions that hand over have the flow, in milliseconds of 20 s, beside `hoarders` sessions of
/// another identity that ask all the time and hand over nothing.
fn beside_hoarders(hoarders: u64) -> u64 {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![flow(1, 1, ten)]);
    let mut takers = [Taker::new(2, 1), Taker::new(2, 2)];
    let mut greedy: Vec<_> = (0..hoarders).map(|id| (Taker::new(1, 10 + id), RateClaim::None, 0)).collect();
    for now in 0..20_000 {
        for (hoarder, rate, held) in &mut greedy {
            if now % 10 != hoarder.holder.id.0 % 10 {
                continue;
            }
            hoarder.seq += 1;
            let wants = Ask { want: 5, demand_milli: 100_000, largest: 1, waiting: 1, ..Ask::default() };
            let ask = Ask { rate: *rate, held: *held, ..wants };
            let told = grant(pool.renew(millis(now), hoarder.holder, hoarder.seq, ask));
            if let Rate::Lent { lease, .. } = told.rate {
                *rate = RateClaim::Holds(lease);
            }
            *held = told.kept + told.permits;
        }
        takers.iter_mut().for_each(|taker| taker.step(&mut pool, now));
    }
    takers.iter().map(|taker| taker.had.0).sum()
}

/// The bug: a turn went on for as long as its session asked, and others never had one.
#[test]
fn a_turn_that_is_not_handed_over_ends_by_itself() {
    for hoarders in [1, 8] {
        let had = beside_hoarders(hoarders);
        println!("beside {hoarders}: {had} ms of 20,000");
        assert!(had >= 6_000, "beside {hoarders}: {had} ms of 20,000");
    }
}

/// The bug: the reserve was lent to the session that came next.
#[test]
fn the_reserve_of_a_flow_stays_when_it_is_handed_over() {
    let sharing = Sharing { reserve: 5, ..Sharing::default() };
    let plan = Plan { sharing, ..(*plan(vec![flow(10, 1, SECOND)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let wants = Ask { want: 5, waiting: 5, demand_milli: 10_000, largest: 1, ..Ask::default() };
    let first = grant(pool.renew(millis(0), A, 1, wants));
    let Rate::Lent { lease, credit, .. } = first.rate else { panic!("no other is there: {first:?}") };
    assert_eq!((lease.cap, credit), (5, 5 * lease.interval));
    let rate = RateClaim::LetGo { number: lease.number, credit: Duration::ZERO };
    let spent = Ask { spent_total: 5, want: 0, waiting: 0, demand_milli: 0, rate, ..wants };
    grant(pool.renew(millis(1), A, 2, spent));
    let second = grant(pool.renew(millis(1), B, 1, wants));
    let Rate::Lent { credit, .. } = second.rate else { panic!("it was let go: {second:?}") };
    assert_eq!(credit, Duration::ZERO);
}

/// Returns the interval at which a session of the identity `owner`, one caller of which waits, is lent a flow of one
/// permit each 10 ms within five seconds, beside `busy` sessions of the identity 1 that say they want it all.
fn beside_busy(busy: u64, owner: u64) -> Option<Duration> {
    let ten = Duration::from_millis(10);
    let mut pool = pool(vec![flow(20, 1, ten)]);
    let mut rates = vec![RateClaim::None; busy as usize];
    let (waits, mut asks) = (Taker::new(owner, 100).holder, 1_000);
    for now in 0..6_000 {
        for (id, rate) in (0..).zip(&mut rates).filter(|(id, _)| now % 100 == *id) {
            let ask =
                Ask { want: 3, waiting: 3, demand_milli: 100_000, largest: 1, rate: *rate, ..Ask::default() };
            let told = grant(pool.renew(millis(now), Taker::new(1, id).holder, now + 1, ask));
            if let Rate::Lent { lease, .. } = told.rate {
                *rate = RateClaim::Holds(lease);
            }
        }
        if now >= asks {
            let ask = Ask { want: 1, waiting: 1, largest: 1, ..Ask::default() };
            let told = grant(pool.renew(millis(now), waits, now + 1, ask));
            if let Rate::Lent { lease, .. } = told.rate {
                return Some(lease.interval);
            }
            asks = now + u64::try_from(told.ask_after.as_millis()).expect("short").max(1);
        }
    }
    None
}

/// The bug: callers in line were no demand for a flow, so a session with nothing else was never lent any of it.
#[test]
fn a_session_whose_callers_only_wait_has_its_part_of_a_flow_beside_busy_ones() {
    for busy in [1, 2, 5] {
        for owner in [1, 2] {
            let interval = beside_busy(busy, owner);
            println!("beside {busy}, of {owner}: {interval:?}");
            assert!(
                interval.is_some_and(|interval| interval <= SECOND / 2),
                "beside {busy}, of {owner}: {interval:?}"
            );
        }
    }
}

/// The bug: a session kept its even part of the burst, and the rest was too small for a large call of another session,
/// which waited for as long as the first went on.
#[test]
fn a_session_keeps_no_more_of_a_burst_than_leaves_room_for_large_calls_of_others() {
    let fifty = Duration::from_millis(50);
    let mut pool = pool(vec![flow(37, 1, fifty)]);
    let small = Ask { want: 2, demand_milli: 4_000, largest: 10, ..Ask::default() };
    let large = Ask { want: 24, waiting: 24, largest: 24, ..Ask::default() };
    let (mut spent, mut told) = (0, None);
    for seq in 1..=20 {
        let claim = told.map_or(RateClaim::None, RateClaim::Holds);
        let answer =
            grant(pool.renew(millis(seq * 100), A, seq, Ask { spent_total: spent, rate: claim, ..small }));
        spent += answer.permits + answer.kept;
        let Rate::Lent { lease, .. } = answer.rate else { panic!("it is told a rate: {answer:?}") };
        told = Some(lease);
        if seq > 2
            && let Rate::Lent { lease, .. } = grant(pool.renew(millis(seq * 100 + 1), B, seq, large)).rate
        {
            assert!(lease.cap >= 24, "{lease:?}");
            return;
        }
    }
    panic!("the large call waits for ever: {:?}", pool.flow);
}

/// The bug: each session with small calls took all the room that the largest calls of all left, so several of them kept
/// a large call of another session waiting for as long as they went on.
#[test]
fn sessions_with_small_calls_leave_room_for_a_large_one_of_another_all_together() {
    let fifty = Duration::from_millis(50);
    let mut pool = pool(vec![flow(10, 1, fifty)]);
    let mut small = [(A, RateClaim::None), (Holder { id: SessionId(3), ..A }, RateClaim::None)];
    let calls = Ask { want: 2, demand_milli: 4_000, largest: 1, ..Ask::default() };
    let large = Ask { want: 5, waiting: 5, largest: 5, ..Ask::default() };
    for seq in 1..=10 {
        let mut caps = vec![];
        for (holder, rate) in &mut small {
            let told = grant(pool.renew(millis(seq * 100), *holder, seq, Ask { rate: *rate, ..calls }));
            let Rate::Lent { lease, .. } = told.rate else { continue };
            *rate = RateClaim::Holds(lease);
            caps.push(lease.cap);
        }
        let told = grant(pool.renew(millis(seq * 100 + 1), B, seq, large));
        if let Rate::Lent { lease, turn: false, .. } = told.rate {
            assert_eq!((caps, lease.cap), (vec![2, 2], 6));
            return;
        }
    }
    panic!("the large call waits for ever: {:?}", pool.flow);
}

/// The bug: a session whose callers do not wait had less room by the reserve, twice.
#[test]
fn a_bucket_grows_into_all_room_beside_the_reserve() {
    let sharing = Sharing { reserve: 5, ..Sharing::default() };
    let plan = Plan { sharing, ..(*plan(vec![flow(10, 1, Duration::from_millis(10))])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let calls = Ask { want: 2, demand_milli: 4_000, largest: 1, ..Ask::default() };
    let mut rates = [RateClaim::None; 2];
    for seq in 1..=5 {
        for (holder, rate) in [A, B].into_iter().zip(&mut rates) {
            let told = grant(pool.renew(millis(seq * 100), holder, seq, Ask { rate: *rate, ..calls }));
            *rate = if let Rate::Lent { lease, .. } = told.rate { RateClaim::Holds(lease) } else { *rate };
        }
    }
    let [RateClaim::Holds(of_a), RateClaim::Holds(of_b)] = rates else { panic!("{rates:?}") };
    assert_eq!((of_a.cap, of_b.cap), (2, 2));
    let let_go = RateClaim::LetGo { number: of_b.number, credit: of_b.interval };
    grant(pool.renew(millis(500), B, 6, Ask { want: 0, demand_milli: 0, rate: let_go, ..calls }));
    assert_eq!(pool.flow.as_ref().expect("there is one").level(), 6);
    let told = grant(pool.renew(millis(500), A, 6, Ask { rate: rates[0], ..calls }));
    let Rate::Lent { lease, .. } = told.rate else { panic!("it goes on: {told:?}") };
    assert_eq!(lease.cap, 4);
}
