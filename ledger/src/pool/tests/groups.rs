//! Tests of what groups of nodes are guaranteed of a limit, in a shared store and without one.

use super::*;
use crate::rule::{Gap, LeakyBucket};

const RTT: Duration = Duration::from_millis(4);

fn guaranteed(groups: &[u64]) -> Plan {
    let sharing = Sharing { guaranteed: groups.to_vec(), ..Sharing::default() };
    Plan { sharing, ..(*plan(vec![sliding(100, SECOND)])).clone() }
}

/// The root of the limit of [`guaranteed`] in a store.
fn root(groups: &[u64]) -> Pool {
    Pool::new(Arc::new(Plan { is_root: true, ..guaranteed(groups) }), millis(0))
}

/// The pool of an allocator that leases from [`root`].
fn below(groups: &[u64]) -> Pool {
    Pool::new(Arc::new(Plan { is_borrowed: true, rules: vec![], ..guaranteed(groups) }), millis(0))
}

/// An allocator that asks a root, as often as it likes, and spends nothing.
#[derive(Debug)]
struct Allocator {
    id: u64,
    seq: u64,
    held: u64,
    taken: u64,
}

impl Allocator {
    fn new(id: u64) -> Self {
        Allocator { id, seq: 0, held: 0, taken: 0 }
    }

    /// Returns what it is lent of `want`, and the part of that for the group, for which it wants `of_group`.
    fn lent(&mut self, root: &mut Pool, at: u64, want: u64, of_group: u64) -> (u64, u64) {
        self.seq += 1;
        let holder = Holder { id: SessionId(self.id), ..A };
        let ask = Ask { demand_milli: want * 1_000, ..ask(0, self.held, want) };
        let groups = [GroupAsk { taken: self.taken, want: of_group }];
        let (answer, lent) =
            root.renew_for_groups(millis(at), holder, self.seq, ask, &groups).expect("it is true");
        (answer.grant().expect("it is lent something, or nothing").permits, lent[0])
    }

    /// Asks like [`Allocator::lent`], and the answer arrives.
    fn takes(&mut self, root: &mut Pool, at: u64, want: u64, of_group: u64) -> (u64, u64) {
        let (permits, of_group) = self.lent(root, at, want, of_group);
        (self.held, self.taken) = (self.held + permits, self.taken + of_group);
        (permits, of_group)
    }
}

/// A root from which an allocator has taken all permits for nodes of no group.
fn drained() -> (Pool, Allocator) {
    let (mut root, mut greedy) = (root(&[25]), Allocator::new(1));
    for at in 0..50 {
        greedy.takes(&mut root, at, 100, 0);
    }
    assert_eq!(greedy.held, 75, "the rest is kept");
    (root, greedy)
}

#[test]
fn nodes_of_a_group_are_lent_what_is_guaranteed_whichever_allocator_they_ask() {
    let (mut root, mut greedy) = drained();
    let mut other = Allocator::new(2);
    assert_eq!(other.takes(&mut root, 51, 10, 0), (0, 0), "its nodes are of no group");
    assert_eq!(other.takes(&mut root, 52, 100, 10), (10, 10));
    assert_eq!(greedy.takes(&mut root, 53, 100, 100), (15, 15));
    // Groups that no configuration has are ignored.
    let nonsense = [GroupAsk { taken: 0, want: 0 }, GroupAsk { taken: PERMITS_MAX, want: PERMITS_MAX }];
    let asked =
        root.renew_for_groups(millis(54), Holder { id: SessionId(3), ..A }, 1, ask(0, 0, 9), &nonsense);
    assert_eq!(asked.map(|(answer, lent)| (answer.permits(), lent)), Ok((0, vec![0])));
}

/// The answer is lost, or the allocator gives back what no node wanted after all.
#[test]
fn what_did_not_arrive_or_comes_back_is_there_for_the_group_again() {
    let (mut root, _) = drained();
    let mut other = Allocator::new(2);
    assert_eq!(other.lent(&mut root, 51, 20, 20), (20, 20));
    assert_eq!(root.groups.guarantees.owed(Some(0)), 5);
    assert_eq!(other.takes(&mut root, 52, 20, 20), (20, 20), "it has heard nothing, and asks again");
    assert_eq!(root.groups.guarantees.owed(Some(0)), 5);
    (other.held, other.taken) = (12, 12);
    assert_eq!(other.takes(&mut root, 53, 0, 0), (0, 0));
    assert_eq!(root.groups.guarantees.owed(Some(0)), 13);
    // An ask that cannot be true changes nothing.
    let lie = [GroupAsk { taken: 0, want: 13 }];
    let holder = Holder { id: SessionId(2), ..A };
    assert!(root.renew_for_groups(millis(54), holder, 9, ask(0, 90, 13), &lie).is_err());
    assert_eq!((root.groups.guarantees.owed(Some(0)), root.guaranteed_to(Share::EVEN, 20)), (13, (13, 0)));
}

#[test]
fn allocators_whose_nodes_want_some_share_what_is_guaranteed() {
    let (mut root, _) = drained();
    let (mut one, mut other) = (Allocator::new(2), Allocator::new(3));
    assert_eq!(one.takes(&mut root, 51, 4, 30), (4, 4), "it could hold no more yet");
    assert_eq!(other.takes(&mut root, 52, 50, 50), (11, 11), "half of what is left");
    assert_eq!(one.takes(&mut root, 53, 50, 50), (5, 5));
    // An allocator that does not come again keeps nothing from the other for long.
    let (mut last, mut at) = (0, 0);
    while root.groups.guarantees.owed(Some(0)) > 0 {
        at += 10;
        last = 53 + at;
        other.takes(&mut root, last, 50, 50);
    }
    assert!(last < 200, "{last} ms");
}

#[test]
fn what_is_guaranteed_outlasts_the_cell_of_its_root() {
    let (mut root, _) = drained();
    let mut other = Allocator::new(2);
    assert_eq!(other.lent(&mut root, 51, 20, 20), (20, 20));
    let snapshot = root.snapshot(millis(51)).expect("it has one");
    assert!(snapshot.has_groups());
    for (gap, at) in [(Gap::Counted, 52), (Gap::Unknown, 90_000)] {
        let mut again =
            Pool::from_snapshot(root.plan.clone(), &snapshot, gap, millis(at)).expect("it was one");
        assert_eq!(again.groups.guarantees.owed(Some(0)), 5, "{gap:?}");
        other.seq = 1;
        assert_eq!(other.lent(&mut again, at, 20, 20), (20, 20), "the answer was lost: {gap:?}");
    }
    // By another configuration the first group has what it had, and a new group is full.
    for (groups, kept) in [([4, 8], 4 + 8), ([7, 8], 5 + 8)] {
        let plan = Arc::new(Plan { is_root: true, ..guaranteed(&groups) });
        let again = Pool::from_snapshot(plan, &snapshot, Gap::Counted, millis(52)).expect("it was one");
        assert_eq!(again.groups.guarantees.kept_from(None), kept);
    }
    // The snapshot of a new pool says nothing of groups.
    let mut new = self::root(&[25]);
    assert!(new.snapshot(millis(1)).is_some_and(|snapshot| !snapshot.has_groups()));
}

/// Makes an exchange of `pool` with its root, which lends `lent` permits, `of_group` of them for the group.
fn exchange(pool: &mut Pool, at: u64, lent: u64, of_group: u64) -> (Ask, GroupAsk) {
    let ask = pool.ask_above(millis(at), RTT).expect("it leases");
    let groups = pool.ask_groups_above(&ask, RTT);
    let [said] = groups[..] else { panic!("it has one group: {groups:?}") };
    let answer = Grant {
        kept: ask.held,
        permits: lent,
        term: SECOND,
        horizon: SECOND,
        ceiling: 100,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: lessor_protocol::Rate::Free,
        in_flight: None,
    };
    assert_eq!(pool.on_grant_above(millis(at), millis(at), &answer), GrantOutcome::Believed);
    pool.on_groups_above(&[of_group], lent);
    (ask, said)
}

const MEMBER: Holder = Holder { share: Share { group: Some(0), ..Share::EVEN }, ..B };

#[test]
fn an_allocator_keeps_for_a_group_what_was_lent_for_it() {
    let mut pool = below(&[25]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 30)));
    grant(pool.renew(millis(0), MEMBER, 1, ask(0, 0, 20)));
    let (said, of_group) = exchange(&mut pool, 1, 20, 15);
    assert!(said.want >= 50 && of_group.want >= 20, "{said:?}: {of_group:?}");
    assert_eq!((of_group.taken, pool.groups.guarantees.owed(Some(0))), (0, 15));
    let mut lent = 0;
    for seq in 2..20 {
        lent += grant(pool.renew(millis(20 * seq), A, seq, ask(0, lent, 30 - lent))).permits;
    }
    assert_eq!(lent, 5, "the rest is kept");
    assert!(pool.asks_above(millis(400), RTT) <= millis(400), "a session waits, though there is something");
    assert_eq!(grant(pool.renew(millis(401), MEMBER, 2, ask(0, 0, 20))).permits, 15);
    // The pool says what it took until it gives that back.
    assert_eq!(exchange(&mut pool, 402, 10, 5).1.taken, 15);
    assert_eq!(pool.groups.guarantees.owed(Some(0)), 5);
    grant(pool.renew(millis(403), MEMBER, 3, ask(0, 12, 0)));
    assert_eq!(pool.groups.guarantees.owed(Some(0)), 8, "three came back");
    let (_, of_group) = exchange(&mut pool, 404, 0, 0);
    assert_eq!((of_group, pool.groups.guarantees.owed(Some(0))), (GroupAsk { taken: 12, want: 0 }, 0));
}

/// The bug: a node was told that one call may take the whole limit. A call of more than other groups leave was first in
/// line for ever.
#[test]
fn no_node_is_told_that_a_call_may_take_what_is_guaranteed_to_others() {
    let of = |group| Holder { share: Share { group, ..Share::EVEN }, ..A };
    let told = |pool: &mut Pool, group| grant(pool.renew(millis(0), of(group), 1, ask(0, 0, 1))).ceiling;
    let groups = [None, Some(0), Some(1)];
    let all =
        |plan: &Plan| groups.map(|group| told(&mut Pool::new(Arc::new(plan.clone()), millis(0)), group));
    assert_eq!(all(&guaranteed(&[25])), [75, 100, 75]);
    assert_eq!(all(&guaranteed(&[25, 75])), [0, 25, 75]);
    let reserved = guaranteed(&[25]);
    let sharing = Sharing { reserve: 10, lease_max: 80, ..reserved.sharing.clone() };
    assert_eq!(all(&Plan { sharing, ..reserved }), [65, 80, 65]);
    // A steady flow keeps nothing for groups. A rule beside it does.
    let flow = Rule::LeakyBucket(LeakyBucket::try_new(60, 50, SECOND).expect("valid"));
    let beside = Plan { rules: vec![flow, sliding(100, SECOND)], ..guaranteed(&[25, 45]) };
    assert_eq!(all(&Plan { rules: vec![flow], ..beside.clone() }), [60, 60, 60]);
    assert_eq!(all(&beside), [30, 55, 60]);
    // Nodes of any group may ask an allocator that leases from a root.
    assert_eq!(grant(root(&[25]).renew(millis(0), A, 1, ask(0, 0, 1))).ceiling, 100);
    let mut pool = below(&[25]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 30)));
    exchange(&mut pool, 1, 20, 0);
    let nodes = [(A, 2), (MEMBER, 1)];
    let told = nodes.map(|(node, seq)| grant(pool.renew(millis(20), node, seq, ask(0, 0, 1))).ceiling);
    assert_eq!(told, [75, 100]);
}

/// Permits that a root says it lent, but cannot have lent, are not kept for the group.
#[test]
fn no_more_is_kept_for_groups_than_was_lent() {
    let mut pool = below(&[25]);
    grant(pool.renew(millis(0), MEMBER, 1, ask(0, 0, 20)));
    exchange(&mut pool, 1, 3, 15);
    assert_eq!(pool.groups.guarantees.owed(Some(0)), 3);
    // Nor is more kept than there is, once the lease is over.
    let over = millis(1_500);
    let ask = pool.ask_above(over, RTT).expect("it leases");
    assert_eq!(pool.ask_groups_above(&ask, RTT).len(), 1);
    assert_eq!((ask.held, pool.groups.guarantees.owed(Some(0))), (0, 0));
}

/// A group is idle for four windows, while others want five times what there is. Then it wants what is guaranteed, a part with each
/// ask: little is left before it has all of that.
#[test]
fn a_group_that_wakes_has_what_is_guaranteed_while_all_else_is_lent_evenly() {
    let sharing = Sharing { guaranteed: vec![300], ..Sharing::default() };
    let plan = Plan { sharing, ease_off: true, ..(*plan(vec![sliding(600, 10 * SECOND)])).clone() };
    let mut pool = Pool::new(Arc::new(plan), millis(0));
    let member = Holder { share: Share { group: Some(0), ..Share::EVEN }, ..B };
    let (mut others, mut own) = (0, 0);
    let mut asks = |pool: &mut Pool, now: Moment, seq: u64| {
        let wants = Ask { demand_milli: 300_000, ..ask(others, 0, 150) };
        others += grant(pool.renew(now, A, seq, wants)).permits;
    };
    let mut wakes = |pool: &mut Pool, now: Moment, seq: u64, want: u64| {
        own +=
            grant(pool.renew(now, member, seq, Ask { demand_milli: 300_000, ..ask(own, 0, want) })).permits;
        own
    };
    for step in 1..400 {
        asks(&mut pool, millis(step * 100), step);
    }
    wakes(&mut pool, millis(39_950), 1, 1);
    let mut had = vec![];
    for step in 0..16 {
        let now = millis(40_000 + step * 50);
        asks(&mut pool, now, 400 + step);
        had.push(wakes(&mut pool, now, 2 + step, 20));
    }
    assert!(had[15] >= 300, "0.8 s after it woke: {had:?}");
}
