//! Changes that operators make to limits in use: top up, pause, resume, block, and, in [`put`], put and remove. Each
//! request is decoded, handed to the allocator, announced as an event, and answered.

use super::decider::{Decider, Kept, PARAMETERS, kept, whole};
use super::object::object;
use super::problem::Problem;
use super::{body, json, put, show};
use crate::access::Visitor;
use crate::config::Upstream;
use crate::shared::Shared;
use crate::uplink::decide as decide_for_all;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use lessor_ledger::overrides::Decision;
use lessor_ledger::registry::limit::{Limit, PoolId};
use lessor_ledger::rejection::quoted;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::lease::millis_up;
use lessor_protocol::names::NAME_MAX;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::{Key, NodeName, PERMITS_MAX};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) type Parameters = Result<Query<BTreeMap<String, String>>, QueryRejection>;
pub(super) type Rest = Result<Path<String>, PathRejection>;

/// Longest id of a top-up, in bytes.
const TOP_UP_NAME_MAX: usize = 128;

/// `DELETE /v1/limits/{name}`, and `DELETE /v1/limits/{name}/nodes/{node}/block`.
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    decider: Decider,
    path: Rest,
    query: Parameters,
    request: Request,
) -> Result<Response, Problem> {
    whole(&shared.clone(), decider.reader(), async move {
        let rest = name(path)?;
        parameters(query, &PARAMETERS)?;
        let is_limit = shared.with(|registry, _| registry.limit(&rest).is_some());
        if let Some((name, node)) = blocking(&shared, &rest).filter(|_| !is_limit) {
            operates(&shared, &decider.visitor, name)?;
            let node = node_name(node)?;
            let (was_blocked, kept) =
                decide(&shared, &decider, name, &Decision::Unblock(node.clone())).await?;
            let more =
                [("node", node.as_str().into()), ("before", was_blocked.into()), ("after", false.into())];
            decider.has_done(&shared, "unblock", name, more, kept).await?;
            return Ok(json(
                json!({ "limit": name, "node": node.as_str(), "was_blocked": was_blocked }).to_string(),
            ));
        }
        put::remove(&shared, decider, &rest, request.headers()).await
    })
    .await
}

/// `POST /v1/limits/{name}/top-up`, `/pause`, `/resume` and `/nodes/{node}/block`.
pub(super) async fn act(
    State(shared): State<Arc<Shared>>,
    decider: Decider,
    path: Rest,
    query: Parameters,
    request: Request,
) -> Result<Response, Problem> {
    let rest = name(path)?;
    parameters(query, &PARAMETERS)?;
    // A body that trickles takes no place of a decision.
    let body = match rest.strip_suffix("/pause").or_else(|| rest.strip_suffix("/top-up")) {
        Some(name) => {
            operates(&shared, &decider.visitor, name)?;
            object(&body::of(&shared, request).await?)?
        }
        None => Value::Null,
    };
    whole(&shared.clone(), decider.reader(), async move {
        if let Some((name, node)) = blocking(&shared, &rest) {
            operates(&shared, &decider.visitor, name)?;
            return block(&shared, decider, name, &node_name(node)?).await;
        }
        if let Some(name) = rest.strip_suffix("/resume") {
            operates(&shared, &decider.visitor, name)?;
            let (was_paused, kept) = decide(&shared, &decider, name, &Decision::Resume).await?;
            let more = [("before", was_paused.into()), ("after", false.into())];
            decider.has_done(&shared, "resume", name, more, kept).await?;
            return Ok(json(json!({ "limit": name, "was_paused": was_paused }).to_string()));
        }
        if let Some(name) = rest.strip_suffix("/pause") {
            return pause(&shared, decider, name, &body).await;
        }
        if let Some(name) = rest.strip_suffix("/top-up") {
            return top_up(&shared, decider, name, &body).await;
        }
        Err(Problem::not_found("a POST to a limit ends with /top-up, /pause, /resume or /nodes/{node}/block"))
    })
    .await
}

/// # Errors
/// If `visitor` has no right to operate the limit called `name`.
fn operates(shared: &Arc<Shared>, visitor: &Visitor, name: &str) -> Result<(), Problem> {
    visitor.needs_of(shared, "operate", name, |rights| rights.may_operate(name))
}

async fn top_up(
    shared: &Arc<Shared>,
    decider: Decider,
    name: &str,
    body: &Value,
) -> Result<Response, Problem> {
    only(body, &["permits", "key", "id"])?;
    let shown =
        |field: &str| body.get(field).map_or("missing".to_owned(), |value| quoted(&value.to_string()));
    let permits = body.get("permits").and_then(Value::as_u64).filter(|permits| *permits <= PERMITS_MAX);
    let permits = permits.filter(|permits| *permits > 0).ok_or_else(|| {
        let detail =
            format!("permits is {}: expected a whole number from 1 to {PERMITS_MAX}", shown("permits"));
        Problem::invalid("permits", detail)
    })?;
    decider.visitor.needs_of(shared, &format!("top up by {permits} at a time"), name, |rights| {
        rights.top_up_max(name).is_none_or(|max| permits <= max)
    })?;
    let (key, id) = (text(body, "key")?, text(body, "id")?);
    if id.is_some_and(str::is_empty) {
        let detail = "id is empty: name the top-up, or leave the id out. Is a variable of a script not set?";
        return Err(Problem::invalid("id", detail));
    }
    if id.is_some_and(|id| id.len() > TOP_UP_NAME_MAX) {
        return Err(Problem::invalid("id", format!("id is longer than {TOP_UP_NAME_MAX} bytes")));
    }
    // A pool of a pattern limit is topped up under the name that matched.
    let (was_made, available) = shared.with(|registry, now| {
        if registry.configured_for(name).is_none() {
            return Err(show::not_this_name(registry, name));
        }
        let limit = registry.limit_for(name).expect("its name is known");
        let rules = &limit.config().rules;
        let counts_calls = !rules.is_empty() && rules.iter().all(|rule| matches!(rule, Rule::Concurrency(_)));
        let detail = match &limit.config().upstream {
            Some(Upstream::Address(upstream)) => Some(format!("is leased from {upstream}: top it up there")),
            Some(Upstream::Store(_)) => {
                Some("is in a store that several allocators share: its pools cannot be topped up".to_owned())
            }
            None if counts_calls => Some(
                "counts calls in flight: a top-up has no effect, because the permits come back by themselves"
                    .to_owned(),
            ),
            None => None,
        };
        if let Some(detail) = detail {
            return Err(Problem::invalid("limit", format!("{} {detail}", quoted(name))));
        }
        let pool = limit.pool_id(name, key)?;
        let most = limit.figures(now).ceiling;
        if permits > most {
            decider.confirms(&format!("permits is {permits}, and the limit has {most} at most"))?;
        }
        check_id(limit, id, permits, &pool)?;
        let was_made = limit.top_up(now, pool.clone(), permits, id)?;
        let available = limit.view(now, &pool).map_or(0, |view| view.available);
        let configured = limit.config().name.to_string();
        registry.note_decision(&configured);
        Ok::<_, Problem>((was_made, available))
    })?;
    shared.tell(&Event::of(Kind::ToppedUp, name));
    let kept = durable(shared).await;
    tracing::info!(limit = %name, permits, was_made, "a limit was topped up");
    let topped_up = if was_made { permits } else { 0 };
    let more =
        [("key", key.into()), ("permits", topped_up.into()), ("id", id.into()), ("after", available.into())];
    decider.has_done(shared, "top_up", name, more, kept).await?;
    Ok(json(json!({ "limit": name, "topped_up": topped_up, "available": available }).to_string()))
}

/// # Errors
/// If `id` was used before for another number of permits, or for another `pool`: the limit would take the request for
/// that top-up, and add nothing.
fn check_id(limit: &Limit, id: Option<&str>, permits: u64, pool: &PoolId) -> Result<(), Problem> {
    let Some(before) = id.and_then(|id| limit.topped_up_as(id)) else {
        return Ok(());
    };
    let used = |detail: String| {
        let detail = format!("id is {}, under which {detail}", quoted(&before.name));
        Err(Problem::of_field(StatusCode::CONFLICT, "id_used", "id", detail))
    };
    match (before.permits, &before.pool) {
        (Some(added), _) if added != permits => {
            used(format!("{added} permits were added already: {permits} more need another id"))
        }
        (_, Some(other)) if other != pool => {
            let of_key = |key: &Key| format!("the pool of key {}", quoted(key.as_str()));
            let other = other.key.as_ref().map_or("another pool".to_owned(), of_key);
            used(format!("permits were added to {other} already: this pool needs another id"))
        }
        (Some(_) | None, _) => Ok(()),
    }
}

async fn pause(
    shared: &Arc<Shared>,
    decider: Decider,
    name: &str,
    body: &Value,
) -> Result<Response, Problem> {
    only(body, &["for"])?;
    let span = text(body, "for")?.map(|text| {
        humantime::parse_duration(text).map_err(|_| {
            let detail = format!("for is {}: use a number with a unit, for example \"10m\"", quoted(text));
            Problem::invalid("for", detail)
        })
    });
    let span = span.transpose()?;
    if span.is_some_and(|span| span.is_zero()) {
        let detail = "for is zero: such a pause is over at once. Use a longer span, or leave it out to pause until resumed";
        return Err(Problem::invalid("for", detail));
    }
    let (was_paused, kept) = decide(shared, &decider, name, &Decision::Pause(span)).await?;
    let more = [("before", was_paused.into()), ("after", true.into()), ("ms", span.map(millis_up).into())];
    decider.has_done(shared, "pause", name, more, kept).await?;
    tracing::info!(limit = %name, ?span, "a limit was paused");
    Ok(json(json!({ "limit": name, "paused_ms": span.map(millis_up) }).to_string()))
}

async fn block(
    shared: &Arc<Shared>,
    decider: Decider,
    name: &str,
    node: &NodeName,
) -> Result<Response, Problem> {
    let (was_blocked, kept) = decide(shared, &decider, name, &Decision::Block(node.clone())).await?;
    let more = [("node", node.as_str().into()), ("before", was_blocked.into()), ("after", true.into())];
    decider.has_done(shared, "block", name, more, kept).await?;
    tracing::info!(limit = %name, %node, "a node was blocked");
    // An unknown node is most likely mistyped, or asks another allocator.
    let first = shared.with(|registry, _| registry.sessions_after(Some(&(node.clone(), 0)), 1));
    let is_known = first.iter().any(|((known, _), _)| known == node);
    Ok(json(json!({ "limit": name, "blocked": node.as_str(), "is_known": is_known }).to_string()))
}

/// Makes the `decision` of `decider` about a limit, and waits until it is durable: in this allocator or, if several
/// allocators share a store, there. Returns whether the pause or block was there before, if that is known.
///
/// # Errors
/// If nothing was changed.
async fn decide(
    shared: &Shared,
    decider: &Decider,
    name: &str,
    decision: &Decision,
) -> Result<(Option<bool>, Kept), Problem> {
    let unknown = || show::limit_unknown(name);
    shared.with(|registry, _| match registry.limit(name) {
        Some(_) => Ok(()),
        None => Err(show::not_this_name(registry, name)),
    })?;
    if shared.is_sharing() {
        let made = decide_for_all(shared, decider.reader(), name, decision).await.map_err(Problem::from);
        let was_so = made.as_ref().ok().copied();
        return Ok((was_so, kept(made.map(|_| ()))?));
    }
    let was_so = shared.with(|registry, now| registry.decide(now, name, decision)).ok_or_else(unknown)?;
    let was_so =
        was_so.map_err(|full| Problem::new(StatusCode::CONFLICT, "blocked_full", full.to_string()))?;
    let event = match decision {
        Decision::Pause(_) => Event::of(Kind::Paused, name),
        Decision::Resume => Event::of(Kind::Resumed, name),
        Decision::Unblock(node) => Event { node: Some(node.to_string()), ..Event::of(Kind::Resumed, name) },
        Decision::Block(node) => Event { node: Some(node.to_string()), ..Event::of(Kind::Blocked, name) },
    };
    shared.tell(&event);
    Ok((Some(was_so), durable(shared).await))
}

/// Waits until all decisions made so far are durable.
pub(super) async fn durable(shared: &Shared) -> Kept {
    let batch = shared.with(|registry, _| registry.next_batch());
    shared.durable(batch).await.map_err(|_| Problem::not_kept())
}

/// Splits `{name}/nodes/{node}/block` into the limit and the node. Both names may have `/nodes/` in them: of the limits
/// that there are, the one with the longest name is meant.
fn blocking<'a>(shared: &Shared, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = rest.strip_suffix("/block")?;
    let split = |at: usize| Some((rest.get(..at)?, rest.get(at..)?.strip_prefix("/nodes/")?));
    let splits: Vec<_> = (0..=NAME_MAX.min(rest.len())).rev().filter_map(split).collect();
    let known = shared.with(|registry, _| {
        let mut known = splits.iter().filter(|(name, _)| registry.limit(name).is_some());
        known.next().copied()
    });
    known.or_else(|| rest.split_once("/nodes/"))
}

pub(super) fn name(path: Rest) -> Result<String, Problem> {
    path.map(|Path(rest)| rest).map_err(|_| Problem::malformed("the path cannot be read"))
}

fn node_name(node: &str) -> Result<NodeName, Problem> {
    NodeName::try_new(node).map_err(|error| Problem::invalid("node", format!("node {error}")))
}

pub(super) fn parameters(query: Parameters, known: &[&str]) -> Result<BTreeMap<String, String>, Problem> {
    let Query(query) = query.map_err(|_| Problem::malformed("the query cannot be read"))?;
    match query.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(query),
        Some(stray) => {
            let known = if known.is_empty() {
                "there is none".to_owned()
            } else {
                format!("use {}", known.join(", "))
            };
            Err(Problem::invalid("query", format!("there is no parameter {}: {known}", quoted(stray))))
        }
    }
}

pub(super) fn flag(query: &BTreeMap<String, String>, name: &str) -> Result<bool, Problem> {
    match query.get(name).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Problem::invalid(name, format!("{name} is {}: use true or false", quoted(other)))),
    }
}

pub(super) fn carry_over(query: &BTreeMap<String, String>) -> Result<CarryOver, Problem> {
    let Some(text) = query.get("carry") else { return Ok(CarryOver::default()) };
    CarryOver::named(text).ok_or_else(|| {
        let names = CarryOver::ALL.map(CarryOver::name).join(", ");
        Problem::invalid("carry", format!("carry is {}: use one of {names}", quoted(text)))
    })
}

/// Refuses unknown members: the client would believe that they had an effect.
fn only(body: &Value, known: &[&str]) -> Result<(), Problem> {
    let stray = body.as_object().and_then(|body| body.keys().find(|name| !known.contains(&name.as_str())));
    match stray {
        None => Ok(()),
        Some(stray) => {
            let detail = format!("{} means nothing here: use {}", quoted(stray), known.join(", "));
            Err(Problem::invalid("body", detail))
        }
    }
}

fn text<'a>(body: &'a Value, field: &str) -> Result<Option<&'a str>, Problem> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let detail = format!("{field} is {}: expected a string", quoted(&other.to_string()));
            Err(Problem::invalid(field, detail))
        }
    }
}
