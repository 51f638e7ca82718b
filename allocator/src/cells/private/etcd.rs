//! Starts private members of an etcd, which know each other and require a password.

use super::{HeldPort, Setting, find};
use serde_json::{Value, json};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Line of output that says that it is ready.
pub(super) const READY: &str = "serving client traffic";

/// The administrator.
pub(super) const ROOT: &str = "root";

/// Time-out of an answer, which may have to wait for a leader.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A variable that lets etcd run on processors that its makers do not test. etcd takes all of its other variables for
/// settings, and does not start if a setting is there twice.
const ARCHITECTURE: &str = "ETCD_UNSUPPORTED_ARCH";

/// Own settings. Passwords are cheap to check, because only loopback can connect.
const SETTINGS: [Setting; 3] = [("logger", "zap"), ("log-level", "info"), ("bcrypt-cost", "4")];

/// A member of a cluster.
pub(super) struct Member {
    name: String,
    /// Its address for other members.
    peer: HeldPort,
    /// All members with their addresses.
    cluster: String,
}

/// Makes `count` members of one cluster.
pub(super) fn members(count: usize) -> io::Result<Vec<Member>> {
    let peers = (0..count).map(|_| HeldPort::any()).collect::<io::Result<Vec<_>>>()?;
    let name = |at: usize| format!("member-{at}");
    let all = peers.iter().enumerate().map(|(at, peer)| format!("{}=http://{}", name(at), peer.address()));
    let cluster = all.collect::<Vec<_>>().join(",");
    let member = |(at, peer)| Member { name: name(at), peer, cluster: cluster.clone() };
    Ok(peers.into_iter().enumerate().map(member).collect())
}

pub(super) fn command(
    folder: &Path,
    member: &Member,
    address: SocketAddr,
    settings: &[Setting],
) -> io::Result<Command> {
    let program = find::on_path("etcd")
        .ok_or_else(|| io::Error::other("there is no etcd here: install it (Debian: etcd-server)"))?;
    std::fs::create_dir_all(folder)?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("ETCD_") && name != ARCHITECTURE) {
            command.env_remove(name);
        }
    }
    let (client, peer) = (format!("http://{address}"), format!("http://{}", member.peer.address()));
    let own = [
        ("name", member.name.as_str()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &member.cluster),
    ];
    command.current_dir(folder).arg("--data-dir").arg(folder.join("data"));
    for (name, value) in own.into_iter().chain(SETTINGS).chain(settings.iter().copied()) {
        command.arg(format!("--{name}={value}"));
    }
    Ok(command)
}

/// Requires this password from now on, at all members.
pub(super) fn secure(address: SocketAddr, password: &str) -> io::Result<()> {
    for (path, body) in [
        ("/v3/auth/user/add", json!({ "name": ROOT, "password": password })),
        ("/v3/auth/user/grant", json!({ "user": ROOT, "role": ROOT })),
        ("/v3/auth/enable", json!({})),
    ] {
        post(address, path, None, &body.to_string())?;
    }
    Ok(())
}

/// Sends a request as the administrator.
pub(super) fn tell(address: SocketAddr, password: &str, path: &str, body: &str) -> io::Result<String> {
    let who = json!({ "name": ROOT, "password": password }).to_string();
    let let_in: Value = serde_json::from_str(&post(address, "/v3/auth/authenticate", None, &who)?)?;
    post(address, path, let_in["token"].as_str(), body)
}

/// Sends one request, and returns the answer.
pub(super) fn post(address: SocketAddr, path: &str, token: Option<&str>, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: {token}\r\n"));
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {address}\r\n{token}Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        Some((_, body)) => Err(io::Error::other(format!("{path}: {}", body.trim()))),
        None => Err(io::Error::other(format!("{path}: no answer"))),
    }
}
