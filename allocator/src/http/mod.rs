//! The allocator over HTTP: decode, ask the core, encode. The server serves it through [`Service`]. Nothing here keeps
//! state, and nothing that was sent is trusted or shown unescaped.

mod admin;
mod audited;
mod bodies;
mod body;
mod confirm;
mod decider;
mod events;
mod exchange;
mod explain;
mod guard;
mod health;
mod leave;
mod object;
mod page;
mod problem;
mod put;
mod ranks;
mod service;
mod show;
mod sign_in;
mod status;
#[cfg(test)]
mod tests;
mod top;
pub mod untrusted;
mod visitor;
mod walk;

use crate::shared::Shared;
use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
pub(crate) use bodies::Bodies;
use lessor_protocol::push::EVENTS_PATH;
use lessor_protocol::wire::LEASES_PATH;
use problem::Problem;
pub(crate) use service::{Service, answers_untaken};
use std::sync::Arc;

/// The part of the API that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything.
    Whole,
    /// The requests of nodes.
    Nodes {
        /// Whether `/metrics` is served, too.
        metrics: bool,
    },
    /// The requests of operators: what they see and change.
    Admin {
        /// Whether `/metrics` is served, too.
        metrics: bool,
    },
}

/// Builds the routes of a part. All other paths are not found.
fn router(shared: Arc<Shared>, part: Part) -> Router {
    // The health of the process, for orchestrators.
    let mut routes = Router::new()
        .route("/livez", get(health::livez))
        .route("/healthz", get(health::livez))
        .route("/readyz", get(health::readyz));
    if matches!(part, Part::Whole | Part::Nodes { .. }) {
        routes = routes
            // [`Service`] answers most POSTs before they reach the routes.
            .route(LEASES_PATH, post(exchange::leases_by_route))
            // Names may hold slashes, as such or as %2F. The handler cuts off what follows the name.
            .route("/v1/nodes/{*rest}", post(leave::leave));
    }
    if matches!(part, Part::Whole | Part::Nodes { metrics: true } | Part::Admin { metrics: true }) {
        routes = routes.route("/metrics", get(health::metrics));
    }
    // Nodes listen to events, as the page does. All routes for browsers get the headers of [`guard::private`].
    let mut looked_at = Router::new().route(EVENTS_PATH, get(events::listen));
    if matches!(part, Part::Whole | Part::Admin { .. }) {
        looked_at = looked_at
            .route("/", get(page::index))
            .route("/page/{file}", get(page::file))
            .route("/v1/status", get(status::status))
            .route("/v1/limits", get(show::limits))
            .route(
                "/v1/limits/{*rest}",
                get(show::of_limit).put(put::put).post(admin::act).delete(admin::delete),
            )
            .route("/v1/events/recent", get(status::recent))
            .route("/v1/whoami", get(sign_in::whoami))
            .route("/v1/sign-in", post(sign_in::sign_in))
            .route("/v1/sign-out", post(sign_in::sign_out));
    }
    routes
        .merge(looked_at.layer(from_fn(guard::private)))
        .layer(from_fn_with_state(shared.clone(), guard::own_site))
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn no_such_path() -> Problem {
    Problem::not_found("there is nothing at this path")
}

async fn wrong_method() -> Problem {
    Problem::wrong_method()
}

/// Makes a response of `body`, which is JSON.
fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
