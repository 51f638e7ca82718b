//! Tests of what sessions of a pool below others keep there from the sessions of these.

use super::super::ages::Age;
use super::super::family::Place;
use super::callers::{Caller, Pools, play};
use super::*;
use crate::share::Owner;

/// Returns what B is lent within 15 s of a pool beside the child of A, which goes first above and always wants 300 permits a
/// second. Every half second A asks the child as `ask_of_a` says, and B asks for what 100 calls a second take.
fn lent_to_b_beside(mut ask_of_a: impl FnMut(&mut [Above<'_>], u64, Ask) -> Answer) -> u64 {
    let mut parent = pool(vec![sliding(1_000, 60 * SECOND)]);
    let mut other = pool(vec![sliding(1_000, 60 * SECOND)]);
    let (mut spent_by_a, mut spent_by_b) = (0, 0);
    for seq in 1..=30 {
        let at = 500 * (seq - 1);
        let first = Share { priority: 1, ..Share::EVEN };
        let ask = |spent_total, demand| Ask { demand_milli: 1_000 * demand, ..ask(spent_total, 0, demand) };
        let mut above = [Above { pool: &mut parent, share: first }];
        let lent = ask_of_a(&mut above, seq, ask(spent_by_a, 300));
        spent_by_a += lent.grant().map_or(0, |grant| grant.permits);
        let mut above = [Above { pool: &mut parent, share: Share::EVEN }];
        let lent = other.renew_below(&mut above, millis(at + 250), B, seq, ask(spent_by_b, 100));
        spent_by_b += grant(lent).permits;
    }
    println!("A spent {spent_by_a}, B {spent_by_b}");
    spent_by_b
}

/// The bug: the parent kept what a session of high priority wanted from all others, though the pool below could lend that
/// session 10 permits a minute: B was lent 17 of 1,000.
#[test]
fn what_a_full_child_wants_keeps_nothing_from_others_above() {
    let mut child = pool(vec![sliding(10, 60 * SECOND)]);
    let lent = lent_to_b_beside(|above, seq, ask| {
        child.renew_below(above, millis(500 * (seq - 1)), A, seq, ask).expect("a good ask")
    });
    assert!(lent >= 950, "{lent}");
}

/// The bug: the same, while an operator has paused the child, or blocked the node.
#[test]
fn a_session_that_is_refused_keeps_nothing_from_others_above() {
    for reason in [RefusalReason::Paused, RefusalReason::Blocked] {
        let mut child = pool(vec![sliding(1_000, 60 * SECOND)]);
        let refusal = Refusal { reason, retry_after: SECOND };
        let lent = lent_to_b_beside(|above, seq, ask| {
            let at = millis(500 * (seq - 1));
            let answer = match seq {
                1 => child.renew_below(above, at, A, seq, ask),
                _ => child.settle_below(above, at, A, seq, ask, refusal),
            };
            answer.expect("a good ask")
        });
        assert!(lent >= 650, "{lent} while the child is refused for {reason:?}");
    }
}

/// Returns a caller of the pool below, or of the one above.
fn caller(id: u64, is_below: bool, priority: u64, demand: u64, waiting: u64) -> Caller {
    Caller { is_below, share: Share { priority, ..Share::EVEN }, demand, waiting, ..Caller::new(id) }
}

/// Ten sessions claim less than a permit each. A session of the pool above takes no more than its share beside them.
#[test]
fn small_claims_of_many_sessions_add_up_above() {
    let mut pools = Pools::new(sliding(5, SECOND), sliding(10, SECOND));
    let mut callers: Vec<Caller> = (1..=10).map(|id| caller(id, true, 0, 1, 1)).collect();
    callers.push(caller(11, false, 0, 1_000, 100));
    play(&mut pools, &mut callers, 20_000);
    let below: u64 = callers[..10].iter().map(|caller| caller.spent).sum();
    println!("{below} below, {} above", callers[10].spent);
    assert!(below >= 80, "{below} of 100");
}

/// The bug: a session that claims without end took the whole claim of the pool below, and a session of high priority beside
/// it none.
#[test]
fn a_huge_claim_takes_no_claim_above_from_others_below() {
    let mut pools = Pools::new(sliding(10, SECOND), sliding(20, SECOND));
    let identity =
        |owner, caller: Caller| Caller { share: Share { owner: Owner(owner), ..caller.share }, ..caller };
    let mut callers = [
        identity(1, caller(1, true, 1, 5, 1)),
        identity(2, caller(2, true, 0, u64::MAX >> 11, 1_000)),
        identity(3, caller(3, false, 0, 1_000, 1_000)),
    ];
    play(&mut pools, &mut callers, 20_000);
    let spent = callers.map(|caller| caller.spent);
    println!("{spent:?}");
    assert!(spent[0] >= 90, "{spent:?} of 100");
}

/// The bug: of a limit of an hour that has a stock a session claimed above what it is lent on average: nothing.
#[test]
fn a_stock_that_lasts_counts_above() {
    let mut pool = pool(vec![fixed(1_000, 3_600 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    let place = Place::own(A.id);
    pool.sessions.update(place, |session| session.age = Age::Asking);
    let claimed = pool.lendable_of(place, Ask { demand_milli: 600_000, want: 20, ..Ask::default() });
    // In a term of two seconds it takes all that there is.
    assert!(claimed.demand_milli >= 400_000 && claimed.want == 20, "{claimed:?}");
}

/// Just before a window ends the pool below has nothing. Its sessions have what they claim of the next one.
#[test]
fn a_window_that_begins_soon_counts_above() {
    let mut pools = Pools::new(fixed(60, SECOND), fixed(100, SECOND));
    let mut callers = [caller(1, true, 1, 80, 50), caller(2, false, 0, 1_000, 1_000)];
    play(&mut pools, &mut callers, 20_000);
    let spent = callers.map(|caller| caller.spent);
    println!("{spent:?}");
    assert!(spent[0] >= 55 * 20, "{spent:?} of {}", 60 * 20);
}
