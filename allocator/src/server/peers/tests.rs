//! Peers that take their time, over pipes in memory. The clock of these tests runs ahead as soon as everybody
//! waits, so that nothing depends on how busy the machine is, and no wait takes its time.

use super::*;
use crate::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "sliding_window", limit = 1000, per = "30s" }]
"#;

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

/// The head of an exchange, and the first byte of 100 of its body.
const BEGUN: &str =
    "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";

/// What a peer may have said before it falls silent.
const SILENT: [&str; 4] = ["", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /livez HTTP/1.1\r\nhos"];

fn peers() -> Peers {
    Peers::new(&Arc::new(Shared::new(Config::parse(CONFIG).expect("valid"), true)))
}

/// A peer that has said `text`.
async fn peer(peers: &mut Peers, text: &str) -> DuplexStream {
    let (mut peer, ours) = duplex(1 << 16);
    peers.serve(ours);
    peer.write_all(text.as_bytes()).await.expect("there is room");
    peer
}

/// All that it still hears until it is cut off.
async fn heard(mut peer: DuplexStream) -> String {
    let mut bytes = vec![];
    peer.read_to_end(&mut bytes).await.expect("a clean end");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_answered_408() {
    let mut peers = peers();
    let answer = heard(peer(&mut peers, BEGUN).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_gets_to_a_request_is_cut_off() {
    for text in SILENT {
        let mut peers = peers();
        let silent = peer(&mut peers, text).await;
        let answer = timeout(HEAD_WAIT * 2, heard(silent)).await.expect("it is cut off");
        assert!(!answer.contains("200 OK"), "{answer}");
        peers.ended().await;
        assert_eq!(peers.count(), 0, "after {text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_a_while() {
    let mut peers = peers();
    let answer = timeout(HEAD_WAIT * 2, heard(peer(&mut peers, LIVEZ).await)).await.expect("it is closed");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// Whatever its peers hold on to, it finishes in time, and nobody's task is left.
#[tokio::test(start_paused = true)]
async fn it_finishes_in_time_whatever_its_peers_do() {
    let mut peers = peers();
    let mut held = vec![];
    for text in SILENT.into_iter().chain([BEGUN, LIVEZ]) {
        held.push(peer(&mut peers, text).await);
    }
    // Until all of them are where they stay.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(peers.count(), held.len());
    timeout(Duration::from_secs(5), peers.finish()).await.expect("in time");
}
