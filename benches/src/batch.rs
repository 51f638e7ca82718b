//! How long exchanges wait while an allocator copies what it writes down: all pools at once, or a few at a time as
//! shipped.

use lessor_allocator::Config;
use lessor_ledger::CarryOver;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{Caller, Entry, Registry};
use lessor_protocol::wire::{ASKS_MAX, AskBody};
use lessor_protocol::{CLOCK, Moment, NodeName};
use std::error::Error;
use std::time::Duration;

/// Numbers of pools to write.
const POOLS: [usize; 3] = [1_000, 10_000, 90_000];

/// Pools copied at once, as in the allocator's journal.
const AT_ONCE: usize = 300;

const RULES: &str = "rules = [{ kind = \"sliding_window\", limit = 1000, per = \"30s\" }]";

/// Prints the table.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!(
        "| pools | ms, all at once | ms, longest part | parts | ms, all parts | ms, a change of the rules |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for pools in POOLS {
        let whole = parts(pools, usize::MAX)?;
        let parts = parts(pools, AT_ONCE)?;
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        let longest = parts.iter().copied().max().unwrap_or_default();
        let all: Duration = parts.iter().sum();
        println!(
            "| {pools} | {:.2} | {:.2} | {} | {:.2} | {:.2} |",
            millis(whole.iter().sum()),
            millis(longest),
            parts.len(),
            millis(all),
            millis(change(pools)?)
        );
    }
    Ok(())
}

/// Time that a change of the limit's rules takes with this many `pools`.
fn change(pools: usize) -> Result<Duration, Box<dyn Error>> {
    let (mut registry, now) = asked(pools)?;
    let text = format!("[[limit]]\nname = \"user\"\nkeyed = true\n{}", RULES.replace("1000", "900"));
    let config = Config::parse(&text)?;
    let began = CLOCK.now();
    registry.put(now, &config.limits[0], CarryOver::AsIs, false)?;
    Ok(CLOCK.now().since(began))
}

/// Time of each part of a batch of `pools`, of which at most `most` are copied at once. The first part begins the
/// batch.
fn parts(pools: usize, most: usize) -> Result<Vec<Duration>, Box<dyn Error>> {
    let (mut registry, now) = asked(pools)?;
    let mut spans = vec![];
    let began = CLOCK.now();
    let mut gathering = registry.begin_batch(now);
    spans.push(CLOCK.now().since(began));
    loop {
        let began = CLOCK.now();
        let is_all = registry.gather(now, &mut gathering, most);
        spans.push(CLOCK.now().since(began));
        if is_all {
            break;
        }
    }
    assert_eq!(gathering.into_batch().pools.len(), pools, "all of them were asked");
    Ok(spans)
}

/// Makes a registry that writes down what it lends, and asks it for `pools` pools. Returns it with the time.
fn asked(pools: usize) -> Result<(Registry, Moment), Box<dyn Error>> {
    let text = format!("[[limit]]\nname = \"user\"\nkeyed = true\n{RULES}");
    let config = Config::parse(&text)?;
    let now = Moment::ORIGIN + Duration::from_secs(1);
    let mut registry = Registry::new(&config.limits, config.clocks, Past::None, now, 1);
    registry.begin_writing(0);
    let first = registry.write_down(now);
    registry.raise_high_water(&first);
    let node = NodeName::try_new("node-1")?;
    let ask = |pool: &usize| {
        let (limit, key) = ("user".to_owned(), Some(format!("user-{pool}")));
        Entry::Ask(AskBody { limit, key, want: 10, ..AskBody::default() })
    };
    for (seq, keys) in (0..pools).collect::<Vec<usize>>().chunks(ASKS_MAX).enumerate() {
        let caller = Caller {
            node: node.clone(),
            session: 1,
            epoch: 0,
            seq: seq as u64 + 1,
            rtt: Duration::ZERO,
            owner: Default::default(),
        };
        registry.leases(now, &caller, &keys.iter().map(ask).collect::<Vec<Entry>>());
    }
    Ok((registry, now))
}
