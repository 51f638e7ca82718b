//! The middleware of the client and its examples, over real connections to a real allocator.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/axum_server.rs"]
mod axum_server;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/tonic_server.rs"]
mod tonic_server;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/vendor_client.rs"]
mod vendor_client;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::any;
use lessor::http::{HeaderMap, Response};
use lessor::layer::LimitLayer;
use lessor::outgoing::Outgoing;
use lessor::{Client, Limit, Refusal};
use scenarios::fleet::Fleet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::Code;

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
vendor = { ease = "50ms" }
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]

[[limit]]
name = "user"
keyed = true
rules = [{ kind = "token_bucket", capacity = 1, refill = 1, per = "1h" }]

[[limit]]
name = "none"
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s", initial = 0 }]
"#;

/// How long a first permit may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server that answers every request with "ok" behind `layer`.
async fn serve(layer: LimitLayer<Body>) -> String {
    let app = Router::new().fallback(any(async || "ok")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn get(url: &str) -> (u16, HeaderMap, String) {
    let answer = reqwest::get(url).await.expect("the server answers");
    (answer.status().as_u16(), answer.headers().clone(), answer.text().await.expect("text"))
}

pub(crate) fn said<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test]
async fn a_server_serves_each_user_as_often_as_it_may() {
    let fleet = Fleet::start(CONFIG).await;
    let answers = axum_server::run(&fleet.url).await.expect("the example runs");
    let statuses: Vec<_> = answers.iter().map(|(user, status, _)| (*user, *status)).collect();
    assert_eq!(statuses, [("alice", 200), ("alice", 429), ("bob", 200)]);
    assert!(answers[1].2.contains("quota-exceeded"), "{}", answers[1].2);
    fleet.stop().await;
}

#[tokio::test]
async fn a_grpc_server_serves_each_user_as_often_as_it_may() {
    let fleet = Fleet::start(CONFIG).await;
    let answers = tonic_server::run(&fleet.url).await.expect("the example runs");
    let codes: Vec<_> = answers.iter().map(|(user, code, _)| (*user, *code)).collect();
    let exhausted = Code::ResourceExhausted;
    assert_eq!(codes, [("alice", Code::Ok), ("alice", exhausted), ("bob", Code::Ok)]);
    // An hour at most, and what is added for a clock that runs fast.
    let pushback = answers[1].2.expect("the answer names a pushback");
    assert!((1_000_000..=3_700_000).contains(&pushback), "{pushback}");
    fleet.stop().await;
}

#[tokio::test]
async fn a_client_leaves_its_vendor_alone_and_comes_back() {
    let fleet = Fleet::start(CONFIG).await;
    assert_eq!(vendor_client::run(&fleet.url).await.expect("the example runs"), (5, 1));
    assert_eq!(fleet.number("vendor%2Frest", "spent").await, 6);
    fleet.stop().await;
}

#[tokio::test]
async fn a_refused_request_is_told_why_and_when_to_come_back() {
    let fleet = Fleet::start(CONFIG).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let server = serve(LimitLayer::new(client.limit("user")).by_path().patience(PATIENCE)).await;
    let (status, headers, _) = get(&format!("{server}/a")).await;
    assert_eq!(
        (status, said(&headers, "ratelimit-policy"), said(&headers, "ratelimit")),
        (200, "\"user\";q=1;w=3600", "\"user\";r=0")
    );
    // Another path is another key. The first path is refused, because its next permit cannot come in time.
    assert_eq!(get(&format!("{server}/b")).await.0, 200);
    let (status, headers, body) = get(&format!("{server}/a")).await;
    assert_eq!((status, said(&headers, "content-type")), (429, "application/problem+json"));
    let wait: u64 = said(&headers, "retry-after").parse().expect("whole seconds");
    // An hour at most, and what is added for a clock that runs fast.
    assert!((1..=3_700).contains(&wait), "{wait}");
    assert_eq!(said(&headers, "ratelimit"), format!("\"user\";r=0;t={wait}"));
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&body["status"], &body["violated-policies"][0]), (&429.into(), &"user".into()));
    client.shutdown().await;
    assert_eq!(get(&format!("{server}/c")).await.0, 503, "the client was shut down");
    fleet.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_address_or_by_whatever_is_said() {
    let fleet = Fleet::start(CONFIG).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let layer = || LimitLayer::new(client.limit("user"));
    let by_ip =
        serve(layer().by_ip(|beside| beside.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))).await;
    assert_eq!([get(&by_ip).await.0, get(&by_ip).await.0], [200, 429]);
    let own = client.limit("user").key("127.0.0.1");
    assert!(own.try_acquire(1).is_err(), "the address is the key");
    let by_query = serve(layer().by(|head| head.uri.query().map(str::to_owned))).await;
    let ask = async |query: &str| get(&format!("{by_query}/{query}")).await.0;
    assert_eq!([ask("?x").await, ask("?y").await, ask("?x").await], [200, 200, 429]);
    assert_eq!([ask("").await, ask("").await], [200, 429], "requests without a key share one");
    fleet.stop().await;
}

/// One server for gRPC and other requests: a gRPC call that is refused is answered with 200 and a gRPC status.
#[tokio::test]
async fn a_grpc_call_among_others_is_refused_as_one() {
    let fleet = Fleet::start(CONFIG).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let server = serve(LimitLayer::new(client.limit("none"))).await;
    let call = async |kind: &str| {
        let answer = reqwest::Client::new().post(&server).header("content-type", kind).send().await;
        let answer = answer.expect("the server answers");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, headers, answer.text().await.expect("text"))
    };
    let (status, headers, body) = call("application/grpc+proto").await;
    assert_eq!((status, said(&headers, "grpc-status"), body.as_str()), (200, "8", ""));
    assert_eq!(said(&headers, "content-type"), "application/grpc");
    assert!(said(&headers, "grpc-message").starts_with("no permit left"), "{headers:?}");
    let pushback: u64 = said(&headers, "grpc-retry-pushback-ms").parse().expect("milliseconds");
    let retry_after: u64 = said(&headers, "retry-after").parse().expect("seconds");
    assert_eq!(pushback.div_ceil(1_000).max(1), retry_after);
    assert_eq!(call("application/json").await.0, 429);
    client.shutdown().await;
    assert_eq!(said(&call("application/grpc").await.1, "grpc-status"), "14", "the client was shut down");
    fleet.stop().await;
}

#[tokio::test]
async fn a_server_of_another_kind_refuses_in_words_of_its_own() {
    let fleet = Fleet::start(CONFIG).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let exhausted = |_: &Limit, refusal: &Refusal| {
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert("grpc-status", "8".parse().expect("a value"));
        response.headers_mut().insert("grpc-message", refusal.to_string().parse().expect("a value"));
        response
    };
    let server = serve(LimitLayer::rejecting(client.limit("none"), exhausted)).await;
    let (status, headers, body) = get(&server).await;
    assert_eq!((status, said(&headers, "grpc-status"), body.as_str()), (200, "8", ""));
    fleet.stop().await;
}

#[tokio::test]
async fn an_outgoing_request_without_a_permit_is_not_sent() {
    let fleet = Fleet::start(CONFIG).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let outgoing = Outgoing::refusing(client.limit("none"), Duration::ZERO);
    let http = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(outgoing).build();
    // No server listens there: a request that is sent would fail with another error.
    let error = http.get("http://127.0.0.1:1/").send().await.expect_err("no permit is left");
    let reqwest_middleware::Error::Middleware(reason) = error else { panic!("{error}") };
    assert!(matches!(reason.downcast_ref(), Some(Refusal::Empty { .. })), "{reason}");
    fleet.stop().await;
}
