//! A stranger who reaches the API and knows the protocol: it reads all that the allocator shows, and sends requests in
//! the names of others. A strict vendor judges.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use lessor::Client;
use lessor_protocol::CLOCK;
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

const CONFIG: &str = r#"
[store]
kind = "memory"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 600, per = "3s", margin = "50ms" }]
"#;

/// The highest sequence number of the protocol.
const LAST: u64 = (1 << 53) - 1;

/// Paths that show nodes or sessions.
const SHOWN: [&str; 5] = [
    "/v1/limits/vendor/top?count=100",
    "/v1/limits/vendor",
    "/v1/limits/vendor/pools",
    "/v1/status",
    "/v1/events/recent",
];

/// Adds all whole numbers in `value` to `found`.
fn numbers(value: &Value, found: &mut BTreeSet<u64>) {
    match value {
        Value::Number(number) => found.extend(number.as_u64().filter(|number| *number <= LAST)),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| numbers(value, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Says goodbye for each node that is shown, with every shown number as the session. Returns the permits that were
/// given back.
async fn says_goodbye_for_all(http: &reqwest::Client, url: &str) -> u64 {
    let (mut sessions, mut nodes) = (BTreeSet::new(), vec![]);
    for path in SHOWN {
        let answer = http.get(format!("{url}{path}")).send().await.expect("the server answers");
        let Ok(shown) = answer.json::<Value>().await else { continue };
        for node in shown["nodes"].as_array().into_iter().flatten() {
            nodes.push((node["node"].as_str().expect("a name").to_owned(), node["spent"].as_u64()));
        }
        numbers(&shown, &mut sessions);
    }
    assert!(!nodes.is_empty(), "the stranger sees no nodes: the test proves nothing");
    let mut returned = 0;
    for (node, spent) in &nodes {
        for session in &sessions {
            let spent = json!({ "limit": "vendor", "spent_total": spent, "held": LAST });
            let goodbye = json!({ "session": session, "seq": LAST, "spent": [spent] });
            let said = http.post(format!("{url}/v1/nodes/{node}/leave")).json(&goodbye).send().await;
            let said: Value = said.expect("the allocator answers").json().await.expect("JSON");
            returned += said["returned"].as_u64().unwrap_or_default();
        }
    }
    returned
}

/// The bug: the API showed sessions, and a goodbye in the name of one gave back permits that its node went on to spend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_goodbye_of_a_stranger_gives_nothing_back() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let vendor = Arc::new(Vendor::new(600, Duration::from_secs(3)));
    let mut calling = tokio::task::JoinSet::new();
    for node in 0..6 {
        let named = Client::builder(&allocator.url).node(&format!("node-{node}"));
        let client = named.connect().await.expect("the allocator answers");
        let vendor = Arc::clone(&vendor);
        calling.spawn(async move {
            let limit = client.limit("vendor");
            loop {
                vendor.wait(&limit, Duration::from_millis(500)).await;
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        });
    }
    let http = reqwest::Client::new();
    let mut returned = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        returned += says_goodbye_for_all(&http, &allocator.url).await;
    }
    calling.shutdown().await;
    let admitted = vendor.count();
    println!("{admitted} admitted, {returned} given back by a stranger, {:?}", vendor.breach());
    assert_eq!(vendor.breach(), None);
    assert_eq!(returned, 0);
    assert!(admitted >= 1_200, "{admitted} admitted in ten seconds, of 200 a second");
}

/// Opens a connection and begins a goodbye with these chunks, without its end.
fn begins_to_say(address: &str, pieces: &[&str]) -> TcpStream {
    begins_on(TcpStream::connect(address).expect("the server listens"), pieces)
}

/// Opens a connection to `address` from `own`, an address of this machine.
async fn connect_from(own: &str, address: &str) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{own}:0").parse().expect("an address")).expect("the address is of this machine");
    let stream = socket.connect(address.parse().expect("an address")).await.expect("the server listens");
    let stream = stream.into_std().expect("the socket leaves tokio");
    stream.set_nonblocking(false).expect("the socket can block");
    stream
}

/// Begins a goodbye on `peer`, without its end.
fn begins_on(peer: TcpStream, pieces: &[&str]) -> TcpStream {
    begins_at("/v1/nodes/slow/leave", peer, pieces)
}

/// Begins a request for `path` on `peer`, without its end.
fn begins_at(path: &str, mut peer: TcpStream, pieces: &[&str]) -> TcpStream {
    peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close");
    let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
    let text = format!("{head}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    peer.write_all(text.as_bytes()).expect("the peer reads");
    peer
}

/// Ends the request that was begun, and reads the answer.
fn answer_to(mut peer: TcpStream) -> String {
    peer.write_all(b"0\r\n\r\n").expect("the peer reads");
    let mut answer = String::new();
    peer.read_to_string(&mut answer).expect("an answer, and the end");
    answer
}

/// 300 bodies of 900 kB come at once and do not end. They take a bounded part of memory, and hold up no node and no
/// short body.
#[tokio::test]
async fn large_bodies_that_trickle_take_bounded_memory_and_hold_up_no_node() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::connect(&allocator.url).await.expect("the allocator answers");
    let before = allocator.running.resident();
    let piece = " ".repeat(30_000);
    let large = vec![piece.as_str(); 30];
    let mut slow: Vec<TcpStream> = (0..300).map(|_| begins_to_say(allocator.address(), &large)).collect();
    // Bodies that grow at the same time refuse each other room, and the room of the refused ones is free again. More
    // bodies fill it.
    let refused = eventually("the allocator refuses another body", async || {
        slow.extend((0..8).map(|_| begins_to_say(allocator.address(), &large)));
        let answer = answer_to(begins_to_say(allocator.address(), &large));
        answer.starts_with("HTTP/1.1 503 ").then_some(answer)
    })
    .await;
    assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("\"code\":\"bodies_full\""), "{refused}");
    let taken = allocator.running.resident().saturating_sub(before) >> 20;
    println!("{} bodies of 900 kB take {taken} MiB", slow.len());
    assert!(taken < 130, "the bodies take {taken} MiB, of 260 MiB sent");
    let goodbye = "{\"session\":1,\"seq\":1,\"spent\":[]}";
    let (begin, end) = goodbye.split_at(9);
    let short = answer_to(begins_to_say(allocator.address(), &[begin, end]));
    assert!(short.starts_with("HTTP/1.1 200 "), "{short}");
    client.limit("vendor").acquire_within(5, Duration::from_secs(2)).await.expect("the allocator lends");
    // Each body is answered with 408 once its time is over.
    let mut late = slow.pop().expect("there are many");
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("an answer, and the end");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop(slow);
    eventually("a body is accepted again", async || {
        let answer = answer_to(begins_to_say(allocator.address(), &large));
        (!answer.starts_with("HTTP/1.1 503 ")).then_some(())
    })
    .await;
    client.shutdown().await;
}

/// One address sends as many unfinished long bodies as are kept. Another address sends twelve, and each is read.
#[tokio::test]
async fn long_bodies_of_one_address_keep_out_none_of_another_one() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let piece = " ".repeat(30_000);
    let large = vec![piece.as_str(); 30];
    let mut slow = vec![];
    eventually("the allocator refuses another body", async || {
        slow.extend((0..100).map(|_| begins_to_say(allocator.address(), &large)));
        answer_to(begins_to_say(allocator.address(), &large)).contains("\"bodies_full\"").then_some(())
    })
    .await;
    let mut others = vec![];
    for _ in 0..12 {
        let other = connect_from("127.0.0.2", allocator.address()).await;
        others.push(begins_on(other, &large));
    }
    for other in others {
        let answer = answer_to(other);
        // The body was read, and is no goodbye.
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    drop(slow);
}

/// The bug: peers without an identity signed in with bodies that took all the room of nodes. Two addresses, because one
/// address has three quarters of the room.
#[tokio::test]
async fn bodies_at_the_sign_in_keep_out_none_of_a_node() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let piece = " ".repeat(30_000);
    let large = vec![piece.as_str(); 30];
    let short = [&piece[..8_000], &piece[..8_000]];
    let stranger = connect_from("127.0.0.1", allocator.address()).await;
    let answer = answer_to(begins_at("/v1/sign-in", stranger, &large));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let mut slow = vec![];
    for own in ["127.0.0.1", "127.0.0.2"] {
        for _ in 0..60 {
            let stranger = connect_from(own, allocator.address()).await;
            slow.push(begins_at("/v1/sign-in", stranger, &large));
        }
    }
    // Of short bodies some fit. A busy machine takes longer to send them than the first of them are kept: more follow.
    eventually("a short body at the sign-in is refused", async || {
        for _ in 0..100 {
            let stranger = connect_from("127.0.0.1", allocator.address()).await;
            slow.push(begins_at("/v1/sign-in", stranger, &short));
        }
        let stranger = connect_from("127.0.0.1", allocator.address()).await;
        answer_to(begins_at("/v1/sign-in", stranger, &short)).contains("\"bodies_full\"").then_some(())
    })
    .await;
    let answer = answer_to(begins_on(connect_from("127.0.0.3", allocator.address()).await, &large));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    drop(slow);
}

/// An eavesdropper that hears all that nodes say, and passes it on.
#[derive(Clone, Debug, Default)]
struct Eavesdropper {
    url: String,
    http: reqwest::Client,
    heard: Arc<Mutex<Value>>,
}

impl Eavesdropper {
    /// Starts an eavesdropper before the allocator at `url`. Returns it with its own URL.
    async fn before(url: &str) -> (Self, String) {
        let here = Eavesdropper { url: url.to_owned(), ..Eavesdropper::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let router = Router::new().route("/v1/leases", post(Eavesdropper::pass_on)).with_state(here.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (here, own)
    }

    async fn pass_on(State(here): State<Self>, body: Bytes) -> (StatusCode, Bytes) {
        *here.heard.lock().expect("no thread panics with it") = serde_json::from_slice(&body).expect("JSON");
        let sent = here.http.post(format!("{}/v1/leases", here.url)).body(body);
        let answer =
            sent.header("content-type", "application/json").send().await.expect("the server answers");
        (answer.status(), answer.bytes().await.expect("a body"))
    }

    fn heard(&self) -> Value {
        self.heard.lock().expect("no thread panics with it").clone()
    }
}

/// The bug: a client went on with a session that a stranger had ended, and each of its asks was refused.
#[tokio::test]
async fn a_client_whose_session_was_ended_by_a_stranger_begins_another_one() {
    let fleet = Fleet::start(CONFIG).await;
    let (stranger, url) = Eavesdropper::before(&fleet.url).await;
    let client = Client::builder(&url).node("a").connect().await.expect("the allocator answers");
    let limit = client.limit("vendor");
    limit.acquire(1).await.expect("there are permits");
    for _ in 0..2 {
        let said = eventually("an ask for the limit", async || {
            limit.acquire(1).await.expect("there are permits");
            Some(stranger.heard()).filter(|said| said["asks"][0]["limit"] == "vendor")
        })
        .await;
        let spent = json!({ "limit": "vendor", "spent_total": said["asks"][0]["spent_total"], "held": 0 });
        let goodbye = json!({ "session": said["session"], "seq": LAST, "spent": [spent] });
        let leave = stranger.http.post(format!("{}/v1/nodes/a/leave", fleet.url)).json(&goodbye).send().await;
        assert_eq!(leave.expect("the allocator answers").status(), 200);
        eventually("another session", async || {
            limit.acquire(1).await.expect("there are permits");
            (stranger.heard()["session"] != said["session"]).then_some(())
        })
        .await;
        eventually("a lease from the limit", async || {
            limit.acquire(1).await.expect("there are permits");
            let asked = &stranger.heard()["asks"][0];
            (asked["limit"] == "vendor" && asked["held"].as_u64() > Some(0)).then_some(())
        })
        .await;
    }
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: configurations were copied under the lock that each exchange needs, and four loops that read large ones
/// held up every node for 2 s. The median is judged, because a single exchange may wait for anything on a busy machine.
#[tokio::test]
async fn looks_at_large_limits_hold_up_no_exchange() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let http = reqwest::Client::new();
    let rules = json!([{ "kind": "sliding_window", "limit": 600, "per": "3s" }]);
    let large: Vec<Value> =
        (0..4_000).map(|key| json!({ "key": format!("k-{key}"), "rules": rules })).collect();
    let large = json!({ "keyed": true, "rules": rules, "override": large });
    for limit in 0..5 {
        let put = http.put(format!("{}/v1/limits/large-{limit}", allocator.url)).json(&large).send().await;
        assert_eq!(put.expect("the allocator answers").status(), 201);
    }
    let address = allocator.address().to_owned();
    let alone = exchanges(&address, 0);
    let is_over = Arc::new(AtomicBool::new(false));
    let looking: Vec<_> = (0..4)
        .map(|_| {
            let (address, is_over) = (address.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut looks = 0;
                while !is_over.load(Relaxed) {
                    assert!(said(&address, "GET /v1/limits", "").len() > 1_500_000);
                    looks += 1;
                }
                looks
            })
        })
        .collect();
    let beside = exchanges(&address, 100);
    is_over.store(true, Relaxed);
    let looks: Vec<u32> = looking.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    println!("p50 of exchanges: {alone:?} alone, {beside:?} beside four loops of {looks:?} looks");
    assert!(beside < Duration::from_millis(100), "{beside:?}");
}

/// Returns the median time of 41 exchanges, numbered after `seq`.
fn exchanges(address: &str, seq: u64) -> Duration {
    let mut took: Vec<Duration> = (1..=41)
        .map(|exchange| {
            let ask = json!({ "limit": "vendor", "spent_total": 0, "held": 0, "want": 0 });
            let asks = json!({ "node": "a", "session": 7, "seq": seq + exchange, "asks": [ask] });
            let began = CLOCK.now();
            let answer = said(address, "POST /v1/leases", &asks.to_string());
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let took = CLOCK.now().since(began);
            std::thread::park_timeout(Duration::from_millis(50));
            took
        })
        .collect();
    took.sort_unstable();
    took[20]
}

/// Sends a request on a connection of its own and returns the answer.
fn said(address: &str, line: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
    let request = format!("{line} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("the peer reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Sends an incomplete `head` from 127.0.0.2. Returns how long the connection is held, or `None` if that is longer than
/// `patience`.
async fn held_for(to: SocketAddr, head: Arc<[u8]>, patience: Duration) -> Option<Duration> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("the address is of this machine");
    let mut stream = socket.connect(to).await.expect("there is room");
    let began = CLOCK.now();
    // A connection that was closed meanwhile fails here.
    let _ = stream.write_all(&head).await;
    let mut read = [0; 64];
    let ended = tokio::time::timeout(patience, stream.read(&mut read)).await;
    ended.is_ok().then(|| CLOCK.now().since(began))
}

/// Heads that never end take memory for ten seconds each, which no bound on requests counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_never_whole_are_bounded_for_each_address() {
    const CONNECTIONS: usize = 600;
    const HEAD: usize = 60_000;
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let client = Client::builder(&allocator.url).node("a").connect().await.expect("the allocator answers");
    let to: SocketAddr = allocator.address().parse().expect("an address");
    let mut head = b"GET /livez HTTP/1.1\r\nx: ".to_vec();
    head.resize(HEAD, b'a');
    let head: Arc<[u8]> = head.into();
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        strangers.spawn(held_for(to, head.clone(), Duration::from_secs(5)));
    }
    let held = strangers.join_all().await.into_iter().filter(Option::is_none).count();
    println!("{held} of {CONNECTIONS} heads are kept, {} bytes", held * HEAD);
    assert!((held * HEAD) <= 16 << 20, "{held} heads of {HEAD} bytes");
    assert!(held * HEAD >= 15 << 20, "{held} heads of {HEAD} bytes");
    client
        .limit("vendor")
        .acquire_within(1, Duration::from_secs(5))
        .await
        .expect("another address is served");
    client.shutdown().await;
}
