//! What a connection hands its requests to: the routes, and past them the exchange, which nodes ask for all the time. The guard
//! of the routes guards it, too.

use super::problem::Problem;
use super::{Part, exchange, guard, router};
use crate::shared::Shared;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use lessor_protocol::wire::LEASES_PATH;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use tower::ServiceExt as _;

/// In place of an answer to a peer that has not taken those before.
pub(crate) fn answers_untaken() -> Response {
    let detail = "answers to this connection are not read, and no more are made: read them first";
    Problem::unavailable("answers_untaken", detail).into_response()
}

/// Answers the requests of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    router: Router,
    /// Whether it answers nodes.
    lends: bool,
}

impl Service {
    /// The one of `shared` for a `part`.
    pub(crate) fn new(shared: Arc<Shared>, part: Part) -> Self {
        let lends = !matches!(part, Part::Admin { .. });
        Service { router: router(shared.clone(), part), shared, lends }
    }

    /// The answer to `request`.
    pub(crate) async fn answer<B>(self, request: Request<B>) -> Result<Response, Infallible>
    where
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        if !self.lends || request.uri().path() != LEASES_PATH || request.method() != Method::POST {
            return self.router.oneshot(request.map(Body::new)).await;
        }
        Ok(match guard::refusal(&self.shared, request.method(), request.uri(), request.headers()) {
            Some(problem) => problem.into_response(),
            None => exchange::leases(&self.shared, request).await.into_response(),
        })
    }
}
