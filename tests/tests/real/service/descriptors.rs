//! Few descriptors, as a shell allows them: one address cannot take all of them.

use super::{CONFIG, folder};
use scenarios::process::{Running, lessor};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Descriptors that the allocator may have open.
const DESCRIPTORS: usize = 256;

/// How soon an address is answered that has no other connection.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Opens a connection to `address` from `own`, an address of this machine.
async fn connected(own: &str, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{own}:0").parse().expect("an address")).expect("the address is of this machine");
    socket.connect(address.parse().expect("an address")).await.expect("the server listens")
}

/// The bug: connections were bounded only by the configuration. One address opened as many as there were descriptors.
#[tokio::test]
async fn one_address_leaves_descriptors_for_another() {
    let (_folder, file) = folder(CONFIG);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")]).arg(lessor());
    command
        .args(["serve", "--fresh", "--listen", "127.0.0.1:0", "--log-level", "error", "--config"])
        .arg(file);
    let mut running = Running::start(&mut command);
    let url = running.listens();
    let address = url.trim_start_matches("http://");
    let mut held = vec![];
    for _ in 0..DESCRIPTORS + 50 {
        held.push(connected("127.0.0.1", address).await);
    }
    let answered = async {
        let mut other = connected("127.0.0.2", address).await;
        let ask = format!("GET /v1/status HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        other.write_all(ask.as_bytes()).await.expect("the peer reads");
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    let answer = tokio::time::timeout(ANSWERED_WITHIN, answered).await.expect("another address is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let warning = "this process may open 256 files, too few for server.connections_max (4096): at most 192 connections \
                   are open at once, 144 of one address";
    assert!(answer.contains(warning), "{answer}");
    drop(held);
    running.kill();
}
