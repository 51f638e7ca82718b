//! Random sequences of asks, goodbyes, replays and lies against one pool, by several sessions on one clock. The books
//! balance after each step, and a reference that remembers every spend finds no permit too many.

use lessor_ledger::Rule;
use lessor_ledger::pool::{Goodbye, Holder, Plan, Pool, PoolView, SessionId};
use lessor_ledger::rule::{
    Calendar, Concurrency, FixedWindow, RefillStyle, SlidingWindow, TokenBucket, Unit, WarmUp, Windows, Zone,
};
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Moment, PERMITS_MAX};
use lessor_sim::reference::{Spend, breach};
use lessor_sim::setup::plan;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const SESSIONS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes.
    Wait { nanos: u64 },
    /// An honest session keeps at most `keep` of what it holds, and asks.
    Ask { who: usize, keep: u64, want: u64, waiting: u64, demand_milli: u64 },
    /// A session spends, if it holds as many permits.
    Spend { who: usize, permits: u64 },
    /// A session says goodbye, and another takes its place.
    Leave { who: usize },
    /// An ask that was sent before arrives again.
    Replay { message: usize },
    /// A session that never spends sends anything.
    Lie { seq: u64, ask: Ask },
}

fn step() -> impl Strategy<Value = Step> {
    let any_number = || prop_oneof![4 => 0u64..20, 1 => 0u64..=PERMITS_MAX, 1 => Just(PERMITS_MAX)];
    let five = (any_number(), any_number(), any_number(), any_number(), any_number());
    let lie = (five, prop::option::of(any_number()), any_number()).prop_map(
        |((spent_total, held, want, waiting, demand_milli), running, busy)| Ask {
            spent_total,
            held,
            want,
            waiting,
            demand_milli,
            running,
            unguarded: busy / 2,
            busy,
            ..Ask::default()
        },
    );
    prop_oneof![
        4 => (0u64..8_000_000).prop_map(|nanos| Step::Wait { nanos }),
        1 => (0u64..500_000_000).prop_map(|nanos| Step::Wait { nanos }),
        8 => (0..SESSIONS, 0u64..20, 0u64..30, 0u64..10, 0u64..1_000_000).prop_map(
            |(who, keep, want, waiting, demand_milli)| Step::Ask { who, keep, want, waiting, demand_milli }
        ),
        8 => (0..SESSIONS, 1u64..20).prop_map(|(who, permits)| Step::Spend { who, permits }),
        1 => (0..SESSIONS).prop_map(|who| Step::Leave { who }),
        3 => any::<usize>().prop_map(|message| Step::Replay { message }),
        3 => (prop_oneof![1u64..30, any_number()], lie).prop_map(|(seq, ask)| Step::Lie { seq, ask }),
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

/// An ask that was sent. For an honest one, also when it was answered and with which grant.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    seq: u64,
    ask: Ask,
    answer: Option<(Moment, Grant)>,
}

#[derive(Debug)]
struct Play {
    pool: Pool,
    now: Moment,
    sessions: [Session; SESSIONS],
    next_id: u64,
    messages: Vec<Sent>,
    spends: Vec<Spend>,
    last: PoolView,
}

/// The id of the session that lies.
const LIAR: u64 = 1_000_000;

impl Play {
    fn new(plan: Plan) -> Self {
        let now = Moment::from_nanos(10_000_000_000);
        let session = |id| Session { id, seq: 0, spent: 0, hand: 0, until: now };
        Play {
            pool: Pool::new(Arc::new(plan), now),
            now,
            sessions: std::array::from_fn(|id| session(id as u64)),
            next_id: SESSIONS as u64,
            messages: vec![],
            spends: vec![],
            last: PoolView::default(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait { nanos } => self.now = self.now + Duration::from_nanos(nanos),
            Step::Ask { who, keep, want, waiting, demand_milli } => {
                let at = &mut self.sessions[who];
                at.hand = if self.now < at.until { at.hand.min(keep) } else { 0 };
                at.seq += 1;
                // Under a cap on calls in flight, no session reports running calls. So all that it spent may be in
                // flight for as long as a call may take.
                let truth = Ask { spent_total: at.spent, held: at.hand, ..Ask::default() };
                let ask = Ask { want, waiting, demand_milli, ..truth };
                let (id, seq) = (at.id, at.seq);
                let grant = self.renew(id, seq, ask).expect("the truth is believed");
                assert_eq!(grant.kept, ask.held, "live permits are kept");
                self.messages.push(Sent { id, seq, ask, answer: Some((self.now, grant)) });
                let at = &mut self.sessions[who];
                at.hand += grant.permits;
                at.until = at.until.max(ClockBounds::default().holder_end(self.now, grant.term));
            }
            Step::Spend { who, permits } => {
                let at = &mut self.sessions[who];
                if permits <= at.hand && self.now < at.until {
                    (at.hand, at.spent) = (at.hand - permits, at.spent + permits);
                    let time = self.now.as_nanos();
                    self.spends.push(Spend { real: time, allocator: time, permits });
                }
            }
            Step::Leave { who } => {
                let Session { id, seq, spent, hand, .. } = self.sessions[who];
                let goodbye =
                    Goodbye { spent_total: spent, running: None, held: Some(hand), shadow_refused: 0 };
                for said in ["once", "twice"] {
                    let outstanding = self.pool.view(self.now).books.outstanding;
                    let back = self.pool.leave(self.now, SessionId(id), seq + 1, goodbye).expect("the truth");
                    assert!(
                        said == "once"
                            || (back == 0 && outstanding == self.pool.view(self.now).books.outstanding)
                    );
                }
                self.sessions[who] = Session { id: self.next_id, seq: 0, spent: 0, hand: 0, until: self.now };
                self.next_id += 1;
            }
            Step::Replay { .. } if self.messages.is_empty() => {}
            Step::Replay { message } => {
                let Sent { id, seq, ask, answer } = self.messages[message % self.messages.len()];
                // Only the newest ask of a session is answered again, with the same grant as before.
                if let (Some(grant), Some((at, first))) = (self.renew(id, seq, ask), answer) {
                    let left = first.term.saturating_sub(self.now.since(at));
                    assert!(
                        grant.term <= left && Grant { term: first.term, ..grant } == first,
                        "{grant:?}, {first:?}"
                    );
                }
            }
            Step::Lie { seq, ask } => {
                self.renew(LIAR, seq, ask);
                self.messages.push(Sent { id: LIAR, seq, ask, answer: None });
            }
        }
    }

    fn renew(&mut self, id: u64, seq: u64, ask: Ask) -> Option<Grant> {
        let holder =
            Holder { id: SessionId(id), share: Share::EVEN, rtt: Duration::from_millis(id % 3 * 40) };
        let answer = self.pool.renew(self.now, holder, seq, ask);
        answer.ok().and_then(Answer::grant)
    }

    /// Checks the books, and the cap over all that could be spent now.
    fn check(&mut self) {
        let (view, before) = (self.pool.view(self.now), self.last.books);
        let books = view.books;
        assert!(books.balance(), "{books:?}");
        assert!(
            books.granted >= before.granted
                && books.spent >= before.spent
                && books.returned >= before.returned,
            "{before:?} became {books:?}"
        );
        assert!(view.available + books.outstanding <= self.pool.ceiling(), "{view:?}");
        let live = |session: &&Session| self.now < session.until;
        let in_hand: u64 = self.sessions.iter().filter(live).map(|session| session.hand).sum();
        assert!(in_hand <= books.outstanding, "{in_hand} in hand, {books:?}");
        self.last = view;
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_truth_and_lies_breaks_the_books_or_the_cap(
        rules in prop::collection::vec(rule(), 1..3), ease_off in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        // Two caps would disagree on how long a call may take, so they are refused together.
        prop_assume!(rules.iter().filter(|rule| matches!(rule, Rule::Concurrency(_))).count() < 2);
        let mut play = Play::new(Plan { lessees_max: 1_000, ..plan(rules.clone(), ease_off) });
        for step in steps {
            play.step(step);
            play.check();
        }
        for rule in &rules {
            prop_assert_eq!(breach(rule, &play.spends), None, "{:?}", rule);
        }
        // After ten minutes of silence no session is remembered, and all permits can be lent again.
        play.now = play.now + Duration::from_secs(600);
        play.pool.is_forgettable(play.now);
        let view = play.pool.view(play.now);
        prop_assert_eq!((view.available, view.sessions), (play.pool.ceiling(), 0));
    }
}
