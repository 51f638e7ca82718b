//! Peers over HTTP/2 that ask for much at once and take nothing of it. Their frames are written by hand, as no client
//! would.

use super::*;
use axum::body::{Body, HttpBody};
use axum::http::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::Pin;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// The setting of a window in which no byte of an answer may come.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

/// More than a busy connection may take to end, and less than a silent one is given.
const SOON: Duration = Duration::from_secs(15);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A GET of `path`: method, scheme, authority and path, in numbers of the static table and literals.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).expect("short")];
    block.extend(path.bytes());
    frame(HEADERS, 5, stream, &block)
}

/// Connects a peer that sends `frames` first, and discards what it receives.
async fn peer_over_2(peers: &mut Peers, frames: &[Vec<u8>]) -> tokio::io::WriteHalf<DuplexStream> {
    let (peer, ours) = duplex(1 << 16);
    assert!(peers.serve(ours, HERE));
    let (mut listens, mut speaks) = tokio::io::split(peer);
    tokio::spawn(async move { tokio::io::copy(&mut listens, &mut tokio::io::sink()).await });
    speaks.write_all(PREFACE).await.expect("it reads");
    for frame in frames {
        speaks.write_all(frame).await.expect("it reads");
    }
    speaks
}

/// The bug: answers for which the peer allows no byte were kept for as long as it answered pings, 14 MB for each
/// connection.
#[tokio::test(start_paused = true)]
async fn a_peer_over_http_2_that_takes_no_answer_is_cut_off() {
    for path in ["/metrics", "/livez", "/v1/events"] {
        let mut peers = peers();
        let settings = frame(SETTINGS, 0, 0, &NO_WINDOW);
        let asks = (0..STREAMS_MAX).map(|ask| get(2 * ask + 1, path));
        let frames: Vec<Vec<u8>> = [settings].into_iter().chain(asks).collect();
        let _peer = peer_over_2(&mut peers, &frames).await;
        assert_eq!(timeout(SOON, peers.ended()).await, Ok(Some(())), "{path}");
    }
}

/// A window of one byte now and then is no better than none.
#[tokio::test(start_paused = true)]
async fn a_peer_over_http_2_that_takes_its_answer_byte_by_byte_is_cut_off() {
    let mut peers = peers();
    let frames = [frame(SETTINGS, 0, 0, &NO_WINDOW), get(1, "/metrics")];
    let mut peer = peer_over_2(&mut peers, &frames).await;
    tokio::spawn(async move {
        while peer.write_all(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(timeout(SOON, peers.ended()).await, Ok(Some(())));
}

/// The bug: each such frame costs the server work, and all that came were read, at a core for each connection.
#[tokio::test(start_paused = true)]
async fn a_flood_of_frames_that_ask_for_nothing_ends_its_connection() {
    let settings = [0, 3, 0, 0, 0, 100];
    for (kind, stream, payload) in [
        (PING, 0, &[0; 8][..]),
        (SETTINGS, 0, &settings[..]),
        (PRIORITY, 3, &[0, 0, 0, 0, 1]),
        (WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        (99, 0, b"unknown"),
    ] {
        let mut peers = peers();
        let mut peer = peer_over_2(&mut peers, &[frame(SETTINGS, 0, 0, &[]), get(1, "/livez")]).await;
        let flood = frame(kind, 0, stream, payload);
        let mut sent = 0;
        while sent < 20_000 && peer.write_all(&flood).await.is_ok() {
            sent += 1;
        }
        assert!(sent < 20_000, "type {kind}: {sent} frames were read");
        assert_eq!(timeout(SOON, peers.ended()).await, Ok(Some(())), "type {kind}");
    }
    // An endless body with one byte in each frame.
    let mut peers = peers();
    let mut peer = peer_over_2(&mut peers, &[frame(SETTINGS, 0, 0, &[])]).await;
    let mut post = get(1, "/v1/leases");
    (post[4], post[9]) = (4, 0x83);
    peer.write_all(&post).await.expect("it reads");
    let mut sent = 0;
    while sent < 20_000 && peer.write_all(&frame(DATA, 0, 1, b" ")).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 20_000, "{sent} bytes were read");
}

/// Connects an ordinary client.
async fn client(peers: &mut Peers) -> SendRequest<Body> {
    let (peer, ours) = duplex(1 << 16);
    assert!(peers.serve(ours, HERE));
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(peer)).await.expect("HTTP/2");
    tokio::spawn(connection);
    client
}

async fn asks(client: &mut SendRequest<Body>, path: &str) -> hyper::Result<usize> {
    let request = Request::get(format!("http://a{path}")).body(Body::empty()).expect("a request");
    let mut body = client.send_request(request).await?.into_body();
    let mut bytes = 0;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    Ok(bytes)
}

/// A client that asks as fast as it is answered, and takes all of it, hits no bound.
#[tokio::test(start_paused = true)]
async fn a_client_over_http_2_that_takes_its_answers_has_as_many_as_it_likes() {
    let mut peers = peers();
    let mut client = client(&mut peers).await;
    for ask in 0..3_000 {
        assert!(asks(&mut client, "/livez").await.expect("it goes on") > 0, "{ask}");
        if ask % 10 == 0 {
            assert!(asks(&mut client, "/metrics").await.expect("it goes on") > 4_096, "{ask}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_http_2_ends_when_it_was_idle() {
    let mut peers = peers();
    let mut idle = client(&mut peers).await;
    for _ in 0..3 {
        assert!(asks(&mut idle, "/livez").await.is_ok());
        let early = timeout(Duration::from_secs(50), peers.ended()).await;
        assert!(early.is_err(), "it has time");
    }
    assert_eq!(timeout(Duration::from_secs(20), peers.ended()).await, Ok(Some(())));
}

/// A listener is never idle.
#[tokio::test(start_paused = true)]
async fn no_stream_of_events_and_no_connection_over_http_2_lasts_for_ever() {
    let mut peers = peers();
    let mut listener = client(&mut peers).await;
    let listening = timeout(Duration::from_secs(3_700), asks(&mut listener, "/v1/events")).await;
    assert!(listening.expect("it ends").expect("as it should") > 100, "it was told that it is heard");
    let mut busy = client(&mut peers).await;
    let asking = async {
        while asks(&mut busy, "/livez").await.is_ok() {
            sleep(Duration::from_secs(30)).await;
        }
    };
    timeout(Duration::from_secs(3_700), asking).await.expect("it is asked to end");
}
