//! The operator that makes a decision, with its address and its reason. Handlers that change something take a
//! [`Decider`], and tell it what they did, which it writes to the audit log.

use super::problem::Problem;
use super::visitor;
use crate::access::Visitor;
use crate::audit::{Entry, Origin, REFUSED};
use crate::shared::{Reader, Shared};
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use lessor_ledger::overrides::Version;
use lessor_ledger::rejection::quoted;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Query parameters of every request that makes a decision.
pub(super) const PARAMETERS: [&str; 2] = ["confirm", "reason"];

/// Longest reason, in bytes.
const REASON_MAX: usize = 500;

/// The operator, and what the request says about the decision.
#[derive(Debug)]
pub(super) struct Decider {
    pub(super) visitor: Visitor,
    origin: Origin,
    reason: Option<String>,
    /// Whether the request confirms a change that is unusually large.
    pub(super) has_confirmed: bool,
}

impl FromRequestParts<Arc<Shared>> for Decider {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let visitor = visitor::of(shared, &parts.headers, &parts.extensions)?;
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(query) = query.map_err(|_| Problem::malformed("the query cannot be read"))?;
        let query = once(query)?;
        let reason = query.get("reason").filter(|reason| !reason.is_empty()).cloned();
        if let Some(reason) = &reason
            && (reason.len() > REASON_MAX || reason.chars().any(char::is_control))
        {
            let detail = format!("reason is {}: use one line of at most {REASON_MAX} bytes", quoted(reason));
            return Err(Problem::invalid("reason", detail));
        }
        let has_confirmed = super::admin::flag(&query, "confirm")?;
        let origin = parts.extensions.get::<Origin>().cloned().unwrap_or_default();
        Ok(Decider { visitor, origin, reason, has_confirmed })
    }
}

/// Collects the parameters of a request.
///
/// # Errors
/// If one is there twice: the one that was meant is unknown.
fn once(query: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Problem> {
    let mut parameters = BTreeMap::new();
    for (name, value) in query {
        if parameters.contains_key(&name) {
            return Err(Problem::twice(&name));
        }
        parameters.insert(name, value);
    }
    Ok(parameters)
}

/// Whether a change that is in force is durable, too. An error that leaves the change [open](Problem::leaves_open) says
/// that it may be in force.
pub(super) type Kept = Result<(), Problem>;

/// Tells a change that is in force, or may be, from one that was not made, by the result of making it.
///
/// # Errors
/// If `made` is an error that says that nothing was changed.
pub(super) fn kept(made: Result<(), Problem>) -> Result<Kept, Problem> {
    match made {
        Err(problem) if !problem.leaves_open() => Err(problem),
        Err(_) | Ok(()) => Ok(made),
    }
}

impl Decider {
    /// Returns who reads the answer, if that is known.
    pub(super) fn reader(&self) -> Option<Reader> {
        self.visitor.reader(Some(&self.origin))
    }

    /// # Errors
    /// If the operator has not confirmed an unusually large change, which `problem` describes.
    pub(super) fn confirms(&self, problem: &str) -> Result<(), Problem> {
        if self.has_confirmed {
            return Ok(());
        }
        let detail = format!("{problem}: use confirm=true if that is intended");
        Err(Problem::of_field(StatusCode::CONFLICT, "confirm_needed", "confirm", detail))
    }

    /// Records that the operator did `action` to `limit`, with the details in `more`. Waits until the entry is written.
    ///
    /// # Errors
    /// If `kept` is one: the change is in force or may be, so it is recorded in any case.
    pub(super) async fn has_done(
        self,
        shared: &Arc<Shared>,
        action: &'static str,
        limit: &str,
        more: impl IntoIterator<Item = (&'static str, Value)>,
        kept: Kept,
    ) -> Result<(), Problem> {
        let mut more: Map<String, Value> =
            more.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // Where allocators share a store, the decisions of all of them have one order.
        if shared.is_sharing() {
            let Version { file, serial } = shared.shared_store_status().overrides().newest();
            more.insert("order".to_owned(), json!({ "file": file, "serial": serial }));
        }
        if kept.as_ref().is_err_and(Problem::leaves_open) {
            more.insert("outcome".to_owned(), "unknown".into());
        }
        let Decider { visitor, origin, reason, .. } = self;
        let entry =
            Entry { who: visitor.to_string(), origin, action, limit: Some(limit.to_owned()), more, reason };
        written(shared, entry).await;
        kept
    }
}

/// Writes `entry` on a thread for blocking work, so that no exchange waits for it. One entry at a time: a disk that hangs
/// holds one thread.
async fn written(shared: &Arc<Shared>, entry: Entry) {
    let _turn = shared.turn_to_record().await;
    let shared = shared.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || shared.audit().write(&entry)).await {
        tracing::error!(%error, "a decision was not written to the audit log: this is a bug");
    }
}

/// Runs `decision` for `reader` to its end even if the peer goes away meanwhile, so that a change is always written down.
///
/// # Errors
/// If too many decisions are being made: of this one nothing is done.
pub(super) async fn whole(
    shared: &Arc<Shared>,
    reader: Option<Reader>,
    decision: impl Future<Output = Result<Response, Problem>> + Send + 'static,
) -> Result<Response, Problem> {
    let shared = shared.clone();
    let whole = async move {
        let _place = shared.place_to_decide(reader).map_err(|_| {
            let detail = "too many decisions are being made: nothing was changed, send this one again";
            Problem::unavailable("decisions_full", detail)
        })?;
        decision.await
    };
    tokio::spawn(whole).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a decision ended halfway: this is a bug");
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the decision ended halfway"))
    })
}

/// Records that a request from `origin` was refused because of its sender. Does not wait for the entry to be written.
pub(super) fn was_refused(
    shared: &Arc<Shared>,
    who: String,
    origin: Origin,
    limit: Option<String>,
    more: Map<String, Value>,
) {
    if !shared.audit().admits_refusal(&who) {
        return;
    }
    let entry = Entry { who, origin, action: REFUSED, limit, more, reason: None };
    let shared = shared.clone();
    tokio::task::spawn_blocking(move || shared.audit().write(&entry));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{LIMIT, allocator};
    use axum::response::IntoResponse as _;
    use lessor_ledger::share::Owner;
    use std::time::Duration;
    use tempfile::TempDir;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{spawn_blocking, yield_now};
    use tokio::time::timeout;

    /// Returns an allocator with an audit log in the folder, and a runtime with few threads for blocking work.
    fn with_audit_log() -> (Arc<Shared>, Runtime, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let shared = allocator(&format!("[audit]\npath = {path:?}\n{LIMIT}"));
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(16).build();
        (shared, runtime.expect("a runtime"), folder)
    }

    /// The bug: each refusal held a thread until it was written, and no thread was left for other blocking work.
    #[test]
    fn refusals_that_a_disk_does_not_take_hold_few_threads() {
        let (shared, runtime, _folder) = with_audit_log();
        let hanging = shared.audit().hang();
        {
            let _inside = runtime.enter();
            for _ in 0..1_000 {
                was_refused(&shared, "token:a".to_owned(), Origin::default(), None, Map::new());
            }
        }
        let other = async { timeout(Duration::from_secs(1), spawn_blocking(|| ())).await };
        let done = runtime.block_on(other);
        drop(hanging);
        assert!(done.is_ok(), "no thread is left");
    }

    /// The bug: each decision held a thread until it was written.
    #[test]
    fn decisions_that_a_disk_does_not_take_hold_one_thread() {
        let (shared, runtime, _folder) = with_audit_log();
        let hanging = shared.audit().hang();
        let decide = |reader| {
            let (shared, decided) = (shared.clone(), shared.clone());
            let decider = Decider {
                visitor: Visitor::Any,
                origin: Origin::default(),
                reason: None,
                has_confirmed: false,
            };
            let done = async move {
                decider.has_done(&decided, "pause", "a", [], Ok(())).await?;
                Ok(StatusCode::OK.into_response())
            };
            runtime
                .spawn(async move { whole(&shared, Some(reader), done).await.err().map(|full| full.code()) })
        };
        let [one, other] = [1, 2].map(|owner| Reader::Identity(Owner(owner)));
        let first: Vec<_> = (0..33).map(|_| decide(one)).collect();
        let second: Vec<_> = (0..33).map(|_| decide(other)).collect();
        let free = async {
            // Each decision gets as far as it can.
            for _ in 0..100 {
                yield_now().await;
            }
            timeout(Duration::from_secs(1), spawn_blocking(|| ())).await
        };
        let free = runtime.block_on(free);
        drop(hanging);
        assert!(free.is_ok(), "no thread is left");
        for decisions in [first, second] {
            let refused =
                decisions.into_iter().filter_map(|decision| runtime.block_on(decision).expect("no panic"));
            assert_eq!(refused.collect::<Vec<_>>(), ["decisions_full"], "half of the places are for others");
        }
    }
}
