//! Peers without an identity take all connections of an allocator, and then a peer with one comes.

use super::desk::{Desk, Way, ask};
use lessor::{Client, Token};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::time::sleep;

/// Connections that may be open at once.
const PLACES: usize = 64;

/// Asks, without an identity, whether the allocator is alive. Returns whether it answered, or an error if it closed the
/// connection.
fn lives(stream: &mut TcpStream) -> std::io::Result<bool> {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")?;
    let mut read = [0; 1_024];
    match stream.read(&mut read) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The bug: connections that only asked whether the allocator is alive kept all places for as long as they liked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_an_identity_make_room_for_those_that_prove_one() {
    let desk = Desk::new(Way::Plain);
    let text = fs::read_to_string(desk.file("lessor.toml")).expect("a readable file");
    let bounds = format!("connections_max = {PLACES}\nconnections_per_address_max = {PLACES}\n");
    let text = text.replacen("[server]\n", &format!("[server]\n{bounds}"), 1);
    fs::write(desk.file("lessor.toml"), text).expect("a writable file");
    let token = desk.token("a");
    let allocator = desk.serve();
    let to: SocketAddr =
        allocator.url.strip_prefix("http://").expect("in clear").parse().expect("an address");
    let client = Client::builder(&allocator.url).node("a-1").token(Token::new(&token));
    let client = client.connect().await.expect("the allocator answers");
    let limit = client.limit("vendor");
    limit.acquire_within(1, Duration::from_secs(5)).await.expect("there is plenty");

    let strangers = tokio::task::spawn_blocking(move || {
        let open = || {
            let stream = TcpStream::connect(to).expect("the backlog has room");
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
            stream
        };
        (0..2 * PLACES).map(|_| open()).collect::<Vec<_>>()
    });
    let mut strangers = strangers.await.expect("no panic");
    // Connections that are served go on. The others are served when there is room.
    let asking = std::thread::spawn(move || {
        let (mut answered, mut closed) = (0_u64, 0);
        for _ in 0..30 {
            let before = strangers.len();
            strangers
                .retain_mut(|stream| lives(stream).inspect(|lives| answered += u64::from(*lives)).is_ok());
            closed += before - strangers.len();
            std::thread::park_timeout(Duration::from_millis(100));
        }
        (answered, closed)
    });
    sleep(Duration::from_millis(500)).await;
    let known = desk.http(Some(&token));
    for _ in 0..5 {
        let answer = ask(&known, "GET", &format!("{}/v1/whoami", allocator.url), "").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        sleep(Duration::from_millis(200)).await;
    }
    let failed = client.stats().failed_exchanges;
    limit.acquire_within(1, Duration::from_secs(5)).await.expect("there is plenty");
    assert_eq!(failed, 0, "the connection of a known node was closed");
    client.shutdown().await;
    let (answered, closed) = asking.join().expect("no panic");
    println!("{answered} answers to strangers, {closed} of {} connections closed", 2 * PLACES);
    assert!(answered > 0 && closed > 0);
}
