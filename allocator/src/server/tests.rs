//! Tests over real sockets on port 0: the start, the end, and the limits of connections. Waits are tested without
//! sockets, beside the connections.

use super::*;
use crate::samples::{config, limits};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A server on a free port, and the switch that stops it.
struct Running {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: oneshot::Sender<()>,
    done: JoinHandle<io::Result<()>>,
}

impl Running {
    async fn start(options: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let config = config(&[options, &limits(&[("vendor/rest", 1000)])].concat());
        let shutdown = async { drop(stopped.await) };
        let server = Server::new(config, true);
        let shared = server.shared.clone();
        let done = tokio::spawn(server.run(listener, shutdown));
        Running { address, shared, stop, done }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Sends `request` on a connection of its own, and reads until the server closes it.
    async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_ref()).await.expect("it reads");
        read_all(&mut stream).await
    }

    async fn stop(self) {
        self.stop.send(()).expect("it is running");
        self.done.await.expect("it does not panic").expect("it had an address");
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut text = vec![];
    stream.read_to_end(&mut text).await.expect("a clean end");
    String::from_utf8(text).expect("text")
}

/// Reads one answer with a body of known length, and leaves the connection open.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).await.expect("an answer");
        assert!(count > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&piece[..count]).expect("text"));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                return text;
            }
        }
    }
}

fn leases(body: &str) -> String {
    let head = "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

const EXCHANGE: &str = r#"{"node":"a","session":1,"seq":1,"asks":[{"limit":"vendor/rest","spent_total":0,"held":0,"want":3,"waiting":3}]}"#;

#[tokio::test]
async fn it_serves_until_it_is_stopped() {
    let server = Running::start("").await;
    let mut node = server.connect().await;
    node.write_all(leases(EXCHANGE).as_bytes()).await.expect("it reads");
    let answer = read_one(&mut node).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#""permits":3"#), "{answer}");
    server.stop().await;
    assert_eq!(read_all(&mut node).await, "", "an idle connection is closed");
}

/// A request that has begun when the server stops is answered: nothing is lent.
#[tokio::test]
async fn what_is_in_flight_is_finished_and_lent_nothing() {
    let server = Running::start("").await;
    let request = leases(EXCHANGE);
    let (begun, rest) = request.split_at(request.len() - 5);
    let mut node = server.connect().await;
    node.write_all(begun.as_bytes()).await.expect("it reads");
    // Once a later connection is answered, the server has seen this one.
    server.exchange("GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    server.stop.send(()).expect("it is running");
    while !server.shared.with(|registry, _| registry.is_stopping()) {
        tokio::task::yield_now().await;
    }
    node.write_all(rest.as_bytes()).await.expect("it still reads");
    let answer = read_all(&mut node).await;
    assert!(answer.contains(r#""refused":"stopping""#) && answer.contains(r#""permits":0"#), "{answer}");
    server.done.await.expect("it does not panic").expect("it had an address");
}

/// The client sends the whole body before it reads the answer, as simple clients do. If the server did not read the
/// body to its end, it would reset the connection, and the answer would be lost.
#[tokio::test]
async fn a_peer_that_sends_too_much_hears_why() {
    let server = Running::start("").await;
    for length in [10_000_000, 4 << 20] {
        let answer =
            server.exchange(leases(&" ".repeat(length)).replace("host: a", "connection: close")).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    let head =
        "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let body = format!("{head}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(100));
    let answer = server.exchange(body).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_it_goes_on() {
    let server = Running::start("").await;
    let many = format!("GET /livez HTTP/1.1\r\nhost: a\r\n{}\r\n", "x-a: b\r\n".repeat(100));
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(100_000));
    let both = "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd";
    for (request, status) in
        [(many.as_str(), "431"), (&long, "431"), (both, "400"), ("\0\0\0\r\n\r\n", "400")]
    {
        let answer = server.exchange(request).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{answer:?}");
    }
    let answer = server.exchange("GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    server.stop().await;
}

/// At the bound further connections wait in the backlog, and are served as soon as another one ends.
#[tokio::test]
async fn connections_are_bounded() {
    let server = Running::start("[server]\nconnections_max = 1\n").await;
    let livez = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = server.connect().await;
    first.write_all(livez.as_bytes()).await.expect("it reads");
    read_one(&mut first).await;
    let mut second = server.connect().await;
    second.write_all(livez.as_bytes()).await.expect("it is buffered");
    first.write_all(livez.as_bytes()).await.expect("it reads");
    read_one(&mut first).await;
    let mut nothing = [0];
    let early = second.try_read(&mut nothing).map_err(|error| error.kind());
    assert_eq!(early, Err(io::ErrorKind::WouldBlock), "it waits");
    drop(first);
    read_one(&mut second).await;
    server.stop().await;
}

/// The bug: one address held all connections, and newcomers waited. The second of an address is closed at once, one of
/// another address is served, and so is the next of the first address once it has room.
#[tokio::test]
async fn one_address_leaves_connections_for_others() {
    let server = Running::start("[server]\nconnections_max = 2\nconnections_per_address_max = 1\n").await;
    let livez = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = server.connect().await;
    first.write_all(livez).await.expect("it reads");
    read_one(&mut first).await;
    let mut second = server.connect().await;
    assert_eq!(read_all(&mut second).await, "", "closed at once");
    let other = tokio::net::TcpSocket::new_v4().expect("a socket");
    other.bind("127.0.0.2:0".parse().expect("an address")).expect("it is of this machine");
    let mut other = other.connect(server.address).await.expect("it listens");
    other.write_all(livez).await.expect("it reads");
    read_one(&mut other).await;
    other.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("it reads");
    assert!(read_one(&mut other).await.contains("\nlessor_connections_refused_total 1\n"));
    drop(first);
    // The server may not have seen the end yet.
    let mut third = loop {
        let mut third = server.connect().await;
        if third.write_all(livez).await.is_ok() && third.read_u8().await.is_ok() {
            break third;
        }
    };
    read_one(&mut third).await;
    server.stop().await;
}

/// The bug: after a stop of an hour 36,000 sweeps of all limits ran one after the other.
#[tokio::test(start_paused = true)]
async fn ticks_that_were_missed_are_not_made_up_for() {
    let mut sweep = ticks(SWEEP_EVERY);
    sweep.tick().await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    sweep.tick().await;
    assert!(timeout(SWEEP_EVERY / 2, sweep.tick()).await.is_err());
    assert!(timeout(SWEEP_EVERY, sweep.tick()).await.is_ok());
}
