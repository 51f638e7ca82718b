//! A play of sessions at pools, alone or in a tree, on one clock. They ask, spend, leave, die, lie and send old asks
//! again, in any order. The books balance after each step, and a reference that remembers every spend finds no permit
//! too many at any pool.

use lessor_ledger::Rule;
use lessor_ledger::pool::{Above, AskError, Goodbye, Holder, Plan, Pool, PoolView, SessionId};
use lessor_ledger::rule::{
    Calendar, Concurrency, FixedWindow, RefillStyle, SlidingWindow, TokenBucket, Unit, WarmUp, Windows, Zone,
};
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Moment};
use lessor_sim::reference::{Spend, breach};
use proptest::prelude::*;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

/// More lessees than a play has.
pub(super) const MANY: usize = 1_000;

/// The id of the session that lies.
const LIAR: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Time passes.
    Wait { nanos: u64 },
    /// An honest session keeps at most `keep` of what it holds, and asks.
    Ask { who: usize, keep: u64, want: u64, waiting: u64, demand_milli: u64 },
    /// A session spends, if it holds as many permits.
    Spend { who: usize, permits: u64 },
    /// A session says goodbye, and another takes its place.
    Leave { who: usize },
    /// The process dies and another takes its place. What it held burns.
    Die { who: usize },
    /// An ask that was sent before arrives again.
    Replay { message: usize },
    /// A session of the first pool that never spends sends anything.
    Lie { seq: u64, ask: Ask },
    /// The pool is dropped, if it cannot be told from a new one.
    Forget { pool: usize },
    /// Pools beside `pool` come for a permit, one after another, and spend it. They report it or die.
    Flood { pool: usize, users: u64, die: bool },
    /// All permits in hand and all that are available could be spent at this moment.
    Rush,
}

/// Returns steps of honest sessions. Time mostly passes in pauses of up to `pause` nanoseconds.
pub(super) fn honest_step(sessions: usize, pause: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..pause).prop_map(|nanos| Step::Wait { nanos }),
        1 => (0u64..500_000_000).prop_map(|nanos| Step::Wait { nanos }),
        8 => (0..sessions, 0u64..20, 0u64..30, 0u64..10, 0u64..1_000_000).prop_map(
            |(who, keep, want, waiting, demand_milli)| Step::Ask { who, keep, want, waiting, demand_milli }
        ),
        7 => (0..sessions, 1u64..20).prop_map(|(who, permits)| Step::Spend { who, permits }),
        1 => (0..sessions).prop_map(|who| Step::Leave { who }),
    ]
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// The pool that it asks.
    pool: usize,
    id: u64,
    seq: u64,
    pub(super) spent: u64,
    pub(super) hand: u64,
    until: Moment,
}

/// An ask that was sent. For an honest one, also when it was answered and with which grant.
#[derive(Clone, Copy, Debug)]
struct Sent {
    pool: usize,
    id: u64,
    seq: u64,
    ask: Ask,
    answer: Option<(Moment, Grant)>,
}

#[derive(Debug)]
pub(super) struct Play {
    /// The pool above each pool. It comes first.
    above: &'static [Option<usize>],
    plans: Vec<Arc<Plan>>,
    pools: Vec<Pool>,
    pub(super) now: Moment,
    /// As many at each pool: those above others are asked directly, too.
    pub(super) sessions: Vec<Session>,
    /// The round trip of every third session; another third has twice as much, and the others none.
    rtt: Duration,
    next_id: u64,
    messages: Vec<Sent>,
    /// Spends at each pool or below it.
    spends: Vec<Vec<Spend>>,
    last: Vec<PoolView>,
}

impl Play {
    pub(super) fn new(
        above: &'static [Option<usize>],
        plans: Vec<Plan>,
        at_each: usize,
        rtt: Duration,
    ) -> Self {
        let now = Moment::from_nanos(10_000_000_000);
        let plans: Vec<Arc<Plan>> = plans.into_iter().map(Arc::new).collect();
        let mut play = Play {
            above,
            pools: plans.iter().map(|plan| Pool::new(plan.clone(), now)).collect(),
            now,
            sessions: vec![],
            rtt,
            next_id: 0,
            messages: vec![],
            spends: vec![vec![]; plans.len()],
            last: vec![PoolView::default(); plans.len()],
            plans,
        };
        play.sessions = (0..above.len() * at_each).map(|who| play.newcomer(who / at_each)).collect();
        play
    }

    fn newcomer(&mut self, pool: usize) -> Session {
        self.next_id += 1;
        Session { pool, id: self.next_id - 1, seq: 0, spent: 0, hand: 0, until: self.now }
    }

    fn begin(&mut self, who: usize) {
        self.sessions[who] = self.newcomer(self.sessions[who].pool);
    }

    /// Returns `pool` and those above it.
    fn chain(&self, pool: usize) -> impl Iterator<Item = usize> + use<> {
        let above = self.above;
        successors(Some(pool), move |&pool| above[pool])
    }

    /// Runs `act` on `pool` and the pools above it.
    fn with<T>(&mut self, pool: usize, act: impl FnOnce(&mut Pool, &mut [Above<'_>]) -> T) -> T {
        let chain: Vec<usize> = self.chain(pool).collect();
        let places = self.pools.iter_mut().enumerate().rev();
        let mut found = places.filter(|(place, _)| chain.contains(place)).map(|(_, pool)| pool);
        let lowest = found.next().expect("the pool itself");
        let mut above: Vec<Above<'_>> = found.map(|pool| Above { pool, share: Share::EVEN }).collect();
        act(lowest, &mut above)
    }

    fn renew(&mut self, pool: usize, id: u64, seq: u64, ask: Ask) -> Result<Grant, AskError> {
        let holder = Holder { id: SessionId(id), share: Share::EVEN, rtt: self.rtt * (id % 3) as u32 };
        let now = self.now;
        let answer = self.with(pool, |pool, above| pool.renew_below(above, now, holder, seq, ask))?;
        Ok(Answer::grant(answer).expect("pools do not refuse"))
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Wait { nanos } => self.now = self.now + Duration::from_nanos(nanos),
            Step::Ask { who, keep, want, waiting, demand_milli } => {
                let at = &mut self.sessions[who];
                at.hand = if self.now < at.until { at.hand.min(keep) } else { 0 };
                at.seq += 1;
                // Under a cap on calls in flight, no session reports running calls. So all that it spent may be in
                // flight for as long as a call may take.
                let Session { pool, id, seq, spent, hand, .. } = *at;
                let ask =
                    Ask { spent_total: spent, held: hand, want, waiting, demand_milli, ..Ask::default() };
                let grant = match self.renew(pool, id, seq, ask) {
                    Err(AskError::Full { .. }) if self.is_crowded() => return,
                    // The pool forgot this session to make room, since it held nothing live.
                    Err(AskError::LeaseUnknown { held: 0, .. }) if self.is_crowded() => {
                        return self.begin(who);
                    }
                    answer => answer.expect("the truth is believed"),
                };
                assert_eq!(grant.kept, hand, "live permits are kept");
                self.messages.push(Sent { pool, id, seq, ask, answer: Some((self.now, grant)) });
                let at = &mut self.sessions[who];
                at.hand += grant.permits;
                at.until = at.until.max(ClockBounds::default().holder_end(self.now, grant.term));
            }
            Step::Spend { who, permits } => {
                let at = &mut self.sessions[who];
                if permits <= at.hand && self.now < at.until {
                    (at.hand, at.spent) = (at.hand - permits, at.spent + permits);
                    let pool = at.pool;
                    self.spent(pool, permits);
                }
            }
            Step::Leave { who } => {
                let (now, Session { pool, id, seq, spent, hand, .. }) = (self.now, self.sessions[who]);
                let goodbye =
                    Goodbye { spent_total: spent, running: None, held: Some(hand), shadow_refused: 0 };
                self.with(pool, |pool, above| {
                    let mut leave = || {
                        let back = pool.leave_below(above, now, SessionId(id), seq + 1, goodbye);
                        (back.expect("the truth"), pool.view(now).books.outstanding)
                    };
                    let (_, outstanding) = leave();
                    assert_eq!(leave(), (0, outstanding), "the second goodbye changes nothing");
                });
                self.begin(who);
            }
            Step::Die { who } => self.begin(who),
            Step::Replay { .. } if self.messages.is_empty() => {}
            Step::Replay { message } => {
                let Sent { pool, id, seq, ask, answer } = self.messages[message % self.messages.len()];
                // Only the newest ask of a session is answered again, with the same grant as before.
                if let (Ok(grant), Some((at, first))) = (self.renew(pool, id, seq, ask), answer) {
                    let left = first.term.saturating_sub(self.now.since(at));
                    assert!(
                        grant.term <= left && Grant { term: first.term, ..grant } == first,
                        "{grant:?}, {first:?}"
                    );
                }
            }
            Step::Lie { seq, ask } => {
                // Most lies are refused.
                let _ = self.renew(0, LIAR, seq, ask);
                self.messages.push(Sent { pool: 0, id: LIAR, seq, ask, answer: None });
            }
            Step::Forget { pool } => {
                if self.pools[pool].is_forgettable(self.now) {
                    self.pools[pool] = Pool::new(self.plans[pool].clone(), self.now);
                    self.last[pool] = PoolView::default();
                }
            }
            Step::Flood { pool, users, die } => (0..users).for_each(|_| self.comes_and_goes(pool, die)),
            Step::Rush => self.rush(),
        }
    }

    fn is_crowded(&self) -> bool {
        self.plans[0].lessees_max < MANY
    }

    /// A new pool beside `pool` takes a permit, spends it, and reports it or dies.
    fn comes_and_goes(&mut self, pool: usize, dies: bool) {
        let id = self.newcomer(pool).id;
        let user = Pool::new(self.plans[pool].clone(), self.now);
        let beside = std::mem::replace(&mut self.pools[pool], user);
        let mut renew = |seq, ask| self.renew(pool, id, seq, ask).expect("the truth is believed").permits;
        let spent_total = renew(1, Ask { want: 1, waiting: 1, ..Ask::default() });
        if !dies {
            renew(2, Ask { spent_total, ..Ask::default() });
        }
        self.pools[pool] = beside;
        self.spent(self.above[pool].expect("a pool above"), spent_total);
    }

    /// Records that `permits` were spent at `pool`, and so at all pools above it.
    fn spent(&mut self, pool: usize, permits: u64) {
        let time = self.now.as_nanos();
        for pool in self.chain(pool) {
            self.spends[pool].push(Spend { real: time, allocator: time, permits });
        }
    }

    /// Returns the permits that sessions at `pool` and below can spend now.
    fn in_hand(&self, pool: usize) -> u64 {
        let live = |session: &&Session| {
            self.now < session.until && self.chain(session.pool).any(|above| above == pool)
        };
        self.sessions.iter().filter(live).map(|session| session.hand).sum()
    }

    fn rush(&mut self) {
        for pool in 0..self.pools.len() {
            let permits = self.in_hand(pool) + self.pools[pool].view(self.now).available;
            let time = self.now.as_nanos();
            let mut spends = self.spends[pool].clone();
            spends.push(Spend { real: time, allocator: time, permits });
            for rule in &self.plans[pool].rules {
                assert_eq!(breach(rule, &spends), None, "pool {pool}: {rule:?}");
            }
        }
    }

    /// Checks the books of each pool, and that they count all that is outstanding below.
    fn check(&mut self) {
        let views: Vec<_> = self.pools.iter_mut().map(|pool| pool.view(self.now)).collect();
        for (pool, view) in views.iter().enumerate() {
            let (books, before) = (view.books, self.last[pool].books);
            assert!(books.balance(), "{books:?}");
            assert!(
                books.granted >= before.granted
                    && books.spent >= before.spent
                    && books.returned >= before.returned,
                "{before:?} became {books:?}"
            );
            assert!(view.available + books.outstanding <= self.pools[pool].ceiling(), "{view:?}");
            assert!(self.in_hand(pool) <= books.outstanding, "pool {pool}: {view:?}");
            let below = (0..views.len()).filter(|&child| self.above[child] == Some(pool));
            let below: u64 = below.map(|child| views[child].books.outstanding).sum();
            assert!(
                below <= books.outstanding,
                "pool {pool} has less outstanding than the {below} below: {view:?}"
            );
        }
        self.last = views;
    }

    /// Plays all `steps`, with a rush at the end. After ten minutes of silence no session is remembered, and each pool
    /// can lend all its permits again.
    pub(super) fn run(mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
            self.check();
        }
        self.rush();
        self.now = self.now + Duration::from_secs(600);
        for pool in &mut self.pools {
            pool.is_forgettable(self.now);
            let view = pool.view(self.now);
            assert_eq!((view.available, view.sessions), (pool.ceiling(), 0));
        }
    }
}

/// Returns rules of all kinds.
pub(super) fn rule() -> impl Strategy<Value = Rule> {
    let per = || (50u64..400).prop_map(Duration::from_millis);
    prop_oneof![
        (1u64..40, per()).prop_map(|(limit, per)| {
            Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
        }),
        (1u64..40, per())
            .prop_map(|(limit, per)| Rule::FixedWindow(FixedWindow::try_new(limit, per).expect("valid"))),
        (1u64..40, per())
            .prop_map(|(limit, per)| Rule::Concurrency(Concurrency::try_new(limit, per).expect("valid"))),
        (1u64..40, per(), any::<bool>()).prop_map(|(limit, per, is_calendar)| {
            // The play begins ten seconds after the epoch, so a minute ends in it.
            let windows = match is_calendar {
                true => Windows::Calendar(Calendar::new(Unit::Minute, Zone::utc())),
                false => Windows::FirstUse { per },
            };
            Rule::FixedWindow(FixedWindow::of(limit, windows).expect("valid"))
        }),
        (1u64..40, per()).prop_map(|(limit, per)| {
            Rule::SlidingLog(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
        }),
        (1u64..40, 1u64..40, per(), 0..4).prop_map(|(capacity, refill, per, option)| {
            let bucket = TokenBucket::try_new(capacity, refill, per, capacity).expect("valid");
            let bucket = match option {
                0 => Ok(bucket),
                1 => bucket.with_debt(refill),
                2 => bucket.with_refill_style(RefillStyle::Interval),
                _ => bucket.with_warm_up(WarmUp::try_new(10 * per, 3).expect("valid")),
            };
            Rule::TokenBucket(bucket.expect("valid"))
        }),
    ]
}
