//! The cost of an exchange to an allocator over HTTP, beside a bare axum server that answers the same bodies. Each
//! server has a thread of its own with one runtime. The table shows the CPU time of that thread, so it includes neither
//! the load generator nor a store in another process or thread.

use crate::sample::median;
use crate::store::place;
use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::post;
use lessor_allocator::{Config, Server};
use lessor_protocol::CLOCK;
use lessor_protocol::wire::{ASKS_MAX, AskBody, LeasesRequest, LeasesResponse};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Numbers of nodes that lease from the limits, and of limits that each node asks for in an exchange.
const NODES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const ASKS: [usize; 2] = [1, 32];

/// The stores of the books. The first is measured with each number of nodes, the others with one number.
pub(crate) const STORES: [&str; 5] = ["memory", "embedded", "redis", "postgres", "etcd"];
const NODES_OF_OTHERS: usize = 100;

/// Connections that are kept open, each with one exchange at a time.
const CONNECTIONS: usize = 16;

/// Measurements of each row, in turn with its echo. The median is shown.
const ROUNDS: usize = 3;

/// Permits that a node wants, and spends before its next ask.
const WANT: u64 = 10;

/// Demand in permits a second that a node reports.
const DEMAND: u64 = 5;

const PATH: &str = "/v1/leases";

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    store: &'static str,
    nodes: usize,
    asks: usize,
    /// Microseconds of an exchange, and of the echo with the same bodies.
    exchange_us: f64,
    echo_us: f64,
    /// Asks that a core answers in a second.
    asks_per_second: f64,
    /// Rate of exchanges, as a part of the echo's rate on one core.
    of_echo: f64,
}

/// The rows to measure, and for how long in each round.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) seconds: u64,
    pub(crate) nodes: Option<usize>,
    pub(crate) asks: Option<usize>,
    pub(crate) store: Option<String>,
}

impl Chosen {
    /// Returns the store, the nodes and the asks of each row.
    fn rows(&self) -> Vec<(&'static str, usize, usize)> {
        let mut rows = vec![];
        let is_chosen = |store: &&str| self.store.as_deref().is_none_or(|chosen| chosen == *store);
        for store in STORES.into_iter().filter(is_chosen) {
            let usual = if store == STORES[0] { &NODES[..] } else { &[NODES_OF_OTHERS] };
            for asks in self.asks.map_or(ASKS.to_vec(), |one| vec![one]) {
                let nodes = self.nodes.map_or(usual.to_vec(), |one| vec![one]);
                rows.extend(nodes.into_iter().map(|nodes| (store, nodes, asks)));
            }
        }
        rows
    }
}

/// Measures the chosen rows. Prints a table, or `json`.
pub(crate) fn print(chosen: &Chosen, json: bool) -> Result<(), Box<dyn Error>> {
    let lasts = Duration::from_secs(chosen.seconds);
    if !json {
        println!(
            "| store | nodes | asks per exchange | µs per exchange | µs per echo | asks/s per core | exchanges/s to the echo's |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|");
    }
    let mut rows = vec![];
    for (store, nodes, asks) in chosen.rows() {
        let row = measure(store, nodes, asks, lasts)?;
        if !json {
            let Row { exchange_us, echo_us, asks_per_second, of_echo, .. } = row;
            println!(
                "| {store} | {nodes} | {asks} | {exchange_us:.1} | {echo_us:.1} | {asks_per_second:.0} | {of_echo:.2} |"
            );
        }
        rows.push(row);
    }
    if json {
        println!("{}", serde_json::to_string(&rows)?);
    }
    Ok(())
}

fn measure(store: &'static str, nodes: usize, asks: usize, lasts: Duration) -> Result<Row, Box<dyn Error>> {
    if nodes == 0 || !(1..=ASKS_MAX).contains(&asks) {
        return Err(format!("nodes: at least 1, and asks: 1 to {ASKS_MAX}").into());
    }
    let folder = tempfile::tempdir()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (place, _server) = runtime.block_on(place(store, folder.path()))?;
    let text = format!("[store]\nkind = \"{store}\"\n{place}\n{}", limits(asks));
    let allocator = Host::start(move |listener, stopped| {
        let server = Server::open(Config::parse(&text)?, true)?;
        Ok(Box::pin(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server.run(listener, stopped).await
        }))
    })?;
    let mut load = Load::open(allocator.address, nodes, asks)?;
    let mut known = 0;
    while known < nodes {
        known += load.turn()?;
    }
    // The last answer, which the echo repeats.
    let answer = Bytes::from(load.answer.clone());
    let echo = Host::start(move |listener, stopped| {
        let echo = move |_asks: Bytes| {
            let answer = answer.clone();
            async move { ([(header::CONTENT_TYPE, "application/json")], answer) }
        };
        let router = Router::new().route(PATH, post(echo));
        let stopped = async {
            let _ = stopped.await;
        };
        Ok(Box::pin(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await }))
    })?;
    let mut echoed = Load::open(echo.address, nodes, asks)?;
    let (mut exchange, mut bare) = (vec![], vec![]);
    for _round in 0..ROUNDS {
        exchange.push(allocator.micros(&mut load, lasts)?);
        bare.push(echo.micros(&mut echoed, lasts)?);
    }
    // Connections end first, because a server waits for them.
    drop((load, echoed));
    allocator.stop()?;
    echo.stop()?;
    let (exchange_us, echo_us) = (median(exchange), median(bare));
    let asks_per_second = asks as f64 * 1e6 / exchange_us;
    Ok(Row { store, nodes, asks, exchange_us, echo_us, asks_per_second, of_echo: echo_us / exchange_us })
}

/// Configures `count` limits that never run short.
fn limits(count: usize) -> String {
    let limit = |number: usize| {
        let rules = "rules = [{ kind = \"sliding_window\", limit = 1000000000, per = \"30s\" }]";
        format!("[[limit]]\nname = \"limit/{number}\"\n{rules}\n")
    };
    (0..count).map(limit).collect()
}

type Serving = std::pin::Pin<Box<dyn Future<Output = std::io::Result<()>>>>;

/// A server on a thread of its own.
struct Host {
    address: SocketAddr,
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

impl Host {
    fn start(
        serve: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> Result<Serving, Box<dyn Error>> + Send + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        let (stop, stopped) = oneshot::channel();
        let (ready, at) = mpsc::channel();
        let thread = thread::spawn(move || {
            let said = |error: &dyn std::fmt::Display| error.to_string();
            let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| said(&error))?;
            runtime.block_on(async {
                let listener =
                    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| said(&error))?;
                let address = listener.local_addr().map_err(|error| said(&error))?;
                let serving = serve(listener, stopped).map_err(|error| said(&error))?;
                // If the receiver is gone, the server is of no use.
                let _ = ready.send((address, Handle::current()));
                serving.await.map_err(|error| said(&error))
            })
        });
        let Ok((address, runtime)) = at.recv() else {
            return Err(thread.join().expect("no panic").err().unwrap_or_default().into());
        };
        Ok(Host { address, runtime, stop, thread })
    }

    /// Microseconds that the thread runs for each exchange of `load`, measured over `lasts`.
    fn micros(&self, load: &mut Load, lasts: Duration) -> Result<f64, Box<dyn Error>> {
        let (before, end, mut exchanges) = (self.ran()?, CLOCK.now() + lasts, 0);
        while CLOCK.now() < end {
            exchanges += load.turn()?;
        }
        Ok((self.ran()? - before).as_secs_f64() * 1e6 / exchanges as f64)
    }

    /// CPU time of the thread so far.
    fn ran(&self) -> Result<Duration, Box<dyn Error>> {
        let (tell, ran) = mpsc::channel();
        self.runtime.spawn(async move {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            let ran = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
            // If the receiver is gone, no answer is needed.
            let _ = tell.send(ran);
        });
        Ok(ran.recv()?)
    }

    fn stop(self) -> Result<(), Box<dyn Error>> {
        // A server that has ended needs no signal.
        let _ = self.stop.send(());
        self.thread.join().expect("no panic")?;
        Ok(())
    }
}

/// Nodes that ask one after the other, over a few connections.
struct Load {
    connections: Vec<TcpStream>,
    nodes: Vec<LeasesRequest>,
    next: usize,
    /// The last answer.
    answer: Vec<u8>,
}

impl Load {
    fn open(address: SocketAddr, nodes: usize, asks: usize) -> Result<Self, Box<dyn Error>> {
        let connect = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let ask = |limit| AskBody {
            limit: format!("limit/{limit}"),
            want: WANT,
            demand: DEMAND,
            ..AskBody::default()
        };
        let node = |node: usize| LeasesRequest {
            node: format!("node-{node}"),
            session: node as u64 + 1,
            epoch: 0,
            seq: 0,
            rtt_ms: 1,
            asks: (0..asks).map(ask).collect(),
        };
        Ok(Load {
            connections: (0..CONNECTIONS).map(|_| connect()).collect::<Result<_, _>>()?,
            nodes: (0..nodes).map(node).collect(),
            next: 0,
            answer: vec![],
        })
    }

    /// Makes one exchange on each connection, each for another node. Returns the number of exchanges, at most one for
    /// each node.
    fn turn(&mut self) -> Result<usize, Box<dyn Error>> {
        let at_once = CONNECTIONS.min(self.nodes.len());
        let asking: Vec<usize> = (0..at_once).map(|place| (self.next + place) % self.nodes.len()).collect();
        self.next = (self.next + at_once) % self.nodes.len();
        for (connection, &node) in self.connections.iter_mut().zip(&asking) {
            let node = &mut self.nodes[node];
            node.seq += 1;
            let body = serde_json::to_vec(node)?;
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nhost: allocator\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            connection.write_all(&[head.as_bytes(), &body].concat())?;
        }
        for (connection, &node) in self.connections.iter_mut().zip(&asking) {
            self.answer = answer(connection)?;
            let answer: LeasesResponse = serde_json::from_slice(&self.answer)?;
            for (ask, grant) in self.nodes[node].asks.iter_mut().zip(answer.grants) {
                ask.spent_total += grant.permits;
            }
        }
        Ok(at_once)
    }
}

/// Reads the body of the next answer.
fn answer(connection: &mut TcpStream) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut bytes, mut part) = (vec![], [0; 16 * 1_024]);
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = std::str::from_utf8(&bytes[..head])?.to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.ok_or_else(|| format!("no length: {text}"))?.parse()?;
            if !text.starts_with("http/1.1 200") {
                return Err(format!("{text}: {}", String::from_utf8_lossy(&bytes[head + 4..])).into());
            }
            if bytes.len() == head + 4 + length {
                return Ok(bytes.split_off(head + 4));
            }
        }
        // The load generator never sleeps: a server would pay for each time it wakes it, and a slow one more often.
        match recv(&connection, &mut part, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err("the connection was closed".into()),
            Ok((count, _)) => bytes.extend_from_slice(&part[..count]),
            Err(Errno::WOULDBLOCK) => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}
