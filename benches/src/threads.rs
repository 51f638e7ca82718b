//! The throughput of threads that ask one allocator at once: on limits of their own, on keys of one limit, below one
//! parent, and with one lock around everything. The registry is the shipped one, behind the lock of the shell.

use crate::sample::median;
use lessor_allocator::Config;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{Caller, Entry, Registry};
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::wire::AskBody;
use lessor_protocol::{CLOCK, NodeName};
use std::error::Error;
use std::sync::{Barrier, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// Asks in an exchange.
const ASKS: usize = 32;

/// Measurements of each row, in turn with the others. The median is shown.
const ROUNDS: usize = 5;

/// How long a row is measured in each round.
const LASTS: Duration = Duration::from_millis(300);

const RULES: &str = "rules = [{ kind = \"sliding_window\", limit = 1000000000, per = \"30s\" }]";

/// What the threads ask for.
#[derive(Clone, Copy)]
enum Kind {
    Own,
    Keys,
    Below,
    OneLock,
}

impl Kind {
    const ALL: [(Kind, &str); 4] = [
        (Kind::Own, "limits of its own"),
        (Kind::Keys, "keys of its own, of one limit"),
        (Kind::Below, "limits of its own, below one"),
        (Kind::OneLock, "limits of its own, one lock around all"),
    ];

    fn entry(self, thread: usize, pool: usize) -> Entry {
        let (limit, key) = match self {
            Kind::Own | Kind::OneLock => (format!("own/{thread}/{pool}"), None),
            Kind::Keys => ("keyed".to_owned(), Some(format!("{thread}-{pool}"))),
            Kind::Below => (format!("below/{thread}/{pool}"), None),
        };
        Entry::Ask(AskBody { limit, key, want: 10, ..AskBody::default() })
    }
}

/// Prints the table, for one thread and for one on each core.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    let most = thread::available_parallelism()?.get();
    println!("| each thread asks for | asks/s of one thread | asks/s of {most} threads | ratio |");
    println!("|---|---:|---:|---:|");
    let config = Config::parse(&config(most))?;
    let mut rows = vec![[vec![], vec![]]; Kind::ALL.len()];
    for _round in 0..ROUNDS {
        for ((kind, _), row) in Kind::ALL.into_iter().zip(&mut rows) {
            row[0].push(asks_per_second(&config, kind, 1)?);
            row[1].push(asks_per_second(&config, kind, most)?);
        }
    }
    for ((_, name), row) in Kind::ALL.into_iter().zip(rows) {
        let [one, all] = row.map(median);
        println!("| {name} | {one:.0} | {all:.0} | {:.2} |", all / one);
    }
    Ok(())
}

fn config(threads: usize) -> String {
    let limit = |name: String, more: &str| format!("[[limit]]\nname = {name:?}\n{RULES}\n{more}\n");
    let mut text = limit("keyed".to_owned(), "keyed = true") + &limit("parent".to_owned(), "");
    for place in (0..threads * ASKS).map(|place| (place / ASKS, place % ASKS)) {
        text += &limit(format!("own/{}/{}", place.0, place.1), "");
        text += &limit(format!("below/{}/{}", place.0, place.1), "parent = \"parent\"");
    }
    text
}

/// Asks a second of all `threads` together.
fn asks_per_second(config: &Config, kind: Kind, threads: usize) -> Result<f64, Box<dyn Error>> {
    let registry = RwLock::new(Registry::new(&config.limits, config.clocks, Past::None, CLOCK.now(), 1));
    let (one_lock, start) = (Mutex::new(()), Barrier::new(threads));
    let asks = thread::scope(|scope| -> Result<u64, String> {
        let each = |thread: usize| {
            let (registry, one_lock, start) = (&registry, &one_lock, &start);
            scope.spawn(move || -> Result<u64, String> {
                let node = NodeName::try_new(&format!("node-{thread}")).map_err(|error| error.to_string())?;
                let mut caller = Caller {
                    node,
                    session: 1,
                    epoch: 0,
                    seq: 0,
                    rtt: Duration::from_millis(1),
                    owner: Default::default(),
                };
                let mut entries: Vec<Entry> = (0..ASKS).map(|pool| kind.entry(thread, pool)).collect();
                start.wait();
                let mut now = CLOCK.now();
                let end = now + LASTS;
                while now < end {
                    caller.seq += 1;
                    let alone = matches!(kind, Kind::OneLock).then(|| one_lock.lock_anyway());
                    let exchanged = {
                        let registry = registry.read().unwrap_or_else(PoisonError::into_inner);
                        now = CLOCK.now();
                        registry.leases(now, &caller, &entries)
                    };
                    drop(alone);
                    for (entry, grant) in entries.iter_mut().zip(exchanged.grants) {
                        if let Some(error) = grant.error {
                            return Err(error.detail);
                        }
                        let Entry::Ask(ask) = entry else { continue };
                        // All permits are spent before the next ask.
                        ask.spent_total += grant.permits;
                    }
                }
                Ok(caller.seq * ASKS as u64)
            })
        };
        let all: Vec<_> = (0..threads).map(each).collect();
        all.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })?;
    Ok(asks as f64 / LASTS.as_secs_f64())
}
