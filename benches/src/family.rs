//! The cost of an ask below a parent that remembers for an hour, after many keys were used and left one after the
//! other. The same run shows the same ask without a parent. The pools are the shipped ones; nothing is sent and nothing
//! is written.

use lessor_ledger::Rule;
use lessor_ledger::pool::{Above, AskError, Holder, Plan, Pool, SessionId};
use lessor_ledger::rule::SlidingWindow;
use lessor_ledger::share::Share;
use lessor_protocol::{Ask, CLOCK, Moment};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Total numbers of keys used, one after the other, at which a row is printed.
const KEYS: [u64; 4] = [1_000, 10_000, 50_000, 100_000];

/// The last keys before a row, for which asks are timed.
const TIMED: u64 = 1_000;

/// Sessions that take turns.
const NODES: u64 = 20;

/// Simulated time from one key to the next.
const STEP: Duration = Duration::from_millis(1);

const HOUR: Duration = Duration::from_secs(3_600);

/// Prints a row for each number of keys, as soon as it is known.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!("| keys used | µs an ask, no parent | below a parent | ratio | sessions the parent remembers |");
    println!("|---:|---:|---:|---:|---:|");
    let mut parent = Pool::new(plan(u64::from(u32::MAX), HOUR)?, Moment::ORIGIN);
    let child = plan(1_000, Duration::from_secs(30))?;
    let (mut now, mut used) = (Moment::ORIGIN, 0);
    for keys in KEYS {
        let (mut alone, mut below) = (Duration::ZERO, Duration::ZERO);
        while used < keys {
            now = now + STEP;
            let session = SessionId(used % NODES);
            let (one, other) = (Pool::new(child.clone(), now), Pool::new(child.clone(), now));
            let spans =
                [use_key(one, &mut [], session, now)?, use_key_below(other, &mut parent, session, now)?];
            if used >= keys - TIMED {
                alone += spans[0];
                below += spans[1];
            }
            used += 1;
        }
        // Two asks a key.
        let micros = |span: Duration| span.as_secs_f64() * 1e6 / (2 * TIMED) as f64;
        let (alone, below) = (micros(alone), micros(below));
        let remembered = parent.view(now).sessions;
        println!("| {keys} | {alone:.2} | {below:.2} | {:.1} | {remembered} |", below / alone);
    }
    Ok(())
}

fn plan(limit: u64, per: Duration) -> Result<Arc<Plan>, Box<dyn Error>> {
    Ok(Arc::new(Plan {
        ease_off: true,
        ..Plan::of(vec![Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO)?)])
    }))
}

fn use_key_below(child: Pool, parent: &mut Pool, id: SessionId, now: Moment) -> Result<Duration, AskError> {
    use_key(child, &mut [Above { pool: parent, share: Share::EVEN }], id, now)
}

/// Lets a session take a permit of a key, spend and report it, and never return. Returns the time of its two asks.
fn use_key(
    mut child: Pool,
    above: &mut [Above<'_>],
    id: SessionId,
    now: Moment,
) -> Result<Duration, AskError> {
    let holder = Holder { id, share: Share::EVEN, rtt: STEP };
    let began = CLOCK.now();
    let lent = child.renew_below(above, now, holder, 1, Ask { want: 1, ..Ask::default() })?;
    let permits = lent.grant().map_or(0, |grant| grant.permits);
    child.renew_below(above, now, holder, 2, Ask { spent_total: permits, ..Ask::default() })?;
    let took = CLOCK.now().since(began);
    assert!(permits > 0, "{lent:?}: a key that is new has permits");
    Ok(took)
}
