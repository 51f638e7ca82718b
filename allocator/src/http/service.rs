//! The service of a connection. It answers exchanges, by far the most frequent requests, itself, and leaves all others
//! to the routes. The guard of the routes guards exchanges, too.

use super::problem::Problem;
use super::{Part, exchange, guard, router};
use crate::addresses::Address;
use crate::audit::Origin;
use crate::server::Proven;
use crate::shared::Shared;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use axum::response::{IntoResponse as _, Response};
use lessor_protocol::entropy;
use lessor_protocol::wire::LEASES_PATH;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use tower::ServiceExt as _;

/// Answers a peer that has not read its earlier answers.
pub(crate) fn answers_untaken() -> Response {
    let detail = "answers on this connection are not read: read them before you ask again";
    Problem::unavailable("answers_untaken", detail).into_response()
}

/// The header that names a request, repeated in the answer.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest name of a request, in bytes.
const REQUEST_ID_MAX: usize = 64;

/// Returns the request's own name if it is well formed, or else a random one.
fn name(headers: &HeaderMap) -> String {
    let own = headers.get(&REQUEST_ID).and_then(|name| name.to_str().ok());
    let is_name = |name: &&str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=REQUEST_ID_MAX).contains(&name.len()) && name.bytes().all(is_good)
    };
    own.filter(is_name).map_or_else(|| format!("{:013x}", entropy::number()), str::to_owned)
}

/// Answers the requests of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    router: Router,
    /// Whether it answers nodes.
    lends: bool,
    /// Address of the peer.
    address: Option<Address>,
    /// Set once the peer has proven an identity.
    proven: Proven,
}

impl Service {
    /// Makes the service of `shared` for a `part`.
    pub(crate) fn new(shared: Arc<Shared>, part: Part) -> Self {
        let lends = !matches!(part, Part::Admin { .. });
        Service {
            router: router(shared.clone(), part),
            shared,
            lends,
            address: None,
            proven: Proven::default(),
        }
    }

    /// Makes the service of one peer at `address`, which sets `proven` once the peer has proven an identity.
    pub(crate) fn of_peer(self, address: Address, proven: Proven) -> Self {
        Service { address: Some(address), proven, ..self }
    }

    /// Answers `request`.
    pub(crate) async fn answer<B>(self, request: Request<B>) -> Result<Response, Infallible>
    where
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        if !self.lends || request.uri().path() != LEASES_PATH || request.method() != Method::POST {
            let origin = Origin { address: self.address, request: name(request.headers()) };
            let named = HeaderValue::try_from(&origin.request);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(origin);
            request.extensions_mut().insert(self.proven);
            let mut response = self.router.oneshot(request).await?;
            if let Ok(named) = named {
                response.headers_mut().insert(REQUEST_ID.clone(), named);
            }
            return Ok(response);
        }
        Ok(match guard::refusal(&self.shared, request.method(), request.uri(), request.headers()) {
            Some(problem) => problem.into_response(),
            None => exchange::leases(&self.shared, self.address, Some(&self.proven), request)
                .await
                .into_response(),
        })
    }
}
