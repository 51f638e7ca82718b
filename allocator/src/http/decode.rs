//! Bytes → exchanges: all at once if the body is good, otherwise entry by entry, so that a bad entry fails no other.
//! Handlers call this module; it decides nothing about limits.

use super::explain::{Fault, Kind, Shape, explain, shown};
use super::problem::Problem;
use lessor_access::Identity;
use lessor_ledger::registry::{Caller, Entry, unanswered};
use lessor_ledger::rejection::{AskRejection, Reason};
use lessor_protocol::wire::{ASKS_MAX, AskBody, LeasesRequest, LeaveRequest, SpentBody, Text};
use lessor_protocol::{NodeName, PERMITS_MAX};
use serde::{Deserialize, Deserializer};
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

/// The asks of one request and their caller. Names borrow from the body.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    pub caller: Caller,
    asks: Vec<PlacedEntry<'a>>,
}

impl<'a> Exchange<'a> {
    /// Refuses asks of limits for which `may` is false, whether or not such a limit exists. `identity` is the caller's.
    pub(super) fn forbid(&mut self, identity: &Identity, may: impl Fn(&str) -> bool) {
        for PlacedEntry(entry) in &mut self.asks {
            if let Entry::Ask(ask) = entry
                && !may(&ask.limit)
            {
                let detail = format!("{identity} has no right to lease from this limit as this node");
                let wrong = AskRejection::new(Reason::Forbidden, "limit", detail);
                *entry = Entry::Unread(
                    unanswered(&ask.limit, ask.key.as_deref(), wrong).renamed(Text::into_string),
                );
            }
        }
    }

    /// Drops vendor counts of limits for which `is_believed` is false.
    pub(super) fn observe(&mut self, is_believed: impl Fn(&str) -> bool) {
        for PlacedEntry(entry) in &mut self.asks {
            if let Entry::Ask(ask) = entry
                && ask.observed.is_some()
                && !is_believed(&ask.limit)
            {
                ask.observed = None;
            }
        }
    }

    /// Returns the entries, in the order of the request.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry<Text<'a>>> {
        self.asks.iter().map(|PlacedEntry(entry)| entry)
    }
}

/// One entry, deserialized in place.
#[derive(Debug)]
struct PlacedEntry<'a>(Entry<Text<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for PlacedEntry<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AskBody::deserialize(deserializer).map(|ask| PlacedEntry(Entry::Ask(ask)))
    }
}

/// Decodes the exchange in `body`.
pub(super) fn leases(body: &[u8]) -> Result<Exchange<'_>, Problem> {
    // UTF-8 is checked once for the whole body, which is cheaper than string by string.
    let text = std::str::from_utf8(body).ok();
    let whole =
        text.and_then(|text| serde_json::from_str::<LeasesRequest<PlacedEntry<'_>, Text<'_>>>(text).ok());
    let (head, asks) = match whole {
        Some(LeasesRequest { node, session, seq, rtt_ms, asks }) => ((node, session, seq, rtt_ms), asks),
        None => one_by_one(body)?,
    };
    check_count("asks", asks.len())?;
    let (node, session, seq, rtt_ms) = head;
    let rtt = Duration::from_millis(rtt_ms);
    let caller = Caller { rtt, ..caller(&node, session, seq)? };
    Ok(Exchange { caller, asks })
}

type Head<'a> = (Text<'a>, u64, u64, u64);

/// Decodes a body in which something is wrong. The fault is of the whole request, or of single entries.
fn one_by_one(body: &[u8]) -> Result<(Head<'_>, Vec<PlacedEntry<'_>>), Problem> {
    let request: LeasesRequest<&RawValue, Text<'_>> = read(body, LEASES)?;
    // The count is checked before any entry is decoded.
    check_count("asks", request.asks.len())?;
    let asks = request.asks.into_iter().map(|ask| PlacedEntry(entry(ask.get())));
    Ok(((request.node, request.session, request.seq, request.rtt_ms), asks.collect()))
}

fn entry(text: &str) -> Entry<Text<'_>> {
    let error = match serde_json::from_str(text) {
        Ok(ask) => return Entry::Ask(ask),
        Err(error) => error,
    };
    let wrong = match explain(text, ASK) {
        Ok(Some(Fault { field, detail })) => AskRejection::new(Reason::Invalid, field, detail),
        Ok(None) => unreadable(explained(&error)),
        Err(_) => unreadable(format!("the ask is {}: expected an object", shown(text))),
    };
    // The answer repeats the names as far as they can be read, so that the node knows which ask it answers.
    let limit = field(text, "limit").unwrap_or_default();
    let key = field(text, "key");
    Entry::Unread(unanswered(&limit, key.as_deref(), wrong).renamed(Text::into_string))
}

fn unreadable(detail: String) -> AskRejection {
    AskRejection { reason: Reason::Invalid, field: None, detail }
}

/// Returns the string field `name` of the object `text`.
fn field(text: &str, name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get(name)?.as_str().map(str::to_owned)
}

/// Decodes a goodbye: the session that leaves, and its last totals.
pub(super) fn leave(node: &str, body: &[u8]) -> Result<(Caller, Vec<SpentBody>), Problem> {
    let request: LeaveRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(_) => return Err(leave_problem(body)),
    };
    check_count("spent", request.spent.len())?;
    Ok((caller(node, request.session, request.seq)?, request.spent))
}

/// Says why `body` is no [`LeaveRequest`].
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

/// Decodes `body` as a `T`, which has `shape`.
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

/// Returns the text of `error`. Only a data error can quote the input, and then no more than a short piece is shown.
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
    Ok(Caller { node, session, seq, rtt: Duration::ZERO, owner: Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are decoded in place: the names of a thousand asks point into the body.
    #[test]
    fn names_are_lent_by_the_body() {
        let ask = r#"{"limit":"vendor/rest","key":"user 42","spent_total":0,"held":0,"want":1}"#;
        let asks = vec![ask; ASKS_MAX].join(",");
        let body = format!(r#"{{"node":"a","session":1,"seq":1,"asks":[{asks}]}}"#);
        let exchange = leases(body.as_bytes()).expect("it is good");
        assert_eq!(exchange.entries().len(), ASKS_MAX);
        let sent = body.as_bytes().as_ptr_range();
        for entry in exchange.entries() {
            let Entry::Ask(ask) = entry else { panic!("{entry:?}") };
            let key = ask.key.as_deref().expect("it has one");
            assert_eq!((&*ask.limit, key), ("vendor/rest", "user 42"));
            assert!(sent.contains(&ask.limit.as_ptr()) && sent.contains(&key.as_ptr()));
        }
    }
}
