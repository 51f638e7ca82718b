//! SIGTERM ends the process in time, whatever its peers, its store and its upstream do.

use super::{CONFIG, ended, folder, pause, started};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns a listener that accepts connections and never answers.
fn silence() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the listener is bound").to_string();
    (listener, address)
}

/// Connects and sends `request`.
fn peer(address: &str, request: &str) -> TcpStream {
    let mut peer = TcpStream::connect(address).expect("the server listens");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    peer.set_write_timeout(Some(Duration::from_secs(1))).expect("a time");
    peer.write_all(request.as_bytes()).expect("the peer reads");
    peer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

fn ask(limit: &str) -> String {
    let ask = format!(r#"{{"limit":"{limit}","spent_total":0,"held":0,"want":1,"waiting":1}}"#);
    let body = format!(r#"{{"node":"n","session":1,"seq":1,"asks":[{ask}]}}"#);
    let head = "POST /v1/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Starts an allocator with `config`, lets `act` connect to it, and ends it while the result of `act` is held.
fn ends_in_time<T>(what: &str, config: &str, act: impl FnOnce(&str) -> T) {
    let (_folder, file) = folder(config);
    let (running, url) = started(&file, "error");
    let held = act(url.trim_start_matches("http://"));
    assert_eq!(ended(running), Some(0), "{what}");
    drop(held);
}

#[test]
fn an_open_stream_of_events_does_not_hold_up_the_end() {
    ends_in_time("a stream of events", CONFIG, |address| {
        let mut peer = peer(address, &get("/v1/events"));
        let mut head = [0; 15];
        peer.read_exact(&mut head).expect("the server answers");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        peer
    });
}

#[test]
fn a_peer_that_never_reads_does_not_hold_up_the_end() {
    let limit = |name: u64| CONFIG.replace("\"vendor\"", &format!("\"vendor-{name}\""));
    let many: String = (0..200).map(limit).collect();
    ends_in_time("a peer that never reads", &many, |address| {
        let request = get("/v1/limits").repeat(100);
        let mut peer = peer(address, &request);
        // Until the allocator reads no more, because its answers are not read.
        let mut sent = 1;
        while sent < 1_000 && peer.write_all(request.as_bytes()).is_ok() {
            sent += 1;
        }
        assert!(sent < 1_000, "the allocator was never held up: the test proves nothing");
        peer
    });
}

#[test]
fn a_store_that_never_answers_does_not_hold_up_the_end() {
    let urls = [("redis", "redis://HOST"), ("postgres", "postgres://u@HOST/d"), ("etcd", "etcd://HOST")];
    let ends = |kind: &str, url: &str| {
        let (silent, address) = silence();
        let url = url.replace("HOST", &address);
        let store = format!("[store]\nkind = {kind:?}\nurl = {url:?}\ntimeout = \"10s\"\n");
        ends_in_time(&format!("a dead {kind}"), &format!("{store}{CONFIG}"), |address| {
            let peer = peer(address, &ask("vendor"));
            // By then the allocator is in the middle of a call.
            pause(300);
            (peer, silent)
        });
    };
    std::thread::scope(|scope| {
        for (kind, url) in urls {
            scope.spawn(move || ends(kind, url));
        }
    });
}

#[test]
fn an_allocator_above_that_never_answers_does_not_hold_up_the_end() {
    let (silent, above) = silence();
    let limit = format!("[[limit]]\nname = \"far\"\nupstream = \"http://{above}\"\n");
    ends_in_time("a silent upstream", &format!("{CONFIG}{limit}"), |address| {
        let peer = peer(address, &ask("far"));
        pause(300);
        (peer, silent)
    });
}
