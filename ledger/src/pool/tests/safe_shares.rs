//! Tests of which session or allocator has safe shares, one step after another.

use super::*;
use crate::CarryOver;
use crate::pool::safe_loan::HANDS_OUT;
use crate::pool::safe_shares::LENT_FOR;
use crate::rule::{Calendar, Gap, Unit, Zone};
use crate::share::{Safe, Sharing};
use lessor_protocol::SafeShare;

const LASTS: Duration = Duration::from_secs(5);

/// A limit of 100 a second, whose `reserve` is for safe shares of `nodes` nodes.
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
    // A session that says goodbye spends nothing more: its share is free once its spends have left every window.
    pool.renew(millis(just + 1), B, 1, ask(0, 0, 1)).expect("a good ask");
    pool.leave(millis(just + 10), SessionId(2), 2, goodbye(0, None)).expect("it is known");
    assert_eq!(
        (share_of(&mut pool, just + 1_010, 3), share_of(&mut pool, just + 1_012, 3)),
        (None, Some(30))
    );
}

/// The bug: a share was free after an hour, in a window of an hour and a half.
#[test]
fn a_seat_stays_taken_in_an_hour_in_which_the_clock_is_put_back() {
    let hours = Calendar::new(Unit::Hour, Zone::try_new("Australia/Lord_Howe").expect("a zone"));
    let rule = FixedWindow::of(100, Windows::Calendar(hours)).expect("valid");
    let plan = Plan { rules: vec![Rule::FixedWindow(rule)], ..Plan::clone(&seated(1, 30)) };
    // The window from 14:00 to 15:30 UTC on 6 April 2024.
    let at = |seconds: u64| Moment::from_nanos((1_712_412_000 + seconds) * 1_000_000_000);
    let mut pool = Pool::new(Arc::new(plan), at(0));
    let asks = [(1, 1), (3_610, 2), (5_400, 2), (5_450, 2)];
    let shares = asks.map(|(seconds, id)| pool.safe_share(at(seconds), SessionId(id)));
    assert_eq!(shares.map(|share| share.map(|share| share.permits)), [Some(30), None, None, Some(30)]);
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
    // No session has its share for longer than it was told, nor another one beside it.
    assert_eq!([1, 2, 4].map(|id| share_of(&mut pool, 200, id)), [None; 3]);
    let ended = 5_000 + 1_000 + 20;
    assert_eq!(pool.view(millis(ended)).available, 96);
    assert_eq!([1, 2, 4].map(|id| share_of(&mut pool, ended, id)), [Some(2), Some(2), None]);
    // Windows that are twice as long hold twice as much, and one more permit of each node.
    let longer = Plan { rules: vec![sliding(100, 2 * SECOND)], ..Plan::clone(&seated(2, 4)) };
    pool.change(Arc::new(longer), CarryOver::AsIs, millis(ended));
    assert_eq!(pool.reserve(), 10);
}

/// Returns `plan` with safe shares that last for `lasts`.
fn lasting(plan: &Plan, lasts: Duration) -> Arc<Plan> {
    let safe = plan.sharing.safe.map(|safe| Safe { lasts, ..safe });
    Arc::new(Plan { sharing: Sharing { safe, ..plan.sharing.clone() }, ..plan.clone() })
}

/// The bug: an answer that was lost ended a share. Another session then had it beside the session that had heard
/// nothing of that.
#[test]
fn a_share_that_is_to_end_sooner_counts_for_as_long_as_was_said_before() {
    let mut pool = Pool::new(seated(1, 30), millis(0));
    assert_eq!(share_of(&mut pool, 0, 1), Some(30));
    pool.change(lasting(&pool.plan, SECOND), CarryOver::AsIs, millis(100));
    assert_eq!(share_of(&mut pool, 200, 1), Some(30), "the answer is lost");
    let ended = 5_000 + 1_000 + 20;
    assert_eq!([3_000, 5_990, ended].map(|at| share_of(&mut pool, at, 2)), [None, None, Some(30)]);
}

/// The bug: a root took the shares of all nodes of an allocator to last as long as its newest configuration said.
#[test]
fn a_root_counts_the_shares_of_an_allocator_for_as_long_as_was_said_before() {
    let mut root = root(3, 30);
    assert_eq!([lent(&mut root, 0, 1, 0, 20), lent(&mut root, 10, 1, 20, 0)], [20, 20]);
    root.change(lasting(&root.plan, SECOND), CarryOver::AsIs, millis(20));
    assert_eq!(lent(&mut root, 30, 1, 20, 0), 20);
    let ended = 10 + 12_000 + 5_000 + 1_000 + 50;
    assert_eq!([15_000, 18_000, ended].map(|at| lent(&mut root, at, 2, 0, 30)), [10, 10, 30]);
    // An allocator whose nodes have none any more frees them at once.
    root.change(seated(3, 30), CarryOver::AsIs, millis(ended));
    assert_eq!([lent(&mut root, ended, 2, 0, 0), lent(&mut root, ended, 1, 0, 30)], [0, 30]);
}

/// The bug: an allocator handed out shares that lasted longer than its root counted them.
#[test]
fn an_allocator_whose_shares_are_to_last_longer_asks_its_root_first() {
    let (mut root, mut pool) = (root(3, 30), below(3, 30));
    assert_eq!(share_of(&mut pool, 0, 1), None, "it has none yet");
    exchange(&mut pool, &mut root, 1);
    let longer = lasting(&pool.plan, 10 * SECOND);
    pool.change(longer, CarryOver::AsIs, millis(2));
    let lasts = |pool: &mut Pool, at| pool.safe_share(millis(at), SessionId(1)).map(|share| share.lasts);
    assert_eq!(lasts(&mut pool, 3), Some(LASTS));
    root.change(lasting(&root.plan, 10 * SECOND), CarryOver::AsIs, millis(4));
    exchange(&mut pool, &mut root, 5);
    assert_eq!(lasts(&mut pool, 6), Some(10 * SECOND));
}

/// The bug: a limit that was changed to a bucket lent all of that, beside what nodes spent on safe shares of the
/// window.
#[test]
fn a_bucket_lends_nothing_while_nodes_may_go_on_with_shares_of_windows() {
    let mut pool = Pool::new(seated(3, 30), millis(0));
    assert_eq!([1, 2, 3].map(|id| share_of(&mut pool, 0, id)), [Some(10); 3]);
    let bucket = |sharing| Arc::new(Plan { sharing, ..Plan::clone(&plan(vec![bucket(100, 100, SECOND)])) });
    pool.change(bucket(Sharing::default()), CarryOver::AsIs, millis(100));
    let over = pool.plan.clocks.grantor_end(millis(0), LASTS) + pool.plan.clocks.stretched(SECOND);
    let just = over.since(millis(0)).as_millis() as u64;
    let answer = pool.renew(millis(just), A, 1, ask(0, 0, 10)).expect("a good ask");
    assert!(answer.grant().is_none(), "{answer:?}");
    assert_eq!([pool.view(millis(just)).available, pool.view(millis(just + 1)).available], [0, 100]);
    assert_eq!(grant(pool.renew(millis(just + 1), A, 2, ask(0, 0, 10))).permits, 10);
}

/// The bug: the last spends on a share were forgotten while longer windows still had them.
#[test]
fn what_is_spent_on_a_share_counts_until_it_has_left_windows_that_became_longer() {
    let mut pool = Pool::new(seated(3, 30), millis(0));
    assert_eq!([1, 2, 3].map(|id| share_of(&mut pool, 0, id)), [Some(10); 3]);
    let longer = Plan { rules: vec![sliding(100, 3 * SECOND)], ..Plan::clone(&seated(3, 3)) };
    pool.change(Arc::new(longer), CarryOver::AsIs, millis(100));
    let over = pool.plan.clocks.grantor_end(millis(0), LASTS) + pool.plan.clocks.stretched(3 * SECOND);
    let just = over.since(millis(0)).as_millis() as u64;
    // 30 in each of three seconds, and one more permit of each node.
    assert_eq!([just, just + 1].map(|at| pool.view(millis(at)).available), [7, 97]);
}

/// The bug: an allocator that had not heard of longer windows took shares for free too soon, and so did its root.
#[test]
fn what_an_allocator_takes_for_free_by_shorter_windows_counts_in_longer_ones() {
    let (mut root, mut pool) = (root(3, 30), below(3, 30));
    share_of(&mut pool, 0, 1);
    exchange(&mut pool, &mut root, 1);
    assert_eq!(share_of(&mut pool, 2, 1), Some(10));
    exchange(&mut pool, &mut root, 3);
    let longer = Plan { rules: vec![sliding(1_000, 10 * SECOND)], ..Plan::clone(&root.plan) };
    root.change(Arc::new(longer), CarryOver::AsIs, millis(10));
    let freed = 2 + 5_000 + 1_000 + 20;
    let held = |pool: &mut Pool, at| {
        pool.let_pass(millis(at));
        pool.safe_shares.permits()
    };
    let (mut other_root, mut other) = (root.clone(), pool.clone());
    // The allocator asks when the share is over and its spends have left a window of a second. The answer tells it of
    // ten.
    assert_eq!(exchange(&mut pool, &mut root, freed).given, 0);

    assert_eq!([freed + 1, freed + 9_999, freed + 10_100].map(|at| held(&mut root, at)), [101, 101, 0]);
    // The other allocator asks before that moment, and is answered after it.
    let said = other.ask_safe_above(millis(freed - 50)).expect("the limit has some");
    let share = other_root.lend_safe(millis(freed - 40), SessionId(7), said).expect("the limit has some");
    other.let_pass(millis(freed));
    other.on_safe_share_above(millis(freed), share);
    assert_eq!([freed + 1, freed + 9_999, freed + 10_100].map(|at| held(&mut other, at)), [101, 101, 0]);
}

/// The shares are of rules that cannot carry on, or of an earlier process.
#[test]
fn a_pool_that_is_made_anew_keeps_back_what_nodes_may_go_on_with() {
    let (before, after) = (seated(3, 30), seated(1, 5));
    let shares = EarlierShares::of(&before, millis(0)).expect("it has some");
    let over = before.clocks.grantor_end(millis(0), LASTS) + before.clocks.stretched(SECOND);
    let just = over.since(millis(0)).as_millis() as u64;
    let at = |pool: &mut Pool| [just, just + 1].map(|at| pool.view(millis(at)).available);
    let made = |plan: &Arc<Plan>| {
        let mut pool = Pool::new(plan.clone(), millis(0));
        pool.keep_back(shares);
        pool
    };
    assert_eq!(at(&mut made(&after)), [70, 95]);
    assert_eq!(at(&mut made(&before)), [70, 70], "it keeps back as much in any case");
    assert!(made(&before).safe_shares.are_free());
    assert_eq!(at(&mut made(&plan(vec![bucket(100, 100, SECOND)]))), [0, 100]);
    // The last spends are still in longer windows.
    let longer = Plan { rules: vec![sliding(100, 3 * SECOND)], ..Plan::clone(&after) };
    let mut late = Pool::new(Arc::new(longer), over);
    late.keep_back(shares);
    assert_eq!(late.reserve(), 93);
    // Shares of two limits are taken to flow as fast as the faster ones.
    let slow = Plan { rules: vec![sliding(100, 3 * SECOND)], ..Plan::clone(&before) };
    let slow = EarlierShares::of(&slow, millis(0)).expect("it has some");
    for both in [shares.and(slow), slow.and(shares)] {
        let mut late = Pool::new(late.plan.clone(), over);
        late.keep_back(both);
        assert_eq!(late.reserve(), 93);
    }
    // A pool that replaces another one keeps back the shares that the other one told.
    let mut pool = Pool::new(before, millis(0));
    assert_eq!(share_of(&mut pool, 0, 1), Some(10));
    let mut anew = Pool::new(after, millis(0));
    anew.keep_back_shares_of(&pool);
    assert_eq!(at(&mut anew), [90, 95]);
    // Shares that were written down last for as long as any share.
    let read = shares.save().read(millis(0), anew.plan.clocks);
    let longest = anew.plan.clocks.grantor_end(millis(0), SafeShare::LASTS_MAX);
    assert!(read.are_out(longest) && !read.are_out(longest + 2 * SECOND));
}

#[test]
fn a_pool_with_seats_is_not_forgotten() {
    let mut pool = Pool::new(seated(1, 30), millis(0));
    assert!(pool.is_forgettable(millis(1)));
    share_of(&mut pool, 1, 1);
    assert!(!pool.is_forgettable(millis(2)));
    assert!(pool.is_forgettable(millis(7_000)));
}

/// The bug: a reserve that was raised in a live change was handed out at once, beside what had been spent of it.
#[test]
fn what_was_spent_before_a_reserve_was_raised_is_no_part_of_it() {
    let mut pool = pool(vec![sliding(100, SECOND)]);
    let mut spent = 0;
    for at in 0..5 {
        let all =
            Ask { spent_total: spent, want: 90, demand_milli: 90_000_000, waiting: 90, ..Ask::default() };
        spent += grant(pool.renew(millis(at), A, 1 + at, all)).permits;
    }
    assert!(spent > 80, "{spent}");
    pool.change(seated(3, 30), CarryOver::AsIs, millis(10));
    let room = 100 - spent;
    let had = [1, 2, 3].map(|id| share_of(&mut pool, 20, id).unwrap_or_default());
    assert!(had.iter().sum::<u64>() <= room, "{had:?} of {room}");
    assert_eq!(
        [1, 2, 3].map(|id| share_of(&mut pool, 1_100, id)),
        [Some(10); 3],
        "once that has left the window"
    );
}

/// The root of the limit of [`seated`] in a store.
fn root(nodes: u64, reserve: u64) -> Pool {
    Pool::new(Arc::new(Plan { is_root: true, ..(*seated(nodes, reserve)).clone() }), millis(0))
}

/// The pool of an allocator that leases from [`root`].
fn below(nodes: u64, reserve: u64) -> Pool {
    let plan = Plan { is_borrowed: true, rules: vec![], ..(*seated(nodes, reserve)).clone() };
    Pool::new(Arc::new(plan), millis(0))
}

/// Returns what the root lends the allocator `id`, whose nodes have `given` and want `more`.
fn lent(root: &mut Pool, at: u64, id: u64, given: u64, more: u64) -> u64 {
    let ask = SafeAsk { given, holders: given / 10, span: SECOND, more };
    root.lend_safe(millis(at), SessionId(id), ask).expect("the limit has some").permits
}

#[test]
fn a_root_lends_no_more_safe_shares_than_there_are() {
    let mut root = root(3, 30);
    assert_eq!([lent(&mut root, 0, 1, 0, 20), lent(&mut root, 0, 2, 0, 20)], [20, 10]);
    // An allocator that says that its nodes have less leaves the rest to another one.
    assert_eq!([lent(&mut root, 10, 1, 10, 0), lent(&mut root, 10, 2, 10, 20)], [10, 20]);
    // An allocator that has died keeps what it had until the shares of its nodes are over, and their spends have left
    // the window.
    let clocks = root.plan.clocks;
    let free = clocks.grantor_end(clocks.grantor_end(millis(10), LENT_FOR), LASTS) + clocks.stretched(SECOND);
    let just = free.since(millis(0)).as_millis() as u64;
    assert_eq!([lent(&mut root, just, 2, 20, 10), lent(&mut root, just + 1, 2, 20, 10)], [20, 30]);
}

#[test]
fn a_root_whose_windows_become_longer_keeps_back_what_each_node_may_spend_in_one() {
    let mut root = root(3, 30);
    assert_eq!([lent(&mut root, 0, 1, 0, 20), lent(&mut root, 1, 1, 20, 0)], [20, 20]);
    let longer = Plan { rules: vec![sliding(100, 2 * SECOND)], ..Plan::clone(&root.plan) };
    root.change(Arc::new(longer), CarryOver::AsIs, millis(10));
    // Two nodes, each of which may begin and end the window with a permit.
    assert_eq!(root.reserve(), 42);
}

#[test]
fn safe_shares_outlast_the_cell_of_their_root() {
    let mut root = root(3, 30);
    assert_eq!(lent(&mut root, 0, 1, 0, 20), 20);
    for (gap, more) in [(Gap::Counted, 0), (Gap::Unknown, 20_000)] {
        let snapshot = root.snapshot(millis(10)).expect("it has one");
        let at = 20 + more;
        root = Pool::from_snapshot(root.plan.clone(), &snapshot, gap, millis(at)).expect("it was one");
        assert_eq!((root.reserve(), lent(&mut root, at, 2, 0, 30)), (30, 10), "{gap:?}");
        root = {
            let mut root = Pool::new(root.plan.clone(), millis(0));
            assert_eq!(lent(&mut root, 0, 1, 0, 20), 20);
            root
        };
    }
}

#[test]
fn a_root_whose_books_were_lost_lends_none_until_every_earlier_one_is_over() {
    let plan = root(3, 30).plan.clone();
    let clocks = plan.clocks;
    let handed_out = clocks.grantor_end(millis(0), LENT_FOR);
    let opens = clocks.grantor_end(handed_out, SafeShare::LASTS_MAX) + clocks.stretched(SECOND);
    let just = opens.since(millis(0)).as_millis() as u64;
    let mut root = Pool::after_loss(plan, millis(0), millis(500));
    assert_eq!([lent(&mut root, just, 1, 0, 10), lent(&mut root, just + 1, 1, 0, 10)], [0, 10]);
    // What an allocator says that its nodes have is kept back meanwhile.
    let mut root = Pool::after_loss(root.plan.clone(), millis(0), millis(500));
    assert_eq!((lent(&mut root, 600, 1, 40, 0), root.reserve()), (0, 40));
}

/// Lets an allocator ask `root` and hear its answer. Returns the ask.
fn exchange(pool: &mut Pool, root: &mut Pool, at: u64) -> SafeAsk {
    let ask = pool.ask_safe_above(millis(at)).expect("the limit has some");
    let share = root.lend_safe(millis(at), SessionId(7), ask).expect("the limit has some");
    pool.on_safe_share_above(millis(at), share);
    ask
}

#[test]
fn an_allocator_hands_out_what_its_root_lends_for_as_long_as_that_counts_it() {
    let (mut root, mut pool) = (root(3, 30), below(3, 30));
    assert_eq!(share_of(&mut pool, 0, 1), None, "it has none yet");
    assert_eq!(exchange(&mut pool, &mut root, 1), SafeAsk { more: 10, ..SafeAsk::default() });
    assert_eq!([1, 2].map(|id| share_of(&mut pool, 2, id)), [Some(10), None]);
    assert_eq!(pool.reserve(), 0, "it is kept back in the root");
    assert_eq!(
        pool.safe_share(millis(3), SessionId(1)),
        Some(SafeShare { permits: 10, span: SECOND, lasts: LASTS })
    );
    let said = exchange(&mut pool, &mut root, 4);
    assert_eq!(said, SafeAsk { given: 10, holders: 1, span: SECOND, more: 10 });
    assert_eq!([1, 2, 3].map(|id| share_of(&mut pool, 5, id)), [Some(10), Some(10), None]);
    assert_eq!(root.reserve(), 30);
    let ends = pool.plan.clocks.holder_end(millis(4), HANDS_OUT).since(millis(0)).as_millis() as u64;
    assert_eq!([share_of(&mut pool, ends - 1, 1), share_of(&mut pool, ends, 2)], [Some(10), None]);
}

/// Between an ask and its answer, which may never come.
#[test]
fn an_allocator_that_has_asked_hands_out_no_more_than_it_said() {
    let (mut root, mut pool) = (root(3, 30), below(3, 30));
    assert_eq!([1, 2].map(|id| share_of(&mut pool, 0, id)), [None; 2]);
    exchange(&mut pool, &mut root, 1);
    assert_eq!(share_of(&mut pool, 2, 1), Some(10));
    let said = pool.ask_safe_above(millis(3)).expect("the limit has some");
    assert_eq!(said.given, 10);
    assert_eq!([1, 2].map(|id| share_of(&mut pool, 4, id)), [Some(10), None]);
    // Nor does an allocator whose clock may have stood still.
    let share = root.lend_safe(millis(3), SessionId(7), said).expect("the limit has some");
    pool.on_safe_share_above(millis(3), share);
    pool.hold_back_above(millis(5));
    assert_eq!([1, 2].map(|id| share_of(&mut pool, 6, id)), [None; 2]);
}

#[test]
fn an_allocator_asks_for_safe_shares_while_its_nodes_want_or_use_them() {
    let (rtt, mut root, mut pool) = (Duration::from_millis(4), root(3, 30), below(3, 30));
    assert_eq!(pool.asks_above(millis(0), rtt), Moment::NEVER);
    share_of(&mut pool, 0, 1);
    assert_eq!(pool.asks_above(millis(1), rtt), millis(1), "a node wants one");
    exchange(&mut pool, &mut root, 1);
    assert_eq!(pool.asks_above(millis(2), rtt), Moment::NEVER);
    share_of(&mut pool, 2, 1);
    assert_eq!(pool.asks_above(millis(3), rtt), millis(1) + HANDS_OUT / 2, "it has one");
    // There is none for more than three, and the root is not asked again and again.
    exchange(&mut pool, &mut root, 10);
    assert_eq!([2, 3, 4, 5].map(|id| share_of(&mut pool, 11, id)), [None; 4]);
    assert_eq!(pool.asks_above(millis(12), rtt), millis(1_010));
}
