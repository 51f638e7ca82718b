//! What operators read: limits and their pools. Nothing here changes anything.

use super::problem::Problem;
use super::{json, put, top};
use crate::access::Visitor;
use crate::audit::Origin;
use crate::config::{LimitConfig, Names, Upstream};
use crate::shared::{Reader, Shared};
use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use lessor_access::Rights;
use lessor_ledger::limit_text::RawLimit;
use lessor_ledger::pool::PoolView;
use lessor_ledger::registry::Registry;
use lessor_ledger::registry::limit::{Figures, PoolId};
use lessor_ledger::rejection::{AskRejection, Reason, quoted};
use lessor_protocol::lease::millis_up;
use lessor_protocol::{Key, LimitName, Moment, PERMITS_MAX};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Pools on one page, by default.
const PAGE: usize = 100;

/// Most pools on one page: some 200 kB, made under the lock in about a tenth of a millisecond.
const PAGE_MAX: usize = 1_000;

/// `GET /v1/limits`
pub(super) async fn limits(
    State(shared): State<Arc<Shared>>,
    visitor: Visitor,
    origin: Option<Extension<Origin>>,
) -> Result<Response, Problem> {
    visitor.needs(&shared, "read", Rights::may_look)?;
    let _turn = shared.turn_to_show(visitor.reader(origin.as_deref())).await?;
    let limits = shared.with(Registry::snapshots);
    let silent = shared.silent_upstreams().all();
    let body = written(move || {
        let seen =
            limits.iter().filter(|(config, _)| visitor.may(|rights| rights.may_read(config.name.as_str())));
        let limits: Vec<Shown> = seen.map(|(config, figures)| Shown::of(config, figures, &silent)).collect();
        encoded(&BTreeMap::from([("limits", limits)]))
    });
    Ok(json(body.await?))
}

/// Runs `write` on a thread for blocking work, so that no exchange waits for it. The caller has its turn: configurations
/// may have megabytes, and encoding them must not take every processor, or the memory, from exchanges.
pub(super) async fn written<T: Send + 'static>(
    write: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(write).await.map_err(|error| {
        tracing::error!(%error, "an answer could not be written: this is a bug");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the answer could not be written")
    })
}

fn encoded(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("a configuration and figures are plain data")
}

/// `GET /v1/limits/{name}` and `GET /v1/limits/{name}/pools`. With `?key=` the latter shows one pool; `?after=` a key
/// and `?count=` select a page. Pages of a pattern go on after a name, `?after_limit=`, and a key. `GET
/// /v1/limits/{name}/top` is [`top`].
pub(super) async fn of_limit(
    State(shared): State<Arc<Shared>>,
    visitor: Visitor,
    origin: Option<Extension<Origin>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<BTreeMap<String, String>>, QueryRejection>,
) -> Result<Response, Problem> {
    let rest = path.map(|Path(rest)| rest).map_err(|_| Problem::malformed("the path cannot be read"))?;
    let Query(query) = query.map_err(|_| Problem::malformed("the query cannot be read"))?;
    let reads = |name: &str| visitor.needs_of(&shared, "read", name, |rights| rights.may_read(name));
    let reader = visitor.reader(origin.as_deref());
    // The name of a limit may end in `/pools` or `/top`.
    let asked = rest.rsplit_once('/').filter(|(_, part)| ["pools", "top"].contains(part));
    match asked.filter(|_| shared.with(|registry, _| registry.limit(&rest).is_none())) {
        Some((name, part)) => {
            reads(name)?;
            if part == "top" {
                top::of_limit(&shared, reader, name, &query).await
            } else {
                pools(&shared, reader, name, &query).await
            }
        }
        None => {
            reads(&rest)?;
            put::one(&shared, reader, &rest).await
        }
    }
}

async fn pools(
    shared: &Shared,
    reader: Option<Reader>,
    name: &str,
    query: &BTreeMap<String, String>,
) -> Result<Response, Problem> {
    let page = Page::of(query)?;
    let _turn = shared.turn_to_show(reader).await?;
    let (pools, next) = shared.with(|registry, now| page.of_limit(registry, now, name))?;
    let pools: Vec<Value> = pools.iter().map(|(id, view)| pool(id, view)).collect();
    let mut body = json!({ "limit": name, "pools": pools });
    if let Some(PoolId { name, key }) = next {
        if let Some(key) = key {
            body["next"] = json!(key.as_str());
        }
        if let Some(name) = name {
            body["next_limit"] = json!(name.as_str());
        }
    }
    Ok(json(body.to_string()))
}

type Pools = (Vec<(PoolId, PoolView)>, Option<PoolId>);

/// The pools to show.
#[derive(Debug)]
pub(super) enum Page {
    One(String),
    After(PoolId, usize),
}

impl Page {
    pub(super) fn of(query: &BTreeMap<String, String>) -> Result<Self, Problem> {
        const KNOWN: [&str; 4] = ["key", "after", "after_limit", "count"];
        if let Some(stray) = query.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let detail =
                format!("there is no parameter {}: use key, after, after_limit or count", quoted(stray));
            return Err(Problem::invalid("query", detail));
        }
        if let Some(key) = query.get("key") {
            return Ok(Page::One(key.clone()));
        }
        let wrong = |field: &str, error| Problem::invalid(field, format!("{field} {error}"));
        let key = query.get("after").map(|after| Key::try_new(after)).transpose();
        let key = key.map_err(|error| wrong("after", error))?;
        let name = query.get("after_limit").map(|after| LimitName::try_new(after)).transpose();
        let name = name.map_err(|error| wrong("after_limit", error))?;
        let count = query.get("count").map_or(Ok(PAGE), |count| page_size(count))?;
        Ok(Page::After(PoolId { name, key }, count))
    }

    /// Where the page begins.
    pub(super) fn from(&self) -> Bound<PoolId> {
        match self {
            Page::After(after, _) if *after != PoolId::default() => Bound::Excluded(after.clone()),
            Page::One(_) | Page::After(..) => Bound::Unbounded,
        }
    }

    /// The most pools on the page.
    pub(super) fn count(&self) -> usize {
        match self {
            Page::One(_) => PAGE,
            Page::After(_, count) => *count,
        }
    }

    /// Returns the pools of `name`, which is a limit, a pattern, or a name that a pattern matches. With them comes the
    /// last pool if there may be more.
    fn of_limit(&self, registry: &mut Registry, now: Moment, name: &str) -> Result<Pools, AskRejection> {
        let is_pattern = name.ends_with('*');
        let limit = if is_pattern { registry.limit(name) } else { registry.limit_for(name) };
        let limit = limit.ok_or_else(|| limit_unknown(name))?;
        let own = LimitName::try_new(name).ok().filter(|_| limit.config().name.names() != Names::One);
        match self {
            Page::One(_) if is_pattern => Err(AskRejection::new(
                Reason::Invalid,
                "key",
                format!("ask for the key of one name, not of {name:?}"),
            )),
            Page::One(key) => {
                let id = limit.pool_id(name, Some(key))?;
                let view = limit.view(now, &id);
                Ok((view.map(|view| (id, view)).into_iter().collect(), None))
            }
            Page::After(after, count) => {
                let from = match (&own, after) {
                    (None, PoolId { name: None, key: None }) => Bound::Unbounded,
                    (Some(_), PoolId { key: None, .. }) => {
                        Bound::Included(PoolId { name: own.clone(), key: None })
                    }
                    (own, PoolId { name, key }) => {
                        Bound::Excluded(PoolId { name: own.clone().or(name.clone()), key: key.clone() })
                    }
                };
                let mut pools = limit.views(now, from, *count);
                let next = pools.last().filter(|_| pools.len() == *count).map(|(id, _)| id.clone());
                let is_own = |id: &PoolId| own.is_none() || id.name == own;
                pools.retain(|(id, _)| is_own(id));
                let next = next.filter(is_own);
                Ok((pools, next))
            }
        }
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

pub(super) fn limit_unknown(name: &str) -> AskRejection {
    AskRejection::new(Reason::LimitUnknown, "limit", format!("there is no limit {}", quoted(name)))
}

/// Returns the error for a `name` that the request cannot be for: a pattern and its names are asked for in different
/// requests. The member `pattern` has the pattern whose options hold for `name`.
pub(super) fn not_this_name(registry: &mut Registry, name: &str) -> Problem {
    let unknown = |detail| Problem::from(AskRejection::new(Reason::LimitUnknown, "limit", detail));
    let shown = quoted(name);
    if registry.limit(name).is_some() {
        return unknown(format!("{shown} is a pattern: name one of the names that it stands for"));
    }
    let Some(pattern) = registry.pattern_for(name) else { return limit_unknown(name).into() };
    let detail = format!(
        "{shown} is covered by the pattern {}, which is shown and changed as a whole: name the pattern, or put a limit of \
         this name",
        quoted(&pattern)
    );
    unknown(detail).with("pattern", json!(pattern))
}

/// A limit as it is at one moment.
pub(super) struct Looked {
    pub(super) config: Arc<LimitConfig>,
    figures: Figures,
    silent: BTreeSet<Upstream>,
}

impl Looked {
    /// Looks up the limit `name`: its configuration and its figures.
    pub(super) fn at(shared: &Shared, name: &str) -> Result<Self, Problem> {
        let silent = shared.silent_upstreams().all();
        shared.with(|registry, now| {
            let Some(limit) = registry.limit(name) else { return Err(not_this_name(registry, name)) };
            Ok(Looked { config: limit.shared_config(), figures: limit.figures(now), silent })
        })
    }

    /// Encodes what is shown of the limit.
    pub(super) fn body(&self) -> Vec<u8> {
        encoded(&Shown::of(&self.config, &self.figures, &self.silent))
    }
}

/// A limit as it is shown: its configuration and its figures.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    config: RawLimit,
    #[serde(flatten)]
    figures: Value,
}

impl Shown {
    fn of(config: &LimitConfig, figures: &Figures, silent: &BTreeSet<Upstream>) -> Self {
        let mut shown = shown(config, figures);
        if config.upstream.as_ref().is_some_and(|upstream| silent.contains(upstream)) {
            shown["upstream_silent"] = json!(true);
        }
        Shown { config: config.raw(), figures: shown }
    }
}

fn shown(config: &LimitConfig, figures: &Figures) -> Value {
    let mut body = json!({});
    let sums = &figures.sums;
    body["ceiling"] = json!(figures.ceiling);
    body["pools"] = json!(figures.pools);
    // Then `available` is what is on loan here, and says nothing about the whole limit.
    if config.upstream.is_some() {
        body["leased"] = json!(true);
    }
    if config.name.names() != Names::One {
        body["names"] = json!(figures.names);
    }
    body["quarantine_ms"] = json!(millis_up(figures.quarantine));
    body["paused"] = json!(figures.paused);
    if let Some(lasts) = figures.pause_lasts {
        body["paused_ms"] = json!(millis_up(lasts));
    }
    body["blocked_nodes"] = json!(figures.blocked);
    body["topped_up"] = json!(figures.topped_up);
    // A sum over many pools can exceed what a client can count; no client needs to know by how much.
    body["available"] = json!(sums.available.min(u128::from(PERMITS_MAX)) as u64);
    if let Some(empty) = figures.forecast.time_to_empty {
        body["time_to_empty_ms"] = json!(millis_up(empty));
    }
    for (state, pools) in figures.by_standing() {
        body["states"][state] = json!(pools);
    }
    body["outstanding"] = json!(sums.outstanding);
    body["in_flight"] = json!(sums.in_flight);
    body["lessees"] = json!(sums.sessions);
    body["granted"] = json!(sums.granted);
    body["spent"] = json!(sums.spent);
    body["returned"] = json!(sums.returned);
    body["burned"] = json!(sums.burned - sums.reported_late);
    body["shadow_refused"] = json!(sums.shadow_refused);
    body["vendor_withheld"] = json!(sums.withheld);
    body["vendor_paused_pools"] = json!(sums.vendor_pauses);
    if !figures.vendor_pause.is_zero() {
        body["vendor_paused_ms"] = json!(millis_up(figures.vendor_pause));
    }
    for (outcome, count) in sums.answered.by_outcome() {
        body["asks"][outcome] = json!(count);
    }
    for (how, count) in sums.disagreed.by_kind() {
        body["vendor_disagreed"][how] = json!(count);
    }
    body
}

pub(super) fn pool(id: &PoolId, view: &PoolView) -> Value {
    let books = &view.books;
    let mut body = json!({
        "available": view.available,
        "state": view.forecast.standing.name(),
        "outstanding": books.outstanding,
        "in_flight": view.in_flight,
        "lessees": view.sessions,
        "quarantine_ms": millis_up(view.lends_nothing()),
        "granted": books.granted,
        "spent": books.spent,
        "returned": books.returned,
        "burned": books.burned,
        "shadow_refused": view.shadow_refused,
        "vendor_withheld": view.withheld,
        "vendor_paused_ms": millis_up(view.vendor_pause),
    });
    if let Some(empty) = view.time_to_empty {
        body["time_to_empty_ms"] = json!(millis_up(empty));
    }
    if let Some(name) = &id.name {
        body["limit"] = json!(name.as_str());
    }
    if let Some(key) = &id.key {
        body["key"] = json!(key.as_str());
    }
    body
}
