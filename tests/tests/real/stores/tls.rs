//! Each kind of server with TLS, and a certificate that no authority has signed.

use super::trouble::wait_for;
use super::{Store, cell, swap};
use lessor_allocator::cells::private::HeldPort;
use lessor_allocator::cells::{Cells, CellsConfig, CellsError, StoreKind, Swapped};
use scenarios::servers::Server;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Makes a self-signed certificate for loopback and its key, for the user that runs the server.
pub(super) fn certificate(folder: &Path) -> (String, String) {
    let paths = ["tls.crt", "tls.key"].map(|name| folder.join(name).display().to_string());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a store"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-out", &paths[0], "-keyout", &paths[1]])
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl is here").success());
    let owner = std::fs::metadata(folder).expect("the file is there");
    for path in &paths {
        chown(path, Some(owner.uid()), Some(owner.gid())).expect("the owner can be changed");
    }
    let [certificate, key] = paths;
    (certificate, key)
}

pub(super) fn config(store: &Store, url: String) -> CellsConfig {
    let config = store.config.clone().expect("a configuration");
    CellsConfig { url: url.parse().expect("a URL"), ..config }
}

/// A handle connects with the root that is named. With the roots of the machine, or to another name, it does not.
async fn only_who_is_vouched_for_is_talked_to(store: &Store, url: &str, option: char, root: &str) {
    let good = format!("{url}{option}sslrootcert={root}");
    let mut cells = Cells::connect(&config(store, good.clone())).await.expect("the certificate is trusted");
    let timeline = cells.timeline().await.expect("the store is there");
    let value = vec![7; 300_000];
    let made = cells.swap(&timeline, &[swap("a", None, Some(cell(1, &value)))]).await;
    assert_eq!(made, Ok(vec![Swapped::Done]));
    assert_eq!(cells.load(&["a".to_owned()]).await.expect("the store is there").1, [Some(cell(1, &value))]);
    let strange = Cells::connect(&config(store, url.to_owned())).await;
    let doubts = |error: &CellsError| error.to_string().contains("certificate");
    assert!(strange.as_ref().is_err_and(doubts), "{strange:?}");
    let other_name = Cells::connect(&config(store, good.replace("127.0.0.1", "localhost"))).await;
    assert!(other_name.as_ref().is_err_and(doubts), "{other_name:?}");
    let no_root = Cells::new(&config(store, format!("{url}{option}sslrootcert=/nowhere.pem")));
    assert!(
        matches!(&no_root, Err(CellsError::Invalid(text)) if text.contains("/nowhere.pem")),
        "{no_root:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_talked_to_if_its_certificate_is_good() {
    let server = Arc::new(Server::start(StoreKind::Redis, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let (certificate, key) = certificate(&server.folder());
    let port = server.address().port().to_string();
    let files = [("tls-cert-file", certificate.as_str()), ("tls-key-file", &key), ("tls-auth-clients", "no")];
    server.start_again(&[[("port", "0"), ("tls-port", &port)].as_slice(), &files].concat());
    let url = format!("rediss://:{}@{}", server.password(), server.address());
    only_who_is_vouched_for_is_talked_to(&store, &url, '?', &certificate).await;
    // Without TLS the server does not understand the client.
    let clear = Cells::connect(store.config.as_ref().expect("a configuration")).await;
    assert!(matches!(clear, Err(CellsError::Unreachable(_))), "{clear:?}");
}

/// Starts a cluster of one server with TLS, and returns its certificate. The port for other servers is held for as long
/// as the returned [`HeldPort`] is kept. If `clients` returns a file of authorities, clients must show a certificate.
pub(super) async fn cluster_with_tls(
    clients: impl FnOnce(&Path) -> Option<String>,
) -> (Store, Arc<Server>, String, HeldPort) {
    let held = HeldPort::any().expect("a free port");
    let bus = held.address().port().to_string();
    let cluster = [("cluster-enabled", "yes"), ("cluster-port", bus.as_str())];
    let server = Arc::new(Server::start(StoreKind::Redis, &cluster));
    assert_eq!(server.tell("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
    let store = Store::on(Arc::clone(&server)).await;
    let (certificate, key) = certificate(&server.folder());
    let clients = clients(&server.folder());
    let port = server.address().port().to_string();
    let with_tls = [
        ("port", "0"),
        ("tls-port", port.as_str()),
        ("tls-cluster", "yes"),
        ("tls-cert-file", certificate.as_str()),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", clients.as_ref().unwrap_or(&certificate)),
        ("tls-auth-clients", if clients.is_some() { "yes" } else { "no" }),
    ];
    server.start_again(&[cluster.as_slice(), &with_tls].concat());
    (store, server, certificate, held)
}

/// Servers tell on which port they have TLS. A server that does not know its own name is reached at the name in the
/// URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_talked_to_if_its_certificates_are_good() {
    let (store, server, certificate, _bus) = cluster_with_tls(|_| None).await;
    let url = format!("rediss://:{}@{}/?cluster=true", server.password(), server.address());
    let good = config(&store, format!("{url}&sslrootcert={certificate}"));
    let look = async || Cells::connect(&good).await.ok()?.load(&["a".to_owned()]).await.ok();
    wait_for(look, |_| true).await;
    only_who_is_vouched_for_is_talked_to(&store, &url, '&', &certificate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_talked_to_if_its_certificate_is_good() {
    let server = Arc::new(Server::start(StoreKind::Postgres, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let url = format!("postgres://lessor:{}@{}/lessor?sslmode=require", server.password(), server.address());
    let (certificate, key) = certificate(&server.folder());
    // A server without TLS is not talked to in clear instead.
    let clear = Cells::connect(&config(&store, format!("{url}&sslrootcert={certificate}"))).await;
    assert!(clear.as_ref().is_err_and(|error| error.to_string().contains("TLS")), "{clear:?}");
    server.start_again(&[("ssl", "on"), ("ssl_cert_file", &certificate), ("ssl_key_file", &key)]);
    only_who_is_vouched_for_is_talked_to(&store, &url, '&', &certificate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_talked_to_if_its_certificate_is_good() {
    let server = Arc::new(Server::start(StoreKind::Etcd, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let (certificate, key) = certificate(&server.folder());
    let client = format!("https://{}", server.address());
    let files = [("cert-file", certificate.as_str()), ("key-file", &key)];
    let urls = [("listen-client-urls", client.as_str()), ("advertise-client-urls", &client)];
    server.start_again(&[urls, files].concat());
    let url = format!("etcds://root:{}@{}", server.password(), server.address());
    only_who_is_vouched_for_is_talked_to(&store, &url, '?', &certificate).await;
    // Without TLS the server does not understand the client.
    let clear = Cells::connect(store.config.as_ref().expect("a configuration")).await;
    assert!(matches!(clear, Err(CellsError::Unreachable(_))), "{clear:?}");
}
