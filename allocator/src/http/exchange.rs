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
use lessor_protocol::trace;
use lessor_protocol::wire::{GrantBody, LeasesResponse, code};
use lessor_protocol::{Answer, Refusal, RefusalReason};
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// When to ask again for a limit that the allocator does not know of yet. The store says within a few round trips whether it is
/// there.
const UNSURE_RETRY: Duration = Duration::from_millis(50);

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
        exchange(shared, &body).await
    };
    let result = answered.instrument(span.clone()).await;
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

async fn exchange(shared: &Shared, body: &[u8]) -> Result<Response, Problem> {
    let began = shared.now();
    let exchange = decode::leases(body)?;
    let span = Span::current();
    span.record("node", exchange.caller.node.as_str()).record("asks", exchange.asks.len());
    let knows_limits = shared.knows_limits();
    let (epoch, Exchanged { grants, events, waits_for }) = shared
        .beside(|registry, now| (registry.epoch(), registry.leases(now, &exchange.caller, &exchange.asks)));
    let Caller { session, seq, .. } = exchange.caller;
    let mut response = LeasesResponse { epoch, session, seq, grants };
    if !knows_limits {
        response.grants.iter_mut().for_each(|grant| _ = unsure(grant));
    }
    shared.cause().note(&span);
    shared.was_asked();
    for event in &events {
        tracing::info!(limit = event.limit, key = event.key, kind = ?event.kind, "a vendor counts otherwise");
        shared.tell(event);
    }
    // What it lends is known only when it is written down. Who hears nothing has been lent nothing.
    shared.durable(waits_for).await?;
    let response = json(encoded(&response));
    let span = shared.now().since(began);
    shared.metrics().answered(exchange.asks.len(), span);
    Ok(response)
}

/// Right after a start the allocator does not know whether there is no such limit, or it was put over the API of another
/// allocator. A node that is told that there is none takes its time before it asks again.
fn unsure(grant: &mut GrantBody) -> Option<()> {
    grant.error.as_ref().filter(|error| error.code == code::LIMIT_UNKNOWN)?;
    let refusal = Refusal { reason: RefusalReason::Other, retry_after: UNSURE_RETRY };
    *grant = GrantBody::of(&grant.limit, grant.key.as_deref(), Answer::Refusal(refusal));
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
    Ok(json(encoded(&response)))
}

/// How a request ended, as metrics call it.
fn outcome(result: &Result<Response, Problem>) -> &'static str {
    result.as_ref().map_or_else(Problem::code, |_| "ok")
}

fn encoded(body: &impl serde::Serialize) -> String {
    serde_json::to_string(body).expect("bodies are plain data: numbers, strings and lists")
}
