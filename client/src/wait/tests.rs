//! A caller that waits while its client is closed, and what the background task learns about waiting callers.

use super::*;
use crate::by_hand::{self, Caller, Woken, limit, shared};
use crate::local_pool::Condition;
use std::cell::RefCell;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Waker;

/// The bug: the condition was checked before the waker was registered, and not after. Here the caller comes with
/// another waker, as in a `select!` that was moved, and meets the shutdown at the lock of the line.
#[test]
fn a_caller_that_leaves_its_waker_beside_a_shutdown_is_told() {
    let shared = shared();
    let limit = limit(&shared, "a");
    let wakers = [Arc::new(Woken::default()), Arc::new(Woken::default())];
    let (send, polled) = mpsc::channel();
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let (limit, wakers) = (&limit, &wakers);
        let (again, polls_again) = mpsc::channel::<()>();
        scope.spawn(move || {
            let mut waits = pin!(limit.acquire(1));
            let mut poll = |waker: &Arc<Woken>| {
                let waker = Waker::from(waker.clone());
                waits.as_mut().poll(&mut Context::from_waker(&waker))
            };
            assert!(poll(&wakers[0]).is_pending(), "no permit is free");
            send.send(()).expect("the test waits");
            polls_again.recv().expect("the test goes on");
            sender.send(poll(&wakers[1])).expect("the test waits");
        });
        polled.recv().expect("the call was polled");
        let (line, _) = limit.pool().line();
        again.send(()).expect("the call waits");
        // The caller gets as far as this lock.
        assert!(ended.recv_timeout(Duration::from_millis(200)).is_err());
        limit.pool().set_condition(Condition::Closed);
        line.all_wakers().into_iter().for_each(Waker::wake);
        drop(line);
        let outcome = ended.recv().expect("the call was polled");
        assert!(
            outcome == Poll::Ready(Err(Refusal::Closed)) || wakers[1].take(),
            "{outcome:?}, and never woken"
        );
    });
}

/// The bug: the caller that was first put permits back and woke no other caller, as the first in line may not wake itself.
/// Both callers slept beside a free permit.
#[test]
fn a_caller_that_is_overtaken_during_its_attempt_wakes_the_first_in_line() {
    let shared = shared();
    let limit = limit(&shared, "a");
    let pool = limit.pool();
    let high = limit.with_priority(Priority::High);
    let urgent = RefCell::new(Caller::new(high.acquire(1)));
    pool.slot().install(1, 0, CLOCK.now() + by_hand::LEASED);
    let attempt = || {
        pool.hold(1, true, CLOCK.now()).expect("it is there");
        assert_eq!(urgent.borrow_mut().run(), None, "the only permit is set aside");
        pool.put_back_quietly(1);
        None::<()>
    };
    let mut overtaken = Caller::new(stand_in_line(pool, Priority::Normal, 1, attempt));
    assert_eq!(overtaken.run(), None);
    assert_eq!(urgent.borrow_mut().run(), Some(Ok(())), "never woken");
}

/// The bug: only for a steady flow was the size of a call told, and a window that eases off never lent enough for a
/// large one.
#[test]
fn what_the_first_in_line_wants_is_told() {
    let shared = shared();
    let limit = limit(&shared, "a");
    let first = || limit.pool().seen().largest;
    assert_eq!(first(), 0);
    let urgent = limit.with_priority(Priority::High);
    let mut large = Caller::new(limit.acquire(295));
    let mut small = Caller::new(urgent.acquire(2));
    assert_eq!((large.run(), first()), (None, 295));
    assert_eq!((small.run(), first()), (None, 2), "the urgent call comes first");
    drop(small);
    assert_eq!(first(), 295);
    by_hand::lend(&limit, 295);
    assert_eq!((large.run(), first()), (Some(Ok(())), 0), "no caller waits any more");
}
