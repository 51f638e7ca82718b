//! DNS rebinding: a site lets its own name lead to an allocator and listens there. A browser then takes both for one
//! site, and over HTTP it does not mark what the page only reads. Nodes that reach the allocator by such a name can
//! listen all the same.

use lessor::Client;
use scenarios::fleet::eventually;
use scenarios::process::Allocator;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const CONFIG: &str = r#"
[store]
kind = "memory"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 600, per = "3s", margin = "50ms" }]
"#;

/// The host that a client sends to the forwarder, and the name of equal length that the allocator receives instead.
const ADDRESS: &[u8] = b"host: 127.0.0.1";
const NAME: &[u8] = b"host: a.example";

/// Starts a forwarder to the allocator that replaces the host by [`NAME`], and returns its address.
async fn forwarder(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("the listener is bound").to_string();
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            let allocator = TcpStream::connect(&to).await.expect("the server listens");
            let ((mut hears, mut says), (mut answers, mut asks)) =
                (peer.into_split(), allocator.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut says).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 64 << 10];
                loop {
                    let count = hears.read(&mut piece).await.unwrap_or(0);
                    if count == 0 {
                        return;
                    }
                    // A client writes each head in one piece.
                    let at = piece[..count].windows(ADDRESS.len()).position(|text| text == ADDRESS);
                    if let Some(at) = at {
                        piece[at..at + NAME.len()].copy_from_slice(NAME);
                    }
                    if asks.write_all(&piece[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Reads `path` as a page of a site at `address` would, with the header fields `more`. Returns the first line of the
/// answer.
async fn read_by_page(address: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.expect("the peer reads");
    let mut answer = vec![0; 4_096];
    let count = stream.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// The bug: such a site received the names of limits while operators changed them.
#[tokio::test]
async fn a_site_whose_name_leads_here_hears_nothing_and_a_node_does() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let named = forwarder(allocator.address().to_owned()).await;
    for path in ["/v1/events", "/v1/status", "/metrics", "/v1/limits/vendor"] {
        assert_eq!(read_by_page(&named, path, "").await, "HTTP/1.1 421 Misdirected Request", "{path}");
        let here = read_by_page(allocator.address(), path, "").await;
        assert_eq!(here, "HTTP/1.1 200 OK", "{path} at the allocator's own name");
    }
    assert_eq!(read_by_page(&named, "/readyz", "").await, "HTTP/1.1 200 OK");
    let client = Client::connect(&format!("http://{named}")).await.expect("the allocator answers");
    let limit = client.limit("vendor");
    limit.acquire_within(1, Duration::from_secs(5)).await.expect("the allocator lends");
    eventually("the client listens to events", async || (client.stats().listening > 0).then_some(())).await;
    client.shutdown().await;
}
