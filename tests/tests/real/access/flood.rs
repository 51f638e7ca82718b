//! One identity floods while nodes of another identity work.

use super::desk::{Allocator, Desk, Way, ask};
use lessor::{Client, Limit, Token};
use scenarios::vendor::Vendor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The contract: 500 calls a second on average. The nodes want nearly all of them.
const LIMIT: u64 = 15_000;
const PER: Duration = Duration::from_secs(30);

/// How long it takes until the rates are steady.
const BEGINS: Duration = Duration::from_secs(2);

const ROLES: &str = r#"
[[role]]
name = "nodes"
identities = ["token:a"]
lease = ["calls"]
as = ["a-*"]
[[role]]
name = "others"
identities = ["token:b"]
lease = ["calls"]
as = ["b-*"]
[[role]]
name = "figures"
identities = ["token:prometheus"]
metrics = true
[[limit]]
name = "calls"
rules = [{ kind = "sliding_window", limit = 15000, per = "30s", margin = "20ms" }]
"#;

/// Connections that flood, each of which asks once in three seconds.
const CONNECTIONS: usize = 2_000;

/// Length of each phase.
const PHASE: Duration = Duration::from_secs(6);

/// How much the memory of the allocator may grow, in bytes: 40 kB a connection.
const GROWS: u64 = 80 << 20;

/// Returns the sessions that the allocator knows, and the asks that it refused because their identity asked too often.
async fn figures(desk: &Desk, allocator: &Allocator, token: &str) -> (u64, u64) {
    let answer = ask(&desk.http(Some(token)), "GET", &format!("{}/metrics", allocator.url), "").await;
    assert_eq!(answer.status, 200);
    let figure = |name: &str| {
        let line = answer.body.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the line is there").trim().parse::<f64>().expect("a number") as u64
    };
    (figure("lessor_sessions "), figure("lessor_refused_total{reason=\"too_many_exchanges\"}"))
}

/// Asks for all permits every three seconds, each time as another session, which never asks again.
async fn flood(to: SocketAddr, token: Arc<str>, numbers: Arc<AtomicU64>, answers: Arc<AtomicU64>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("the address is of this machine");
    let mut stream: TcpStream = socket.connect(to).await.expect("there is room");
    let mut beat = interval(Duration::from_secs(3));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut read = vec![0; 4_096];
    loop {
        beat.tick().await;
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let body = format!(
            r#"{{"node":"b-{number}","session":{number},"seq":1,"asks":[{{"limit":"calls","spent_total":0,"held":0,"want":15000,"waiting":15000,"demand_milli":1000000}}]}}"#
        );
        let head = format!(
            "POST /v1/leases HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
        match stream.read(&mut read).await {
            Ok(1..) => _ = answers.fetch_add(1, Ordering::Relaxed),
            Ok(0) | Err(_) => return,
        }
    }
}

/// Calls of the nodes: those that were wanted, and those that were admitted within a second.
#[derive(Debug, Default)]
struct Calls {
    wanted: AtomicU64,
    admitted: AtomicU64,
}

impl Calls {
    /// Returns the calls wanted and admitted during one phase.
    async fn phase(&self) -> (u64, u64) {
        let now = || (self.wanted.load(Ordering::Relaxed), self.admitted.load(Ordering::Relaxed));
        let before = now();
        sleep(PHASE).await;
        let after = now();
        (after.0 - before.0, after.1 - before.1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_floods_leaves_nine_tenths_to_another_one() {
    let desk = Desk::new(Way::Plain);
    desk.roles_are(ROLES);
    let [node, other, eyes] = ["a", "b", "prometheus"].map(|name| desk.token(name));
    let allocator = desk.serve();
    let vendor = Arc::new(Vendor::new(LIMIT, PER));
    let (calls, mut clients, mut callers) = (Arc::new(Calls::default()), vec![], vec![]);
    for name in ["a-1", "a-2"] {
        let client = Client::builder(&allocator.url).node(name).token(Token::new(&node));
        let client = client.connect().await.expect("the allocator answers");
        for _ in 0..4 {
            let (vendor, calls, limit): (_, _, Limit) =
                (vendor.clone(), calls.clone(), client.limit("calls"));
            callers.push(tokio::spawn(async move {
                loop {
                    let is_admitted = vendor.wait(&limit, Duration::from_secs(1)).await;
                    calls.wanted.fetch_add(1, Ordering::Relaxed);
                    calls.admitted.fetch_add(u64::from(is_admitted), Ordering::Relaxed);
                    sleep(Duration::from_millis(18)).await;
                }
            }));
        }
        clients.push(client);
    }
    sleep(BEGINS).await;
    let alone = calls.phase().await;
    let before = allocator.running.resident();

    let to = allocator.url.strip_prefix("http://").expect("in clear").parse().expect("an address");
    let (numbers, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let token: Arc<str> = other.into();
    let floods: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(flood(to, token.clone(), numbers.clone(), answers.clone())))
        .collect();
    sleep(BEGINS).await;
    let beside = calls.phase().await;
    let most = allocator.running.resident();
    floods.iter().for_each(|flood| flood.abort());
    let (sessions, refused) = figures(&desk, &allocator, &eyes).await;
    let answers = answers.load(Ordering::Relaxed);
    println!(
        "of calls wanted were let through: alone {alone:?}, beside {beside:?}; {answers} answers, {refused} of them refused for the pace, {sessions} sessions; memory {before} to {most}"
    );
    assert!(answers > 2_000 && sessions > 500, "too few requests for a flood");
    assert!(beside.0 > 500 && beside.1 * 10 >= beside.0 * 9, "{beside:?} beside a flood");
    assert!(most - before <= GROWS, "memory grew from {before} to {most} bytes");

    callers.iter().for_each(|caller| caller.abort());
    for client in clients {
        client.shutdown().await;
    }
    assert_eq!(vendor.breach(), None);
}
