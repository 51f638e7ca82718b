//! What a connection hands its requests to: the routes, and past them the exchange, which nodes ask for all the time. The guard
//! of the routes guards it, too.

use super::problem::Problem;
use super::{Part, exchange, guard, router};
use crate::addresses::Address;
use crate::audit::Origin;
use crate::server::Proven;
use crate::shared::Shared;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use lessor_protocol::entropy;
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

/// How a peer names its request, and how the answer repeats that name.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest name of a request, in bytes.
const REQUEST_ID_MAX: usize = 64;

/// The name of a request: its own, if that is one, or else a random one.
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
    /// The address of the peer that it answers.
    address: Option<Address>,
    /// Whether that has proven an identity.
    proven: Proven,
}

impl Service {
    /// The one of `shared` for a `part`.
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

    /// The same for the peer at `address`, of which `proven` is to say whether it has proven an identity.
    pub(crate) fn of_peer(self, address: Address, proven: Proven) -> Self {
        Service { address: Some(address), proven, ..self }
    }

    /// The answer to `request`.
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
            None => {
                let response = exchange::leases(&self.shared, self.address, request).await.into_response();
                // Nothing is answered otherwise before that.
                if self.shared.config().auth.is_some() && response.status() != StatusCode::UNAUTHORIZED {
                    self.proven.set();
                }
                response
            }
        })
    }
}
