//! The shipping client and the shipping server with a bad network between them, over real sockets. A strict vendor
//! counts the admissions of all clients, and at the end the allocator's books are compared with its count.
//!
//! `faults` (one fault at a time), `malformed` (answers that a client must not accept), `storm` (all faults, drawn from
//! a seed), `peers` (other clients that use the server slowly).

mod faults;
mod malformed;
mod peers;
mod storm;

use lessor::{Client, Limit};
use lessor_allocator::{Config, Server};
use lessor_protocol::{CLOCK, Moment};
use scenarios::proxy::Proxy;
use scenarios::vendor::Vendor;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

/// The contract of most tests. It needs no margin, because this vendor counts when a call is admitted.
const LIMIT: u64 = 100;
const PER: Duration = Duration::from_millis(1_500);

/// Length of its leases: a thirtieth of the window. The configuration bounds it, so that it is no longer on a machine
/// so busy that a node takes itself for far away.
const TERM: Duration = Duration::from_millis(50);

/// The same rate over a window twenty times as long, with leases of a second.
const SLOW_LIMIT: u64 = 2_000;
const SLOW_PER: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
[[limit]]
name = "vendor"
term = { max = "50ms" }
rules = [{ kind = "sliding_window", limit = 100, per = "1500ms", margin = "0s" }]

[[limit]]
name = "slow"
rules = [{ kind = "sliding_window", limit = 2000, per = "30s", margin = "0s" }]
"#;

/// How long a permit may take once the network is well. A client may wait for an answer that will not come (a second),
/// then pause (another), then find its session disputed (another), then wait for a window (a second and a half). The
/// rest is for a machine that is busy with other work.
const RECOVERY: Duration = Duration::from_secs(30);

/// Pause between two calls of a caller: callers try more often than the contract allows.
const CALL_EVERY: Duration = Duration::from_millis(1);

/// The server of one test, which ends it.
struct Allocator {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::io::Result<()>>,
}

impl Allocator {
    async fn start() -> Allocator {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let server = Server::new(Config::parse(CONFIG).expect("a good configuration"), true);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(listener, async { drop(stopped.await) }));
        Allocator { address, stop, running }
    }

    /// Returns a figure in the books of `limit`.
    async fn book(&self, limit: &str, figure: &str) -> u64 {
        let url = format!("http://{}/v1/limits/{limit}/pools", self.address);
        let body = reqwest::get(url).await.expect("the server answers").text().await.expect("a text");
        let books: Value = serde_json::from_str(&body).expect("JSON");
        books["pools"][0][figure].as_u64().unwrap_or_else(|| panic!("{figure} in {books}"))
    }

    async fn stop(self) {
        self.stop.send(()).expect("the server is running");
        self.running.await.expect("no panic").expect("no error");
    }
}

/// A client behind a network of its own.
struct Node {
    proxy: Proxy,
    client: Client,
    limit: Limit,
}

impl Node {
    async fn start(allocator: &Allocator, name: &str, limit: &str) -> Node {
        Node::with_timeout(allocator, name, limit, None).await
    }

    /// Starts a node whose exchanges may take `timeout`, or as long as by default.
    async fn with_timeout(allocator: &Allocator, name: &str, limit: &str, timeout: Option<Duration>) -> Node {
        let proxy = Proxy::start(allocator.address).await;
        let builder = Client::builder(&proxy.url()).node(name);
        let builder = timeout.map_or(builder.clone(), |timeout| builder.exchange_timeout(timeout));
        let client = builder.build().expect("a good address");
        let limit = client.limit(limit);
        Node { proxy, client, limit }
    }

    /// Starts callers that try all the time, until they are aborted.
    fn drive(&self, vendor: &Arc<Vendor>) -> JoinHandle<()> {
        let (vendor, limit) = (vendor.clone(), self.limit.clone());
        tokio::spawn(async move {
            let mut tick = interval(CALL_EVERY);
            loop {
                tick.tick().await;
                vendor.call(&limit);
            }
        })
    }

    /// Waits for a permit, for at most [`RECOVERY`].
    #[track_caller]
    fn recover(&self, vendor: &Vendor) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let admitted = vendor.wait(&self.limit, RECOVERY).await;
            assert!(admitted, "{caller}: no permit in {RECOVERY:?}: {:?}", self.client.stats());
        }
    }
}

/// Returns a vendor with the contract of most tests.
fn vendor() -> Arc<Vendor> {
    Arc::new(Vendor::new(LIMIT, PER))
}

/// Waits until the clock shows `moment`.
async fn until(moment: Moment) {
    sleep(moment.since(CLOCK.now())).await;
}

/// Waits until `figure` of the books of `limit` is `value`.
async fn until_book(allocator: &Allocator, limit: &str, figure: &str, value: u64) {
    let end = CLOCK.now() + RECOVERY;
    loop {
        let found = allocator.book(limit, figure).await;
        if found == value {
            return;
        }
        assert!(CLOCK.now() < end, "{figure} is {found} after {RECOVERY:?}, not {value}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Shuts all nodes down, and waits until all permits are back. Returns the spent and burned permits by the books.
async fn wind_up(allocator: &Allocator, nodes: Vec<Node>, vendor: &Vendor) -> (u64, u64) {
    for node in nodes {
        node.client.shutdown().await;
        node.proxy.drain().await;
    }
    assert_eq!(vendor.breach(), None);
    until_book(allocator, "vendor", "outstanding", 0).await;
    until_book(allocator, "vendor", "available", LIMIT).await;
    (allocator.book("vendor", "spent").await, allocator.book("vendor", "burned").await)
}
