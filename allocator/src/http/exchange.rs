//! Exchanges: each is decoded, handed to the registry, and encoded. A body is decoded all at once if it is good,
//! otherwise entry by entry, so that a bad entry fails no other.

use super::body::Unread;
use super::explain::{Fault, Kind, Shape, check_count, explain, explained, read, shown};
use super::problem::Problem;
use super::{json, visitor};
use crate::access::Visitor;
use crate::addresses::Address;
use crate::audit::Origin;
use crate::server::Proven;
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use lessor_access::{Identity, Rights};
use lessor_ledger::registry::{Caller, Entry, Exchanged, unanswered};
use lessor_ledger::rejection::{AskRejection, Reason, quoted};
use lessor_protocol::clock::Stopwatch;
use lessor_protocol::trace;
use lessor_protocol::wire::{AskBody, GrantBody, LeasesRequest, LeasesResponse, Text, code};
use lessor_protocol::{Answer, NodeName, PERMITS_MAX, Refusal, RefusalReason};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// Retry delay for a limit that the allocator does not know yet. The store tells within a few round trips whether it
/// exists.
const UNSURE_RETRY: Duration = Duration::from_millis(50);

/// Usual size of an answer in bytes: its head, and each grant with a name of usual length.
const HEAD_BYTES: usize = 128;
const GRANT_BYTES: usize = 256;

const LEASES: Shape = &[
    ("node", Kind::Text),
    ("session", Kind::Number),
    ("epoch", Kind::OptionalNumber),
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
    ("running", Kind::NullableNumber),
    ("unguarded", Kind::OptionalNumber),
    ("busy", Kind::OptionalNumber),
    ("shadow_refused", Kind::OptionalNumber),
    ("largest", Kind::OptionalNumber),
    ("lends_on", Kind::OptionalFlag),
    ("rate", Kind::OptionalObject(RATE)),
    ("observed", Kind::OptionalObject(OBSERVED)),
];

const RATE: Shape = &[
    ("number", Kind::Number),
    ("cap", Kind::Number),
    ("interval_ns", Kind::OptionalNumber),
    ("credit_ns", Kind::OptionalNumber),
    ("turn", Kind::OptionalFlag),
];

const OBSERVED: Shape = &[
    ("number", Kind::Number),
    ("refused_total", Kind::OptionalNumber),
    ("wait_ms", Kind::NullableNumber),
    ("left", Kind::NullableNumber),
    ("left_lasts_ms", Kind::NullableNumber),
    ("announced", Kind::OptionalList),
];

/// Handles a `POST /v1/leases` that came by the routes.
pub(super) async fn leases_by_route(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let opened = Opened::new(&shared, None, None, request);
    opened.answer(&shared).await
}

/// A `POST /v1/leases` whose head was read. Only what its answer needs is kept: a connection moves it about.
pub(super) struct Opened<B> {
    span: Span,
    /// The sender and the body. A body is read only from a peer that is known.
    sent: Result<(Visitor, Unread<B>), Problem>,
}

impl<B> Opened<B> {
    /// Reads the head of `request` from a peer at `address`. Sets `proven` once the peer has proven an identity, whatever
    /// is answered.
    pub(super) fn new(
        shared: &Arc<Shared>,
        address: Option<Address>,
        proven: Option<&Proven>,
        request: Request<B>,
    ) -> Self {
        let span = tracing::debug_span!(
            target: trace::TARGET, parent: None, "renew", otel.kind = "server", otel.status_code = Empty,
            node = Empty, asks = Empty,
        );
        if !span.is_disabled() {
            trace::lead(&span, said_once(request.headers()));
        }
        let sent = span.in_scope(|| {
            let origin = || Origin { address, request: String::new() };
            let visitor = visitor::of_exchange(shared, request.headers(), request.extensions(), origin)?;
            if let Visitor::Known(_) = visitor {
                proven.into_iter().for_each(Proven::set);
            }
            check_pace(shared, &visitor)?;
            Ok((visitor, Unread::of(shared.bodies(), address, request)?))
        });
        Opened { span, sent }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> Opened<B> {
    /// Answers the exchange.
    pub(super) async fn answer(self, shared: &Arc<Shared>) -> Result<Response, Problem> {
        let Opened { span, sent } = self;
        let result = async {
            let (visitor, unread) = sent?;
            let body = unread.read(shared.bodies()).await?;
            exchange(shared, &span, &visitor, &body).await
        };
        let result = result.instrument(span.clone()).await;
        if result.as_ref().is_err_and(Problem::is_ours) {
            span.record("otel.status_code", "ERROR");
        }
        shared.metrics().exchanges().count(outcome(&result));
        result
    }
}

/// # Errors
/// If the identity of `visitor` asks more often than it may.
pub(super) fn check_pace(shared: &Arc<Shared>, visitor: &Visitor) -> Result<(), Problem> {
    let pace = shared.access().map_or(Ok(()), |access| access.check_pace(visitor));
    pace.map_err(|_| {
        shared.metrics().refused("too_many_exchanges");
        let detail = format!("{visitor} asks more often than an identity may: ask again in a second");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_exchanges", detail)
    })
}

/// Returns the `traceparent` header if it is there once: of several, none can be trusted.
fn said_once(headers: &HeaderMap) -> Option<&str> {
    let mut said = headers.get_all(trace::TRACEPARENT).iter();
    let first = said.next()?.to_str().ok()?;
    said.next().is_none().then_some(first)
}

async fn exchange(
    shared: &Arc<Shared>,
    span: &Span,
    visitor: &Visitor,
    body: &[u8],
) -> Result<Response, Problem> {
    let began = Stopwatch::start();
    let Answered { body, asks, waits_for } = answered(shared, span, visitor, body)?;
    // The answer leaves only once its grants are durable. A node that gets no answer was lent nothing.
    shared.durable(waits_for).await?;
    let response = json(body);
    shared.metrics().answered(asks, began.elapsed());
    Ok(response)
}

/// An answered exchange. The answer leaves when batch `waits_for` is durable.
struct Answered {
    body: Vec<u8>,
    asks: usize,
    waits_for: Option<u64>,
}

fn answered(shared: &Arc<Shared>, span: &Span, visitor: &Visitor, body: &[u8]) -> Result<Answered, Problem> {
    let mut exchange = decode(body)?;
    speaks_for(shared, visitor, &exchange.caller.node)?;
    exchange.caller.owner = visitor.owner();
    if let Visitor::Known(known) = visitor {
        let node = exchange.caller.node.clone();
        exchange.forbid(&known.identity, |limit| known.rights.may_lease(node.as_str(), limit));
        exchange.observe(|limit| known.rights.may_observe(node.as_str(), limit));
    }
    let asks = exchange.entries().len();
    span.record("node", exchange.caller.node.as_str()).record("asks", asks);
    let knows_limits = shared.knows_limits();
    let (epoch, Exchanged { grants, events, waits_for }) = shared.beside(|registry, now| {
        (registry.epoch(), registry.answers(now, &exchange.caller, exchange.entries()))
    });
    let Caller { session, seq, .. } = exchange.caller;
    let mut response = LeasesResponse { epoch, session, seq, grants };
    if !knows_limits {
        response.grants.iter_mut().for_each(|grant| _ = unsure(grant));
    }
    shared.cause().note(span);
    shared.was_asked();
    for event in &events {
        let Some(omitted) = shared.tell_by_node(event, visitor.owner()) else { continue };
        let (limit, key, kind) = (&event.limit, &event.key, event.kind);
        tracing::info!(limit, key, ?kind, omitted, "a vendor counts otherwise");
    }
    if shared.shared_store_status().is_silent() && lends_nothing(&response.grants) {
        let detail = "the shared store does not answer: nothing is lent until it does. Ask another allocator";
        return Err(Problem::unavailable("store_failing", detail));
    }
    if shared.silent_upstreams().any() && waits_for_upstreams(shared, &response.grants) {
        let detail = "the allocator that all limits are leased from does not answer: nothing is lent until it does. Ask \
                      another allocator";
        return Err(Problem::unavailable("upstream_failing", detail));
    }
    let mut body = Vec::with_capacity(HEAD_BYTES + GRANT_BYTES * response.grants.len());
    encode(&response, &mut body);
    Ok(Answered { body, asks, waits_for })
}

/// Whether every answer is empty, because no upstream answers. A 503 is the failure of the allocator for all limits of a
/// node. So a limit that can be lent is a reason to answer, whether it is asked for or not.
fn waits_for_upstreams(shared: &Shared, grants: &[GrantBody<Text<'_>>]) -> bool {
    lends_nothing(grants)
        && grants.iter().any(|grant| grant.error.is_none())
        && shared.upstreams_fail().is_some()
}

/// Whether there are answers, and every one is empty: no permits lent or held, no rate, no error, and no reason for the
/// refusal. While the source of what is lent is silent such answers say nothing about the limit. The node does better to
/// ask another allocator or to use its fallback, which an answer would end for all of its limits. A node asks the plain
/// name of a limit with keys, and names that no limit has, again and again: those errors show nothing of the store. A
/// decision of an operator is a reason, which the node must hear from this allocator.
fn lends_nothing(grants: &[GrantBody<Text<'_>>]) -> bool {
    let is_empty = |grant: &GrantBody<Text<'_>>| {
        let lends = (grant.permits, grant.held) != (0, 0) || grant.rate.is_some();
        let is_decided = grant.refused.is_some_and(|refused| refused != RefusalReason::Other);
        let word = grant.error.as_ref().map(|error| error.code.as_str());
        let names_no_pool = matches!(word, None | Some(code::KEY_MISMATCH | code::LIMIT_UNKNOWN));
        !lends && !is_decided && names_no_pool
    };
    !grants.is_empty() && grants.iter().all(is_empty)
}

/// Turns "limit unknown" into a refusal with a short retry delay. Right after a start the allocator may not know yet of
/// limits that were put through another allocator. A node takes its time before it asks again for a limit that does not
/// exist.
fn unsure(grant: &mut GrantBody<Text<'_>>) -> Option<()> {
    grant.error.as_ref().filter(|error| error.code == code::LIMIT_UNKNOWN)?;
    let refusal = Refusal { reason: RefusalReason::Other, retry_after: UNSURE_RETRY };
    *grant = GrantBody::answering(mem::take(&mut grant.limit), grant.key.take(), Answer::Refusal(refusal));
    Some(())
}

/// # Errors
/// If `visitor` may not speak for `node`.
pub(super) fn speaks_for(shared: &Arc<Shared>, visitor: &Visitor, node: &NodeName) -> Result<(), Problem> {
    let may = |rights: &Rights| rights.may_speak_for(node.as_str());
    if visitor.may(may) {
        return Ok(());
    }
    visitor.needs(shared, &format!("lease as node {}", quoted(node.as_str())), may)
}

/// Returns the label of the outcome of a request in metrics.
pub(super) fn outcome(result: &Result<Response, Problem>) -> &'static str {
    result.as_ref().map_or_else(Problem::code, |_| "ok")
}

pub(super) fn encode(body: &impl serde::Serialize, into: &mut Vec<u8>) {
    serde_json::to_writer(into, body).expect("bodies are plain data: numbers, strings and lists");
}

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
                let node = quoted(self.caller.node.as_str());
                let detail = format!("{identity} has no right to lease from this limit as node {node}");
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
pub(super) fn decode(body: &[u8]) -> Result<Exchange<'_>, Problem> {
    // UTF-8 is checked once for the whole body, which is cheaper than string by string.
    let text = std::str::from_utf8(body).ok();
    let whole =
        text.and_then(|text| serde_json::from_str::<LeasesRequest<PlacedEntry<'_>, Text<'_>>>(text).ok());
    let LeasesRequest { node, session, epoch, seq, rtt_ms, asks } = match whole {
        Some(request) => request,
        None => one_by_one(body)?,
    };
    check_count("asks", asks.len())?;
    let rtt = Duration::from_millis(rtt_ms);
    let caller = Caller { epoch, rtt, ..caller(&node, session, seq)? };
    Ok(Exchange { caller, asks })
}

/// Decodes a body in which something is wrong. The fault is of the whole request, or of single entries.
fn one_by_one(body: &[u8]) -> Result<LeasesRequest<PlacedEntry<'_>, Text<'_>>, Problem> {
    let request: LeasesRequest<&RawValue, Text<'_>> = read(body, LEASES)?;
    let LeasesRequest { node, session, epoch, seq, rtt_ms, asks } = request;
    // The count is checked before any entry is decoded.
    check_count("asks", asks.len())?;
    let asks = asks.into_iter().map(|ask| PlacedEntry(entry(ask.get()))).collect();
    Ok(LeasesRequest { node, session, epoch, seq, rtt_ms, asks })
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
    // The values stay text: a body of small values would take a hundred times its size otherwise.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    serde_json::from_str(fields.get(name)?.get()).ok()
}

pub(super) fn caller(node: &str, session: u64, seq: u64) -> Result<Caller, Problem> {
    for (field, value) in [("session", session), ("seq", seq)] {
        if value > PERMITS_MAX {
            let detail = format!("{field} is {value}: expected a whole number from 0 to {PERMITS_MAX}");
            return Err(Problem::invalid(field, detail));
        }
    }
    let wrong = |error| Problem::invalid("node", format!("node {error}"));
    let node = NodeName::try_new(node).map_err(wrong)?;
    Ok(Caller { node, session, epoch: 0, seq, rtt: Duration::ZERO, owner: Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::wire::ASKS_MAX;

    /// Names are decoded in place: the names of a thousand asks point into the body.
    #[test]
    fn names_are_lent_by_the_body() {
        let ask = r#"{"limit":"vendor/rest","key":"user 42","spent_total":0,"held":0,"want":1}"#;
        let asks = vec![ask; ASKS_MAX].join(",");
        let body = format!(r#"{{"node":"a","session":1,"seq":1,"asks":[{asks}]}}"#);
        let exchange = decode(body.as_bytes()).expect("it is good");
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
