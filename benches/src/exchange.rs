//! The cost of an ask to an allocator, by the kind of its limit: with a name of its own, keyed, named by a pattern, or
//! below a parent. The registry is the shipped one; nothing is sent and nothing is written.

use crate::sample::median;
use lessor_allocator::Config;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{Caller, Entry, Registry};
use lessor_protocol::wire::{ASKS_MAX, AskBody};
use lessor_protocol::{CLOCK, Moment, NodeName};
use std::error::Error;
use std::time::Duration;

/// Pools that a node uses.
const POOLS: usize = 32;

/// Further patterns, none of which is asked for.
const PATTERNS: usize = 2_000;

/// Exchanges before the timed ones, and timed exchanges, for each row and round.
const EXCHANGES: (usize, usize) = (100, 2_000);

/// Measurements of each row, in turn with the others. The median is shown.
const ROUNDS: usize = 5;

/// Time between two exchanges.
const STEP: Duration = Duration::from_millis(100);

const RULES: &str = "rules = [{ kind = \"sliding_window\", limit = 1000000000, per = \"30s\" }]";

/// The kind of limit asked for.
#[derive(Clone, Copy)]
enum Kind {
    Named,
    Keyed,
    Pattern,
    Below,
}

impl Kind {
    const ALL: [(Kind, &str); 4] = [
        (Kind::Named, "a limit's own name"),
        (Kind::Keyed, "a key"),
        (Kind::Pattern, "a name that matches a pattern"),
        (Kind::Below, "a limit below another one"),
    ];

    fn ask(self, pool: usize) -> AskBody {
        let (limit, key) = match self {
            Kind::Named => (format!("named/{pool}"), None),
            Kind::Keyed => ("keyed".to_owned(), Some(format!("user-{pool}"))),
            Kind::Pattern => (format!("pattern/route/{pool}"), None),
            Kind::Below => (format!("below/{pool}"), None),
        };
        AskBody { limit, key, want: 10, ..AskBody::default() }
    }
}

/// Prints the table.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!(
        "| an ask for | µs, one per exchange | ratio to first row | µs, {POOLS} per exchange | ratio to first row |"
    );
    println!("|---|---:|---:|---:|---:|");
    let config = Config::parse(&config())?;
    let mut rows = vec![[vec![], vec![]]; Kind::ALL.len()];
    for _round in 0..ROUNDS {
        for ((kind, _), row) in Kind::ALL.into_iter().zip(&mut rows) {
            row[0].push(micros(&config, kind, 1)?);
            row[1].push(micros(&config, kind, POOLS)?);
        }
    }
    let rows: Vec<[f64; 2]> = rows.into_iter().map(|row| row.map(median)).collect();
    for ((_, name), [one, many]) in Kind::ALL.into_iter().zip(&rows) {
        println!("| {name} | {one:.2} | {:.2} | {many:.2} | {:.2} |", one / rows[0][0], many / rows[0][1]);
    }
    Ok(())
}

fn config() -> String {
    let limit = |name: String, more: &str| format!("[[limit]]\nname = {name:?}\n{RULES}\n{more}\n");
    let mut text = limit("keyed".to_owned(), "keyed = true") + &limit("parent".to_owned(), "");
    text += &limit("pattern/*".to_owned(), "");
    text.extend((0..POOLS).map(|pool| limit(format!("named/{pool}"), "")));
    text.extend((0..POOLS).map(|pool| limit(format!("below/{pool}"), "parent = \"parent\"")));
    text.extend((0..PATTERNS).map(|number| limit(format!("pattern/{number}/*"), "")));
    text
}

/// Microseconds of an ask, with `asks` in an exchange.
fn micros(config: &Config, kind: Kind, asks: usize) -> Result<f64, Box<dyn Error>> {
    assert!(asks <= POOLS && POOLS <= ASKS_MAX, "one exchange holds them");
    let mut now = Moment::ORIGIN + Duration::from_secs(1);
    let registry = Registry::new(&config.limits, config.clocks, Past::None, now, 1);
    let mut caller = Caller {
        node: NodeName::try_new("node-1")?,
        session: 1,
        epoch: 0,
        seq: 0,
        rtt: Duration::from_millis(1),
        owner: Default::default(),
    };
    let mut entries: Vec<Entry> = (0..asks).map(|pool| Entry::Ask(kind.ask(pool))).collect();
    let mut spent = Duration::ZERO;
    for exchange in 0..EXCHANGES.0 + EXCHANGES.1 {
        (now, caller.seq) = (now + STEP, caller.seq + 1);
        let began = CLOCK.now();
        let grants = registry.leases(now, &caller, &entries).grants;
        if exchange >= EXCHANGES.0 {
            spent += CLOCK.now().since(began);
        }
        for (entry, grant) in entries.iter_mut().zip(grants) {
            if let Some(error) = grant.error {
                return Err(error.detail.into());
            }
            let Entry::Ask(ask) = entry else { continue };
            // All permits are spent before the next ask.
            ask.spent_total += grant.permits;
        }
    }
    Ok(spent.as_secs_f64() * 1e6 / (EXCHANGES.1 * asks) as f64)
}
