//! Who has a part of the reserve, one step after another.

use super::*;
use crate::CarryOver;
use crate::share::{Safe, Sharing};
use lessor_protocol::SafeShare;

const LASTS: Duration = Duration::from_secs(5);

/// 100 a second, of which 30 are for three to go on with.
fn seated(nodes: u64, reserve: u64) -> Arc<Plan> {
    let safe = Some(Safe { nodes, lasts: LASTS });
    let plan = plan(vec![sliding(100, SECOND)]);
    Arc::new(Plan { sharing: Sharing { reserve, safe, ..Sharing::default() }, ..Plan::clone(&plan) })
}

fn share_of(pool: &mut Pool, at: u64, id: u64) -> Option<u64> {
    pool.safe_share(millis(at), SessionId(id)).map(|share| share.permits)
}

#[test]
fn there_are_as_many_seats_as_were_said_and_each_keeps_its_own() {
    let mut pool = Pool::new(seated(3, 30), millis(0));
    assert_eq!([1, 2, 3, 4].map(|id| share_of(&mut pool, 0, id)), [Some(10), Some(10), Some(10), None]);
    assert_eq!([3, 4, 1].map(|id| share_of(&mut pool, 100, id)), [Some(10), None, Some(10)]);
    let share = pool.safe_share(millis(200), SessionId(1)).expect("it has one");
    assert_eq!(share, SafeShare { permits: 10, span: SECOND, lasts: LASTS });
}

#[test]
fn a_seat_is_free_once_what_was_spent_on_it_has_left_every_window() {
    let mut pool = Pool::new(seated(1, 30), millis(0));
    let clocks = pool.plan.clocks;
    assert_eq!(share_of(&mut pool, 0, 1), Some(30));
    let free = clocks.grantor_end(millis(0), LASTS) + clocks.stretched(SECOND);
    let just = free.since(millis(0)).as_millis() as u64;
    assert_eq!((share_of(&mut pool, just, 2), share_of(&mut pool, just + 1, 2)), (None, Some(30)));
    // A session that says goodbye spends nothing more: only its windows are waited for.
    pool.renew(millis(just + 1), B, 1, ask(0, 0, 1)).expect("a good ask");
    pool.leave(millis(just + 10), SessionId(2), 2, goodbye(0, None)).expect("it is known");
    assert_eq!(
        (share_of(&mut pool, just + 1_010, 3), share_of(&mut pool, just + 1_012, 3)),
        (None, Some(30))
    );
}

#[test]
fn after_a_loss_of_books_no_session_is_told_until_every_earlier_seat_is_over() {
    let mut pool = Pool::after_loss(seated(3, 30), millis(0), millis(500));
    let clocks = pool.plan.clocks;
    let opens = clocks.grantor_end(millis(0), SafeShare::LASTS_MAX) + clocks.stretched(SECOND);
    let just = opens.since(millis(0)).as_millis() as u64;
    assert_eq!((share_of(&mut pool, just, 1), share_of(&mut pool, just + 1, 1)), (None, Some(10)));
}

#[test]
fn what_earlier_seats_allow_is_kept_back_after_a_change_until_they_end() {
    let mut pool = Pool::new(seated(3, 30), millis(0));
    assert_eq!([1, 2, 3].map(|id| share_of(&mut pool, 0, id)), [Some(10); 3]);
    assert_eq!(pool.view(millis(0)).available, 70);
    pool.change(seated(2, 4), CarryOver::AsIs, millis(100));
    assert_eq!(pool.view(millis(100)).available, 70, "three may still spend ten each");
    // No session has its seat for longer than it was told, nor another one beside it.
    assert_eq!([1, 2, 4].map(|id| share_of(&mut pool, 200, id)), [None; 3]);
    let ended = 5_000 + 1_000 + 20;
    assert_eq!(pool.view(millis(ended)).available, 96);
    assert_eq!([1, 2, 4].map(|id| share_of(&mut pool, ended, id)), [Some(2), Some(2), None]);
    // Windows that are twice as long hold twice as much, and one for the ends.
    let longer = Plan { rules: vec![sliding(100, 2 * SECOND)], ..Plan::clone(&seated(2, 4)) };
    pool.change(Arc::new(longer), CarryOver::AsIs, millis(ended));
    assert_eq!(pool.reserve(), 10);
}

#[test]
fn a_pool_with_seats_is_not_forgotten() {
    let mut pool = Pool::new(seated(1, 30), millis(0));
    assert!(pool.is_forgettable(millis(1)));
    share_of(&mut pool, 1, 1);
    assert!(!pool.is_forgettable(millis(2)));
    assert!(pool.is_forgettable(millis(7_000)));
}
