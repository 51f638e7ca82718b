//! Slow peers, over pipes in memory. The clock of these tests runs ahead as soon as every task waits, so that nothing
//! depends on the load of the machine, and no wait takes real time.

mod http2;

use super::*;
use crate::samples::{allocator, limits};
use crate::server::patience::WRITE_WAIT;
use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
use lessor_tls::{HANDSHAKE_WAIT, HttpClient, ServerFiles, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// The address of all peers.
const HERE: Address = Address::Ip(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

/// The head of an exchange, and the first byte of 100 of its body.
const BEGUN: &str =
    "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";

/// What a silent peer may have sent before.
const SILENT: [&str; 4] = ["", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /livez HTTP/1.1\r\nhos"];

/// Capacity of a pipe, in bytes, with which every answer has to wait for its reader.
const LESS_THAN_AN_ANSWER: usize = 64;

fn peers() -> Peers {
    peers_by(None)
}

fn peers_by(tls: Option<Arc<Acceptor>>) -> Peers {
    peers_of(tls, 100)
}

/// Makes peers with at most `per_address` connections of one address.
fn peers_of(tls: Option<Arc<Acceptor>>, per_address: usize) -> Peers {
    let shared = allocator(&limits(&[("vendor/rest", 1000)]));
    Peers::new(&shared, http::Part::Whole, tls, per_address)
}

/// Makes an acceptor with throw-away certificates.
fn acceptor() -> Arc<Acceptor> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let signed = DevCa::try_new().and_then(|ca| ca.sign(Purpose::Server, VALID)).expect("good");
    let (certificate, key) = signed.write(folder.path(), "server").expect("a folder to write in");
    Arc::new(Acceptor::load(&ServerFiles { certificate, key, client_ca: None }).expect("good"))
}

/// Connects a peer that has sent `text`.
async fn peer(peers: &mut Peers, text: &str) -> DuplexStream {
    let (mut peer, ours) = duplex(1 << 16);
    assert!(peers.serve(ours, HERE));
    peer.write_all(text.as_bytes()).await.expect("there is room");
    peer
}

/// Reads until the peer is cut off.
async fn answer_to(mut peer: DuplexStream) -> String {
    let mut bytes = vec![];
    peer.read_to_end(&mut bytes).await.expect("a clean end");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_answered_408() {
    let mut peers = peers();
    let answer = answer_to(peer(&mut peers, BEGUN).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_head_of_too_many_fields_is_answered_431() {
    let mut peers = peers();
    for (fields, status) in [(90, "200 OK"), (101, "431 Request Header Fields Too Large")] {
        let many: String = (0..fields).map(|field| format!("x-{field}: a\r\n")).collect();
        let text = format!("GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{many}\r\n");
        let answer = answer_to(peer(&mut peers, &text).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
}

/// The bug to prevent: the timer of a connection fires for a head that came long ago.
#[tokio::test(start_paused = true)]
async fn a_peer_that_says_something_in_time_is_never_cut_off_and_then_is() {
    let mut peers = peers();
    let mut peer = peer(&mut peers, LIVEZ).await;
    for _ in 0..5 {
        // Each head comes before its own deadline, and after the deadline of the head before the last one.
        sleep(HEAD_WAIT * 3 / 4).await;
        peer.write_all(LIVEZ.as_bytes()).await.expect("it reads");
    }
    let answer = timeout(HEAD_WAIT * 5 / 4, answer_to(peer)).await.expect("it is cut off in time");
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 6, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_gets_to_a_request_is_cut_off() {
    for text in SILENT {
        let mut peers = peers();
        let silent = peer(&mut peers, text).await;
        let answer = timeout(HEAD_WAIT * 2, answer_to(silent)).await.expect("it is cut off");
        assert!(!answer.contains("200 OK"), "{answer}");
        peers.ended().await;
        assert_eq!(peers.count(), 0, "after {text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_a_while() {
    let mut peers = peers();
    let answer =
        timeout(HEAD_WAIT * 2, answer_to(peer(&mut peers, LIVEZ).await)).await.expect("it is closed");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// The bug: over HTTP/1 a connection lasted, and its peer was believed, for as long as it asked.
#[tokio::test(start_paused = true)]
async fn no_connection_over_http_1_lasts_for_ever() {
    let mut peers = peers();
    let mut peer = peer(&mut peers, "").await;
    let (mut asked, mut answer) = (0, [0; 4_096]);
    let asking = async {
        while peer.write_all(LIVEZ.as_bytes()).await.is_ok()
            && peer.read(&mut answer).await.is_ok_and(|n| n > 0)
        {
            asked += 1;
            sleep(HEAD_WAIT / 2).await;
        }
    };
    timeout(Duration::from_secs(3_700), asking).await.expect("it ends");
    assert!((700..=721).contains(&asked), "{asked}");
    assert_eq!(timeout(HEAD_WAIT, peers.ended()).await, Ok(Some(())));
}

/// The bug: a certificate was believed for as long as its connection lasted. This one is valid for three or four real
/// seconds.
#[tokio::test]
async fn a_connection_ends_with_the_certificate_of_its_peer() {
    let (folder, ca) = (tempfile::tempdir().expect("a folder"), DevCa::try_new().expect("good"));
    let write =
        |purpose, valid, name| ca.sign(purpose, valid).and_then(|signed| signed.write(folder.path(), name));
    let (certificate, key) = write(Purpose::Server, VALID, "server").expect("good");
    let shown = write(Purpose::Client, Duration::from_secs(4), "client").expect("good");
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, ca.certificate()).expect("written");
    let files = ServerFiles { certificate, key, client_ca: Some(authority.clone()) };
    let mut peers = peers_by(Some(Arc::new(Acceptor::load(&files).expect("good"))));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let tls = Tls::new().ca(authority).certificate(&shown.0, &shown.1);
    let client = HttpClient::try_new(HEAD_WAIT, Some(tls)).expect("good");
    let ask = || {
        let request = axum::http::Request::get(format!("https://{address}/livez"));
        client.send(request.body(vec![]).expect("a request"), HEAD_WAIT)
    };
    let (answer, served) = tokio::join!(ask(), async {
        let (stream, _) = listener.accept().await.expect("a client");
        peers.serve(stream, HERE)
    });
    assert!(served && answer.expect("it is valid yet").status() == 200);
    // It is never idle.
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    let ended = async {
        loop {
            tokio::select! {
                ended = peers.ended() => return ended,
                _ = async { (pace.tick().await, ask().await) } => {}
            }
        }
    };
    assert_eq!(timeout(Duration::from_secs(30), ended).await, Ok(Some(())));
}

/// Sends `pieces`, one a second, then reads to the end.
async fn say_slowly(mut peer: DuplexStream, pieces: impl Iterator<Item = &[u8]>) -> String {
    for piece in pieces {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if peer.write_all(piece).await.is_err() {
            break;
        }
    }
    answer_to(peer).await
}

/// A byte a second gains no time, neither before the first request of a connection nor after it.
#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_gains_no_time_by_it() {
    for before in ["", LIVEZ] {
        let mut peers = peers();
        let slow = peer(&mut peers, before).await;
        let answer = say_slowly(slow, LIVEZ.as_bytes().chunks(1)).await;
        let served = answer.matches("200 OK").count();
        assert_eq!(
            served,
            usize::from(!before.is_empty()),
            "its {} bytes take too long: {answer}",
            LIVEZ.len()
        );
        peers.ended().await;
        assert_eq!(peers.count(), 0);
    }
}

/// The bug: an answer that its peer did not read was kept for ever, and the connection with it.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_answers_is_cut_off() {
    // A byte now and then is no better than none.
    for pause in [WRITE_WAIT * 100, Duration::from_secs(1)] {
        let mut peers = peers();
        let (deaf, ours) = duplex(LESS_THAN_AN_ANSWER);
        assert!(peers.serve(ours, HERE));
        let (mut listens, mut speaks) = tokio::io::split(deaf);
        tokio::spawn(async move { speaks.write_all(LIVEZ.repeat(50).as_bytes()).await });
        tokio::spawn(async move {
            let mut byte = [0];
            while listens.read(&mut byte).await.is_ok_and(|count| count > 0) {
                tokio::time::sleep(pause).await;
            }
        });
        let ended = timeout(WRITE_WAIT * 2, peers.ended()).await;
        assert_eq!(ended, Ok(Some(())), "it is cut off, though it takes a byte every {pause:?}");
    }
}

/// The wait of one answer does not count against the next.
#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_has_all_its_answers() {
    let mut peers = peers();
    let (mut slow, ours) = duplex(LESS_THAN_AN_ANSWER);
    assert!(peers.serve(ours, HERE));
    for _ in 0..5 {
        slow.write_all(LIVEZ.as_bytes()).await.expect("it reads");
        let mut answer: Vec<u8> = vec![];
        while !answer.ends_with(br#"{"status":"alive"}"#) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut piece = [0; 32];
            let count = slow.read(&mut piece).await.expect("it goes on");
            assert!(count > 0, "cut off after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..count]);
        }
        assert!(answer.len() > LESS_THAN_AN_ANSWER, "it had to wait");
    }
}

/// Whatever its peers do, the server finishes in time, and leaves no task of a peer behind.
#[tokio::test(start_paused = true)]
async fn it_finishes_in_time_whatever_its_peers_do() {
    let mut peers = peers();
    let mut held = vec![];
    for text in SILENT.into_iter().chain([BEGUN, LIVEZ]) {
        held.push(peer(&mut peers, text).await);
    }
    // Until all of them have come as far as they get.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(peers.count(), held.len());
    timeout(Duration::from_secs(5), peers.finish()).await.expect("in time");
}

/// A peer that stalls in its handshake holds a connection, but not for longer than others do.
#[tokio::test(start_paused = true)]
async fn a_handshake_counts_as_a_connection_and_is_cut() {
    for begun in ["", "\u{16}\u{3}\u{1}\u{2}\u{0}"] {
        let mut peers = peers_by(Some(acceptor()));
        let _silent = peer(&mut peers, begun).await;
        assert!(
            timeout(HANDSHAKE_WAIT - Duration::from_secs(1), peers.ended()).await.is_err(),
            "it has time"
        );
        assert_eq!(peers.count(), 1);
        assert_eq!(timeout(Duration::from_secs(2), peers.ended()).await, Ok(Some(())));
        assert_eq!(peers.count(), 0);
    }
}

/// The bug: an address could have as many handshakes as connections, so a peer without any right could hold all of
/// them.
#[tokio::test(start_paused = true)]
async fn one_address_has_few_handshakes_at_a_time() {
    let mut peers = peers_of(Some(acceptor()), 2 * HANDSHAKE_PART);
    let mut begin = |address: &str| {
        let (peer, ours) = duplex(64);
        let address = Address::Ip(address.parse().expect("an address"));
        peers.serve(ours, address).then_some(peer)
    };
    let held = [begin("10.0.0.1"), begin("10.0.0.1")];
    assert!(held.iter().all(Option::is_some) && begin("10.0.0.1").is_none());
    let _others = [begin("10.0.0.2").expect("room"), begin("10.0.0.3").expect("room")];
    sleep(HANDSHAKE_WAIT - Duration::from_secs(1)).await;
    assert!(begin("10.0.0.1").is_none(), "as long as they last");
    sleep(Duration::from_secs(2)).await;
    assert!(begin("10.0.0.1").is_some(), "no longer");
}

/// A stop does not wait for a handshake, which has asked for nothing.
#[tokio::test(start_paused = true)]
async fn a_handshake_does_not_hold_up_a_stop() {
    let mut peers = peers_by(Some(acceptor()));
    let _silent = peer(&mut peers, "").await;
    sleep(Duration::from_secs(1)).await;
    timeout(Duration::from_secs(1), peers.finish())
        .await
        .expect("long before those that were asked something");
}

/// A peer that speaks no TLS gets no answer, and is not kept waiting.
#[tokio::test]
async fn a_peer_that_speaks_no_tls_is_closed_at_once() {
    let mut peers = peers_by(Some(acceptor()));
    let answer = answer_to(peer(&mut peers, LIVEZ).await).await;
    assert!(!answer.contains("HTTP"), "{answer}");
    assert_eq!(timeout(HEAD_WAIT / 2, peers.ended()).await, Ok(Some(())));
}
