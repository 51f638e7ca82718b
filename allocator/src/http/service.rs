//! The service of a connection. It answers exchanges, by far the most frequent requests, itself, and leaves all others
//! to the routes. The guard of the routes guards exchanges, too.

use super::exchange::Opened;
use super::problem::Problem;
use super::{Part, guard, router};
use crate::addresses::Address;
use crate::audit::Origin;
use crate::server::Proven;
use crate::shared::Shared;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use axum::response::{IntoResponse as _, Response};
use lessor_protocol::entropy;
use lessor_protocol::wire::LEASES_PATH;
use std::convert::Infallible;
use std::error::Error;
use std::future::ready;
use std::pin::Pin;
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

    /// Answers `request`, and applies `finish` to the answer. Over HTTP/1 the head of an exchange is read at once, and with
    /// it the token or certificate of the peer. The future reads the body and does the rest.
    pub(crate) fn answer<B, F>(
        &self,
        request: Request<B>,
        finish: F,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<B, F>
    where
        F: FnOnce(Response) -> Response,
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let (shared, head) = (self.shared.clone(), self.head(request));
        async move {
            let response = match head {
                Head::Exchange(opened) => opened.answer(&shared).await.into_response(),
                Head::Other(answering) => answering.await?,
            };
            Ok(finish(response))
        }
    }

    /// Reads the head of `request`.
    fn head<B>(&self, request: Request<B>) -> Head<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        if !self.lends || request.uri().path() != LEASES_PATH || request.method() != Method::POST {
            return Head::Other(Box::pin(self.clone().route(request.map(Body::new))));
        }
        match guard::refusal(&self.shared, request.method(), request.uri(), request.headers()) {
            Some(problem) => Head::Other(Box::pin(ready(Ok(problem.into_response())))),
            // The task of an HTTP/2 connection serves all its streams, so each stream checks its own token.
            None if request.version() == Version::HTTP_2 => {
                let service = self.clone();
                Head::Other(Box::pin(async move {
                    Ok(service.opened(request).answer(&service.shared).await.into_response())
                }))
            }
            None => Head::Exchange(self.opened(request)),
        }
    }

    fn opened<B>(&self, request: Request<B>) -> Opened<B> {
        Opened::new(&self.shared, self.address, Some(&self.proven), request)
    }

    /// Answers `request` by its route.
    async fn route(self, mut request: Request<Body>) -> Result<Response, Infallible> {
        let origin = Origin { address: self.address, request: name(request.headers()) };
        let named = HeaderValue::try_from(&origin.request);
        request.extensions_mut().insert(origin);
        request.extensions_mut().insert(self.proven);
        let mut response = self.router.oneshot(request).await?;
        if let Ok(named) = named {
            response.headers_mut().insert(REQUEST_ID.clone(), named);
        }
        Ok(response)
    }
}

/// What the head of a request says of it.
enum Head<B> {
    Exchange(Opened<B>),
    /// Boxed, because an exchange would be as large as the largest of the others.
    Other(Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>),
}
