//! The requests of nodes: exchanges and goodbyes. Each is decoded, handed to the allocator, and encoded.

use super::problem::Problem;
use super::{body, decode, json, visitor};
use crate::access::Visitor;
use crate::addresses::Address;
use crate::audit::Origin;
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use lessor_ledger::registry::{Caller, Entry, Exchanged};
use lessor_protocol::clock::Stopwatch;
use lessor_protocol::trace;
use lessor_protocol::wire::{GrantBody, LeasesResponse, Refused, Text, code};
use lessor_protocol::{Answer, NodeName, Refusal, RefusalReason};
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

/// Handles a `POST /v1/leases` that came by the routes.
pub(super) async fn leases_by_route(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    leases(&shared, None, request).await
}

/// Handles a `POST /v1/leases` from a peer at `address`.
pub(super) async fn leases<B>(
    shared: &Arc<Shared>,
    address: Option<Address>,
    request: Request<B>,
) -> Result<Response, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let span = tracing::debug_span!(
        target: trace::TARGET, parent: None, "renew", otel.kind = "server", otel.status_code = Empty,
        node = Empty, asks = Empty,
    );
    if !span.is_disabled() {
        trace::lead(&span, said_once(request.headers()));
    }
    let answered = async {
        // A body is read only from a peer that is known.
        let origin = || Origin { address, request: String::new() };
        let visitor = visitor::of_exchange(shared, request.headers(), request.extensions(), origin)?;
        check_pace(shared, &visitor)?;
        let body = body::read(shared.bodies(), address, request).await?;
        exchange(shared, &span, &visitor, &body).await
    };
    let result = match span.is_disabled() {
        true => answered.await,
        false => answered.instrument(span.clone()).await,
    };
    if result.as_ref().is_err_and(Problem::is_ours) {
        span.record("otel.status_code", "ERROR");
    }
    shared.metrics().exchanges().count(outcome(&result));
    result
}

/// # Errors
/// If the identity of `visitor` asks more often than it may.
fn check_pace(shared: &Arc<Shared>, visitor: &Visitor) -> Result<(), Problem> {
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
    let mut exchange = decode::leases(body)?;
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
    if shared.shared_store_status().is_silent() && lends_nothing(exchange.entries(), &response.grants) {
        let detail = "the shared store does not answer: nothing is lent until it does. Ask another allocator";
        return Err(Problem::unavailable("store_failing", detail));
    }
    let mut body = Vec::with_capacity(HEAD_BYTES + GRANT_BYTES * response.grants.len());
    encode(&response, &mut body);
    Ok(Answered { body, asks, waits_for })
}

/// Whether the node wants permits and every answer is empty: no permits lent or held, no rate, no error, and no reason
/// for the refusal. While the store is silent such answers say nothing about the limit. The node does better to ask
/// another allocator or to use its fallback. A decision of an operator is a reason, which the node must hear from this
/// allocator.
fn lends_nothing<'a>(
    mut entries: impl Iterator<Item = &'a Entry<Text<'a>>>,
    grants: &[GrantBody<Text<'_>>],
) -> bool {
    let is_empty = |grant: &GrantBody<Text<'_>>| {
        let lends = (grant.permits, grant.held) != (0, 0) || grant.rate.is_some();
        let is_decided = grant.refused.is_some_and(|refused| refused != Refused::Other);
        !lends && !is_decided && grant.error.is_none()
    };
    entries.any(|entry| matches!(entry, Entry::Ask(ask) if ask.want > 0)) && grants.iter().all(is_empty)
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

/// `POST /v1/nodes/{node}/leave`
pub(super) async fn leave(
    State(shared): State<Arc<Shared>>,
    visitor: Result<Visitor, Problem>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let result = match path.ok().as_ref().and_then(|Path(rest)| rest.strip_suffix("/leave")) {
        Some(node) => match visitor.and_then(|visitor| check_pace(&shared, &visitor).map(|()| visitor)) {
            Ok(visitor) => {
                body::of(&shared, request).await.and_then(|body| goodbye(&shared, &visitor, node, &body))
            }
            Err(problem) => Err(problem),
        },
        None => Err(Problem::not_found("the only path of a node is /leave")),
    };
    shared.metrics().leaves().count(outcome(&result));
    result
}

fn goodbye(shared: &Arc<Shared>, visitor: &Visitor, node: &str, body: &[u8]) -> Result<Response, Problem> {
    let (mut caller, spent) = decode::leave(node, body)?;
    speaks_for(shared, visitor, &caller.node)?;
    caller.owner = visitor.owner();
    for entry in &spent {
        visitor.needs_of(shared, "lease from this limit as this node", &entry.limit, |rights| {
            rights.may_lease(node, &entry.limit)
        })?;
    }
    let response = shared.beside(|registry, now| {
        (!registry.is_of_another(&caller)).then(|| registry.leave(now, &caller, &spent))
    });
    let response = response.ok_or_else(|| {
        let detail = "another identity began this session: nothing has changed";
        Problem::of_field(StatusCode::FORBIDDEN, code::SESSION_OF_ANOTHER, "session", detail)
    })?;
    shared.was_asked();
    let mut body = vec![];
    encode(&response, &mut body);
    Ok(json(body))
}

/// # Errors
/// If `visitor` may not speak for `node`.
fn speaks_for(shared: &Arc<Shared>, visitor: &Visitor, node: &NodeName) -> Result<(), Problem> {
    visitor.needs(shared, "lease as this node", |rights| rights.may_speak_for(node.as_str()))
}

/// Returns the label of the outcome of a request in metrics.
fn outcome(result: &Result<Response, Problem>) -> &'static str {
    result.as_ref().map_or_else(Problem::code, |_| "ok")
}

fn encode(body: &impl serde::Serialize, into: &mut Vec<u8>) {
    serde_json::to_writer(into, body).expect("bodies are plain data: numbers, strings and lists");
}
