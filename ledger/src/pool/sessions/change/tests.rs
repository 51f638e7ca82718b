//! Tests of a change of term: sessions are read anew a few at a time, and compared with sessions that were read so at
//! once.

use super::super::{Entry, SaturatedTotals};
use super::*;
use crate::pool::SessionId;
use crate::pool::ledgers::Source;
use crate::pool::session::Session;
use crate::rule::{Flow, LeakyBucket, Speed};
use crate::share::{Owner, Share};
use lessor_protocol::Moment;
use proptest::prelude::*;
use std::time::Duration;

const TERM: Duration = Duration::from_millis(200);

/// A moment at which every audit is made: a multiple of the numbers by which audits are skipped.
fn at(tens_of_millis: u64) -> Moment {
    Moment::from_nanos((1_000 + tens_of_millis) * 10_000_000)
}

/// Number of places where sessions come and go: a change takes a few looks.
const PLACES: u64 = 160;

/// Every third place is a mirror of a session of a pool below.
fn place(who: u64) -> Place {
    let id = SessionId(who * 7 % PLACES);
    if who.is_multiple_of(3) { Place::below(2, id) } else { Place::own(id) }
}

fn windows(term: Duration) -> Ages {
    Ages { term, source: Source::Windows }
}

fn session(now: Moment) -> Session {
    let mut session = Session::new(Share::EVEN, now);
    (session.demand_milli, session.wanted) = (20_000, 40);
    session
}

/// Makes `count` sessions that asked at the moment `at(0)`.
fn many(count: u64) -> Sessions {
    let mut sessions = Sessions::new(windows(TERM));
    for who in 0..count {
        sessions.insert(Place::own(SessionId(who)), session(at(0)));
    }
    sessions
}

fn needs(sessions: &Sessions) -> u128 {
    sessions.claims().needs()
}

/// Returns what a session of [`many`] needs for `term`.
fn need(term: Duration) -> u128 {
    lessor_protocol::sizing::need(20_000, term).into()
}

#[test]
fn each_look_reads_a_few_by_the_other_term() {
    let mut sessions = many(100);
    let (few, longer) = (READ_AT_ONCE as u128, 2 * TERM);
    sessions.go_by(windows(longer));
    for read in [few, 2 * few, 3 * few, 100, 100] {
        sessions.audit(at(0));
        assert_eq!(needs(&sessions), read * need(longer) + (100 - read) * need(TERM));
        sessions.age(at(0));
    }
    assert!(sessions.are_read());
}

#[test]
fn a_change_waits_for_the_end_of_the_one_before() {
    let mut sessions = many(100);
    let few = READ_AT_ONCE as u128;
    sessions.go_by(windows(2 * TERM));
    sessions.go_by(windows(4 * TERM));
    assert_eq!(needs(&sessions), 2 * few * need(2 * TERM) + (100 - 2 * few) * need(TERM));
    assert_eq!(sessions.ages().term, 4 * TERM);
    // The term goes back, and on again, meanwhile.
    sessions.go_by(windows(2 * TERM));
    sessions.go_by(windows(4 * TERM));
    let looks = (0..9).map_while(|_| (!sessions.are_read()).then(|| sessions.age(at(0)))).count();
    assert_eq!(needs(&sessions), 100 * need(4 * TERM));
    assert!(looks <= 3, "{looks}");
}

/// With a part of the claims to them, the first session would keep what others want.
#[test]
fn where_permits_are_spent_again_all_claims_to_them_are_there_at_once() {
    let mut sessions = many(100);
    sessions.go_by(windows(2 * TERM));
    assert!(!sessions.are_read());
    sessions.go_by(Ages { source: Source::EndedCalls, ..windows(4 * TERM) });
    assert_eq!((needs(&sessions), sessions.wanted().needs()), (100 * need(4 * TERM), 100 * 40));
    sessions.audit(at(0));
    sessions.go_by(windows(4 * TERM));
    assert_eq!((needs(&sessions), sessions.wanted().needs()), (100 * need(4 * TERM), 0));
}

#[test]
fn one_that_is_left_alone_is_read_by_the_last_term() {
    let mut sessions = many(100);
    sessions.go_by(windows(TERM / 2));
    sessions.go_by(windows(TERM / 5));
    for who in 0..99 {
        sessions.remove(Place::own(SessionId(who)));
        sessions.audit(at(0));
    }
    let (last, kept) = (Place::own(SessionId(99)), 6 * Duration::from_millis(10));
    let aged = at(0) + kept + Duration::from_nanos(1);
    assert_eq!(sessions.first_age(), Some((aged, last)));
    sessions.age(aged);
    assert_eq!(sessions[last].age, Age::Silent);
}

/// A pool at rest is kept without the change: it would not wake as it was.
#[test]
fn those_of_which_some_are_read_by_the_term_of_before_do_not_rest() {
    let mut sessions = Sessions::new(windows(TERM));
    for who in 0..40 {
        sessions.insert(place(who), Session::new(Share::EVEN, at(0)));
    }
    assert!(sessions.are_at_rest());
    sessions.go_by(windows(2 * TERM));
    assert!(!sessions.are_at_rest());
    sessions.age(at(0));
    assert!(sessions.are_at_rest());
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A session asks, the first time or again.
    Asks {
        demand_milli: u64,
        waiting: u64,
        out: u64,
        wanted: u64,
        owner: u64,
    },
    /// Its lease ends, and all that it holds is burned.
    Burns,
    Goes,
    /// Leases last for another term.
    Change {
        tens_of_millis: u64,
    },
    /// Permits come from there from now on.
    Use(Source),
}

fn acts() -> impl Strategy<Value = Vec<(u64, u64, Act)>> {
    let asks =
        (0u64..3, 0u64..3, 0u64..40, 0u64..3, 0u64..3).prop_map(|(demand, waiting, out, wanted, owner)| {
            Act::Asks { demand_milli: demand * 9_000, waiting, out, wanted: wanted * 30, owner }
        });
    let act = prop_oneof![
        30 => asks,
        3 => Just(Act::Burns),
        3 => Just(Act::Goes),
        6 => (1u64..300).prop_map(|tens_of_millis| Act::Change { tens_of_millis }),
        1 => prop_oneof![Just(Source::Windows), Just(Source::Buckets), Just(Source::EndedCalls)].prop_map(Act::Use),
    ];
    let wait = prop_oneof![4 => Just(0u64), 3 => 0u64..30, 1 => 0u64..300];
    prop::collection::vec((0..PLACES, wait, act), 1..200)
}

fn act(sessions: &mut Sessions, now: Moment, place: Place, act: Act) {
    match act {
        Act::Asks { demand_milli, waiting, out, wanted, owner } => {
            if !sessions.contains(place) {
                let share = Share { owner: Owner(owner), group: (owner > 1).then_some(1), ..Share::EVEN };
                let mut new = Session::new(share, now);
                (new.rtt, new.demand_milli) = (Duration::from_millis(owner), demand_milli);
                sessions.insert(place, new);
            }
            sessions.update(place, |session| session.age = Age::Asking);
            sessions.update(place, |session| {
                (session.age, session.answered, session.is_unproven) = (Age::Fresh, now, false);
                (session.demand_milli, session.waiting, session.wanted) = (demand_milli, waiting, wanted);
                (session.outstanding, session.end) = (out, now + TERM);
            });
        }
        Act::Burns if sessions.contains(place) => _ = sessions.update(place, Session::burn),
        Act::Goes => sessions.remove(place),
        Act::Change { tens_of_millis } => {
            let term = Duration::from_millis(10 * tens_of_millis);
            sessions.go_by_about(Ages { term, ..sessions.ages() });
        }
        Act::Use(source) => sessions.go_by(Ages { source, ..sessions.ages() }),
        Act::Burns => {}
    }
}

/// Returns the same sessions, read by the last term from the beginning.
fn at_once(sessions: &Sessions, speed: Option<Speed>, now: Moment) -> Sessions {
    let mut others = Sessions::new(sessions.ages()).with_distances();
    for (place, session) in sessions.iter() {
        let mut session = session.clone();
        session.age = Age::Fresh;
        others.insert(place, session);
    }
    speed.into_iter().for_each(|speed| others.share_flow(speed, now));
    others.age(now);
    others
}

/// Returns the orders and sums over all sessions but their claims, which must be the claims of `entries`.
fn known(sessions: &mut Sessions, entries: &[(Place, Entry)]) -> (String, SaturatedTotals, Duration) {
    let orders = sessions.orders.as_deref();
    let orders = orders.map(|it| {
        let entries = || entries.iter().copied();
        it.claims.audit(entries().filter_map(|(place, entry)| Some((place, entry.claim?))));
        it.wanted.audit(entries().filter_map(|(place, entry)| Some((place, entry.wanted?))));
        let agendas = [&it.expiries, &it.call_expiries, &it.reviews, &it.idle, &it.unused];
        (agendas, &it.sums, &it.by_group, it.in_flight)
    });
    (format!("{orders:?}"), sessions.sums(), sessions.distance())
}

proptest! {
    // Each case audits a hundred sessions after each of its acts.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_are_read_in_the_end_as_if_at_once(acts in acts(), has_flow: bool) {
        let flow = LeakyBucket::try_new(10, 100, TERM).expect("valid");
        let speed = has_flow.then(|| Flow::new(&flow, Default::default(), at(0)).speed());
        let (mut sessions, mut now) = (Sessions::new(windows(TERM)).with_distances(), 0);
        for who in 0..PLACES / 2 {
            sessions.insert(place(2 * who), session(at(0)));
        }
        for (who, wait, next) in acts {
            now += wait;
            sessions.age(at(now));
            act(&mut sessions, at(now), place(who), next);
            speed.into_iter().for_each(|speed| sessions.share_flow(speed, at(now)));
            sessions.audit(at(now));
        }
        // As many looks as two changes take, and one that finds the end.
        (0..=2 * PLACES / READ_AT_ONCE as u64).for_each(|_| sessions.age(at(now)));
        prop_assert!(sessions.are_read());
        sessions.audit(at(now));
        let mut others = at_once(&sessions, speed, at(now));
        let entry = |(place, session)| (place, others.reading.entry(place, session));
        let entries: Vec<_> = others.iter().map(entry).collect();
        prop_assert_eq!(known(&mut sessions, &entries), known(&mut others, &entries));
    }
}
