//! What an ask costs a pool that many sessions share: each asks in turn, spends most of what it was lent, and says so. The pools
//! are those that ship; nothing is sent and nothing is written.

use lessor_ledger::Rule;
use lessor_ledger::pool::{AskError, Holder, Plan, Pool, SessionId};
use lessor_ledger::rule::SlidingWindow;
use lessor_ledger::share::{Share, Sharing};
use lessor_protocol::{Answer, Ask, Clock, ClockBounds, Left, Moment, Observed, PERMITS_MAX};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Sessions that share, where a row is printed.
const SESSIONS: [u64; 5] = [1, 10, 100, 1_000, 10_000];

/// Asks that are timed for a row, after each session has asked three times.
const TIMED: u64 = 200_000;

/// How often each session asks.
const EVERY: Duration = Duration::from_millis(500);

/// What each session would spend between two asks.
const DEMAND: u64 = 20;

const CLOCK: Clock = Clock::since_boot();

/// How much there is, in parts of what all of them want.
#[derive(Clone, Copy)]
enum Supply {
    Twice,
    Fifth,
}

/// Prints a row for so many sessions, as soon as it is known.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!(
        "| sessions | µs an ask, plenty | to one session | a fifth of what is wanted | to one session | plenty, each tells a vendor's count | to one session |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    let mut first = None;
    for sessions in SESSIONS {
        let kinds = [(Supply::Twice, false), (Supply::Fifth, false), (Supply::Twice, true)];
        let mut row = vec![];
        for (supply, tells) in kinds {
            row.push(micros(sessions, supply, tells)?);
        }
        let first = first.get_or_insert_with(|| row.clone());
        let cells =
            row.iter().zip(first).map(|(micros, first)| format!(" {micros:.2} | {:.2} |", micros / *first));
        println!("| {sessions} |{}", cells.collect::<String>());
    }
    Ok(())
}

/// Microseconds an ask, which tells what a vendor has left, or not.
fn micros(sessions: u64, supply: Supply, tells: bool) -> Result<f64, Box<dyn Error>> {
    let wanted = sessions * DEMAND * 60;
    let limit = match supply {
        Supply::Twice => wanted * 2,
        Supply::Fifth => wanted / 5,
    };
    let window = SlidingWindow::try_new(limit.max(30), Duration::from_secs(30), Duration::ZERO)?;
    let plan = Plan {
        rules: vec![Rule::SlidingWindow(window)],
        is_borrowed: false,
        is_root: false,
        clocks: ClockBounds::default(),
        ease_off: true,
        lessees_max: 20_000,
        sharing: Sharing::default(),
    };
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
            spent += nodes[turn].ask(&mut pool, SessionId(turn as u64 + 1), now, tells)?;
        }
        Ok(spent)
    };
    ask(3 * sessions)?;
    Ok(ask(TIMED)?.as_secs_f64() * 1e6 / TIMED as f64)
}

/// What one session has said, and holds.
#[derive(Clone, Copy, Default)]
struct Node {
    seq: u64,
    spent: u64,
    held: u64,
}

impl Node {
    /// Spends nearly all that it holds, says so, `tells` what a vendor has left, and asks for more: how long the answer takes.
    fn ask(
        &mut self,
        pool: &mut Pool,
        id: SessionId,
        now: Moment,
        tells: bool,
    ) -> Result<Duration, AskError> {
        let spends = self.held.min(DEMAND);
        (self.seq, self.spent, self.held) = (self.seq + 1, self.spent + spends, self.held - spends);
        let ask = Ask {
            spent_total: self.spent,
            held: self.held,
            want: (2 * DEMAND).saturating_sub(self.held),
            demand_milli: DEMAND * 2 * 1_000,
            ..Ask::default()
        };
        let holder = Holder { id, share: Share::EVEN, rtt: Duration::from_millis(2) };
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
        }
        Ok(took)
    }
}
