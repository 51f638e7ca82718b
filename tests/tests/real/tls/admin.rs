//! Operators have an address of their own, which serves nothing to nodes. The address of nodes serves nothing to
//! operators.

use super::desk::{Desk, get};
use lessor::Client;
use lessor_tls::HttpClient;
use scenarios::process::{Running, lessor};
use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

const LIMIT: &str = "[store]\nkind = \"memory\"\n[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 9, per = \"1h\" }]\n";
const SOON: Duration = Duration::from_secs(5);

fn command(desk: &Desk, sections: &str) -> Command {
    let file = desk.file("lessor.toml");
    fs::write(&file, format!("{sections}\n{LIMIT}")).expect("a writable file");
    let mut command = Command::new(lessor());
    command.args(["serve", "--fresh", "--listen", "127.0.0.1:0", "--config"]).arg(file);
    command.stderr(File::create(desk.file("log")).expect("a writable file"));
    command
}

/// Starts an allocator, and returns it with its URLs for nodes and for operators.
fn serve(desk: &Desk, sections: &str) -> (Running, String, String) {
    let mut running = Running::start(&mut command(desk, sections));
    let mut url = |before: &str| {
        let line = running.line();
        line.strip_prefix(before).unwrap_or_else(|| panic!("the allocator said {line:?}")).to_owned()
    };
    let (nodes, admin) = (url("listening on "), url("listening for operators on "));
    (running, nodes, admin)
}

async fn post(client: &HttpClient, url: &str) -> u16 {
    let request = http::Request::post(url).header("content-type", "application/json").body(b"{}".to_vec());
    client.send(request.expect("a request"), SOON).await.expect("the server answers").status().as_u16()
}

#[tokio::test]
async fn nodes_find_what_they_lease_and_operators_all_else() {
    let desk = Desk::new();
    let client = HttpClient::try_new(SOON, None).expect("no files");
    for (more, of_nodes, of_admin) in [("", 404, 200), ("metrics = false", 200, 404)] {
        let (_running, nodes, admin) = serve(&desk, &format!("[admin]\nlisten = \"127.0.0.1:0\"\n{more}"));
        for path in ["/", "/page/main.js", "/v1/limits", "/v1/limits/a", "/v1/status", "/v1/events/recent"] {
            assert_eq!(get(&client, &format!("{nodes}{path}")).await, Ok(404), "{path}");
        }
        for path in
            ["/", "/v1/limits", "/v1/limits/a", "/v1/status", "/v1/events/recent", "/livez", "/readyz"]
        {
            assert_eq!(get(&client, &format!("{admin}{path}")).await, Ok(200), "{path}");
        }
        assert_eq!(get(&client, &format!("{nodes}/metrics")).await, Ok(of_nodes));
        assert_eq!(get(&client, &format!("{admin}/metrics")).await, Ok(of_admin));
        for path in ["/v1/leases", "/v1/nodes/a/leave"] {
            assert_eq!(post(&client, &format!("{admin}{path}")).await, 404, "{path}");
        }
        assert_eq!(post(&client, &format!("{nodes}/v1/limits/a/pause")).await, 404);
        assert_eq!(post(&client, &format!("{admin}/v1/limits/b/pause")).await, 404);
        assert_eq!(get(&client, &format!("{nodes}/readyz")).await, Ok(200));
        let lessor = Client::connect(&nodes).await.expect("the allocator answers");
        lessor.limit("a").acquire_within(1, SOON).await.expect("some permits are free");
        lessor.shutdown().await;
    }
}

/// All connections for nodes are taken, and operators still get in.
#[tokio::test]
async fn nodes_cannot_keep_operators_out() {
    let desk = Desk::new();
    let sections = "[server]\nconnections_max = 1\n[admin]\nlisten = \"127.0.0.1:0\"";
    let (_running, nodes, admin) = serve(&desk, sections);
    let mut taken =
        TcpStream::connect(nodes.trim_start_matches("http://")).await.expect("the server listens");
    let client = HttpClient::try_new(SOON, None).expect("no files");
    assert_eq!(get(&client, &format!("{admin}/v1/status")).await, Ok(200));
    let mut byte = [0];
    let quiet = tokio::time::timeout(Duration::from_millis(10), taken.read(&mut byte)).await;
    assert!(quiet.is_err(), "the connection of the node was closed");
}

#[test]
fn an_address_for_operators_is_no_more_open_than_one_for_nodes() {
    let desk = Desk::new();
    for (sections, said) in [
        ("[admin]\nlisten = \"0.0.0.0:0\"", "admin.listen is 0.0.0.0:0, which other machines reach"),
        ("[admin]\nlisten = \"127.0.0.1:7400\"", "admin.listen is 127.0.0.1:7400, as server.listen is"),
        ("[admin]\nlisten = \"7401\"", "admin.listen is \"7401\""),
        ("[admin]", "admin.listen is missing"),
    ] {
        let mut running = Running::start(&mut command(&desk, sections));
        assert_eq!(running.line(), "", "the allocator listens");
        assert_eq!(running.wait().code(), Some(2), "{sections}");
        assert!(desk.logged(&[said]).is_some(), "{said}");
    }
}

#[tokio::test]
async fn operators_have_certificates_of_their_own() {
    let (desk, other) = (Desk::new(), Desk::new());
    let tls = |desk: &Desk| {
        let (certificate, key) = desk.files("server");
        format!("tls = {{ certificate = {certificate:?}, key = {key:?}, client_ca = {:?} }}", desk.ca())
    };
    let sections = format!("[server]\n{}\n[admin]\nlisten = \"127.0.0.1:0\"\n{}", tls(&desk), tls(&other));
    let (_running, nodes, admin) = serve(&desk, &sections);
    assert!(nodes.starts_with("https://") && admin.starts_with("https://"));
    assert_eq!(get(&desk.client(), &format!("{nodes}/livez")).await, Ok(200));
    assert_eq!(get(&other.client(), &format!("{admin}/v1/status")).await, Ok(200));
    // A node's certificate is refused there, whichever authority the node trusts.
    let of_node = desk.client_of(other.ca());
    assert!(get(&of_node, &format!("{admin}/v1/status")).await.is_err());
}
