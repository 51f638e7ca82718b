//! An allocator on Unix sockets: nodes lease over one, and operators ask over another. The socket file of a dead
//! process is replaced, no other file is, and none is left at the end.

use lessor::Client;
use lessor_tls::HttpClient;
use rustix::process::Signal;
use scenarios::process::{Node, Running, lessor};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

const SPENDER: &str = env!("CARGO_BIN_EXE_spender");

const SOON: Duration = Duration::from_secs(5);

const LIMIT: &str = "[store]\nkind = \"memory\"\n[[limit]]\nname = \"vendor\"\nrules = [{ kind = \"fixed_window\", limit = 9, per = \"1h\" }]\n";

/// A folder for sockets.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Desk(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("unix:{}", self.file(name).display())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).expect("a readable file")
    }

    /// Returns `lessor serve` on `node.sock`, with `more` in `[server]` and `sections` before the limit.
    fn command(&self, more: &str, sections: &str) -> Command {
        let file = self.file("lessor.toml");
        let server = format!("[server]\nlisten = {:?}\n{more}", self.url("node.sock"));
        fs::write(&file, format!("{server}\n{sections}\n{LIMIT}")).expect("a writable file");
        let mut command = Command::new(lessor());
        command.args(["serve", "--fresh", "--config"]).arg(file);
        command.env_remove("LESSOR_LISTEN").stderr(File::create(self.file("log")).expect("a writable file"));
        command
    }

    fn serve(&self, more: &str, sections: &str) -> Running {
        let mut running = Running::start(&mut self.command(more, sections));
        assert_eq!(running.line(), format!("listening on {}", self.url("node.sock")), "{}", self.log());
        running
    }

    /// Starts an allocator that must fail. Returns its exit code and its log.
    fn refused(&self, command: &mut Command) -> (Option<i32>, String) {
        let mut running = Running::start(command);
        assert_eq!(running.line(), "", "the allocator listens");
        (running.wait().code(), self.log())
    }

    fn lessor(&self, args: &[&str]) -> Output {
        Command::new(lessor()).args(args).output().expect("the command runs")
    }
}

/// Returns the status of `path` over the socket.
async fn get(socket: &Path, path: &str) -> u16 {
    get_of(socket, "localhost", path).await
}

/// Returns the status of `path` for a request to `host`.
async fn get_of(socket: &Path, host: &str, path: &str) -> u16 {
    let client = HttpClient::over_unix(socket, SOON);
    let request = http::Request::get(format!("http://{host}{path}")).body(vec![]).expect("a request");
    client.send(request, SOON).await.expect("the server answers").status().as_u16()
}

/// Opens a connection that was answered once and stays open.
fn connected(socket: &Path) -> UnixStream {
    let mut peer = UnixStream::connect(socket).expect("the server listens");
    peer.set_read_timeout(Some(SOON)).expect("a time");
    peer.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the peer reads");
    let mut head = [0; 15];
    peer.read_exact(&mut head).expect("the allocator answers");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    peer
}

/// An allocator leases its limit over the socket of another one on this machine, and lends it on. Both keep one cap.
#[tokio::test]
async fn a_limit_is_leased_over_a_socket_and_lent_on() {
    let (centre, region) = (Desk::new(), Desk::new());
    let first = centre.serve("", "");
    let limit = format!("[[limit]]\nname = \"vendor\"\nupstream = {:?}\n", centre.url("node.sock"));
    let server = format!("[server]\nlisten = {:?}\nnode = \"region\"\n", region.url("node.sock"));
    let mut command = region.command("", "");
    fs::write(region.file("lessor.toml"), format!("{server}[store]\nkind = \"memory\"\n{limit}"))
        .expect("ours");
    let mut second = Running::start(&mut command);
    assert_eq!(second.line(), format!("listening on {}", region.url("node.sock")), "{}", region.log());
    let client = Client::connect(&region.url("node.sock")).await.expect("the allocator answers");
    for _ in 0..3 {
        client.limit("vendor").acquire_within(3, SOON).await.expect("nine permits are free");
    }
    let other = Client::connect(&centre.url("node.sock")).await.expect("the allocator answers");
    let more = other.limit("vendor").acquire_within(1, Duration::from_millis(500)).await;
    assert!(more.is_err(), "the nine permits are at the other allocator");
    client.shutdown().await;
    other.shutdown().await;
    let log = region.log();
    assert!(!log.contains("the exchange with the upstream failed"), "{log}");
    for running in [second, first] {
        running.signal(Signal::TERM);
        assert!(running.wait().success());
    }
}

#[tokio::test]
async fn nodes_lease_and_operators_decide_over_sockets_that_go_with_the_process() {
    let desk = Desk::new();
    let (node, admin, audit) = (desk.file("node.sock"), desk.file("admin.sock"), desk.file("audit.jsonl"));
    let sections = format!("[admin]\nlisten = {:?}\n[audit]\npath = {audit:?}", desk.url("admin.sock"));
    let mut running = desk.serve("", &sections);
    assert_eq!(running.line(), format!("listening for operators on {}", desk.url("admin.sock")));
    for file in [&node, &admin] {
        let found = file.symlink_metadata().expect("the file is there");
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o660);
    }
    let client = Client::connect(&desk.url("node.sock")).await.expect("the allocator answers");
    client.limit("vendor").acquire_within(3, SOON).await.expect("some permits are free");
    // Another process shares the limit with this one.
    let mut other = Node::start(SPENDER, &desk.url("node.sock"), "vendor", "other");
    assert_eq!(other.acquire(9, 500).len(), 6);
    let listed = desk.lessor(&["limits", "list", "--server", &desk.url("admin.sock")]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("vendor"), "{listed:?}");
    let status = desk.lessor(&["status", "--server", &desk.url("admin.sock")]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.status.success() && said.starts_with(&desk.url("admin.sock")), "{status:?}");
    assert!(!said.contains("warning"), "a warning, though only this machine reaches the socket: {said}");
    let paused = desk.lessor(&["limits", "pause", "vendor", "--server", &desk.url("admin.sock")]);
    assert!(paused.status.success(), "{paused:?}");
    let written: Value =
        serde_json::from_str(fs::read_to_string(&audit).expect("a readable file").trim()).expect("an entry");
    assert_eq!([&written["action"], &written["from"]], ["pause", "unix"]);
    // The two sockets are separate, as addresses are.
    assert_eq!((get(&admin, "/v1/limits").await, get(&node, "/v1/limits").await), (200, 404));
    assert_eq!(get(&admin, "/metrics").await, 200);
    // A proxy before the socket passes on the host that a browser sends.
    assert_eq!(get_of(&admin, "evil.example", "/v1/limits").await, 421);
    client.shutdown().await;
    running.signal(Signal::TERM);
    assert!(running.wait().success());
    let mut left: Vec<_> = fs::read_dir(desk.0.path())
        .expect("the folder can be read")
        .flatten()
        .map(|file| file.file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["audit.jsonl", "lessor.toml", "log"]);
    let gone = desk.lessor(&["status", "--server", &desk.url("admin.sock")]);
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.status.code() == Some(1) && said.contains(&desk.url("admin.sock")), "{said}");
}

#[tokio::test]
async fn the_socket_of_a_process_that_was_killed_is_replaced_and_that_of_a_live_one_is_not() {
    let desk = Desk::new();
    let socket = desk.file("node.sock");
    desk.serve("", "").kill();
    assert!(socket.symlink_metadata().is_ok(), "a killed process leaves its socket behind");
    let running = desk.serve("", "");
    assert_eq!(get(&socket, "/readyz").await, 200);
    let (code, said) = desk.refused(&mut desk.command("", ""));
    assert!(code == Some(1) && said.contains("node.sock: another process listens there"), "{code:?} {said}");
    assert_eq!(get(&socket, "/readyz").await, 200, "the first allocator goes on");
    drop(running);
}

/// On an address, one peer may have three quarters of all connections. All peers of a socket count as one address and
/// may have all connections.
#[test]
fn peers_of_a_socket_have_all_connections() {
    let desk = Desk::new();
    let _running = desk.serve("connections_max = 4", "");
    let held: Vec<UnixStream> = (0..4).map(|_| connected(&desk.file("node.sock"))).collect();
    let mut fifth = UnixStream::connect(desk.file("node.sock")).expect("the socket takes the connection");
    fifth.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
    fifth.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the socket takes the request");
    let early = fifth.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "the connection waits and is not closed");
    drop(held);
    fifth.set_read_timeout(Some(SOON)).expect("a time");
    assert_eq!(fifth.read(&mut [0]).expect("the allocator answers"), 1);
}

#[test]
fn a_socket_with_certificates_and_a_path_that_is_none_are_refused() {
    let desk = Desk::new();
    let tls = "tls = { certificate = \"a\", key = \"b\" }";
    let (code, said) = desk.refused(&mut desk.command(tls, ""));
    assert!(code == Some(2) && said.contains("a Unix socket is not encrypted"), "{code:?} {said}");
    for (args, names) in [
        (
            ["status", "--server", "unix:a.sock"],
            "--server is \\\"unix:a.sock\\\": the path of a Unix socket begins with /",
        ),
        (["serve", "--config=a.toml", "--listen=unix:a.sock"], "the path of a Unix socket begins with /"),
    ] {
        let output = desk.lessor(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(&names.replace("\\\"", "\"")), "{said}");
    }
}
