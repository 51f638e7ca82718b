//! A [`tower::Layer`](https://docs.rs/tower) for servers: each request takes a permit, of a limit or of one key of it, or is
//! refused before it reaches the service. It works with whatever speaks `http`: axum, and tonic.

mod grpc;

use crate::limit::Limit;
use crate::refusal::Refusal;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The key of requests that have none: they share what one key may have.
pub const NO_KEY: &str = "none";

/// What of a request a key is made of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What the server put beside it, such as axum's `ConnectInfo`.
    pub extensions: &'a Extensions,
}

type KeyOf = Arc<dyn Fn(&Head<'_>) -> Option<String> + Send + Sync>;
type Rejection<R> = Arc<dyn Fn(&Limit, &Refusal) -> Response<R> + Send + Sync>;

/// Lets through as many requests as a limit has permits, and refuses the others.
///
/// A request whose key is not known here waits for the next answer of the allocator, see [`Limit::check`]: that needs a tokio
/// timer. Where the limit caps what is in flight, a request is in flight until the service has answered it with a head.
///
/// A refused request is answered 429 (503 where no answer of an allocator says so, 400 for a key that cannot be) as `application/problem+json`, with the
/// headers of [`Limit::headers`]; those that are let through get `RateLimit` and `RateLimit-Policy` too. A refused gRPC call is
/// answered `RESOURCE_EXHAUSTED` (or `UNAVAILABLE`), with `grpc-retry-pushback-ms`. With a key, each request looks up the
/// pool of its own.
pub struct LimitLayer<R> {
    limit: Limit,
    key: Option<KeyOf>,
    /// For how long to wait for a permit; `None` is for an answer alone.
    patience: Option<Duration>,
    reject: Rejection<R>,
    /// The same for gRPC calls.
    reject_grpc: Rejection<R>,
}

impl<R: From<String> + 'static> LimitLayer<R> {
    /// Each request takes a permit of `limit`, or is refused.
    pub fn new(limit: Limit) -> Self {
        let in_grpc = |limit: &Limit, refusal: &Refusal| grpc::refused(String::new().into(), limit, refusal);
        LimitLayer { reject_grpc: Arc::new(in_grpc), ..LimitLayer::rejecting(limit, problem) }
    }
}

impl<R: Default + 'static> LimitLayer<R> {
    /// The same for servers that serve gRPC alone, such as tonic's. Whatever is refused is answered as a gRPC call.
    pub fn grpc(limit: Limit) -> Self {
        LimitLayer::rejecting(limit, |limit, refusal| grpc::refused(R::default(), limit, refusal))
    }
}

impl<R> LimitLayer<R> {
    /// The same for services whose bodies are not made of text, or that refuse in words of their own; `reject` makes the
    /// answer to who is refused.
    pub fn rejecting(
        limit: Limit,
        reject: impl Fn(&Limit, &Refusal) -> Response<R> + Send + Sync + 'static,
    ) -> Self {
        let reject: Rejection<R> = Arc::new(reject);
        LimitLayer { limit, key: None, patience: None, reject_grpc: reject.clone(), reject }
    }

    /// Counts by what `key` says of a request, see [`NO_KEY`] for what it says nothing of. The limit must be keyed.
    #[must_use]
    pub fn by(mut self, key: impl Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Counts by the header `name`, such as `"x-user"`. A name that no header can have is logged once: all requests share
    /// [`NO_KEY`] then.
    #[must_use]
    pub fn by_header<N>(self, name: N) -> Self
    where
        N: TryInto<HeaderName>,
        N::Error: fmt::Display,
    {
        let name = name
            .try_into()
            .inspect_err(|error: &N::Error| tracing::error!(%error, "no header has this name: all requests share a key"))
            .ok();
        self.by(move |head| head.headers.get(name.as_ref()?)?.to_str().ok().map(str::to_owned))
    }

    /// Counts by the path.
    #[must_use]
    pub fn by_path(self) -> Self {
        self.by(|head| Some(head.uri.path().to_owned()))
    }

    /// Counts by the address that `ip` finds beside the request: with axum,
    /// `|beside| beside.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())`.
    #[must_use]
    pub fn by_ip(self, ip: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.by(move |head| ip(head.extensions).map(|ip| ip.to_string()))
    }

    /// Lets requests wait for a permit, for so long at most, also where the pool has none. With no time at all, each request is
    /// decided by what this process holds: the first of a key is refused. Needs a tokio timer.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }
}

impl<R> Clone for LimitLayer<R> {
    fn clone(&self) -> Self {
        let LimitLayer { limit, key, patience, reject, reject_grpc } = self;
        let (reject, reject_grpc) = (reject.clone(), reject_grpc.clone());
        LimitLayer { limit: limit.clone(), key: key.clone(), patience: *patience, reject, reject_grpc }
    }
}

impl<R> fmt::Debug for LimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer").field("limit", &self.limit.name()).finish_non_exhaustive()
    }
}

impl<S, R> Layer<S> for LimitLayer<R> {
    type Service = Limited<S, R>;

    fn layer(&self, inner: S) -> Limited<S, R> {
        Limited { inner, layer: self.clone() }
    }
}

/// A service behind a [`LimitLayer`].
#[derive(Debug)]
pub struct Limited<S, R> {
    inner: S,
    layer: LimitLayer<R>,
}

impl<S: Clone, R> Clone for Limited<S, R> {
    fn clone(&self) -> Self {
        Limited { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Limited<S, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.inner.poll_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is the one to call; its clone may not be.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let (layer, limit) = (self.layer.clone(), self.layer.limit_of(&request));
        Box::pin(async move {
            let entered = match layer.patience {
                None => limit.check_enter(1).await,
                Some(Duration::ZERO) => limit.try_enter(1),
                Some(patience) => limit.enter_within(1, patience).await,
            };
            let _in_flight = match entered {
                Ok(guard) => guard,
                Err(refusal) => {
                    let is_grpc = grpc::is_call(request.headers());
                    let reject = if is_grpc { &layer.reject_grpc } else { &layer.reject };
                    return Ok(reject(&limit, &refusal));
                }
            };
            let mut response = inner.call(request).await?;
            response.headers_mut().extend(limit.headers(None));
            Ok(response)
        })
    }
}

impl<R> LimitLayer<R> {
    /// What `request` takes its permit of.
    fn limit_of<B>(&self, request: &Request<B>) -> Limit {
        let Some(key) = &self.key else { return self.limit.clone() };
        let head = Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        };
        self.limit.key(key(&head).as_deref().unwrap_or(NO_KEY))
    }
}

/// What a refused caller is told, as RFC 9457 wants it, with the problem type of the IETF draft.
fn problem<R: From<String>>(limit: &Limit, refusal: &Refusal) -> Response<R> {
    let status = refusal.status();
    let body = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": status.as_u16(),
        "detail": refusal.to_string(),
        "violated-policies": [limit.name()],
    });
    let mut response = Response::new(R::from(body.to_string()));
    *response.status_mut() = status;
    *response.headers_mut() = limit.headers(Some(refusal));
    let problem_json = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, problem_json);
    response
}
