//! What nodes call: exchanges, and goodbyes. Each is decoded, handed to the allocator, and encoded.

use super::problem::Problem;
use super::{body, decode, json};
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use lessor_ledger::registry::{Caller, Exchanged};
use lessor_protocol::clock::Stopwatch;
use lessor_protocol::trace;
use lessor_protocol::wire::{GrantBody, LeasesResponse, Text, code};
use lessor_protocol::{Answer, Refusal, RefusalReason};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// When to ask again for a limit that the allocator does not know of yet. The store says within a few round trips whether it is
/// there.
const UNSURE_RETRY: Duration = Duration::from_millis(50);

/// What an answer mostly takes: its head, and each grant with a name of usual length.
const HEAD_BYTES: usize = 128;
const GRANT_BYTES: usize = 256;

/// `POST /v1/leases` of a request that came by the routes.
pub(super) async fn leases_by_route(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    leases(&shared, request).await
}

/// `POST /v1/leases`
pub(super) async fn leases<B>(shared: &Shared, request: Request<B>) -> Result<Response, Problem>
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
        let body = body::read(request).await?;
        exchange(shared, &span, &body).await
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

/// What the header says, where there is one: of several none is to be believed.
fn said_once(headers: &HeaderMap) -> Option<&str> {
    let mut said = headers.get_all(trace::TRACEPARENT).iter();
    let first = said.next()?.to_str().ok()?;
    said.next().is_none().then_some(first)
}

async fn exchange(shared: &Shared, span: &Span, body: &[u8]) -> Result<Response, Problem> {
    let began = Stopwatch::start();
    let Answered { body, asks, waits_for } = answered(shared, span, body)?;
    // What it lends is known only when it is written down. Who hears nothing has been lent nothing.
    shared.durable(waits_for).await?;
    let response = json(body);
    shared.metrics().answered(asks, began.elapsed());
    Ok(response)
}

/// An exchange that was answered, and is not sent before the batch is durable that it waits for.
struct Answered {
    body: Vec<u8>,
    asks: usize,
    waits_for: Option<u64>,
}

fn answered(shared: &Shared, span: &Span, body: &[u8]) -> Result<Answered, Problem> {
    let exchange = decode::leases(body)?;
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
        tracing::info!(limit = event.limit, key = event.key, kind = ?event.kind, "a vendor counts otherwise");
        shared.tell(event);
    }
    let mut body = Vec::with_capacity(HEAD_BYTES + GRANT_BYTES * response.grants.len());
    encode(&response, &mut body);
    Ok(Answered { body, asks, waits_for })
}

/// Right after a start the allocator does not know whether there is no such limit, or it was put over the API of another
/// allocator. A node that is told that there is none takes its time before it asks again.
fn unsure(grant: &mut GrantBody<Text<'_>>) -> Option<()> {
    grant.error.as_ref().filter(|error| error.code == code::LIMIT_UNKNOWN)?;
    let refusal = Refusal { reason: RefusalReason::Other, retry_after: UNSURE_RETRY };
    *grant = GrantBody::answering(mem::take(&mut grant.limit), grant.key.take(), Answer::Refusal(refusal));
    Some(())
}

/// `POST /v1/nodes/{node}/leave`
pub(super) async fn leave(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let result = match path.ok().as_ref().and_then(|Path(rest)| rest.strip_suffix("/leave")) {
        Some(node) => body::read(request).await.and_then(|body| goodbye(&shared, node, &body)),
        None => Err(Problem::not_found("a node has nothing but /leave")),
    };
    shared.metrics().leaves().count(outcome(&result));
    result
}

fn goodbye(shared: &Shared, node: &str, body: &[u8]) -> Result<Response, Problem> {
    let (caller, spent) = decode::leave(node, body)?;
    let response = shared.beside(|registry, now| registry.leave(now, &caller, &spent));
    shared.was_asked();
    let mut body = vec![];
    encode(&response, &mut body);
    Ok(json(body))
}

/// How a request ended, as metrics call it.
fn outcome(result: &Result<Response, Problem>) -> &'static str {
    result.as_ref().map_or_else(Problem::code, |_| "ok")
}

fn encode(body: &impl serde::Serialize, into: &mut Vec<u8>) {
    serde_json::to_writer(into, body).expect("bodies are plain data: numbers, strings and lists");
}
