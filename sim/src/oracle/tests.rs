//! The oracle sees each kind of violation, and complains of nothing else.

use super::*;
use lessor_ledger::share::Trust;
use lessor_protocol::{Grant, Observed};

fn at(nanos: u64) -> Instant {
    Instant { real: nanos, allocator: Moment::from_nanos(nanos) }
}

/// An oracle for `rules`, and session 1 of node 0.
fn oracle(rules: &str) -> Oracle {
    let rules = crate::setup::parse_rules(rules).expect("a rule");
    let mut oracle = Oracle::new(&rules, 0, 0, Duration::MAX);
    oracle.begins(0, 1);
    oracle
}

/// The first of `times` at which one more permit is too many for `rule`.
fn first_over(rule: &str, times: &[u64]) -> Option<u64> {
    let mut oracle = oracle(rule);
    let session = oracle.session(1);
    (session.lent, session.end) = (u64::MAX, Moment::NEVER);
    times.iter().copied().find(|&time| oracle.admitted(at(time), 0, 1, 1, 0).is_err())
}

#[test]
fn it_sees_the_first_permit_too_many() {
    assert_eq!(first_over("sliding_window 2/100ns", &[0, 99, 100, 199, 200]), None);
    assert_eq!(first_over("sliding_window 2/100ns", &[0, 98, 99]), Some(99));
    assert_eq!(first_over("token_bucket 1/100ns capacity 2", &[0, 0, 100, 200]), None);
    assert_eq!(first_over("token_bucket 1/100ns capacity 2", &[0, 0, 99]), Some(99));
    let ms = 1_000_000;
    assert_eq!(first_over("fixed_window 2/100ms", &[98 * ms, 99 * ms, 100 * ms, 101 * ms]), None);
    assert_eq!(first_over("fixed_window 2/100ms", &[0, 50 * ms, 99 * ms]), Some(99 * ms));
}

const FOUR: Grant = Grant {
    kept: 0,
    permits: 4,
    term: Duration::from_millis(20),
    horizon: Duration::from_millis(20),
    ceiling: 10,
    ask_after: Duration::ZERO,
    retry_after: None,
    rate: lessor_protocol::Rate::Free,
    in_flight: None,
};

const ASKED: Asked = Asked {
    session: 1,
    seq: 1,
    ask: Ask {
        spent_total: 0,
        held: 0,
        want: 4,
        waiting: 0,
        demand_milli: 0,
        shadow_refused: 0,
        largest: 0,
        lends_on: false,
        rate: lessor_protocol::RateClaim::None,
        running: None,
        unguarded: 0,
        busy: 0,
    },
    is_honest: true,
    is_awaited: true,
    lends_on: false,
    horizon: Duration::MAX,
};

/// A pool of ten permits with `books`.
fn stock(books: Books, in_hand: u64) -> Stock {
    let available = 10 - books.outstanding;
    Stock {
        view: PoolView { available, books, sessions: 1, quarantine: Duration::ZERO, ..PoolView::default() },
        in_hand,
        at: Moment::ORIGIN,
    }
}

/// An oracle that saw four of ten permits being lent, and a stock that fits.
fn after_four() -> (Oracle, Stock) {
    let mut oracle = oracle("sliding_window 10/1s");
    let stock = stock(Books { granted: 4, outstanding: 4, ..Books::default() }, 4);
    assert_eq!(oracle.answered(at(5), &ASKED, &Ok(Answer::Grant(FOUR)), stock), Ok((4, 0)));
    (oracle, stock)
}

fn name<T: std::fmt::Debug>(verdict: Result<T, Violation>) -> &'static str {
    verdict.expect_err("wrong").name
}

#[test]
fn it_sees_an_answer_that_differs_from_the_first() {
    let (oracle, stock) = after_four();
    let again = |grant| oracle.clone().answered(at(1_000_005), &ASKED, &Ok(Answer::Grant(grant)), stock);
    assert_eq!(again(Grant { term: Duration::from_millis(19), ..FOUR }), Ok((0, 0)));
    assert_eq!(name(again(FOUR)), "P1", "a term that begins anew");
    assert_eq!(name(again(Grant { permits: 5, term: Duration::from_millis(19), ..FOUR })), "P1");
}

#[test]
fn it_sees_books_that_are_wrong() {
    let (oracle, _) = after_four();
    let books = |books, in_hand| name(oracle.clone().books(at(6), stock(books, in_hand)));
    let good = Books { granted: 4, outstanding: 4, ..Books::default() };
    assert_eq!(books(Books { burned: 1, ..good }, 0), "K1");
    assert_eq!(books(Books { granted: 3, outstanding: 3, ..good }, 0), "K4");
    assert_eq!(books(good, 5), "K2");
    let (mut spent, mut thin) = (oracle.clone(), stock(good, 4));
    assert_eq!(spent.admitted(at(6), 0, 1, 1, 0), Ok(()));
    assert_eq!(name(spent.books(at(6), thin)), "K2", "four in hand, one of four spent");
    thin.view.available = 7;
    assert_eq!(name(oracle.clone().books(at(6), thin)), "K3");
}

#[test]
fn it_sees_an_answer_that_the_books_do_not_show() {
    let (oracle, stock) = after_four();
    let asked = Asked { seq: 2, ..ASKED };
    let grant = Grant { permits: 0, kept: 4, ..FOUR };
    let answered =
        |asked, grant, stock| oracle.clone().answered(at(6), &asked, &Ok(Answer::Grant(grant)), stock);
    assert_eq!(name(answered(asked, FOUR, stock)), "K1");
    let lie = Asked { ask: Ask { spent_total: 1, want: 0, ..ASKED.ask }, ..asked };
    assert_eq!(name(answered(lie, grant, stock)), "K2", "nothing was spent");
    let refused = Reason::TotalsWrong;
    assert_eq!(name(oracle.clone().answered(at(6), &asked, &Err(refused), stock)), "K2", "it was honest");
    let stranger = Reason::LeaseUnknown;
    assert_eq!(name(oracle.clone().answered(at(6), &asked, &Err(stranger), stock)), "K2", "it is known");
}

#[test]
fn it_sees_permits_that_are_spent_by_the_wrong_process_or_too_late() {
    let (oracle, _) = after_four();
    let spent = |time, node, permits| oracle.clone().admitted(at(time), node, 1, permits, 0);
    assert_eq!(spent(21_000_004, 0, 4), Ok(()));
    assert_eq!(name(spent(21_000_005, 0, 4)), "S7");
    assert_eq!(name(spent(6, 1, 4)), "S8", "another node's");
    assert_eq!(name(spent(6, 0, 5)), "S8", "more than it was lent");
    let mut over = oracle.clone();
    over.ends(1);
    assert_eq!(name(over.admitted(at(6), 0, 1, 1, 0)), "S8", "a process that is gone");
}

#[test]
#[should_panic = "P3"]
fn it_sees_a_session_that_is_begun_twice() {
    after_four().0.begins(1, 1);
}

/// Regression test: such errors used to be excused for the rest of a run, once anything had been forgotten.
#[test]
fn what_was_forgotten_excuses_only_the_session_that_it_was_forgotten_of() {
    let (mut oracle, stock) = after_four();
    oracle.admitted(at(6), 0, 1, 4, 0).expect("within the limit");
    oracle.begins(1, 2);
    oracle.books_lost(at(7), PoolView { available: 6, ..PoolView::default() });
    // An old copy of the first ask makes session 1 known again: the truth now seems a lie.
    let stale = Asked { is_awaited: false, ..ASKED };
    let less = Stock { view: PoolView { available: 2, ..stock.view }, in_hand: 0, at: at(0).allocator };
    assert_eq!(oracle.answered(at(8), &stale, &Ok(Answer::Grant(FOUR)), less), Ok((4, 0)));
    let refused = Err(Reason::TotalsWrong);
    let truth = Asked { seq: 2, ..ASKED };
    assert_eq!(oracle.clone().answered(at(9), &truth, &refused, less), Ok((0, 0)));
    let other = Asked { session: 2, ..truth };
    assert_eq!(name(oracle.answered(at(9), &other, &refused, less)), "K2");
}

/// Books that remember a liar ignore its old reports, and know those of the time when it might have been forgotten.
#[test]
fn what_a_liar_says_is_news_to_books_that_did_not_forget_it() {
    let second = 1_000_000_000;
    let rules = crate::setup::parse_rules("sliding_window 10/1s").expect("a rule");
    let mut oracle = Oracle::new(&rules, 0, 0, Duration::from_secs(1));
    oracle.begins_to_lie(0, 1);
    let stock = stock(Books { granted: 4, outstanding: 4, ..Books::default() }, 4);
    let asked = Asked { is_honest: false, ..ASKED };
    assert_eq!(oracle.answered(at(5), &asked, &Ok(Answer::Grant(FOUR)), stock), Ok((4, 0)));
    let says = |oracle: &mut Oracle, seconds, number, refused_total, pause| {
        let wait = Some(Duration::from_secs(9));
        let observed = Observed { number, refused_total, wait, left: None, announced: [None; 4] };
        let after = PoolView { vendor_pause: pause, ..stock.view };
        oracle.hears(at(seconds * second), 1, &observed, &Trust::default(), [stock.view, after])
    };
    let pause = Duration::from_secs(1);
    assert_eq!(says(&mut oracle, 2, 372, 6, Duration::ZERO), Ok(()), "it may be forgotten, or not");
    let (again, nothing) = (Asked { seq: 2, ..asked }, Grant { kept: 4, permits: 0, ..FOUR });
    assert_eq!(oracle.answered(at(2 * second), &again, &Ok(Answer::Grant(nothing)), stock), Ok((0, 0)));
    assert_eq!(
        says(&mut oracle, 2, 56, 900, Duration::ZERO),
        Ok(()),
        "those that know 372 do not look at it"
    );
    assert_eq!(says(&mut oracle.clone(), 2, 373, 7, pause), Ok(()), "one more was refused");
    assert_eq!(says(&mut oracle, 2, 373, 900, Duration::ZERO), Ok(()));
    assert_eq!(name(says(&mut oracle, 2, 373, 900, pause)), "K8", "said again");
    assert_eq!(name(says(&mut oracle, 2, 374, 900, pause)), "K8", "no more were refused");
}

/// A minute of pauses is followed by a minute without one.
#[test]
fn a_refusal_is_followed_by_a_pause_as_long_as_told_and_allowed() {
    let second = 1_000_000_000;
    let rules = crate::setup::parse_rules("sliding_window 10/1s").expect("a rule");
    let mut oracle = Oracle::new(&rules, 0, 0, Duration::from_secs(1_000));
    oracle.begins(0, 1);
    let stock = stock(Books { granted: 4, outstanding: 4, ..Books::default() }, 4);
    assert_eq!(oracle.answered(at(5), &ASKED, &Ok(Answer::Grant(FOUR)), stock), Ok((4, 0)));
    let says = |oracle: &mut Oracle, seconds: u64, number, (before, after)| {
        let wait = Some(Duration::from_secs(40));
        let observed = Observed { number, refused_total: number, wait, left: None, announced: [None; 4] };
        let view = |pause| PoolView { vendor_pause: Duration::from_secs(pause), ..stock.view };
        oracle.hears(at(seconds * second), 1, &observed, &Trust::default(), [view(before), view(after)])
    };
    assert_eq!(name(says(&mut oracle.clone(), 2, 1, (0, 0))), "K8");
    assert_eq!(name(says(&mut oracle.clone(), 2, 1, (0, 39))), "K8");
    assert_eq!(says(&mut oracle, 2, 1, (0, 40)), Ok(()));
    assert_eq!(name(says(&mut oracle.clone(), 42, 2, (0, 40))), "K8", "80 s");
    assert_eq!(says(&mut oracle, 42, 2, (0, 20)), Ok(()));
    assert_eq!(says(&mut oracle.clone(), 62, 3, (0, 0)), Ok(()));
    assert_eq!(says(&mut oracle.clone(), 72, 3, (0, 10)), Ok(()), "after 10 s without a pause");
    assert_eq!(name(says(&mut oracle.clone(), 122, 3, (0, 10))), "K8");
}
