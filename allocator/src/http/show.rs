//! What operators look at: limits and their pools. It changes nothing.

use super::json;
use super::problem::Problem;
use crate::config::LimitConfig;
use crate::limits::Figures;
use crate::pool::PoolView;
use crate::shared::Shared;
use crate::wrong::{Reason, Wrong, quoted};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use lessor_protocol::lease::millis_up;
use lessor_protocol::{Key, PERMITS_MAX};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pools on one page, where the request says nothing else.
const PAGE: usize = 100;

/// Most pools on one page: some 200 kB, made under the lock in about a tenth of a millisecond.
const PAGE_MAX: usize = 1_000;

/// `GET /v1/limits`
pub(super) async fn limits(State(shared): State<Arc<Shared>>) -> Response {
    let limits = shared.with(|allocator, now| {
        let limits = allocator.limits(now).into_iter();
        limits.map(|(config, figures)| (config.clone(), figures)).collect::<Vec<_>>()
    });
    let limits: Vec<Value> = limits.iter().map(|(config, figures)| limit(config, figures)).collect();
    json(json!({ "limits": limits }).to_string())
}

/// `GET /v1/limits/{name}/pools`, with `?key=` for one of them, or `?after=` a key and `?count=` for a page.
pub(super) async fn pools(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<BTreeMap<String, String>>, QueryRejection>,
) -> Result<Response, Problem> {
    let name = path.ok().and_then(|Path(rest)| rest.strip_suffix("/pools").map(str::to_owned));
    let name = name.ok_or_else(|| Problem::not_found("a limit has nothing but /pools"))?;
    let Query(query) = query.map_err(|_| Problem::malformed("the query cannot be read"))?;
    let page = Page::of(&query)?;
    let (pools, next) = shared.with(|allocator, now| {
        let limit = allocator.limit(&name).ok_or_else(|| limit_unknown(&name))?;
        match &page {
            Page::One(key) => {
                let key = limit.key(Some(key))?;
                let view = limit.view(now, &key);
                Ok((view.map(|view| (key, view)).into_iter().collect(), None))
            }
            Page::After(after, count) => {
                let pools = limit.views(now, after.as_ref(), *count);
                let next = pools.last().filter(|_| pools.len() == *count).and_then(|(key, _)| key.clone());
                Ok::<_, Wrong>((pools, next))
            }
        }
    })?;
    let pools: Vec<Value> = pools.iter().map(|(key, view)| pool(key.as_ref(), view)).collect();
    let mut body = json!({ "limit": name, "pools": pools });
    if let Some(next) = next {
        body["next"] = json!(next.as_str());
    }
    Ok(json(body.to_string()))
}

/// Which pools to show.
#[derive(Debug)]
enum Page {
    One(String),
    After(Option<Key>, usize),
}

impl Page {
    fn of(query: &BTreeMap<String, String>) -> Result<Self, Problem> {
        if let Some(stray) = query.keys().find(|name| !["key", "after", "count"].contains(&name.as_str())) {
            let detail = format!("there is no parameter {}: use key, after or count", quoted(stray));
            return Err(Problem::invalid("query", detail));
        }
        if let Some(key) = query.get("key") {
            return Ok(Page::One(key.clone()));
        }
        let after = query.get("after").map(|after| Key::try_new(after)).transpose();
        let after = after.map_err(|error| Problem::invalid("after", format!("after {error}")))?;
        let count = query.get("count").map_or(Ok(PAGE), |count| page_size(count))?;
        Ok(Page::After(after, count))
    }
}

fn page_size(count: &str) -> Result<usize, Problem> {
    match count.parse() {
        Ok(count @ 1..=PAGE_MAX) => Ok(count),
        _ => {
            let detail = format!("count is {}: use a number from 1 to {PAGE_MAX}", quoted(count));
            Err(Problem::invalid("count", detail))
        }
    }
}

fn limit_unknown(name: &str) -> Wrong {
    Wrong::new(Reason::LimitUnknown, "limit", format!("there is no limit {}", quoted(name)))
}

/// A limit: as it was configured, and its figures.
fn limit(config: &LimitConfig, figures: &Figures) -> Value {
    let mut body = serde_json::to_value(config.raw()).expect("a configuration is plain data");
    let sums = &figures.sums;
    body["ceiling"] = json!(figures.ceiling);
    body["pools"] = json!(figures.pools);
    body["quarantine_ms"] = json!(millis_up(figures.quarantine));
    // A sum over many pools can be more than anybody can count; nobody needs to know by how much.
    body["available"] = json!(sums.available.min(u128::from(PERMITS_MAX)) as u64);
    body["outstanding"] = json!(sums.outstanding);
    body["lessees"] = json!(sums.lessees);
    body["granted"] = json!(sums.granted);
    body["spent"] = json!(sums.spent);
    body["returned"] = json!(sums.returned);
    body["burned"] = json!(sums.burned - sums.reported_late);
    body
}

fn pool(key: Option<&Key>, view: &PoolView) -> Value {
    let books = &view.books;
    let mut body = json!({
        "available": view.available,
        "outstanding": books.outstanding,
        "lessees": view.lessees,
        "quarantine_ms": millis_up(view.quarantine),
        "granted": books.granted,
        "spent": books.spent,
        "returned": books.returned,
        "burned": books.burned,
    });
    if let Some(key) = key {
        body["key"] = json!(key.as_str());
    }
    body
}
