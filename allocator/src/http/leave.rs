//! Goodbyes: a session leaves, and tells its last totals. What it still holds is free at once.

use super::exchange::{caller, check_pace, encode, outcome, speaks_for};
use super::explain::{Kind, Shape, check_count, explain, read, shown};
use super::object::twice;
use super::problem::Problem;
use super::{body, json};
use crate::access::Visitor;
use crate::shared::Shared;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use lessor_access::Rights;
use lessor_ledger::registry::Caller;
use lessor_ledger::rejection::quoted;
use lessor_protocol::wire::{LeaveRequest, SpentBody, code};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

const LEAVE: Shape = &[("session", Kind::Number), ("seq", Kind::Number), ("spent", Kind::OptionalList)];

const SPENT: Shape = &[
    ("limit", Kind::Text),
    ("key", Kind::OptionalText),
    ("spent_total", Kind::Number),
    ("running", Kind::NullableNumber),
    ("held", Kind::NullableNumber),
    ("shadow_refused", Kind::OptionalNumber),
];

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
    let (mut caller, spent) = decode(node, body)?;
    speaks_for(shared, visitor, &caller.node)?;
    caller.owner = visitor.owner();
    for entry in &spent {
        let may = |rights: &Rights| rights.may_lease(node, &entry.limit);
        visitor.needs_of(
            shared,
            &format!("lease from this limit as node {}", quoted(node)),
            &entry.limit,
            may,
        )?;
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

/// Decodes a goodbye: the session that leaves, and its last totals.
pub(super) fn decode(node: &str, body: &[u8]) -> Result<(Caller, Vec<SpentBody>), Problem> {
    let request: LeaveRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(_) => return Err(leave_problem(body)),
    };
    check_count("spent", request.spent.len())?;
    Ok((caller(node, request.session, request.seq)?, request.spent))
}

/// Says why `body` is no [`LeaveRequest`]: a fault of the whole, of one of its entries, or a field that is there twice.
fn leave_problem(body: &[u8]) -> Problem {
    #[derive(Deserialize)]
    struct Entries<'a> {
        #[serde(rename = "session")]
        _session: u64,
        #[serde(rename = "seq")]
        _seq: u64,
        #[serde(borrow, default)]
        spent: Vec<&'a RawValue>,
    }
    let entries = match read::<Entries<'_>>(body, LEAVE) {
        Ok(Entries { spent, .. }) => spent,
        Err(problem) => return problem,
    };
    // The count is checked before any entry is explained.
    if let Err(problem) = check_count("spent", entries.len()) {
        return problem;
    }
    let fault = entries.iter().enumerate().find_map(|(index, entry)| match explain(entry.get(), SPENT) {
        Ok(None) => None,
        Ok(Some(fault)) => Some((format!("spent[{index}].{}", fault.field), fault.detail)),
        Err(_) => {
            let detail = format!("the entry is {}: expected an object", shown(entry.get()));
            Some((format!("spent[{index}]"), detail))
        }
    });
    match fault {
        Some((field, detail)) => Problem::invalid(&field, detail),
        None => {
            let twice = |(index, entry): (usize, &&RawValue)| {
                twice(entry.get()).map(|field| format!("spent[{index}].{field}"))
            };
            entries
                .iter()
                .enumerate()
                .find_map(twice)
                .map_or_else(|| Problem::malformed("the body cannot be read"), |path| Problem::twice(&path))
        }
    }
}
