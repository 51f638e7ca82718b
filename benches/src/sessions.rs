//! The cost of an ask in a pool that many sessions share. Each session asks in turn, spends most of what it was lent,
//! and reports it. In a steady flow, each session keeps its rate, or hands it over when its turn ends. The pools are
//! the shipped ones; nothing is sent and nothing is written.

use lessor_ledger::Rule;
use lessor_ledger::pool::{AskError, Holder, Plan, Pool, SessionId};
use lessor_ledger::rule::{LeakyBucket, RuleError, SlidingWindow};
use lessor_ledger::share::{Owner, Share};
use lessor_protocol::{Answer, Ask, CLOCK, Left, Moment, Observed, PERMITS_MAX, Rate, RateClaim, RateLease};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Numbers of sharing sessions, one for each row.
const SESSIONS: [u64; 5] = [1, 10, 100, 1_000, 10_000];

/// Asks that are timed for a row, after each session has asked three times.
const TIMED: u64 = 200_000;

/// Time between two asks of a session.
const EVERY: Duration = Duration::from_millis(500);

/// Permits that each session would spend between two asks.
const DEMAND: u64 = 20;

/// The supply, as a part of what all sessions want.
#[derive(Clone, Copy)]
enum Supply {
    Twice,
    Fifth,
}

/// What the sessions share, and how each session asks.
#[derive(Clone, Copy)]
enum Kind {
    /// A window. With `tells`, each ask tells a vendor's count.
    Window { supply: Supply, tells: bool },
    /// A steady flow, with a burst for all sessions or for one at a time.
    Flow { is_for_all: bool, identities: u64 },
}

/// The columns of each table: the heading and what is measured.
const TABLES: [&[(&str, Kind)]; 2] = [
    &[
        ("plenty", Kind::Window { supply: Supply::Twice, tells: false }),
        ("a fifth of what is wanted", Kind::Window { supply: Supply::Fifth, tells: false }),
        ("plenty, each tells a vendor's count", Kind::Window { supply: Supply::Twice, tells: true }),
    ],
    &[
        ("a flow, a part each", Kind::Flow { is_for_all: true, identities: 1 }),
        ("by turns", Kind::Flow { is_for_all: false, identities: 1 }),
        ("ten identities, a part each", Kind::Flow { is_for_all: true, identities: 10 }),
        ("ten identities, by turns", Kind::Flow { is_for_all: false, identities: 10 }),
    ],
];

/// Prints each table, with a row for each number of sessions as soon as it is known.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    TABLES.iter().try_for_each(|kinds| print_table(kinds))
}

fn print_table(kinds: &[(&str, Kind)]) -> Result<(), Box<dyn Error>> {
    let headings = kinds.iter().map(|(name, _)| format!(" µs an ask, {name} | ratio to one session |"));
    println!("| sessions |{}", headings.collect::<String>());
    println!("|---:|{}", "---:|---:|".repeat(kinds.len()));
    let mut first = None;
    for sessions in SESSIONS {
        let row = kinds.iter().map(|(_, kind)| micros(sessions, *kind)).collect::<Result<Vec<_>, _>>()?;
        let first = first.get_or_insert_with(|| row.clone());
        let cells =
            row.iter().zip(first).map(|(micros, first)| format!(" {micros:.2} | {:.2} |", micros / *first));
        println!("| {sessions} |{}", cells.collect::<String>());
    }
    println!();
    Ok(())
}

/// Returns the rule that `sessions` share.
fn rule(sessions: u64, kind: Kind) -> Result<Rule, RuleError> {
    match kind {
        Kind::Window { supply, .. } => {
            let wanted = sessions * DEMAND * 60;
            let limit = match supply {
                Supply::Twice => wanted * 2,
                Supply::Fifth => wanted / 5,
            };
            let window = SlidingWindow::try_new(limit.max(30), Duration::from_secs(30), Duration::ZERO)?;
            Ok(Rule::SlidingWindow(window))
        }
        Kind::Flow { is_for_all, .. } => {
            let burst = if is_for_all { 2 * sessions } else { 1 };
            let half = sessions * DEMAND;
            Ok(Rule::LeakyBucket(LeakyBucket::try_new(burst, half, Duration::from_secs(1))?))
        }
    }
}

/// Microseconds of an ask.
fn micros(sessions: u64, kind: Kind) -> Result<f64, Box<dyn Error>> {
    let plan = Plan { ease_off: true, lessees_max: 20_000, ..Plan::of(vec![rule(sessions, kind)?]) };
    let mut now = Moment::ORIGIN + Duration::from_secs(1);
    let mut pool = Pool::new(Arc::new(plan), now);
    let mut nodes = vec![Node::default(); usize::try_from(sessions)?];
    let step = EVERY / u32::try_from(sessions)?;
    let mut turns = (0..nodes.len()).cycle();
    let mut ask = |count: u64| -> Result<Duration, AskError> {
        let mut spent = Duration::ZERO;
        for _ask in 0..count {
            now = now + step;
            let turn = turns.next().unwrap_or(0);
            spent += nodes[turn].ask(&mut pool, SessionId(turn as u64 + 1), now, kind)?;
        }
        Ok(spent)
    };
    ask(3 * sessions)?;
    Ok(ask(TIMED)?.as_secs_f64() * 1e6 / TIMED as f64)
}

/// What one session has reported and holds.
#[derive(Clone, Copy, Default)]
struct Node {
    seq: u64,
    spent: u64,
    held: u64,
    /// The rate that it was lent, and whether others wait for that rate.
    rate: Option<(RateLease, bool)>,
}

impl Node {
    /// Spends nearly all that it holds, reports that and asks for more. Returns the time of the answer.
    fn ask(&mut self, pool: &mut Pool, id: SessionId, now: Moment, kind: Kind) -> Result<Duration, AskError> {
        let spends = self.held.min(DEMAND);
        (self.seq, self.spent, self.held) = (self.seq + 1, self.spent + spends, self.held - spends);
        let rate = match self.rate {
            Some((lease, false)) => RateClaim::Holds(lease),
            Some((RateLease { number, .. }, true)) => RateClaim::LetGo { number, credit: Duration::ZERO },
            None => RateClaim::None,
        };
        let ask = Ask {
            spent_total: self.spent,
            held: self.held,
            want: (2 * DEMAND).saturating_sub(self.held),
            demand_milli: DEMAND * 2 * 1_000,
            largest: 1,
            rate,
            ..Ask::default()
        };
        let (tells, owner) = match kind {
            Kind::Window { tells, .. } => (tells, Owner::NONE),
            Kind::Flow { identities, .. } => (false, Owner(id.0 % identities)),
        };
        let holder = Holder { id, share: Share { owner, ..Share::EVEN }, rtt: Duration::from_millis(2) };
        let left = Left { permits: PERMITS_MAX, lasts: None };
        let observed = Observed { number: self.seq, left: Some(left), ..Observed::default() };
        let began = CLOCK.now();
        if tells {
            pool.observe(now, id, &observed);
        }
        let answer = pool.renew(now, holder, self.seq, ask)?;
        let took = CLOCK.now().since(began);
        if let Answer::Grant(grant) = answer {
            self.held = grant.kept + grant.permits;
            self.rate = match grant.rate {
                Rate::Lent { lease, turn, .. } => Some((lease, turn)),
                Rate::Free | Rate::Nothing => None,
            };
        }
        Ok(took)
    }
}
