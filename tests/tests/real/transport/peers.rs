//! Other peers that use the server slowly, endlessly, or without reading. Nodes are served all the while.

use super::*;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Peers of each other kind: enough to occupy every thread of a server that waits for any of them.
const CROWD: usize = 20;

/// Connections that send nothing.
const IDLE: usize = 200;

/// Pause between two bytes of a trickle, which is slow and no flood.
const TRICKLE: Duration = Duration::from_millis(10);

const HEAD: &str = "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";

async fn connect(allocator: &Allocator) -> TcpStream {
    TcpStream::connect(allocator.address).await.expect("the server listens")
}

/// Writes `piece` again and again, with `pause` in between, until the server accepts no more.
async fn trickle(mut stream: TcpStream, piece: Vec<u8>, pause: Duration) {
    while stream.write_all(&piece).await.is_ok() {
        sleep(pause).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_endless_and_deaf_peers_keep_no_node_from_a_permit() {
    let allocator = Allocator::start().await;
    let mut peers = JoinSet::new();
    let mut silent = vec![];
    for _ in 0..IDLE {
        silent.push(connect(&allocator).await);
    }
    for _ in 0..CROWD {
        // A head that comes a byte at a time, and never ends.
        let stream = connect(&allocator).await;
        peers.spawn(trickle(stream, b"a".to_vec(), TRICKLE));
        // A body that comes a byte at a time, and one that comes in large pieces: neither ends.
        for (piece, pause) in [(1, TRICKLE), (1 << 12, CALL_EVERY)] {
            let mut stream = connect(&allocator).await;
            stream
                .write_all(format!("{HEAD}transfer-encoding: chunked\r\n\r\n").as_bytes())
                .await
                .expect("the peer reads");
            let piece = format!("{piece:x}\r\n{}\r\n", " ".repeat(piece)).into_bytes();
            peers.spawn(trickle(stream, piece, pause));
        }
        // Requests without end, from a peer that does not read the answers.
        let asks = "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
        peers.spawn(trickle(connect(&allocator).await, asks.into_bytes(), CALL_EVERY));
    }
    let vendor = vendor();
    let node = Node::start(&allocator, "a", "vendor").await;
    let failed = node.client.stats().failed_exchanges;
    // One permit more than a window allows, so the node is served until the next window.
    for _ in 0..=LIMIT {
        node.recover(&vendor).await;
    }
    assert_eq!(node.client.stats().failed_exchanges, failed, "every exchange was answered in time");
    assert_eq!(vendor.breach(), None);
    node.client.shutdown().await;
    peers.shutdown().await;
    drop(silent);
    allocator.stop().await;
}
