//! A [`tower::Layer`](https://docs.rs/tower) for servers: each request takes a permit of a limit, or of one key of it,
//! or is refused before it reaches the service. It works with servers that use the crate `http`, such as axum and
//! tonic.

mod grpc;

use crate::limit::Limit;
use crate::refusal::Refusal;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The key of requests without a key: together they share what one key may have. It is not ASCII, so no request can name
/// it in a header that [`LimitLayer::by_header`] counts by.
pub const NO_KEY: &str = "‹none›";

/// The parts of a request from which a key is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Values that the server attached to the request, such as axum's `ConnectInfo`.
    pub extensions: &'a Extensions,
}

type KeyOf = Arc<dyn Fn(&Head<'_>) -> Option<String> + Send + Sync>;
type Rejection<R> = Arc<dyn Fn(&Limit, &Refusal) -> Response<R> + Send + Sync>;

/// Lets a request through if it gets a permit of a limit, and refuses the others.
///
/// A request whose key is not known in this process waits for the next answer of the allocator, see [`Limit::check`].
/// That needs a tokio timer. Where the limit caps calls in flight, a request is in flight until the service has
/// answered it with a head.
///
/// A refused request is answered as `application/problem+json`, with the status of [`Refusal::status`] and the headers
/// of [`Limit::headers`]. Requests that are let through get `RateLimit` and `RateLimit-Policy` too. A refused gRPC call
/// is answered `RESOURCE_EXHAUSTED`, `UNAVAILABLE` or `INVALID_ARGUMENT`, with `grpc-retry-pushback-ms`. With a key,
/// each request looks up the pool of its key.
///
/// Of two layers, the outer one takes its permit first. A request that the inner one refuses has spent that permit. The
/// answer has the headers of both.
pub struct LimitLayer<R> {
    limit: Limit,
    key: Option<KeyOf>,
    /// How long to wait for a permit; `None` waits for one answer of the allocator.
    patience: Option<Duration>,
    reject: Rejection<R>,
    /// As `reject`, for gRPC calls.
    reject_grpc: Rejection<R>,
}

impl<R: From<String> + 'static> LimitLayer<R> {
    /// Makes a layer in which each request takes one permit of `limit`, or is refused.
    pub fn new(limit: Limit) -> Self {
        let in_grpc = |limit: &Limit, refusal: &Refusal| grpc::refused(String::new().into(), limit, refusal);
        LimitLayer { reject_grpc: Arc::new(in_grpc), ..LimitLayer::rejecting(limit, problem) }
    }
}

impl<R: Default + 'static> LimitLayer<R> {
    /// As [`LimitLayer::new`], for servers that serve only gRPC, such as tonic's. Every refusal is answered as to a
    /// gRPC call.
    pub fn grpc(limit: Limit) -> Self {
        LimitLayer::rejecting(limit, |limit, refusal| grpc::refused(R::default(), limit, refusal))
    }
}

impl<R> LimitLayer<R> {
    /// As [`LimitLayer::new`], for services whose bodies are not made from text, or that word their own refusals:
    /// `reject` makes the answer.
    pub fn rejecting(
        limit: Limit,
        reject: impl Fn(&Limit, &Refusal) -> Response<R> + Send + Sync + 'static,
    ) -> Self {
        let reject: Rejection<R> = Arc::new(reject);
        LimitLayer { limit, key: None, patience: None, reject_grpc: reject.clone(), reject }
    }

    /// Counts by the key that `key` takes from a request, or by [`NO_KEY`] if it returns none. The limit must be keyed.
    #[must_use]
    pub fn by(mut self, key: impl Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Counts by the header `name`, such as `"x-user"`. Requests without the header share [`NO_KEY`]. A value is no key,
    /// and is answered 400, if it is empty, has more than 256 bytes, or has bytes that are not visible ASCII. A name that
    /// no header can have is logged once, and all requests share [`NO_KEY`].
    #[must_use]
    pub fn by_header<N>(self, name: N) -> Self
    where
        N: TryInto<HeaderName>,
        N::Error: fmt::Display,
    {
        let name = name
            .try_into()
            .inspect_err(
                |error: &N::Error| tracing::error!(%error, "invalid header name: all requests share one key"),
            )
            .ok();
        self.by(move |head| {
            let value = head.headers.get(name.as_ref()?)?;
            // The empty text is no key, so a value without a text is refused as an invalid key.
            Some(value.to_str().unwrap_or_default().to_owned())
        })
    }

    /// Counts by the path. A path of more than 256 bytes is no key, and is answered 400.
    #[must_use]
    pub fn by_path(self) -> Self {
        self.by(|head| Some(head.uri.path().to_owned()))
    }

    /// Counts by the IP address that `ip` finds in the extensions of the request. With axum:
    /// `|beside| beside.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())`. The addresses of an IPv6 network of 64
    /// bits, which one subscriber has, share a key such as `2001:db8::/64`.
    #[must_use]
    pub fn by_ip(self, ip: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.by(move |head| ip(head.extensions).map(network))
    }

    /// Lets requests wait for a permit for up to `patience`, also where the pool has none. With zero, this process
    /// decides by what it holds: the first request of a key is refused. Needs a tokio timer.
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
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone that is ready is the one to call; a new clone may not be.
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
            // The service, or a layer around it, may have told of another limit.
            for (name, value) in &limit.headers(None) {
                response.headers_mut().append(name, value.clone());
            }
            Ok(response)
        })
    }
}

impl<R> LimitLayer<R> {
    /// Returns the limit or key from which `request` takes its permit.
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

/// Returns the key of `ip`: the address, or the IPv6 network.
fn network(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("{}/64", Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}

/// Makes the answer to a refused caller as in RFC 9457, with the problem type of the IETF draft.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;
    use crate::local_pool::{CLOCK, Condition, Standing};
    use axum::Router;
    use axum::body::Body;
    use axum::routing::any;

    fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().expect("text").to_owned()).collect()
    }

    /// The bug: one subscriber had 2^64 keys, and an IPv4 address two.
    #[test]
    fn addresses_of_one_subscriber_share_a_key() {
        let key = |ip: &str| network(ip.parse().expect("an address"));
        assert_eq!(["192.0.2.7", "::ffff:192.0.2.7"].map(key), ["192.0.2.7"; 2]);
        assert_eq!(["2001:db8:0:1::1", "2001:db8:0:1:ffff::"].map(key), ["2001:db8:0:1::/64"; 2]);
        assert_ne!(key("2001:db8:0:2::1"), key("2001:db8:0:1::1"));
    }

    /// The bug: users whose names are not ASCII shared one key, with each other and with requests without a name. A user
    /// called `none` had that key, too.
    #[tokio::test]
    async fn a_header_that_is_no_key_is_answered_400_and_shares_no_key() {
        let layer = LimitLayer::<Body>::new(by_hand::limit(&by_hand::shared(), "user"));
        let layer = layer.by_header("x-user").patience(Duration::ZERO);
        let request = |user: Option<&[u8]>| {
            let value = user.map(|user| HeaderValue::from_bytes(user).expect("a value of a header"));
            let mut request = Request::new(Body::empty());
            request.headers_mut().extend(value.map(|value| (HeaderName::from_static("x-user"), value)));
            request
        };
        let key = |user: Option<&[u8]>| layer.limit_of(&request(user)).pool().name().key.clone();
        assert_eq!(key(None).as_deref(), Some(NO_KEY));
        assert_eq!(key(Some(b"none")).as_deref(), Some("none"));
        let router = Router::new().fallback(any(async || "ok")).layer(layer.clone());
        for (user, is_key) in [
            (&b"none"[..], true),
            (b"user 42", true),
            ("Zo\u{eb}".as_bytes(), false),
            (b"Zo\xeb", false),
            (NO_KEY.as_bytes(), false),
            (b"a\tb", false),
            (b"", false),
            (&[b'x'; 257], false),
        ] {
            let answer = router.clone().call(request(Some(user))).await.expect("a service that cannot fail");
            let is_refused_as_key = answer.status() == http::StatusCode::BAD_REQUEST;
            assert_eq!(is_refused_as_key, !is_key, "{user:?}: {}", answer.status());
        }
    }

    /// The bug: the outer layer replaced what the inner one said, also of its refusal.
    #[tokio::test]
    async fn two_layers_tell_of_both_limits() {
        let shared = by_hand::shared();
        let [inner, outer] = ["inner", "outer"].map(|name| {
            let limit = by_hand::limit(&shared, name);
            let (condition, rtt) = (Condition::Good, Duration::ZERO);
            limit.pool().set_standing(Standing { condition, ceiling: 10, chance: CLOCK.now(), rtt });
            limit
        });
        by_hand::lend(&outer, 5);
        let layer = |limit: &Limit| LimitLayer::<Body>::new(limit.clone()).patience(Duration::ZERO);
        let router = Router::new().fallback(any(async || "ok")).layer(layer(&inner)).layer(layer(&outer));
        let request = || Request::new(Body::empty());
        let response = router.clone().call(request()).await.expect("a service that cannot fail");
        assert_eq!(response.status(), http::StatusCode::TOO_MANY_REQUESTS);
        let headers = response.headers();
        assert_eq!(values(headers, "ratelimit-policy"), ["\"inner\";q=10", "\"outer\";q=10"]);
        let left = values(headers, "ratelimit");
        assert!(left[0].starts_with("\"inner\";r=0") && left[1] == "\"outer\";r=4", "{left:?}");
        assert_eq!(values(headers, "retry-after").len(), 1);
    }
}
