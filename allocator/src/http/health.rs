//! Health and metrics, for orchestrators and Prometheus: is the process alive, should it get traffic, and what does it
//! count.

use super::json;
use super::problem::Problem;
use super::ranks;
use super::show::written;
use crate::access::Visitor;
use crate::audit::Origin;
use crate::metrics::Scraped;
use crate::shared::Shared;
use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use lessor_access::Rights;
use lessor_protocol::clock::wall;
use lessor_protocol::lease::millis_up;
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /livez`: the process answers.
pub(super) async fn livez() -> Response {
    json(r#"{"status":"alive"}"#.to_owned())
}

/// `GET /readyz`: the allocator is not stopping, its store works, and no limit is in quarantine here. During a
/// quarantine nodes may and should go on asking: the answers say how long to wait. But an operator that moves traffic
/// here should keep the old place until then. An allocator whose limits are all leased from upstreams that do not answer
/// is not ready. If the upstream or a shared store is in quarantine, the old place is no better, and this one is ready.
/// The answer also has each of the [`checks`].
pub(super) async fn readyz(
    State(shared): State<Arc<Shared>>,
    visitor: Option<Visitor>,
) -> Result<Response, Problem> {
    // An orchestrator has no identity, and needs only a yes or a no.
    let visitor = visitor.filter(|visitor| visitor.may(Rights::may_look));
    let may_read =
        |limit: &str| visitor.as_ref().is_some_and(|visitor| visitor.may(|rights| rights.may_read(limit)));
    let (is_stopping, quarantined, everywhere, waits) = shared.beside(|registry, now| {
        let waits = registry.quarantined_here(now);
        let seen = waits.iter().filter(|(name, _)| may_read(name));
        let seen = seen.map(|(name, wait)| json!({ "limit": name, "quarantine_ms": millis_up(*wait) }));
        // It looks at each limit once more.
        let everywhere = visitor.as_ref().map_or(0, |_| registry.quarantined(now).len());
        (registry.is_stopping(), waits.len(), everywhere, seen.collect::<Vec<Value>>())
    });
    let problem = if is_stopping {
        Some(Problem::unavailable("stopping", "the allocator is stopping"))
    } else if let Some(why) = shared.store_fails() {
        let why = visitor.as_ref().map_or_else(String::new, |_| format!(": {why}"));
        Some(Problem::unavailable("store_failing", format!("the store cannot be used{why}")))
    } else if let Some(why) = shared.upstreams_fail() {
        let why = visitor.as_ref().map_or_else(String::new, |_| format!(": {why}"));
        Some(Problem::unavailable("upstream_failing", format!("nothing can be leased{why}")))
    } else if quarantined > 0 {
        let detail =
            "an earlier life of the allocator may have lent permits that are still being spent: limits wait";
        let problem = Problem::unavailable("quarantine", detail);
        Some(if visitor.is_some() { problem.with("limits", Value::Array(waits)) } else { problem })
    } else {
        None
    };
    let checks = visitor.map(|visitor| checks(&shared, &visitor, everywhere));
    match (problem, checks) {
        (None, None) => Ok(json(json!({ "status": "ready" }).to_string())),
        (None, Some(checks)) => Ok(json(json!({ "status": "ready", "checks": checks }).to_string())),
        (Some(problem), None) => Err(problem),
        (Some(problem), Some(checks)) => Err(problem.with("checks", checks)),
    }
}

/// Returns the state of the store, the upstreams, the configuration and the quarantine, each with a reason if it is not
/// well. A refused file leaves the allocator ready, because the previous configuration stays in force. The reason for the
/// refusal may name any limit, so only a visitor that may read all limits sees it.
pub(super) fn checks(shared: &Shared, visitor: &Visitor, quarantined: usize) -> Value {
    let check = |problem: Option<String>| match problem {
        None => json!({ "ok": true }),
        Some(problem) => json!({ "ok": false, "reason": problem }),
    };
    let waits = (quarantined > 0)
        .then(|| format!("{quarantined} limits wait until leases of an earlier life have ended"));
    json!({
        "store": check(shared.store_fails()),
        "upstreams": check(shared.upstreams_fail()),
        "config": check(shared.file_fails().map(|problem| match visitor.may(Rights::may_read_all) {
            true => problem,
            false => "the file is refused: see the log".to_owned(),
        })),
        "quarantine": check(waits),
    })
}

/// `GET /metrics`. Prometheus refuses text without its media type.
pub(super) async fn metrics(
    State(shared): State<Arc<Shared>>,
    visitor: Visitor,
    origin: Option<Extension<Origin>>,
) -> Result<Response, Problem> {
    visitor.needs(&shared, "metrics", Rights::may_read_metrics)?;
    let _turn = shared.turn_to_scrape(visitor.reader(origin.as_deref())).await?;
    let scraped = shared.with(Scraped::of);
    let to_rank = ranks::chosen(&scraped);
    let lends = shared.upstreams_fail().is_none();
    shared.metrics().publish(scraped, shared.store_fails().is_some(), lends);
    shared.metrics().rank(&ranks::of_limits(&shared, to_rank).await);
    let store = shared.shared_store_status();
    shared.metrics().roots().config_is(store.overrides().newest(), store.newest_file());
    shared.metrics().events(shared.events().listeners(), shared.events().sent());
    shared.metrics().clocks(wall(), shared.now());
    let media = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let rendered = shared.clone();
    let written = written(move || rendered.metrics().render()).await?;
    Ok((media, written).into_response())
}
