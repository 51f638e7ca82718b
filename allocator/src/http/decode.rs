//! Bytes → exchanges. All at once if all is well; if not, entry by entry, so that one bad entry fails no
//! other entry. Handlers call it; it decides nothing about limits.

use super::explain::{Fault, Kind, Shape, explain, shown};
use super::problem::Problem;
use lessor_ledger::registry::{Caller, Entry, unanswered};
use lessor_ledger::rejection::{AskRejection, Reason};
use lessor_protocol::wire::{ASKS_MAX, LeasesRequest, LeaveRequest, SpentBody};
use lessor_protocol::{NodeName, PERMITS_MAX};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::time::Duration;

const LEASES: Shape = &[
    ("node", Kind::Text),
    ("session", Kind::Number),
    ("seq", Kind::Number),
    ("rtt_ms", Kind::OptionalNumber),
    ("asks", Kind::List),
];

const ASK: Shape = &[
    ("limit", Kind::Text),
    ("key", Kind::OptionalText),
    ("spent_total", Kind::Number),
    ("held", Kind::Number),
    ("want", Kind::Number),
    ("demand", Kind::OptionalNumber),
    ("waiting", Kind::OptionalNumber),
    ("running", Kind::OptionalNumber),
    ("unguarded", Kind::OptionalNumber),
    ("busy", Kind::OptionalNumber),
    ("shadow_refused", Kind::OptionalNumber),
];

const LEAVE: Shape = &[("session", Kind::Number), ("seq", Kind::Number), ("spent", Kind::OptionalList)];

const SPENT: Shape = &[
    ("limit", Kind::Text),
    ("key", Kind::OptionalText),
    ("spent_total", Kind::Number),
    ("running", Kind::OptionalNumber),
];

/// Who asks, and for what.
#[derive(Debug)]
pub(super) struct Exchange {
    pub caller: Caller,
    pub asks: Vec<Entry>,
}

/// The exchange in `body`.
pub(super) fn leases(body: &[u8]) -> Result<Exchange, Problem> {
    let (head, asks) = match serde_json::from_slice::<LeasesRequest>(body) {
        Ok(LeasesRequest { node, session, seq, rtt_ms, asks }) => {
            ((node, session, seq, rtt_ms), asks.into_iter().map(Entry::Ask).collect::<Vec<Entry>>())
        }
        Err(_) => one_by_one(body)?,
    };
    check_count("asks", asks.len())?;
    let (node, session, seq, rtt_ms) = head;
    let rtt = Duration::from_millis(rtt_ms);
    let caller = Caller { rtt, ..caller(&node, session, seq)? };
    Ok(Exchange { caller, asks })
}

type Head = (String, u64, u64, u64);

/// The same, when something in it is wrong: with it, or with single entries.
fn one_by_one(body: &[u8]) -> Result<(Head, Vec<Entry>), Problem> {
    let request: LeasesRequest<&RawValue> = read(body, LEASES)?;
    // Before any of them is looked at.
    check_count("asks", request.asks.len())?;
    let asks = request.asks.into_iter().map(|ask| entry(ask.get()));
    Ok(((request.node, request.session, request.seq, request.rtt_ms), asks.collect()))
}

fn entry(text: &str) -> Entry {
    let error = match serde_json::from_str(text) {
        Ok(ask) => return Entry::Ask(ask),
        Err(error) => error,
    };
    let wrong = match explain(text, ASK) {
        Ok(Some(Fault { field, detail })) => AskRejection::new(Reason::Invalid, field, detail),
        Ok(None) => unreadable(explained(&error)),
        Err(_) => unreadable(format!("the ask is {}: expected an object", shown(text))),
    };
    // Said back as far as it can be read, so that the node knows whose answer this is.
    let limit = field(text, "limit").unwrap_or_default();
    Entry::Unread(unanswered(&limit, field(text, "key").as_deref(), wrong))
}

fn unreadable(detail: String) -> AskRejection {
    AskRejection { reason: Reason::Invalid, field: None, detail }
}

/// The string that `name` is in the object `text`.
fn field(text: &str, name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get(name)?.as_str().map(str::to_owned)
}

/// What the session that leaves has to say, and who it is.
pub(super) fn leave(node: &str, body: &[u8]) -> Result<(Caller, Vec<SpentBody>), Problem> {
    let request: LeaveRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(_) => return Err(leave_problem(body)),
    };
    check_count("spent", request.spent.len())?;
    Ok((caller(node, request.session, request.seq)?, request.spent))
}

/// Why `body` is no [`LeaveRequest`].
fn leave_problem(body: &[u8]) -> Problem {
    #[derive(Deserialize)]
    struct Entries<'a> {
        #[serde(borrow)]
        spent: Vec<&'a RawValue>,
    }
    let entries: Entries<'_> = match read(body, LEAVE) {
        Ok(entries) => entries,
        Err(problem) => return problem,
    };
    let faults =
        entries.spent.iter().enumerate().find_map(|(index, entry)| match explain(entry.get(), SPENT) {
            Ok(None) => None,
            Ok(Some(fault)) => Some((format!("spent[{index}].{}", fault.field), fault.detail)),
            Err(_) => {
                let detail = format!("the entry is {}: expected an object", shown(entry.get()));
                Some((format!("spent[{index}]"), detail))
            }
        });
    match faults {
        Some((field, detail)) => Problem::invalid(&field, detail),
        None => Problem::malformed("a field is there twice"),
    }
}

/// `body` as a `T`, which has `shape`.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8], shape: Shape) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| Problem::malformed(error.to_string()))?;
    serde_json::from_str(text).map_err(|error| match explain(text, shape) {
        Ok(Some(Fault { field, detail })) => Problem::invalid(field, detail),
        Err(error) if error.classify() == Category::Data => {
            let detail = format!("the body is {}: expected an object", shown(text.trim_start()));
            Problem::malformed(detail)
        }
        Ok(None) | Err(_) => Problem::malformed(explained(&error)),
    })
}

/// What `error` says. Only what it says of data can hold a piece of it, and then not more than a short one.
fn explained(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => shown(&error.to_string()),
        Category::Syntax | Category::Eof | Category::Io => error.to_string(),
    }
}

fn check_count(field: &str, count: usize) -> Result<(), Problem> {
    if count > ASKS_MAX {
        let detail = format!("{field} has {count} entries: send at most {ASKS_MAX} at once");
        return Err(Problem::invalid(field, detail));
    }
    Ok(())
}

fn caller(node: &str, session: u64, seq: u64) -> Result<Caller, Problem> {
    for (field, value) in [("session", session), ("seq", seq)] {
        if value > PERMITS_MAX {
            let detail = format!("{field} is {value}: expected a whole number from 0 to {PERMITS_MAX}");
            return Err(Problem::invalid(field, detail));
        }
    }
    let wrong = |error| Problem::invalid("node", format!("node {error}"));
    let node = NodeName::try_new(node).map_err(wrong)?;
    Ok(Caller { node, session, seq, rtt: Duration::ZERO })
}
