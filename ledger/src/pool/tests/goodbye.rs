//! Goodbyes: what they give back, and what becomes of a session that goes on after one.

use super::*;

fn a_hundred_out() -> Pool {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 100)));
    pool
}

/// Returns the permits outstanding, spent, returned and burned.
fn books(pool: &mut Pool, at: u64) -> (u64, u64, u64, u64) {
    let Books { outstanding, spent, returned, burned, .. } = pool.view(millis(at)).books;
    (outstanding, spent, returned, burned)
}

/// The bug: all that a session was lent came back with its goodbye, even permits that it did not know of yet.
#[test]
fn a_goodbye_gives_back_no_more_than_the_session_says_that_it_holds() {
    let says = |held| Goodbye { spent_total: 30, running: None, held, shadow_refused: 0 };
    for (held, back) in [(None, 0), (Some(0), 0), (Some(25), 25), (Some(70), 70), (Some(PERMITS_MAX), 70)] {
        let mut pool = a_hundred_out();
        assert_eq!(pool.leave(millis(10), A.id, 2, says(held)), Ok(back), "{held:?}");
        assert_eq!(books(&mut pool, 10), (70 - back, 30, back, 0), "{held:?}");
        assert_eq!(books(&mut pool, 3_000), (0, 30, back, 70 - back), "it may have been spent until its end");
        assert_eq!(pool.view(millis(3_000)).available, 1_000 - 100 + back);
    }
    // A goodbye without `held` gives back what the last ask said.
    let mut pool = a_hundred_out();
    let next = grant(pool.renew(millis(10), A, 2, ask(30, 70, 50)));
    assert_eq!((next.kept, next.permits), (70, 50));
    assert_eq!(
        pool.leave(
            millis(20),
            A.id,
            3,
            Goodbye { spent_total: 35, running: None, held: None, shadow_refused: 0 }
        ),
        Ok(70)
    );
    assert_eq!(books(&mut pool, 20), (45, 35, 70, 0));
}

/// The bug: permits that were let pass after the last ask were counted nowhere.
#[test]
fn a_goodbye_says_what_was_let_pass_since_the_last_ask() {
    let mut pool = a_hundred_out();
    grant(pool.renew(millis(10), A, 2, Ask { shadow_refused: 4, ..ask(10, 90, 0) }));
    assert_eq!(pool.view(millis(10)).shadow_refused, 4);
    let last = Goodbye { shadow_refused: 9, ..goodbye(10, None) };
    for _ in 0..2 {
        pool.leave(millis(20), A.id, 3, last).expect("it is known");
        assert_eq!(pool.view(millis(20)).shadow_refused, 9, "said twice, counted once");
    }
    // A goodbye of an earlier kind does not say what was let pass.
    let mut pool = a_hundred_out();
    grant(pool.renew(millis(10), A, 2, Ask { shadow_refused: 4, ..ask(0, 100, 0) }));
    pool.leave(millis(20), A.id, 3, goodbye(0, None)).expect("it is known");
    assert_eq!((pool.view(millis(20)).shadow_refused, books(&mut pool, 20)), (4, (0, 0, 100, 0)));
}

/// The bug: the next ask had the number of the goodbye, was taken for a repeated one, and got the last grant again.
#[test]
fn a_session_that_goes_on_after_a_goodbye_is_told_to_begin_another() {
    for seq in [2, 3, PERMITS_MAX] {
        let mut pool = a_hundred_out();
        pool.leave(millis(10), A.id, seq, goodbye(0, None)).expect("it is known");
        for next in [2, 3, 4, PERMITS_MAX] {
            assert_eq!(
                pool.renew(millis(20), A, next, ask(60, 40, 100)),
                Err(AskError::Left),
                "{seq}, {next}"
            );
            assert_eq!(pool.renew(millis(20), A, next, ask(0, 0, 100)), Err(AskError::Left), "{seq}, {next}");
        }
        assert_eq!(books(&mut pool, 20), (0, 0, 100, 0));
        assert_eq!(pool.leave(millis(20), A.id, PERMITS_MAX, goodbye(0, None)), Ok(0), "said once");
        assert_eq!(grant(pool.renew(millis(20), B, 1, ask(0, 0, 10))).permits, 10);
    }
}
