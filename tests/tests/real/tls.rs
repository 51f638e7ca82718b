//! An allocator with TLS and throw-away certificates: which peers are let in, what is not understood, and certificates
//! that change while it serves.

mod admin;
pub(crate) mod desk;
mod document;
mod exposed;
mod nodes;
mod rotate;

use desk::{Desk, get, serve};
use lessor_tls::dev_ca::Purpose;
use lessor_tls::{HttpClient, Tls};
use scenarios::fleet::eventually;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any answer takes on a busy machine, and shorter than a handshake may take.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_peer_needs_a_certificate_of_the_authority_that_is_named() {
    let (desk, other) = (Desk::new(), Desk::new());
    let allocator = serve(&desk, true);
    let url = format!("{}/livez", allocator.url);
    assert!(url.starts_with("https://"), "{url}");
    assert_eq!(get(&desk.client(), &url).await, Ok(200));
    // A name that the certificate lacks is refused, even if it leads to the allocator.
    assert!(get(&desk.client(), &url.replace("127.0.0.1", "127.0.0.2")).await.is_err());
    let expired = desk.signed(Purpose::Client, Duration::ZERO, "expired");
    let server = desk.signed(Purpose::Server, SOON, "of-a-server");
    let trusts = |(certificate, key)| Tls::new().ca(desk.ca()).certificate(certificate, key);
    for (tls, said) in [
        (Tls::new().ca(desk.ca()), "CertificateRequired"),
        (trusts(other.files("client")), "UnknownCA"),
        (trusts(expired), "CertificateExpired"),
        (trusts(server), "alert"),
    ] {
        let client = HttpClient::try_new(SOON, Some(tls)).expect("good files");
        let error = get(&client, &url).await.expect_err("this client is refused");
        assert!(error.contains(said), "{said}: {error}");
    }
    // A client does not trust an authority that it was not given.
    let strange = HttpClient::try_new(SOON, Some(Tls::new().ca(other.ca()))).expect("good files");
    let error = get(&strange, &url).await.expect_err("the client does not trust the server");
    assert!(error.contains("invalid peer certificate"), "{error}");
    assert_eq!(get(&desk.client(), &url).await, Ok(200), "a client with a good certificate is served");
}

#[tokio::test]
async fn without_an_authority_of_clients_any_client_is_served() {
    let desk = Desk::new();
    let allocator = serve(&desk, false);
    let anyone = HttpClient::try_new(SOON, Some(Tls::new().ca(desk.ca()))).expect("good files");
    assert_eq!(get(&anyone, &format!("{}/readyz", allocator.url)).await, Ok(200));
}

/// One address begins handshakes and ends none. Its further connections are closed at once, and peers from another
/// address get in. A handshake that ends makes room for the next.
#[tokio::test]
async fn handshakes_that_never_end_keep_out_no_other_address() {
    let desk = Desk::new();
    let bounds = "[server]\nconnections_max = 12\nconnections_per_address_max = 8\n";
    let command = desk.command(false);
    let file = desk.file("lessor.toml");
    let config = std::fs::read_to_string(&file).expect("a readable file").replace("[server]\n", bounds);
    assert!(config.contains(bounds), "{config}");
    std::fs::write(&file, config).expect("a writable file");
    let allocator = desk::serve_by(&desk, command);
    let begin = async || {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("the address is of this machine");
        socket.connect(allocator.address().parse().expect("an address")).await.expect("the server listens")
    };
    let is_closed =
        async |peer: &mut TcpStream| timeout(Duration::from_millis(200), peer.read(&mut [0])).await.is_ok();
    let mut held = [begin().await, begin().await];
    for _ in 0..20 {
        assert!(is_closed(&mut begin().await).await, "a handshake beyond the bound is closed");
    }
    for peer in &mut held {
        assert!(!is_closed(peer).await, "a handshake within the bound goes on");
    }
    let url = format!("{}/livez", allocator.url);
    let clients: Vec<HttpClient> = (0..4).map(|_| desk.client()).collect();
    for client in &clients {
        assert_eq!(get(client, &url).await, Ok(200), "each client keeps its own connection");
    }
    let metrics =
        desk::text(&clients[0], &format!("{}/metrics", allocator.url)).await.expect("the allocator answers");
    assert!(metrics.contains("\nlessor_connections_refused_total 20\n"), "{metrics}");
    drop(held);
    eventually("a handshake is accepted again", async || {
        let mut peer = begin().await;
        (!is_closed(&mut peer).await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_no_tls_is_closed_and_not_answered() {
    let desk = Desk::new();
    let allocator = serve(&desk, true);
    for said in [
        "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}garbage\r\n\r\n",
    ] {
        let mut peer = TcpStream::connect(allocator.address()).await.expect("the server listens");
        peer.write_all(said.as_bytes()).await.expect("the peer reads");
        let mut answer = vec![];
        // An error means that the connection was reset.
        let _ = timeout(SOON, peer.read_to_end(&mut answer)).await.expect("the connection is closed in time");
        assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    }
    let plain = HttpClient::try_new(SOON, None).expect("no files");
    assert!(get(&plain, &format!("http://{}/livez", allocator.address())).await.is_err());
    assert_eq!(get(&desk.client(), &format!("{}/livez", allocator.url)).await, Ok(200));
}

/// The log names a broken file and nothing of its content, and the old certificate stays in force.
#[tokio::test]
async fn a_broken_new_certificate_keeps_the_old_one() {
    let desk = Desk::new();
    let allocator = serve(&desk, true);
    let shown = desk.shown_by(&allocator).await;
    let (certificate, key) = desk.files("server");
    for (file, text) in [
        (&certificate, "-----BEGIN CERTIFICATE-----\nMIIB"),
        (&key, "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"),
    ] {
        let good = std::fs::read(file).expect("a readable file");
        std::fs::write(file, text).expect("a writable file");
        let name = file.display().to_string();
        let line = eventually("the log names the file", async || desk.logged(&[&name, "are refused"])).await;
        assert!(!line.contains("c2VjcmV0") && !line.contains("MIIB"), "{line}");
        assert_eq!(desk.shown_by(&allocator).await, shown);
        std::fs::write(file, good).expect("a writable file");
    }
    let renewed = desk.renew();
    eventually("the new certificate is shown", async || {
        (desk.shown_by(&allocator).await == renewed).then_some(())
    })
    .await;
}

#[test]
fn a_key_that_all_can_read_is_a_warning_and_files_that_are_none_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::new();
    let (_, key) = desk.files("server");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644))
        .expect("the permissions can be set");
    drop(serve(&desk, true));
    let line = desk.logged(&["WARN", "can read the key"]).expect("the log warns");
    assert!(line.contains(&key.display().to_string()), "{line}");
    std::fs::write(&key, "").expect("a writable file");
    let output = desk.command(true).output().expect("the command runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("server.tls: ") && said.contains(&key.display().to_string()), "{said}");
}
