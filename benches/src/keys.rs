//! Bytes that a key takes in an allocator: when a session uses it, after use all through a window, and when no session
//! uses it any more. The registry is the shipped one. Counted is memory that was allocated and is not freed.

use lessor_allocator::Config;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{Caller, Entry, Registry};
use lessor_protocol::wire::{ASKS_MAX, AskBody};
use lessor_protocol::{Moment, NodeName};
use std::error::Error;
use std::time::Duration;

/// Time between two asks for a key, and their number.
const STEP: Duration = Duration::from_secs(1);
const ASKS: u64 = 60;

/// Keys in an exchange: the maximum.
const CHUNK: usize = ASKS_MAX;

const KINDS: [(&str, &str); 3] = [
    ("sliding window of 30 s", "kind = \"sliding_window\", limit = 100, per = \"30s\""),
    ("token bucket", "kind = \"token_bucket\", capacity = 100, refill = 100, per = \"30s\""),
    ("day", "kind = \"fixed_window\", limit = 100, per = \"1d\""),
];

/// Prints the table for `keys` keys.
pub(crate) fn print(keys: usize) -> Result<(), Box<dyn Error>> {
    println!("| {keys} keys of a | bytes a key, asked once | all through a window | idle |");
    println!("|---|---:|---:|---:|");
    for (name, rule) in KINDS {
        let config = format!(
            "[store]\nkind = \"memory\"\n[[limit]]\nname = \"keyed\"\nkeyed = true\nkeys_max = {keys}\nrules = [{{ {rule} }}]\n"
        );
        let (config, node) = (Config::parse(&config)?, NodeName::try_new("node-1")?);
        let mut fleet = Fleet::new(&config, node, keys);
        let once = allocated(|| fleet.ask(1));
        let through = once + allocated(|| (1..ASKS).for_each(|_| fleet.ask(1)));
        let idle = through + allocated(|| fleet.rest());
        let each = |bytes: i64| bytes / keys as i64;
        println!("| {name} | {} | {} | {} |", each(once), each(through), each(idle));
    }
    Ok(())
}

fn allocated(act: impl FnOnce()) -> i64 {
    allocation_counter::measure(act).bytes_current
}

/// One node that uses each key.
struct Fleet {
    registry: Registry,
    caller: Caller,
    now: Moment,
    keys: usize,
}

impl Fleet {
    fn new(config: &Config, node: NodeName, keys: usize) -> Self {
        let now = Moment::ORIGIN + STEP;
        let caller = Caller {
            node,
            session: 1,
            epoch: 0,
            seq: 0,
            rtt: Duration::from_millis(1),
            owner: Default::default(),
        };
        Fleet {
            registry: Registry::new(&config.limits, config.clocks, Past::None, now, 1),
            caller,
            now,
            keys,
        }
    }

    /// Asks for each key, and reports the permits of the ask before as spent.
    fn ask(&mut self, want: u64) {
        self.now = self.now + STEP;
        let spent = self.caller.seq / self.keys.div_ceil(CHUNK) as u64;
        for first in (0..self.keys).step_by(CHUNK) {
            self.caller.seq += 1;
            let ask = |key| {
                let key = Some(format!("user-{key}"));
                let ask = AskBody {
                    limit: "keyed".to_owned(),
                    key,
                    want,
                    spent_total: spent,
                    demand: 1,
                    ..AskBody::default()
                };
                Entry::Ask(ask)
            };
            let asks: Vec<Entry> = (first..self.keys.min(first + CHUNK)).map(ask).collect();
            let grants = self.registry.leases(self.now, &self.caller, &asks).grants;
            assert!(grants.iter().all(|grant| grant.error.is_none()), "{:?}", grants.first());
        }
    }

    /// Lets leases end, and a sweep visit each key, long before keys may be forgotten.
    fn rest(&mut self) {
        self.now = self.now + Duration::from_secs(20);
        // The sweep's current round, and a whole one.
        (0..2).for_each(|_| self.registry.sweep(self.now, self.keys));
    }
}
