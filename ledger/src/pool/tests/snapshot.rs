//! Tests that a pool which is put away after each exchange goes on as if it never had been.

use super::in_flight::in_flight;
use super::*;
use crate::rule::Gap;
use proptest::prelude::*;

/// What a session that leases does next.
#[derive(Clone, Copy, Debug)]
struct Step {
    wait: u64,
    who: usize,
    /// What it spends and gives back, in percent of what it holds.
    spends: u64,
    gives_back: u64,
    /// The calls that end, in percent of running calls.
    ends: u64,
    want: u64,
    waiting: u64,
    demand_milli: u64,
    /// For each group, in percent: the part of `want` that is for it, and the part of what it took that it keeps.
    groups: (u64, u64),
    /// Whether another session, which holds nothing, takes its place.
    dies: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    session: u64,
    spent: u64,
    held: u64,
    running: u64,
    until: Moment,
    /// What it took of the bucket of each group.
    taken: [u64; 2],
    /// Whether it was told to say what runs.
    says: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = (0..=100_u64, 0..=100_u64, 0..=100_u64);
    let groups = (0..=120_u64, 50..=100_u64);
    let step = (0..300_u64, 0..4_usize, parts, 0..80_u64, 0..5_u64, 0..90_000_u64, groups, 0..20_u32);
    let step = step.prop_map(|(wait, who, parts, want, waiting, demand_milli, groups, dies)| {
        let (spends, gives_back, ends) = parts;
        // Often at once, and seldom for long.
        let wait = if wait > 280 { wait * 20 } else { wait / 4 };
        Step { wait, who, spends, gives_back, ends, want, waiting, demand_milli, groups, dies: dies == 0 }
    });
    prop::collection::vec(step, 1..120)
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop::sample::select(vec![
        vec![sliding(100, SECOND)],
        vec![fixed(90, SECOND)],
        vec![bucket(70, 50, SECOND)],
        vec![first_use(60, SECOND)],
        vec![at_intervals(70, 50, SECOND)],
        vec![in_flight(60)],
        vec![sliding(100, SECOND), in_flight(40)],
        vec![sliding(300, 5 * SECOND), bucket(40, 80, SECOND), fixed(100, 2 * SECOND)],
    ])
}

/// Returns the pool as another allocator reads it from the text that a store has.
fn written_and_read(pool: &mut Pool, plan: &Arc<Plan>, now: Moment) -> Pool {
    let snapshot = pool.snapshot(now).expect("it can be");
    let text = serde_json::to_vec(&snapshot).expect("it is data");
    let read: Snapshot = serde_json::from_slice(&text).expect("it was written so");
    assert_eq!(read, snapshot);
    Pool::from_snapshot(plan.clone(), &read, Gap::Counted, now).expect("there was such a pool")
}

proptest! {
    #[test]
    fn it_lends_what_it_would_have_lent(
        rules in rules(),
        (ease_off, is_new, has_groups) in any::<(bool, bool, bool)>(),
        steps in steps(),
    ) {
        // Only roots are written down like this.
        let sharing = Sharing { guaranteed: if has_groups { vec![7, 20] } else { vec![] }, ..Sharing::default() };
        let plan = Arc::new(Plan { ease_off, is_root: true, sharing, ..(*plan(rules)).clone() });
        let mut now = millis(5);
        let first = || match is_new {
            true => Pool::new(plan.clone(), now),
            // In quarantine, which may be longer than it takes a bucket to refill.
            false => Pool::after_loss(plan.clone(), now, now),
        };
        let (mut kept, mut resumed) = (first(), first());
        let mut nodes = [Node::default(); 4];
        let (mut sessions, mut seq) = (0, 0);
        for step in steps {
            now = now + Duration::from_millis(step.wait);
            let node = &mut nodes[step.who];
            if step.dies || node.session == 0 {
                sessions += 1;
                *node = Node { session: sessions, ..Node::default() };
            }
            let spends = if now < node.until { node.held * step.spends / 100 } else { 0 };
            (node.spent, node.held) = (node.spent + spends, node.held - spends);
            node.held = if now < node.until { node.held - node.held * step.gives_back / 100 } else { 0 };
            node.running = (node.running + spends) * (100 - step.ends) / 100;
            seq += 1;
            let Step { want, waiting, demand_milli, .. } = step;
            let ask = Ask { spent_total: node.spent, held: node.held, want, waiting, demand_milli, ..Ask::default() };
            let ask = Ask { running: node.says.then_some(node.running), ..ask };
            let holder = Holder { id: SessionId(node.session), share: Share::EVEN, rtt: Duration::from_millis(3) };
            let (part, kept_of) = step.groups;
            node.taken = node.taken.map(|taken| taken * kept_of / 100);
            let groups = node.taken.map(|taken| GroupAsk { taken, want: (want * part / 100).saturating_sub(20) });
            let groups = if has_groups { &groups[..] } else { &[] };
            let answer = kept.renew_for_groups(now, holder, seq, ask, groups);
            prop_assert_eq!(&resumed.renew_for_groups(now, holder, seq, ask, groups), &answer);
            match answer {
                Ok((Answer::Grant(grant), lent)) => {
                    prop_assert!(lent.iter().sum::<u64>() <= grant.permits);
                    // Now and then the answer is lost, as far as groups go.
                    if !step.spends.is_multiple_of(7) {
                        node.taken.iter_mut().zip(lent).for_each(|(taken, lent)| *taken += lent);
                    }
                    node.held = grant.kept + grant.permits;
                    node.until = plan.clocks.holder_end(now, grant.term);
                    node.says = grant.in_flight.is_some();
                }
                Ok((Answer::Refusal(_), _)) => {}
                // The session was forgotten long ago: it begins anew.
                Err(_) => *node = Node::default(),
            }
            resumed = written_and_read(&mut resumed, &plan, now);
            // The forecast is known only to the pool that was asked.
            let view = kept.view(now);
            let known = PoolView { forecast: Forecast::default(), time_to_empty: None, ..view };
            prop_assert_eq!(resumed.view(now), known);
            prop_assert_eq!(resumed.is_forgettable(now), kept.is_forgettable(now));
        }
    }
}

/// The bug: a bucket that was put away, or written down, in quarantine began to refill then, and not at the end of the
/// quarantine.
#[test]
fn a_bucket_that_is_put_away_in_quarantine_is_empty_at_its_end() {
    let plan = plan(vec![bucket(1_000, 1_000, SECOND)]);
    let mut pool = Pool::after_loss(plan.clone(), millis(0), millis(0));
    let end = millis(0) + pool.view(millis(0)).quarantine;
    let then = millis(100);
    let (checkpoint, _) = pool.checkpoint(then, SECOND).expect("it is kept");
    let resumed = written_and_read(&mut pool, &plan, then);
    let restored =
        Pool::from_checkpoint(plan.clone(), &checkpoint, Gap::Counted, then).expect("there was such a pool");
    for mut again in [resumed, restored] {
        assert_eq!(again.view(end).available, 0);
        assert!((990..=1_000).contains(&again.view(end + SECOND).available));
    }
}

/// A root is put away after each exchange: an excess that is not saved would last for one exchange only.
#[test]
fn a_limit_of_which_more_is_wanted_goes_on_evenly() {
    let plan = Arc::new(Plan { ease_off: true, ..(*plan(vec![sliding(5_000, 5 * SECOND)])).clone() });
    let mut pool = Pool::new(plan.clone(), millis(0));
    let (mut spent, mut by_second) = (0, [0; 20]);
    for step in 0..400 {
        let now = millis(step * 50);
        let wants = Ask { demand_milli: 9_000_000, ..ask(spent, 0, 450) };
        let lent = grant(pool.renew(now, A, step + 1, wants)).permits;
        spent += lent;
        by_second[usize::try_from(step / 20).expect("it is small")] += lent;
        pool = written_and_read(&mut pool, &plan, now);
    }
    assert!(
        by_second[..5].iter().any(|&lent| lent < 300),
        "the first window is used up at once: {by_second:?}"
    );
    let even = |&lent: &u64| (900..=1_100).contains(&lent);
    assert!(by_second[6..].iter().all(even), "then a fifth each second: {by_second:?}");
}

/// It is unknown how long the snapshot lay there. Permits that were out are out for as long as they had to last, and
/// spent permits count as long.
#[test]
fn after_a_gap_it_lends_nothing_sooner() {
    let plan = plan(vec![sliding(10, SECOND)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    let lent = grant(pool.renew(millis(0), A, 1, ask(0, 0, 10))).permits;
    let snapshot = pool.snapshot(millis(1)).expect("it can be");
    let later = millis(1_000_000);
    let mut after = Pool::from_snapshot(plan, &snapshot, Gap::Unknown, later).expect("it is of use");
    assert_eq!(after.view(later).books.outstanding, lent);
    assert_eq!(after.view(later + SECOND).available, 10 - lent, "burned by now, and in the window");
    assert_eq!(after.view(later + 2 * SECOND + SECOND / 10).available, 10);
}

#[test]
fn what_no_pool_can_have_been_is_not_gone_on_with() {
    let plan = plan(vec![sliding(10, SECOND)]);
    let mut pool = Pool::new(plan.clone(), millis(0));
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 10)));
    let snapshot = serde_json::to_value(pool.snapshot(millis(1)).expect("it can be")).expect("data");
    let resumes = |snapshot: &serde_json::Value, plan: &Arc<Plan>| {
        let read: Result<Snapshot, _> = serde_json::from_value(snapshot.clone());
        read.ok()
            .and_then(|snapshot| Pool::from_snapshot(plan.clone(), &snapshot, Gap::Counted, millis(2)))
            .is_some()
    };
    assert!(resumes(&snapshot, &plan));
    let other = |path: &str, value: serde_json::Value| {
        let mut other = snapshot.clone();
        *other.pointer_mut(path).expect("it is there") = value;
        assert!(!resumes(&other, &plan), "{path}");
    };
    other("/books/0", 1.into());
    other("/lessees/0/out", 3.into());
    other("/lessees/0/out", u64::MAX.into());
    other("/lessees/0/burned", 1.into());
    // The bug: this sum overflowed in the first ask after that, and one such cell stopped all allocators.
    other("/lessees/0/rtt", serde_json::json!({ "secs": u64::MAX, "nanos": 999_999_999 }));
    other("/written", millis(3).as_nanos().into());
    other("/rules", serde_json::json!([]));
    let twice = snapshot["lessees"][0].clone();
    other("/lessees", serde_json::json!([twice, twice]));
    assert!(!resumes(&snapshot, &super::plan(vec![bucket(10, 1, SECOND)])));
}
