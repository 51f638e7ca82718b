//! Tests that sessions which share a flow see the same of each other as a walk over all of them, whatever they do.

pub(super) mod walk;

use super::waiting::Waiters;
use super::*;
use crate::CarryOver;
use crate::Rule;
use crate::fixtures::{SECOND, flow, sliding};
use crate::pool::ages::Age;
use crate::pool::{Above, Goodbye, Holder, Plan, SessionId};
use crate::share::{Owner, Share, Sharing};
use lessor_protocol::{Answer, Refusal, RefusalReason};
use proptest::prelude::*;
use std::sync::Arc;

/// The figures of other sessions that the grant of a part of a flow depends on.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    whole: Part,
    room: Option<Part>,
    count: u64,
    needs: u64,
    weights: u128,
    cap: Option<u64>,
    share: u64,
    ahead: Waiters,
    is_of_several: bool,
    hand_overs: (Option<Moment>, usize),
}

impl Figures {
    fn of(pool: &Pool, place: Place, ask: &Ask) -> Self {
        let row = pool.row(place, ask).expect("it has a flow");
        Figures {
            whole: row.whole,
            room: row.room,
            count: row.count(),
            needs: row.needs(),
            weights: row.weights(),
            cap: row.cap(),
            share: row.share(),
            ahead: row.ahead(),
            is_of_several: row.has_several_owners(),
            hand_overs: pool.sessions.hand_overs(),
        }
    }
}

/// Checks that each session of `pool` sees the same at `now` as a walk over all others. Returns what each sees.
fn compare(pool: &Pool, now: Moment, demand_milli: u64) -> Result<Vec<Figures>, TestCaseError> {
    let mut pool = pool.clone();
    pool.advance(now);
    let speed = pool.flow.as_deref().expect("it has one").speed();
    pool.sessions.share_flow(speed, pool.now);
    pool.audit();
    let places: Vec<Place> = pool.sessions.iter().map(|(place, _)| place).collect();
    let (mut all, mut caps) = (vec![], 0);
    for id in places {
        let before = pool.sessions[id].age;
        pool.sessions.update(id, |session| session.age = Age::Asking);
        let ask = Ask { demand_milli, ..Ask::default() };
        let figures = Figures::of(&pool, id, &ask);
        prop_assert_eq!(&figures, &walk::figures(&pool, id, &ask), "of {:?}", pool.sessions[id]);
        pool.sessions.update(id, |session| session.age = before);
        if walk::is_in_flow(&pool, &pool.sessions[id]) {
            caps += figures.cap.unwrap_or(0);
        }
        all.push(figures);
    }
    let burst = pool.flow.as_deref().expect("it has one").burst();
    prop_assert!(caps <= burst, "{} of {} are due: {:?}", caps, burst, all);
    pool.audit();
    Ok(all)
}

/// What a session says of the rate that it was told.
#[derive(Clone, Copy, Debug)]
enum Says {
    Holds,
    LetsGo,
    Nothing,
}

/// An act of a node.
#[derive(Clone, Copy, Debug)]
enum Act {
    Asks {
        says: Says,
        want: u64,
        waiting: u64,
        demand_milli: u64,
        largest: u64,
    },
    /// It asks, and is lent nothing.
    Refused,
    Leaves,
    /// Another session begins in its place.
    Dies,
    /// It has this identity and weight from now on.
    IsOf(u64, u64),
    /// Leases last for this many milliseconds at most from now on.
    Change(u64),
}

/// A node, the time since the step before in nanoseconds, and what the node does.
type Step = (usize, u64, Act);

const NODES: usize = 7;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let says = prop_oneof![4 => Just(Says::Holds), 3 => Just(Says::LetsGo), 1 => Just(Says::Nothing)];
    let demand = prop::sample::select(vec![0, 1_000, 50_000, 900_000, 20_000_000]);
    let asks = (says, prop::sample::select(vec![0, 1, 20]), 0..3_u64, demand, 1..4_u64).prop_map(
        |(says, want, waiting, demand_milli, largest)| Act::Asks {
            says,
            want,
            waiting,
            demand_milli,
            largest,
        },
    );
    let act = prop_oneof![
        30 => asks,
        1 => Just(Act::Refused),
        2 => Just(Act::Leaves),
        1 => Just(Act::Dies),
        2 => (0..4_u64, 1..4_u64).prop_map(|(owner, weight)| Act::IsOf(owner, weight)),
        1 => (300..2_000_u64).prop_map(Act::Change),
    ];
    // Often without a wait, so that several sessions have waited since one moment.
    let wait = prop_oneof![
        6 => Just(0_u64),
        8 => (0..20_u64).prop_map(|millis| millis * 1_000_000),
        2 => 0..400_000_000_u64,
        1 => 0..8_000_000_000_u64,
    ];
    prop::collection::vec((0..NODES, wait, act), 1..90)
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    holder: Option<Holder>,
    seq: u64,
    spent: u64,
    held: u64,
    rate: Option<RateLease>,
}

/// The pool of a limit with a steady flow, which is the last one, and perhaps a pool below it.
struct World {
    pools: Vec<Pool>,
    nodes: [Node; NODES],
    begun: u64,
    now: Moment,
}

fn plan(rule: Rule, term_max: Duration) -> Arc<Plan> {
    Arc::new(Plan {
        lessees_max: 100,
        sharing: Sharing { term_max, ..Sharing::default() },
        ..Plan::of(vec![rule])
    })
}

fn rules(burst: u64, refill: u64, is_below: bool) -> Vec<Rule> {
    let flow = flow(burst, refill, SECOND);
    if is_below { vec![sliding(900, 30 * SECOND), flow] } else { vec![flow] }
}

impl World {
    fn new(rules: Vec<Rule>, owners: u64) -> Self {
        let now = Moment::from_nanos(1_000_000_000_000);
        let pools = rules.into_iter().map(|rule| Pool::new(plan(rule, Sharing::default().term_max), now));
        let mut world = World { pools: pools.collect(), nodes: [Node::default(); NODES], begun: 0, now };
        for who in 0..NODES {
            world.begin(who);
            world.be_of(who, who as u64 % owners, 1 + who as u64 % 3);
        }
        world
    }

    fn flowing(&self) -> &Pool {
        self.pools.last().expect("there is one at least")
    }

    /// Returns up to three moments before `next` after which a session no longer counts, or loses its place in the row.
    fn edges(&self, next: Moment) -> Vec<Moment> {
        let pool = self.flowing();
        let active = |session: &Session| pool.sessions.ages().active(session.rtt);
        let edges = |session: &Session| [session.answered + active(session), session.turn.expected];
        let mut edges: Vec<_> = pool.sessions.values().flat_map(edges).collect();
        edges.retain(|edge| (self.now..next).contains(edge));
        edges.sort_unstable();
        edges.truncate(3);
        edges
    }

    fn begin(&mut self, who: usize) {
        self.begun += 1;
        let share = self.nodes[who].holder.map_or(Share::EVEN, |holder| holder.share);
        // Some sessions are so far away that they are expected for longer than they count.
        let rtt = Duration::from_millis([0, 2, 2, 1_500][who % 4]);
        let holder = Holder { id: SessionId(self.begun), share, rtt };
        self.nodes[who] = Node { holder: Some(holder), ..Node::default() };
    }

    fn be_of(&mut self, who: usize, owner: u64, weight: u64) {
        let holder = self.nodes[who].holder.as_mut().expect("each has begun");
        holder.share = Share { owner: Owner(owner), weight, ..Share::EVEN };
    }

    /// Does `act`. Returns whether `who` has a part of the flow by that, and whether it waits.
    fn step(&mut self, (who, wait, act): Step) -> (bool, bool) {
        self.now = self.now + Duration::from_nanos(wait);
        let now = self.now;
        let node = &mut self.nodes[who];
        let holder = node.holder.expect("each has begun");
        node.seq += 1;
        let (Node { seq, spent, held, .. }, share) = (*node, holder.share);
        let (own, above) = self.pools.split_first_mut().expect("there is one at least");
        let mut above: Vec<_> = above.iter_mut().map(|pool| Above { pool, share }).collect();
        match act {
            Act::Asks { says, want, waiting, demand_milli, largest } => {
                let rate = match (node.rate.take(), says) {
                    (Some(lease), Says::Holds) => RateClaim::Holds(lease),
                    (Some(RateLease { number, .. }), Says::LetsGo) => {
                        RateClaim::LetGo { number, credit: Duration::from_millis(3) }
                    }
                    (None, _) | (Some(_), Says::Nothing) => RateClaim::None,
                };
                let (spent_total, held) = (spent + held.min(want), held - held.min(want));
                let ask =
                    Ask { spent_total, held, want, waiting, demand_milli, largest, rate, ..Ask::default() };
                match own.renew_below(&mut above, now, holder, seq, ask) {
                    Ok(Answer::Grant(grant)) => {
                        (node.spent, node.held) = (spent_total, grant.kept + grant.permits);
                        if let Rate::Lent { lease, .. } = grant.rate {
                            node.rate = Some(lease);
                        }
                        return (node.rate.is_some(), grant.rate == Rate::Nothing && want > 0);
                    }
                    Ok(Answer::Refusal(_)) => {}
                    Err(_) => self.begin(who),
                }
            }
            Act::Refused => {
                let refusal = Refusal { reason: RefusalReason::Paused, retry_after: Duration::from_secs(1) };
                let ask = Ask { spent_total: spent, held, demand_milli: 1_000, ..Ask::default() };
                if own.settle_below(&mut above, now, holder, seq, ask, refusal).is_err() {
                    self.begin(who);
                }
            }
            Act::Leaves => {
                let goodbye =
                    Goodbye { spent_total: spent, running: None, held: Some(held), shadow_refused: 0 };
                own.leave_below(&mut above, now, holder.id, seq, goodbye).expect("it says the truth");
                self.begin(who);
            }
            Act::Dies => self.begin(who),
            Act::IsOf(owner, weight) => self.be_of(who, owner, weight),
            Act::Change(term_max) => {
                let last = self.pools.last_mut().expect("there is one at least");
                let plan = plan(last.rules()[0], Duration::from_millis(term_max));
                last.change(plan, CarryOver::AsIs, now);
            }
        }
        (false, false)
    }
}

proptest! {
    // Each case compares the walk for each session before each step.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn sessions_see_of_each_other_what_a_walk_over_all_sees(
        burst in prop::sample::select(vec![1, 1, 2, 9, 60]),
        refill in prop::sample::select(vec![1, 100, 3_000]),
        owners in prop::sample::select(vec![1, 2, 4]),
        is_below in prop::bool::weighted(0.2),
        demand_milli in prop::sample::select(vec![0, 40_000, 30_000_000]),
        steps in steps(),
    ) {
        let mut world = World::new(rules(burst, refill, is_below), owners);
        for step in steps {
            let next = world.now + Duration::from_nanos(step.1);
            for now in world.edges(next).into_iter().chain([next]) {
                compare(world.flowing(), now, demand_milli)?;
            }
            world.step(step);
        }
        compare(world.flowing(), world.now, demand_milli)?;
    }
}

/// Whether the pool of the last of `rules` keeps [`Sharers`] once this many sessions have asked, and after a change.
fn keeps_sharers(rules: Vec<Rule>, sessions: usize) -> (bool, bool) {
    let mut world = World::new(rules, 1);
    let asks = Act::Asks { says: Says::Holds, want: 1, waiting: 1, demand_milli: 1_000, largest: 1 };
    for who in 0..sessions {
        world.step((who, 1_000_000, asks));
    }
    let keeps = |world: &World| world.flowing().sessions.keep_sharers();
    let before = keeps(&world);
    world.step((0, 0, Act::Change(300)));
    (before, keeps(&world))
}

/// A change keeps the sharers: the first ask after it looks at no session.
#[test]
fn those_that_share_are_kept_where_there_is_a_flow_and_more_than_one_of_them() {
    let flow = rules(1, 100, false);
    let window = rules(1, 100, true).into_iter().take(1).collect();
    assert_eq!(keeps_sharers(flow.clone(), 1), (false, false));
    assert_eq!(keeps_sharers(flow, 2), (true, true));
    assert_eq!(keeps_sharers(window, 2), (false, false));
}

#[test]
fn calls_of_those_who_only_try_are_as_far_apart_as_they_say() {
    let trying = Ask { demand_milli: 10_000, ..Ask::default() };
    assert_eq!(calls_apart(&trying), Duration::from_millis(100));
    assert_eq!(calls_apart(&Ask { waiting: 1, ..trying }), Duration::ZERO);
    assert_eq!(calls_apart(&Ask::default()), Duration::ZERO);
}
