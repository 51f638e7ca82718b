//! Tests that a pool which rests whenever it can does what a pool does that never rests.

use super::in_flight::in_flight;
use super::*;
use crate::CarryOver;
use crate::rule::WarmUp;
use crate::share::{Owner, Safe};
use lessor_protocol::{Left, Observed, Refusal, RefusalReason};
use proptest::prelude::*;

/// What is done to a pool next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A session asks. `parts` are what it spends and gives back, in percent of what it holds, and the calls that end,
    /// in percent of running calls.
    Ask {
        who: usize,
        parts: [u64; 3],
        want: u64,
        waiting: u64,
        demand_milli: u64,
    },
    /// A session asks, and is lent nothing.
    Refused(usize),
    Leaves(usize),
    Dies(usize),
    /// A session reports on the vendor.
    Observes(usize, u64),
    SafeShare(usize),
    TopUp(u64),
    /// The rules lend this percentage of what they lent at first.
    Change(u64, CarryOver),
    /// A session forgets what it spent.
    ComesBack(usize),
    Checkpoint,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    session: u64,
    spent: u64,
    held: u64,
    running: u64,
    until: Moment,
    /// Whether it was told to say what runs.
    says: bool,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let parts = [0..=100_u64, 0..=100_u64, 0..=100_u64];
    let ask = (0..3_usize, parts, 0..80_u64, 0..3_u64, 0..90_000_u64).prop_map(
        |(who, parts, want, waiting, demand_milli)| Act::Ask { who, parts, want, waiting, demand_milli },
    );
    let act = prop_oneof![
        12 => ask,
        1 => (0..3_usize).prop_map(Act::Refused),
        2 => (0..3_usize).prop_map(Act::Leaves),
        2 => (0..3_usize).prop_map(Act::Dies),
        1 => (0..3_usize, 0..60_u64).prop_map(|(who, left)| Act::Observes(who, left)),
        1 => (0..3_usize).prop_map(Act::SafeShare),
        1 => (0..50_u64).prop_map(Act::TopUp),
        1 => (1..200_u64, prop::sample::select(CarryOver::ALL.to_vec()))
            .prop_map(|(percent, carry_over)| Act::Change(percent, carry_over)),
        1 => (0..3_usize).prop_map(Act::ComesBack),
        1 => Just(Act::Checkpoint),
    ];
    // Often without a wait, sometimes until leases have ended and sessions count no more, and seldom until all is
    // forgotten.
    let wait = prop_oneof![6 => 0..400_u64, 3 => 1_000..5_000_u64, 2 => 5_000..40_000_u64];
    prop::collection::vec((wait, act), 1..60)
}

fn kinds() -> impl Strategy<Value = usize> {
    0..9_usize
}

/// The rules of a `kind`, which lend `percent` of their full limits.
fn rules(kind: usize, percent: u64) -> Vec<Rule> {
    let part = |permits: u64| permits * percent / 100;
    let warm_up = WarmUp::try_new(20 * SECOND, 3).expect("valid");
    let warming = TokenBucket::try_new(part(70), 50, SECOND, part(70)).expect("valid");
    let warming = warming.with_warm_up(warm_up).expect("valid");
    match kind {
        0 => vec![sliding(part(100), SECOND)],
        1 => vec![sliding(part(100), 30 * SECOND)],
        2 => vec![fixed(part(90), 40 * SECOND)],
        3 => vec![bucket(part(70), 50, 10 * SECOND)],
        4 => vec![first_use(part(60), 20 * SECOND)],
        5 => vec![at_intervals(part(70), 50, 9 * SECOND)],
        6 => vec![Rule::TokenBucket(warming)],
        7 => vec![log(part(60), 8 * SECOND), in_flight(40)],
        _ => {
            vec![sliding(part(300), 15 * SECOND), bucket(part(70), 50, SECOND), fixed(part(100), 20 * SECOND)]
        }
    }
}

/// Does `act` to `pool`, and returns what came of it.
fn done(
    pool: &mut Pool,
    now: Moment,
    act: Act,
    plan: &Arc<Plan>,
    ask: Ask,
    holder: Holder,
    seq: u64,
) -> String {
    let refusal = Refusal { reason: RefusalReason::Paused, retry_after: SECOND };
    match act {
        Act::Ask { .. } => format!("{:?}", pool.renew(now, holder, seq, ask)),
        Act::Refused(_) => format!("{:?}", pool.settle_only(now, holder, seq, ask, refusal)),
        Act::Leaves(_) | Act::Dies(_) => {
            let goodbye = Goodbye {
                spent_total: ask.spent_total,
                running: ask.running,
                held: Some(ask.held),
                shadow_refused: 0,
            };
            let leaves = matches!(act, Act::Leaves(_));
            format!("{:?}", leaves.then(|| pool.leave(now, holder.id, seq, goodbye)))
        }
        Act::Observes(_, permits) => {
            let left = Some(Left { permits, lasts: Some(SECOND) });
            let wait = (permits % 3 == 0).then_some(SECOND);
            let observed = Observed { number: seq, refused_total: seq, wait, left, ..Observed::default() };
            format!("{:?}", pool.observe(now, holder.id, &observed))
        }
        Act::SafeShare(_) => format!("{:?}", pool.safe_share(now, holder.id)),
        Act::TopUp(permits) => format!("{:?}", pool.top_up(permits, now)),
        Act::Change(_, carry_over) => format!("{:?}", pool.change(plan.clone(), carry_over, now)),
        Act::ComesBack(_) => String::new(),
        Act::Checkpoint => {
            let written = pool.checkpoint(now, SECOND);
            written.iter().for_each(|(_, mark)| pool.raise_high_water(*mark));
            format!("{written:?}")
        }
    }
}

proptest! {
    #[test]
    fn a_pool_that_rests_at_every_chance_goes_on_as_one_that_never_does(
        kind in kinds(),
        ease_off: bool,
        is_shared: bool,
        acts in acts(),
    ) {
        let mut sharing = Sharing::default();
        if is_shared && kind < 2 {
            let safe = Some(Safe { nodes: 2, lasts: SECOND });
            sharing = Sharing { reserve: 10, guaranteed: vec![20, 15], safe, ..sharing };
        }
        let of = |percent| Arc::new(Plan { ease_off, sharing: sharing.clone(), ..(*plan(rules(kind, percent))).clone() });
        let mut plan = of(100);
        let (mut now, mut seq, mut sessions) = (millis(5), 0, 0);
        let mut awake = Pool::new(plan.clone(), now);
        let mut rests = awake.clone();
        let mut nodes = [Node::default(); 3];
        for (wait, act) in acts {
            let then = now;
            now = now + Duration::from_millis(wait);
            seq += 1;
            if let Some(resting) = rests.rest() {
                let (seen, until) = (rests.view(then), resting.rests_until());
                rests = resting.wake();
                prop_assert_eq!(format!("{rests:?}"), format!("{:?}", { awake.rest().expect("as the other"); &awake }));
                if then < until {
                    let last = Moment::from_nanos(until.as_nanos() - 1).min(now);
                    let mut later = rests.clone();
                    prop_assert!(!later.is_forgettable(last), "it rests until {:?}", until);
                    prop_assert_eq!(later.view(last), seen);
                }
            }
            let who = match act {
                Act::Ask { who, .. } => who,
                Act::Refused(who) | Act::Leaves(who) | Act::Dies(who) => who,
                Act::SafeShare(who) | Act::ComesBack(who) => who,
                Act::Observes(who, _) => who,
                Act::TopUp(_) | Act::Change(..) | Act::Checkpoint => 0,
            };
            if let Act::Change(percent, _) = act {
                plan = of(percent);
            }
            let node = &mut nodes[who];
            if node.session == 0 {
                sessions += 1;
                *node = Node { session: sessions, ..Node::default() };
            }
            let mut ask = Ask::default();
            if let Act::Ask { parts: [spends, gives_back, ends], want, waiting, demand_milli, .. } = act {
                let spends = if now < node.until { node.held * spends / 100 } else { 0 };
                (node.spent, node.held) = (node.spent + spends, node.held - spends);
                node.held = if now < node.until { node.held - node.held * gives_back / 100 } else { 0 };
                node.running = (node.running + spends) * (100 - ends) / 100;
                ask = Ask { want, waiting, demand_milli, ..ask };
            }
            ask = Ask {
                spent_total: node.spent,
                held: node.held,
                running: node.says.then_some(node.running),
                ..ask
            };
            let group = is_shared.then_some(usize::from(who > 0));
            let share = Share { weight: 1 + who as u64, priority: 0, group, owner: Owner(who as u64 % 3) };
            let holder = Holder { id: SessionId(node.session), share, rtt: Duration::from_millis(3) };
            let came = done(&mut awake, now, act, &plan, ask, holder, seq);
            prop_assert_eq!(done(&mut rests, now, act, &plan, ask, holder, seq), came);
            if let Act::Leaves(_) | Act::Dies(_) = act {
                *node = Node::default();
            } else if let Act::ComesBack(_) = act {
                *node = Node { session: node.session, ..Node::default() };
            } else if let Act::Ask { .. } = act {
                // An ask that is answered gets the same answer again.
                let answer = awake.renew(now, holder, seq, ask);
                prop_assert_eq!(&rests.renew(now, holder, seq, ask), &answer);
                match answer {
                    Ok(Answer::Grant(grant)) => {
                        node.held = grant.kept + grant.permits;
                        node.until = plan.clocks.holder_end(now, grant.term);
                        node.says = grant.in_flight.is_some();
                    }
                    Ok(Answer::Refusal(_)) => {}
                    Err(_) => *node = Node::default(),
                }
            }
            prop_assert_eq!(rests.view(now), awake.view(now));
            prop_assert_eq!(rests.is_forgettable(now), awake.is_forgettable(now));
            prop_assert_eq!(rests.wants_checkpoint(), awake.wants_checkpoint());
            prop_assert!(rests.holdings(now).eq(awake.holdings(now).collect::<Vec<_>>()));
        }
    }
}
