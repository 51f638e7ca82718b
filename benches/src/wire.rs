//! The cost of an exchange's bodies to an allocator: reading asks and writing answers as JSON, beside the least cost of
//! a compact form. That form has each number in as few bytes as possible, each name with its length, and nothing else.

use crate::sample::median;
use lessor_allocator::Config;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{Caller, Entry, Registry};
use lessor_protocol::wire::{AskBody, GrantBody, LeasesRequest, LeasesResponse, Text};
use lessor_protocol::{CLOCK, Moment, NodeName};
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

/// Asks in an exchange.
const ASKS: [usize; 2] = [1, 32];

/// Exchanges before answers have their usual form.
const EXCHANGES: u64 = 50;

/// Asks read and written in a round, and rounds. The median is shown.
const ASKS_A_ROUND: usize = 64_000;
const ROUNDS: usize = 9;

type Request<'a> = LeasesRequest<AskBody<Text<'a>>, Text<'a>>;

/// Prints the table.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    println!("| asks | form | bytes in | bytes out | µs to read | µs to write | allocations |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for asks in ASKS {
        let (request, registry, caller) = settled(asks)?;
        let entries: Vec<Entry> = request.asks.iter().cloned().map(Entry::Ask).collect();
        let response = answer(registry, &caller, &entries);
        let said = serde_json::to_string(&request)?;
        let read_json = || serde_json::from_str::<Request<'_>>(&said).map(|request| request.asks.len());
        if read_json()? != asks {
            return Err("what was written is read otherwise".into());
        }
        let write_json = |into: &mut Vec<u8>| serde_json::to_writer(into, &response).expect("plain data");
        row(asks, "JSON", said.len(), || _ = black_box(read_json()), write_json);
        let mut bytes = vec![];
        write_asks(&request, &mut bytes);
        let read = || read_asks(&bytes).ok_or("it is all there");
        if read()?.asks.iter().zip(&request.asks).any(|(read, ask)| read.ask() != ask.ask()) {
            return Err("what was written is read otherwise".into());
        }
        row(asks, "least", bytes.len(), || _ = black_box(read()), |into| write_grants(&response, into));
    }
    Ok(())
}

/// Measures and prints one row.
fn row(asks: usize, form: &str, bytes_in: usize, read: impl Fn(), write: impl Fn(&mut Vec<u8>)) {
    let mut answer = vec![];
    write(&mut answer);
    let size = answer.len();
    let wrote = || {
        let mut into = Vec::with_capacity(size);
        write(&mut into);
        black_box(into);
    };
    let counted = allocation_counter::measure(|| {
        read();
        wrote();
    });
    let micros = |act: &dyn Fn()| {
        let times = ASKS_A_ROUND / asks;
        let round = || {
            let began = CLOCK.now();
            (0..times).for_each(|_| act());
            CLOCK.now().since(began).as_secs_f64() * 1e6 / times as f64
        };
        median((0..ROUNDS).map(|_| round()).collect())
    };
    let (to_read, to_write, allocations) = (micros(&read), micros(&wrote), counted.count_total);
    println!("| {asks} | {form} | {bytes_in} | {size} | {to_read:.2} | {to_write:.2} | {allocations} |");
}

/// Returns the next request of a node that has asked for `asks` limits for a while, the registry that it asks, and its
/// caller.
fn settled(asks: usize) -> Result<(LeasesRequest, Registry, Caller), Box<dyn Error>> {
    let limit = |limit| {
        let rules = "rules = [{ kind = \"sliding_window\", limit = 1000000000, per = \"30s\" }]";
        format!("[[limit]]\nname = \"limit/{limit}\"\n{rules}\n")
    };
    let config = Config::parse(&(0..asks).map(limit).collect::<String>())?;
    let mut now = Moment::ORIGIN + Duration::from_secs(1);
    let registry = Registry::new(&config.limits, config.clocks, Past::None, now, 1);
    let rtt = Duration::from_millis(1);
    let mut caller = Caller {
        node: NodeName::try_new("node-1")?,
        session: 1,
        epoch: 0,
        seq: 0,
        rtt,
        owner: Default::default(),
    };
    let ask = |limit| AskBody {
        limit: format!("limit/{limit}"),
        want: 10,
        demand: 5,
        ..AskBody::<String>::default()
    };
    let mut said: Vec<AskBody> = (0..asks).map(ask).collect();
    while caller.seq < EXCHANGES {
        (now, caller.seq) = (now + Duration::from_millis(100), caller.seq + 1);
        let entries: Vec<Entry> = said.iter().cloned().map(Entry::Ask).collect();
        for (ask, grant) in said.iter_mut().zip(registry.leases(now, &caller, &entries).grants) {
            ask.spent_total += grant.permits;
        }
    }
    caller.seq += 1;
    let node = caller.node.to_string();
    Ok((
        LeasesRequest { node, session: 1, epoch: 1, seq: caller.seq, rtt_ms: 1, asks: said },
        registry,
        caller,
    ))
}

fn answer<'a>(registry: Registry, caller: &Caller, entries: &'a [Entry]) -> LeasesResponse<Text<'a>> {
    let now = Moment::ORIGIN + Duration::from_secs(1) + Duration::from_millis(100) * 51;
    let (epoch, session, seq) = (registry.epoch(), caller.session, caller.seq);
    LeasesResponse { epoch, session, seq, grants: registry.answers(now, caller, entries.iter()).grants }
}

fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    put(into, text.len() as u64);
    into.extend_from_slice(text.as_bytes());
}

/// Writes the number plus one, or zero for `None`.
fn put_if(into: &mut Vec<u8>, number: Option<u64>) {
    put(into, number.map_or(0, |number| number + 1));
}

fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text<'a>(from: &mut &'a [u8]) -> Option<Text<'a>> {
    let length = usize::try_from(take(from)?).ok()?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    std::str::from_utf8(text).ok().map(Text::from)
}

fn write_asks(request: &LeasesRequest, into: &mut Vec<u8>) {
    put_text(into, &request.node);
    for number in [request.session, request.epoch, request.seq, request.rtt_ms, request.asks.len() as u64] {
        put(into, number);
    }
    for ask in &request.asks {
        put_text(into, &ask.limit);
        put_text(into, ask.key.as_deref().unwrap_or_default());
        for number in [
            ask.spent_total,
            ask.held,
            ask.want,
            ask.demand,
            ask.waiting,
            ask.unguarded,
            ask.busy,
            ask.shadow_refused,
            ask.largest,
        ] {
            put(into, number);
        }
        put_if(into, ask.running);
    }
}

fn read_asks(mut from: &[u8]) -> Option<Request<'_>> {
    let from = &mut from;
    let (node, session) = (take_text(from)?, take(from)?);
    let (epoch, seq, rtt_ms) = (take(from)?, take(from)?, take(from)?);
    let count = usize::try_from(take(from)?).ok()?;
    let mut asks = Vec::with_capacity(count.min(from.len()));
    for _ in 0..count {
        asks.push(AskBody {
            limit: take_text(from)?,
            key: Some(take_text(from)?).filter(|key| !key.is_empty()),
            spent_total: take(from)?,
            held: take(from)?,
            want: take(from)?,
            demand: take(from)?,
            waiting: take(from)?,
            unguarded: take(from)?,
            busy: take(from)?,
            shadow_refused: take(from)?,
            largest: take(from)?,
            lends_on: false,
            running: take(from)?.checked_sub(1),
            rate: None,
            observed: None,
        });
    }
    Some(LeasesRequest { node, session, epoch, seq, rtt_ms, asks })
}

fn write_grants(response: &LeasesResponse<Text<'_>>, into: &mut Vec<u8>) {
    for number in [response.epoch, response.session, response.seq, response.grants.len() as u64] {
        put(into, number);
    }
    for grant in &response.grants {
        write_grant(grant, into);
    }
}

fn write_grant(grant: &GrantBody<Text<'_>>, into: &mut Vec<u8>) {
    put_text(into, &grant.limit);
    put_text(into, grant.key.as_deref().unwrap_or_default());
    for number in [grant.permits, grant.held, grant.term_ms, grant.ask_after_ms, u64::from(grant.shadow)] {
        put(into, number);
    }
    let fallback = grant.fallback.is_closed();
    put(into, u64::from(fallback));
    for number in [
        grant.horizon_ms,
        grant.ceiling,
        grant.retry_after_ms,
        grant.longest_ms,
        grant.hold,
        grant.left,
        grant.window_ms,
        grant.refused.map(|refused| refused as u64),
    ] {
        put_if(into, number);
    }
}
