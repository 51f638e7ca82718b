//! Attacks on a server that requires identities: tokens where none belong, routes that must not exist, and bytes that
//! could be read in two ways. The list in docs/attacks.md names a test for each of its rows.

use super::desk::{Allocator, Desk, Way, ask};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const LIST: &str = include_str!("../../../../docs/attacks.md");

/// Attacks in the list, which are numbered from 1.
const ATTACKS: u32 = 100;

#[tokio::test]
async fn a_token_in_a_url_is_no_token_and_is_not_logged() {
    let desk = Desk::new(Way::Plain);
    let token = desk.token("reader");
    let allocator = desk.serve();
    let http = desk.http(None);
    for query in ["token", "access_token", "authorization"] {
        for path in ["/v1/limits", "/v1/whoami", "/v1/limits/vendor"] {
            let url = format!("{}{path}?{query}={token}", allocator.url);
            assert_eq!(ask(&http, "GET", &url, "").await.status, 401, "{url}");
        }
    }
    let log = std::fs::read_to_string(desk.file("log")).expect("a readable file");
    let secret = token.rsplit_once('_').expect("a secret").1;
    assert!(!log.contains(secret), "{log}");
}

#[tokio::test]
async fn no_route_is_for_debugging() {
    let desk = Desk::new(Way::Plain);
    let token = desk.token("admin");
    let allocator = desk.serve();
    let http = desk.http(Some(&token));
    for path in
        ["/debug", "/debug/pprof/", "/env", "/actuator", "/trace", "/v1/debug", "/console", "/v1/tokens"]
    {
        assert_eq!(ask(&http, "GET", &format!("{}{path}", allocator.url), "").await.status, 404, "{path}");
    }
}

/// Sends these bytes and returns the answer, up to the end of the connection.
fn answered(allocator: &Allocator, bytes: &str) -> String {
    let address = allocator.url.trim_start_matches("http://");
    let mut peer = TcpStream::connect(address).expect("the server listens");
    peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    peer.write_all(bytes.as_bytes()).expect("the peer reads");
    let mut answer = vec![];
    // An error means that the connection was reset. A connection that stays open fails the test: none of these bytes
    // may cause that.
    if let Err(error) = peer.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{bytes}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// A second request is hidden in what a proxy takes for the body of the first one. The server must answer no such
/// request with success.
#[test]
fn what_could_be_read_as_two_requests_is_read_as_none() {
    let desk = Desk::new(Way::Plain);
    let allocator = desk.serve();
    let hidden = "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n";
    let head = "POST /v1/leases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    for (name, bytes) in [
        (
            "two lengths",
            format!("{head}content-length: 5\r\ncontent-length: {}\r\n\r\n12345{hidden}", 5 + hidden.len()),
        ),
        ("a list of lengths", format!("{head}content-length: 5, 40\r\n\r\n12345{hidden}")),
        ("a length that is none", format!("{head}content-length: +5\r\n\r\n12345{hidden}")),
        ("a strange encoding", format!("{head}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}")),
        (
            "chunks that are not the last",
            format!("{head}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        ("a chunk of no size", format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{hidden}")),
        (
            "a folded field",
            format!("{head}x-a: b\r\n transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n{hidden}"),
        ),
        ("a blank before the colon", format!("{head}content-length : 5\r\n\r\n12345{hidden}")),
    ] {
        let answer = answered(&allocator, &bytes);
        let answers = answer.matches("HTTP/1.1 ").count();
        assert!(answers <= 1 && !answer.contains("HTTP/1.1 2"), "{name}: {answer}");
    }
    // With a length beside chunks, the chunks count. Either nothing follows on this connection, or both readers see the
    // second request.
    let both = format!("{head}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}");
    let answer = answered(&allocator, &both);
    assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
    let good = answered(&allocator, "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(good.starts_with("HTTP/1.1 200"), "the allocator still answers: {good}");
}

/// Appends the sources of all crates below `folder` to `all`.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !["target", ".git"].iter().any(|other| name == *other) {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn each_attack_of_the_list_has_an_answer_and_its_tests_exist() {
    let mut all = String::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut all);
    let (mut numbers, mut tests) = (vec![], 0);
    for row in LIST.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [number, attack, answer, named] = cells[..] else { panic!("other cells: {row}") };
        numbers.extend(number.split(", ").map(|number| number.parse::<u32>().expect(row)));
        assert!(!attack.is_empty() && !answer.is_empty(), "{row}");
        for name in named.split('`').skip(1).step_by(2).filter(|name| name.contains('_')) {
            assert!(all.contains(&format!("fn {name}(")), "there is no test {name}");
            tests += 1;
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=ATTACKS).collect::<Vec<_>>());
    assert!(tests >= 70, "{tests}");
}
