//! The state of the allocator at a glance, and its latest events: for people, where [`super::health`] gives machines a
//! yes or a no. Nothing here changes anything.

use super::events::may_hear;
use super::health::checks;
use super::json;
use super::problem::Problem;
use crate::access::Visitor;
use crate::config::Exposure;
use crate::metrics::Stands;
use crate::reload::{kept_warning, restart_warning};
use crate::shared::Shared;
use axum::extract::State;
use axum::response::Response;
use lessor_access::Rights;
use lessor_protocol::lease::millis_up;
use serde_json::{Value, json};
use std::sync::Arc;

/// Limits in quarantine that are named; the rest are only counted.
const NAMED_MAX: usize = 10;

/// `GET /v1/status`
pub(super) async fn status(State(shared): State<Arc<Shared>>, visitor: Visitor) -> Result<Response, Problem> {
    visitor.needs(&shared, "read", Rights::may_look)?;
    let (mut body, is_stopping, quarantined) = shared.beside(|registry, now| {
        let waits = registry.quarantined(now);
        let longest = waits.iter().map(|(_, wait)| *wait).max().unwrap_or_default();
        let seen =
            waits.iter().map(|(name, _)| *name).filter(|name| visitor.may(|rights| rights.may_read(name)));
        let names: Vec<&str> = seen.take(NAMED_MAX).collect();
        let body = json!({
            "version": env!("CARGO_PKG_VERSION"),
            // Tells one life from another. It is text because most readers of JSON numbers would lose digits.
            "epoch": format!("{:x}", registry.epoch()),
            "up_ms": millis_up(now.since(shared.began())),
            "sessions": registry.sessions(),
            "quarantine": { "limits": waits.len(), "longest_ms": millis_up(longest), "first": names },
        });
        (body, registry.is_stopping(), waits.len())
    });
    let mut reasons = vec![];
    for (holds, reason) in [
        (is_stopping, "stopping"),
        (shared.store_fails().is_some(), "store_failing"),
        (shared.upstreams_fail().is_some(), "upstream_failing"),
        (quarantined > 0, "quarantine"),
    ] {
        if holds {
            reasons.push(reason);
        }
    }
    body["status"] = json!(if reasons.is_empty() { "ready" } else { "not_ready" });
    body["reasons"] = json!(reasons);
    body["checks"] = checks(&shared, &visitor, quarantined);
    body["warnings"] = warnings(&shared, &visitor).into();
    body["node"] = json!(shared.config().server.node.as_ref().map(|node| node.as_str()));
    let kind = shared.config().server.store.kind();
    // An allocator that was told not to use its file keeps its books in memory.
    body["store"] = json!(if kind == "embedded" && !shared.has_store() { "memory" } else { kind });
    body["sharing"] = json!(shared.shared_store_status().here());
    body["listeners"] = json!(shared.events().listeners());
    let upstreams = shared.metrics().upstreams_stand().into_iter();
    let upstream = |(url, stands): (String, Stands)| {
        let stands = match stands {
            Stands::Unasked => "unasked",
            Stands::Up => "up",
            Stands::Down => "down",
        };
        json!({ "url": url, "is": stands })
    };
    body["upstreams"] = upstreams.map(upstream).collect();
    Ok(json(body.to_string()))
}

/// Returns what operators should mend. A visitor hears only of limits that it may read. Warnings about settings,
/// the memory, files with secrets and answers of upstreams are for visitors that may read all.
fn warnings(shared: &Shared, visitor: &Visitor) -> Vec<String> {
    let mut kept = shared.kept_limits();
    kept.retain(|name| visitor.may(|rights| rights.may_read(name)));
    let mut warnings: Vec<String> = shared.exposures().iter().map(Exposure::to_string).collect();
    warnings.extend(shared.fresh_warning());
    warnings.extend(kept_warning(&kept));
    if visitor.may(Rights::may_read_all) {
        warnings.extend(restart_warning(&shared.needs_restart()));
        warnings.extend(shared.shared_store_status().older_file_warning());
        let standing = shared.standing();
        warnings.extend(standing.few_descriptors.warning());
        warnings.extend(standing.short_memory.warning(shared.config().server.memory_max));
        warnings.extend_from_slice(&standing.open_secrets.warnings());
        warnings.extend(standing.unfit.warnings(shared.now()));
    }
    warnings
}

/// `GET /v1/events/recent`: the last events, newest first, each with its age.
pub(super) async fn recent(State(shared): State<Arc<Shared>>, visitor: Visitor) -> Result<Response, Problem> {
    visitor.needs(&shared, "read", Rights::may_look)?;
    let now = shared.now();
    let past = shared.events().recent().into_iter().rev();
    let events: Vec<Value> = past
        .filter(|(_, event)| may_hear(&visitor, event))
        .map(|(at, event)| {
            let mut body = serde_json::to_value(&event).expect("an event is plain data");
            body["ago_ms"] = json!(now.since(at).as_millis() as u64);
            body
        })
        .collect();
    Ok(json(json!({ "events": events }).to_string()))
}
