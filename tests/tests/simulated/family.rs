//! A vendor's limit over two tenants over four users. Sessions ask and spend at any of them in any order, die, and come
//! back late. Every limit must keep its promise over all that is spent at it or below it.

use lessor_ledger::Rule;
use lessor_ledger::pool::{Above, AskError, Goodbye, Holder, Plan, Pool, SessionId};
use lessor_ledger::rule::{FixedWindow, SlidingWindow, TokenBucket};
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, ClockBounds, Moment};
use lessor_sim::reference::{Spend, breach};
use lessor_sim::setup::plan;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The pool above each pool: 0 is the vendor, 1 and 2 are tenants, the others are users.
const ABOVE: [Option<usize>; 7] = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)];

/// Sessions, two at each pool: the vendor and the tenants are asked directly, too.
const SESSIONS: usize = 2 * ABOVE.len();

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Wait { nanos: u64 },
    /// A session keeps at most `keep` of what it holds, and asks.
    Ask { who: usize, keep: u64, want: u64, waiting: u64 },
    /// A session spends, if it holds as many permits.
    Spend { who: usize, permits: u64 },
    /// A session says goodbye, and another takes its place.
    Leave { who: usize },
    /// The process dies and another takes its place. What it held burns.
    Die { who: usize },
    /// The pool is dropped, if it cannot be told from a new one.
    Forget { pool: usize },
    /// Users of the first tenant come for a permit, one after another, and spend it. They report it or die.
    Flood { users: u64, die: bool },
    /// All permits in hand and all that are available could be spent at this moment.
    Rush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..40_000_000).prop_map(|nanos| Step::Wait { nanos }),
        1 => (0u64..500_000_000).prop_map(|nanos| Step::Wait { nanos }),
        8 => (0..SESSIONS, 0u64..20, 0u64..30, 0u64..10)
            .prop_map(|(who, keep, want, waiting)| Step::Ask { who, keep, want, waiting }),
        6 => (0..SESSIONS, 1u64..20).prop_map(|(who, permits)| Step::Spend { who, permits }),
        1 => (0..SESSIONS).prop_map(|who| Step::Leave { who }),
        1 => (0..SESSIONS).prop_map(|who| Step::Die { who }),
        1 => (0..ABOVE.len()).prop_map(|pool| Step::Forget { pool }),
        1 => (1u64..12, any::<bool>()).prop_map(|(users, die)| Step::Flood { users, die }),
        2 => Just(Step::Rush),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Session {
    id: u64,
    seq: u64,
    spent: u64,
    hand: u64,
    until: Moment,
}

#[derive(Debug)]
struct Play {
    plans: Vec<Arc<Plan>>,
    pools: Vec<Pool>,
    now: Moment,
    sessions: Vec<Session>,
    next_id: u64,
    /// Spends at each pool or below it.
    spends: Vec<Vec<Spend>>,
}

impl Play {
    fn new(rules: Vec<Rule>, lessees_max: usize) -> Self {
        let now = Moment::from_nanos(10_000_000_000);
        let plan = |rule| Plan { lessees_max, ..plan(vec![rule], false) };
        // Pools of one level have the same rule, and books of their own.
        let plans: Vec<Arc<Plan>> =
            [0, 1, 1, 2, 2, 2, 2].map(|level| Arc::new(plan(rules[level]))).into_iter().collect();
        let session = |id| Session { id, seq: 0, spent: 0, hand: 0, until: now };
        Play {
            pools: plans.iter().map(|plan| Pool::new(plan.clone(), now)).collect(),
            plans,
            now,
            sessions: (0..SESSIONS as u64).map(session).collect(),
            next_id: SESSIONS as u64,
            spends: vec![vec![]; ABOVE.len()],
        }
    }

    /// Runs `act` on `pool` and the pools above it.
    fn with<T>(&mut self, pool: usize, act: impl FnOnce(&mut Pool, &mut [Above<'_>]) -> T) -> T {
        let mut chain = vec![pool];
        while let Some(above) = ABOVE[chain[chain.len() - 1]] {
            chain.push(above);
        }
        // Parents come before their children in `pools`, so the order is reversed.
        let mut found: Vec<&mut Pool> = vec![];
        for (index, pool) in self.pools.iter_mut().enumerate().rev() {
            if chain.contains(&index) {
                found.push(pool);
            }
        }
        let mut found = found.into_iter();
        let lowest = found.next().expect("the pool itself");
        let mut above: Vec<Above<'_>> = found.map(|pool| Above { pool, share: Share::EVEN }).collect();
        act(lowest, &mut above)
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Wait { nanos } => self.now = now + Duration::from_nanos(nanos),
            Step::Ask { who, keep, want, waiting } => {
                let at = &mut self.sessions[who];
                at.hand = if now < at.until { at.hand.min(keep) } else { 0 };
                at.seq += 1;
                let Session { id, seq, spent, hand, .. } = *at;
                let ask = Ask { spent_total: spent, held: hand, want, waiting, ..Ask::default() };
                let holder = Holder { id: SessionId(id), share: Share::EVEN, rtt: Duration::ZERO };
                let answer = self.with(who / 2, |pool, above| pool.renew_below(above, now, holder, seq, ask));
                match answer {
                    Err(AskError::Full { .. }) => return,
                    // The pool forgot this session to make room, since it held nothing live.
                    Err(AskError::LeaseUnknown { held: 0, .. }) => return self.begin(who),
                    Ok(_) | Err(_) => {}
                }
                let grant = answer.ok().and_then(Answer::grant).expect("the truth is believed");
                assert_eq!(grant.kept, hand, "live permits are kept");
                let at = &mut self.sessions[who];
                at.hand += grant.permits;
                at.until = at.until.max(ClockBounds::default().holder_end(now, grant.term));
            }
            Step::Spend { who, permits } => {
                let at = &mut self.sessions[who];
                if permits <= at.hand && now < at.until {
                    (at.hand, at.spent) = (at.hand - permits, at.spent + permits);
                    self.spent(who / 2, permits);
                }
            }
            Step::Leave { who } => {
                let Session { id, seq, spent, hand, .. } = self.sessions[who];
                self.with(who / 2, |pool, above| {
                    let goodbye =
                        Goodbye { spent_total: spent, running: None, held: Some(hand), shadow_refused: 0 };
                    pool.leave_below(above, now, SessionId(id), seq + 1, goodbye)
                })
                .expect("the truth");
                self.begin(who);
            }
            Step::Die { who } => self.begin(who),
            Step::Forget { pool } => {
                if self.pools[pool].is_forgettable(now) {
                    self.pools[pool] = Pool::new(self.plans[pool].clone(), now);
                }
            }
            Step::Flood { users, die } => (0..users).for_each(|_| self.comes_and_goes(die)),
            Step::Rush => self.rush(),
        }
    }

    /// A user of the first tenant that no pool knows takes a permit, spends it, and reports it or dies.
    fn comes_and_goes(&mut self, dies: bool) {
        let (now, id) = (self.now, SessionId(self.next_id));
        self.next_id += 1;
        let mut user = Pool::new(self.plans[3].clone(), now);
        let holder = Holder { id, share: Share::EVEN, rtt: Duration::ZERO };
        let mut renew = |seq, ask| {
            let [vendor, tenant, ..] = &mut self.pools[..] else { panic!("the family has seven pools") };
            let mut above = [tenant, vendor].map(|pool| Above { pool, share: Share::EVEN });
            let answer = user.renew_below(&mut above, now, holder, seq, ask);
            answer.ok().and_then(Answer::grant).expect("the truth is believed").permits
        };
        let spent_total = renew(1, Ask { want: 1, waiting: 1, ..Ask::default() });
        if !dies {
            renew(2, Ask { spent_total, ..Ask::default() });
        }
        self.spent(1, spent_total);
    }

    fn begin(&mut self, who: usize) {
        self.sessions[who] = Session { id: self.next_id, seq: 0, spent: 0, hand: 0, until: self.now };
        self.next_id += 1;
    }

    /// Records that `permits` were spent at `pool`, and so at all pools above it.
    fn spent(&mut self, pool: usize, permits: u64) {
        let time = self.now.as_nanos();
        let mut at = Some(pool);
        while let Some(pool) = at {
            self.spends[pool].push(Spend { real: time, allocator: time, permits });
            at = ABOVE[pool];
        }
    }

    fn is_below(mut pool: usize, above: usize) -> bool {
        while pool != above {
            let Some(next) = ABOVE[pool] else { return false };
            pool = next;
        }
        true
    }

    /// Returns the permits that sessions at `pool` and below can spend now.
    fn in_hand(&self, pool: usize) -> u64 {
        let live =
            |&(who, session): &(usize, &Session)| self.now < session.until && Play::is_below(who / 2, pool);
        self.sessions.iter().enumerate().filter(live).map(|(_, session)| session.hand).sum()
    }

    fn rush(&mut self) {
        for pool in 0..ABOVE.len() {
            let permits = self.in_hand(pool) + self.pools[pool].view(self.now).available;
            let time = self.now.as_nanos();
            let mut spends = self.spends[pool].clone();
            spends.push(Spend { real: time, allocator: time, permits });
            assert_eq!(breach(&self.plans[pool].rules[0], &spends), None, "pool {pool}");
        }
    }

    /// Checks the books of each pool, and that they count all that is outstanding below.
    fn check(&mut self) {
        let views: Vec<_> = self.pools.iter_mut().map(|pool| pool.view(self.now)).collect();
        for (pool, view) in views.iter().enumerate() {
            assert!(view.books.balance(), "{view:?}");
            assert!(view.available + view.books.outstanding <= self.pools[pool].ceiling(), "{view:?}");
            assert!(self.in_hand(pool) <= view.books.outstanding, "pool {pool}: {view:?}");
            let below = (0..ABOVE.len()).filter(|&child| ABOVE[child] == Some(pool));
            let below: u64 = below.map(|child| views[child].books.outstanding).sum();
            assert!(
                below <= view.books.outstanding,
                "pool {pool} has less outstanding than the {below} below: {view:?}"
            );
        }
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    let per = || (50u64..400).prop_map(Duration::from_millis);
    prop_oneof![
        (1u64..40, per()).prop_map(|(limit, per)| {
            Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
        }),
        (1u64..40, per())
            .prop_map(|(limit, per)| Rule::FixedWindow(FixedWindow::try_new(limit, per).expect("valid"))),
        (1u64..40, 1u64..40, per()).prop_map(|(capacity, refill, per)| {
            Rule::TokenBucket(TokenBucket::try_new(capacity, refill, per, capacity).expect("valid"))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_limit_of_a_family_keeps_its_promise_over_all_below_it(
        rules in prop::collection::vec(rule(), 3),
        lessees_max in prop_oneof![2usize..8, Just(1_000)],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut play = Play::new(rules, lessees_max);
        for step in &steps {
            play.step(step);
            play.check();
        }
        play.rush();
        // After ten minutes of silence no session is remembered, and each pool can lend all its permits again.
        play.now = play.now + Duration::from_secs(600);
        for pool in &mut play.pools {
            pool.is_forgettable(play.now);
            let view = pool.view(play.now);
            prop_assert_eq!((view.available, view.sessions), (pool.ceiling(), 0));
        }
    }
}

/// Returns what two sessions that want all of their vendor's permits get in a minute.
fn shares(who: [usize; 2]) -> [u64; 2] {
    let minute = Duration::from_secs(60);
    let sliding =
        |limit| Rule::SlidingWindow(SlidingWindow::try_new(limit, minute, Duration::ZERO).expect("valid"));
    let mut play = Play::new(vec![sliding(400), sliding(10_000), sliding(10_000)], 1_000);
    for _ in 0..600 {
        play.now = play.now + Duration::from_millis(100);
        for who in who {
            let permits = play.sessions[who].hand;
            play.step(&Step::Spend { who, permits });
            play.step(&Step::Ask { who, keep: 0, want: 50, waiting: 50 });
        }
    }
    who.map(|who| play.sessions[who].spent)
}

/// Users of two tenants share the vendor's permits as if they asked it themselves, although no pool of theirs knows of
/// the other's.
#[test]
fn a_scarce_parent_is_shared_among_all_below_it() {
    let by_themselves = shares([0, 1]);
    assert!(by_themselves.iter().sum::<u64>() >= 396 && by_themselves.iter().all(|&got| got > 0));
    assert_eq!(shares([6, 12]), by_themselves);
}
