//! Tests of what a pool remembers of pools below it: as much as may still matter, however many keys and sessions come
//! and go.

use super::*;
use crate::rule::Gap;

const HOUR: Duration = Duration::from_secs(3_600);

/// The limit of the vendor in these tests.
const LIMIT: u64 = 1_000_000;

fn vendor() -> Pool {
    pool(vec![sliding(LIMIT, HOUR)])
}

fn child() -> Pool {
    pool(vec![sliding(1_000, 30 * SECOND)])
}

fn renew(
    child: &mut Pool,
    parent: &mut Pool,
    at: u64,
    seq: u64,
    (spent, held, waiting): (u64, u64, u64),
) -> Result<Answer, AskError> {
    let mut above = [Above { pool: parent, share: Share::EVEN }];
    child.renew_below(&mut above, millis(at), A, seq, ask(spent, held, waiting))
}

/// Takes `permits` at `at` for a new key and spends them within a millisecond. Returns the pool of the key.
fn passes(parent: &mut Pool, at: u64, permits: u64) -> Pool {
    let mut child = Pool::new(plan(vec![sliding(1_000, 30 * SECOND)]), millis(at));
    let lent = grant(renew(&mut child, parent, at, 1, (0, 0, permits)));
    assert_eq!(lent.permits, permits);
    grant(renew(&mut child, parent, at + 1, 2, (permits, 0, 0)));
    child
}

/// The bug: a parent kept a session for each key below it for the hour that its rule remembers, with nothing out and
/// nothing burned. A node that used one key after the other made it remember all of them, and look at all with each
/// ask.
#[test]
fn a_parent_forgets_sessions_below_it_that_have_nothing() {
    let mut parent = vendor();
    let mut first = passes(&mut parent, 0, 5);
    let mut most = 0;
    for key in 1..5_000 {
        passes(&mut parent, 2 * key, 1);
        most = most.max(parent.view(millis(2 * key + 1)).sessions);
    }
    println!("{most} sessions at most");
    assert!(most <= plan(vec![]).lessees_max as u64 + 2, "{most} sessions");
    let rests = parent.view(millis(60_000));
    assert_eq!((rests.sessions, rests.books.spent, rests.available), (0, 5_004, LIMIT - 5_004));
    // The pool below knows the session, and the parent knows it again: nothing is lost and nothing counted twice.
    assert_eq!(grant(renew(&mut first, &mut parent, 60_000, 3, (5, 0, 10))).permits, 10);
    let late = renew(&mut first, &mut parent, 60_001, 2, (5, 0, 10));
    assert_eq!(late, Err(AskError::Stale { seq: 2, last: 3 }));
    grant(renew(&mut first, &mut parent, 60_002, 4, (9, 2, 0)));
    let view = parent.view(millis(60_002));
    assert_eq!((view.sessions, view.books.spent, view.books.outstanding), (1, 5_008, 2));
    assert_eq!(view.available, LIMIT - 5_010);
    let holds = parent.holdings(millis(60_002)).map(|it| it.spent).collect::<Vec<_>>();
    assert_eq!(holds, [9], "it is shown with all that it spent");
}

/// A session that died is remembered while its late report may give something back, unless there are more such sessions
/// than a pool may remember. Then what it burned stays spent above.
#[test]
fn what_burned_below_is_remembered_above_unless_there_are_too_many() {
    for flood in [0, 1_000] {
        let (mut parent, mut dead) = (vendor(), child());
        assert_eq!(grant(renew(&mut dead, &mut parent, 0, 1, (0, 0, 50))).permits, 50);
        for key in 0..flood {
            // These sessions die, too.
            let mut child = Pool::new(plan(vec![sliding(1_000, 30 * SECOND)]), millis(3_000 + key));
            grant(renew(&mut child, &mut parent, 3_000 + key, 1, (0, 0, 1)));
        }
        let before = parent.view(millis(20_000));
        assert_eq!((before.books.burned, before.books.outstanding), (50 + flood, 0));
        println!("{} sessions after a flood of {flood}", before.sessions);
        grant(renew(&mut dead, &mut parent, 20_000, 2, (20, 0, 0)));
        let after = parent.view(millis(20_000));
        let back = if flood == 0 { 30 } else { 0 };
        assert_eq!(after.available, before.available + back, "after a flood of {flood}");
        assert_eq!(dead.view(millis(20_000)).available, 980);
        passes(&mut parent, 20_001, 1);
        let kept = parent.view(millis(20_002)).sessions;
        assert!(kept <= flood.min(100) + 2, "{kept} sessions");
    }
}

/// Sessions with permits in hand are remembered, however many they are: what they hold is charged until it ends.
#[test]
fn a_parent_forgets_nothing_that_is_out() {
    let (mut parent, mut children) = (vendor(), vec![]);
    for key in 0..500 {
        let mut child = child();
        assert_eq!(grant(renew(&mut child, &mut parent, key, 1, (0, 0, 2))).permits, 2);
        children.push(child);
    }
    let view = parent.view(millis(500));
    assert_eq!((view.sessions, view.books.outstanding, view.available), (500, 1_000, LIMIT - 1_000));
    for child in &mut children {
        grant(renew(child, &mut parent, 600, 2, (1, 0, 0)));
    }
    let view = parent.view(millis(600));
    assert_eq!((view.books.spent, view.books.returned, view.available), (500, 500, LIMIT - 500));
}

/// A family that was restored: a session of the process before is unknown to the pool below, and what was out stays
/// charged above.
#[test]
fn a_late_message_to_a_family_that_was_restored_is_safe() {
    let (mut parent, mut below) = (vendor(), child());
    passes(&mut parent, 0, 7);
    assert_eq!(grant(renew(&mut below, &mut parent, 10, 1, (0, 0, 50))).permits, 50);
    let restored = |pool: &mut Pool, rule| {
        let (checkpoint, _) = pool.checkpoint(millis(20), Duration::ZERO).expect("it is kept");
        Pool::from_checkpoint(plan(vec![rule]), &checkpoint, Gap::Counted, millis(30)).expect("it is sound")
    };
    let mut parent = restored(&mut parent, sliding(LIMIT, HOUR));
    let mut below = restored(&mut below, sliding(1_000, 30 * SECOND));
    let late = renew(&mut below, &mut parent, 40, 2, (30, 20, 0));
    assert_eq!(late, Err(AskError::LeaseUnknown { spent_total: 30, held: 20 }));
    assert_eq!(parent.view(millis(40)).available, LIMIT - 57);
    for key in 0..1_000 {
        passes(&mut parent, 10_000 + 2 * key, 1);
    }
    let view = parent.view(millis(60_000));
    assert_eq!((view.sessions, view.available), (1, LIMIT - 1_057), "one stands for the life before");
}
