//! Outgoing requests that take permits of several limits, to a vendor that counts them as they arrive. The middleware
//! must keep the contract even where a request has permits of one limit and waits for another.
//!
//! Runs are short by default. `OUTGOING_SECONDS=45` runs for that many seconds, against 9,000 calls in 30 s.

use crate::log::Log;
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::get;
use lessor::http::Extensions;
use lessor::outgoing::Outgoing;
use lessor::{Client, Limit};
use lessor_allocator::cells::private::HeldPort;
use lessor_protocol::{CLOCK, Moment};
use reqwest::redirect::Policy;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Next};
use scenarios::fleet::{Fleet, eventually};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tracing::Level;

/// How long a first permit may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests that are made each second: twice as many as the contract allows.
const RATE: u64 = 600;

/// A vendor that counts each request as it arrives. It answers every third with 503 if it `fails`.
#[derive(Debug, Default)]
struct Counter {
    arrivals: Mutex<Vec<Moment>>,
    calls: AtomicU64,
    fails: bool,
}

impl Counter {
    fn arrive(&self) -> StatusCode {
        self.arrivals.lock().expect("no panic").push(CLOCK.now());
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails && number.is_multiple_of(3) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    }

    async fn serve(self: &Arc<Self>) -> String {
        let counter = self.clone();
        let app = Router::new().route("/", get(async move || counter.arrive()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    /// Returns how many requests arrived, and the most within any `span`.
    fn most_within(&self, span: Duration) -> (usize, usize) {
        let mut arrivals = self.arrivals.lock().expect("no panic").clone();
        arrivals.sort_unstable();
        let within = |first: usize| arrivals.partition_point(|at| *at < arrivals[first] + span) - first;
        (arrivals.len(), (0..arrivals.len()).map(within).max().unwrap_or(0))
    }
}

/// How many seconds to run, how many calls the contract allows in how many seconds, how much time may pass between a
/// permit and an arrival, and how many seconds pass between openings of the limit beside it.
struct Contract {
    seconds: u64,
    calls: u64,
    per: u64,
    margin: &'static str,
    opens: u64,
}

impl Contract {
    /// Longer than it takes until the limit beside the contract opens.
    fn patience(&self) -> Duration {
        Duration::from_secs(2 * self.opens)
    }

    fn new() -> Self {
        let seconds = std::env::var("OUTGOING_SECONDS").ok().map(|text| text.parse().expect("seconds"));
        match seconds {
            // Hundreds of requests begin in one instant, while other tests need the processor, too. So the margin is
            // large.
            None => Contract { seconds: 6, calls: 600, per: 2, margin: "700ms", opens: 2 },
            Some(seconds) => Contract { seconds, calls: 9_000, per: 30, margin: "500ms", opens: 15 },
        }
    }

    /// Returns the configuration: the contract, and a limit beside it that opens at intervals. All requests that wait
    /// for that limit leave at once when it opens.
    fn config(&self) -> String {
        let Contract { calls, per, margin, opens, .. } = self;
        let burst = calls * opens / per;
        format!(
            r#"
[[limit]]
name = "contract"
rules = [{{ kind = "sliding_window", limit = {calls}, per = "{per}s", margin = "{margin}" }}]

[[limit]]
name = "beside"
rules = [{{ kind = "token_bucket", capacity = {burst}, refill = {burst}, per = "{opens}s", refill_style = "interval", initial = 0 }}]
"#
        )
    }
}

/// Makes [`RATE`] requests a second, and waits until none is under way. Returns how many were answered with 200.
async fn drive(http: &ClientWithMiddleware, url: &str, span: Duration) -> u64 {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..span.as_millis() / 5 {
        tick.tick().await;
        for _ in 0..RATE / 200 {
            let (http, url) = (http.clone(), url.to_owned());
            calls.spawn(async move { http.get(url).send().await.is_ok_and(|answer| answer.status() == 200) });
        }
    }
    calls.join_all().await.into_iter().map(u64::from).sum()
}

/// Tries a request three times.
fn retry<'a>(
    request: Request,
    extensions: &'a mut Extensions,
    next: Next<'a>,
) -> Pin<Box<dyn Future<Output = reqwest_middleware::Result<Response>> + Send + 'a>> {
    Box::pin(async move {
        let copy = |request: &Request| request.try_clone().expect("the request has no body");
        for _ in 0..2 {
            let answer = next.clone().run(copy(&request), extensions).await?;
            if answer.status() != 503 {
                return Ok(answer);
            }
        }
        next.run(request, extensions).await
    })
}

/// Checks that the contract holds at the vendor, for a client to which `build` adds middlewares.
async fn holds(what: &str, fails: bool, build: impl FnOnce(ClientBuilder, [Limit; 2]) -> ClientBuilder) {
    let contract = Contract::new();
    let fleet = Fleet::start(&contract.config()).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let vendor = Arc::new(Counter { fails, ..Counter::default() });
    let url = vendor.serve().await;
    let limits = ["contract", "beside"].map(|name| client.limit(name));
    let http = build(ClientBuilder::new(reqwest::Client::new()), limits).build();
    let served = drive(&http, &url, Duration::from_secs(contract.seconds)).await;
    client.shutdown().await;
    let (all, most) = vendor.most_within(Duration::from_secs(contract.per));
    let spent = fleet.number("contract", "spent").await;
    println!(
        "{what}: {served} answered, {all} arrived, {spent} permits spent, at most {most} of {} in {} s",
        contract.calls, contract.per
    );
    fleet.stop().await;
    assert!(all as u64 >= contract.calls, "{what}: fewer calls than the contract allows");
    assert!(
        most as u64 <= contract.calls,
        "{what}: {} calls too many in a window",
        most as u64 - contract.calls
    );
    assert!(spent >= all as u64, "{what}: requests without a permit");
}

/// The bug: a request kept its permits of the first limit while it waited for the second.
#[tokio::test(flavor = "multi_thread")]
async fn two_middlewares_in_one_client_keep_the_contract() {
    let patience = Contract::new().patience();
    holds("two middlewares", false, |http, [contract, beside]| {
        http.with(Outgoing::refusing(contract, patience)).with(Outgoing::refusing(beside, patience))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_between_two_middlewares_keep_the_contract() {
    let patience = Contract::new().patience();
    holds("retries", true, |http, [contract, beside]| {
        http.with(Outgoing::refusing(contract, patience))
            .with(retry)
            .with(Outgoing::refusing(beside, patience))
    })
    .await;
}

/// The same two limits in one middleware, with the retry before it.
#[tokio::test(flavor = "multi_thread")]
async fn one_middleware_of_two_limits_keeps_the_contract_for_each_attempt() {
    holds("retries before one of two limits", true, |http, [contract, beside]| {
        let outgoing = Outgoing::refusing(contract, Contract::new().patience()).and(beside, 1);
        http.with(retry).with(outgoing)
    })
    .await;
}

const CHOICE: &str = r#"
[[limit]]
name = "rest"
rules = [{ kind = "token_bucket", capacity = 100, refill = 0, per = "1s" }]

[[limit]]
name = "messages"
rules = [{ kind = "token_bucket", capacity = 100, refill = 0, per = "1s" }]

[[limit]]
name = "none"
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s", initial = 0 }]
"#;

/// Shuts `client` down, which reports all that was spent. Returns the permits spent of both limits by the books.
async fn spent(fleet: &Fleet, client: Client) -> [u64; 2] {
    client.shutdown().await;
    [fleet.number("rest", "spent").await, fleet.number("messages", "spent").await]
}

#[tokio::test]
async fn a_request_costs_what_it_says_and_each_attempt_costs_it_again() {
    let fleet = Fleet::start(CHOICE).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    // The vendor fails the first and the fourth arrival. So of three requests the first and the last are answered on
    // their second attempt.
    let vendor = Arc::new(Counter { fails: true, ..Counter::default() });
    let url = vendor.serve().await;
    let messages = client.limit("messages");
    let outgoing = Outgoing::waiting(client.limit("rest")).within(PATIENCE).and_by(move |request| {
        let is_message = request.url().query().is_some();
        if is_message { vec![(messages.clone(), 20), (messages.clone(), 1)] } else { vec![] }
    });
    let http = ClientBuilder::new(reqwest::Client::new()).with(retry).with(outgoing).build();
    for query in ["", "?message", ""] {
        let answer = http.get(format!("{url}{query}")).send().await.expect("there are permits");
        assert_eq!(answer.status(), 200);
    }
    let (arrived, _) = vendor.most_within(Duration::from_secs(60));
    assert_eq!(arrived, 5, "attempts of three requests: two, one, and two");
    assert_eq!(spent(&fleet, client).await, [5, 21]);
    fleet.stop().await;
}

/// The bug: reqwest follows up to ten redirects within one call of a middleware, and the examples built such a client.
#[test]
fn redirects_that_are_followed_behind_the_middleware_are_logged_and_others_reach_no_vendor() {
    Log::of(Level::WARN, async |log| {
        let fleet = Fleet::start(CHOICE).await;
        let client = Client::connect(&fleet.url).await.expect("the allocator answers");
        let vendor = Arc::new(Counter::default());
        let arrive = |vendor: &Arc<Counter>| {
            let vendor = vendor.clone();
            async move |uri: Uri| match (vendor.arrive(), uri.path()) {
                (_, "/moved") => Redirect::temporary("/").into_response(),
                (status, _) => status.into_response(),
            }
        };
        let app = Router::new().fallback(arrive(&vendor));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/moved", listener.local_addr().expect("the listener is bound"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let outgoing = Outgoing::refusing(client.limit("rest"), PATIENCE);
        let build = |policy: Policy| {
            let inner = reqwest::Client::builder().redirect(policy).build().expect("a client");
            ClientBuilder::new(inner).with(outgoing.clone()).build()
        };
        let send = async |http: &ClientWithMiddleware| {
            let statuses = [http.get(&url).send().await, http.get(&url).send().await];
            let statuses = statuses.map(|answer| answer.expect("there are permits").status().as_u16());
            let arrived = vendor.arrivals.lock().expect("no panic").drain(..).count();
            let warned = log.lines().iter().filter(|line| line.contains("redirect")).count();
            (statuses, arrived, warned)
        };
        assert_eq!(send(&build(Policy::none())).await, ([307; 2], 2, 0));
        assert_eq!(send(&build(Policy::default())).await, ([200; 2], 4, 1), "logged once");
        assert_eq!(spent(&fleet, client).await, [4, 0]);
        fleet.stop().await;
    });
}

/// Two middlewares side by side cost as much as one for both limits, in either order.
#[tokio::test]
async fn two_middlewares_cost_each_limit_once_and_nothing_if_one_refuses() {
    let fleet = Fleet::start(CHOICE).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let url = Arc::new(Counter::default()).serve().await;
    let with = |first: &str, second: &str, patience| {
        let [first, second] = [first, second].map(|name| Outgoing::refusing(client.limit(name), patience));
        ClientBuilder::new(reqwest::Client::new()).with(first).with(second).build()
    };
    let both = with("rest", "messages", PATIENCE);
    for _ in 0..10 {
        both.get(&url).send().await.expect("there are permits");
    }
    for (first, second) in [("rest", "none"), ("none", "rest")] {
        let error = with(first, second, Duration::from_millis(50))
            .get(&url)
            .send()
            .await
            .expect_err("no permit is left");
        let reqwest_middleware::Error::Middleware(reason) = error else { panic!("{error}") };
        assert!(matches!(reason.downcast_ref(), Some(lessor::Refusal::Empty { .. })), "{reason}");
    }
    assert_eq!(spent(&fleet, client).await, [10, 10]);
    fleet.stop().await;
}

/// A call counts for a minute unless the client says that it has ended.
const IN_FLIGHT: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "concurrency", limit = 4, longest = "1m" }]

[[limit]]
name = "quiet"
rules = [{ kind = "concurrency", limit = 1, longest = "1m" }]
"#;

/// A vendor that is busy with a request until the last byte of its answer.
#[derive(Debug, Default)]
struct Busy {
    now: AtomicU64,
    most: AtomicU64,
}

impl Busy {
    async fn serve(self: &Arc<Self>) -> String {
        let busy = self.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(busy.clone().answer(stream));
            }
        });
        url
    }

    async fn answer(self: Arc<Self>, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = [0; 1_024];
        assert!(stream.read(&mut head).await? > 0, "a request");
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\no";
        stream.write_all(answer.as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        stream.write_all(b"k").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_in_flight_until_its_answer_was_read_and_no_longer() {
    let fleet = Fleet::start(IN_FLIGHT).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let vendor = Arc::new(Busy::default());
    let url = vendor.serve().await;
    let with = |patience| {
        let outgoing = Outgoing::refusing(client.limit("vendor"), patience);
        ClientBuilder::new(reqwest::Client::new()).with(outgoing).build()
    };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (http, url) = (with(PATIENCE), url.clone());
        calls.spawn(async move {
            let answer = http.get(&url).send().await.expect("a permit");
            assert_eq!((answer.status().as_u16(), answer.url().as_str()), (200, url.as_str()));
            assert_eq!(answer.content_length(), Some(2));
            answer.text().await.expect("text")
        });
    }
    assert!(calls.join_all().await.iter().all(|text| text == "ok"));
    let most = vendor.most.load(Ordering::Relaxed);
    println!("40 requests, at most {most} of 4 at a time");
    assert!((1..=4).contains(&most), "{most}");

    let mut unread = vec![];
    for _ in 0..4 {
        unread.push(with(PATIENCE).get(&url).send().await.expect("a permit"));
    }
    let error = with(Duration::from_millis(300)).get(&url).send().await.expect_err("all four are in use");
    let reqwest_middleware::Error::Middleware(reason) = error else { panic!("{error}") };
    assert!(matches!(reason.downcast_ref(), Some(lessor::Refusal::Empty { .. })), "{reason}");
    drop(unread.pop());
    with(PATIENCE).get(&url).send().await.expect("one was dropped");
    client.shutdown().await;
    fleet.stop().await;
}

/// The vendor may be busy for long with a request that its caller gave up.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_stays_in_flight_and_one_that_was_never_sent_does_not() {
    let fleet = Fleet::start(IN_FLIGHT).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let gone = HeldPort::any().expect("a free port");
    let url = |address| format!("http://{address}/");
    let (busy, nowhere) = (url(silent.local_addr().expect("the listener is bound")), url(gone.address()));
    let send = async |url: &str, patience| {
        let outgoing = Outgoing::refusing(client.limit("quiet"), patience);
        let http = ClientBuilder::new(reqwest::Client::new()).with(outgoing).build();
        http.get(url).timeout(2 * PATIENCE).send().await.expect_err("no server answers")
    };
    for _ in 0..3 {
        let error = send(&nowhere, PATIENCE).await;
        assert!(error.is_connect(), "the request had a permit and failed to connect: {error}");
    }
    let _reached = tokio::select! {
        error = send(&busy, PATIENCE) => panic!("{error}"),
        reached = silent.accept() => reached.expect("a connection"),
    };
    let error = send(&busy, Duration::from_millis(300)).await;
    let reqwest_middleware::Error::Middleware(reason) = error else { panic!("{error}") };
    assert!(matches!(reason.downcast_ref(), Some(lessor::Refusal::Empty { .. })), "{reason}");
    client.shutdown().await;
    fleet.stop().await;
}

/// A permit that its caller keeps beyond its lease is not good any more, and says so.
#[tokio::test]
async fn a_reservation_is_good_until_its_lease_has_ended() {
    let fleet = Fleet::start(CHOICE).await;
    let client = Client::connect(&fleet.url).await.expect("the allocator answers");
    let rest = client.limit("rest");
    let kept = rest.reserve_within(1, PATIENCE).await.expect("there are permits");
    // Longer than any lease, which is renewed while the allocator answers.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(kept.is_good(), "the lease goes on");
    fleet.stop().await;
    eventually("the lease has ended", async || (!kept.is_good()).then_some(())).await;
    drop(kept);
    client.shutdown().await;
}
