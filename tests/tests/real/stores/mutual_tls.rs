//! Each kind of server with TLS on both sides: it lets in only handles that show a certificate of an authority that it
//! trusts.

use super::tls::{certificate, cluster_with_tls, config};
use super::{Store, cell, swap};
use lessor_allocator::cells::{Cells, CellsError, StoreKind, Swapped};
use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
use scenarios::servers::Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// An authority that the server trusts, another one, and a folder for the files that a handle shows.
struct Authorities {
    folder: TempDir,
    believed: DevCa,
    foreign: DevCa,
}

impl Authorities {
    fn new() -> Self {
        let made = || DevCa::try_new().expect("random numbers");
        Authorities { folder: tempfile::tempdir().expect("a folder"), believed: made(), foreign: made() }
    }

    /// Signs a new certificate by `authority`, which replaces the one before. Returns its file and that of its key.
    fn shows(&self, authority: &DevCa) -> (PathBuf, PathBuf) {
        let signed = authority.sign(Purpose::Client, VALID).expect("random numbers");
        signed.write(self.folder.path(), "node").expect("written")
    }

    /// Writes a file into `folder` with the authority that the server trusts, and with `more`.
    fn file(&self, folder: &Path, more: &str) -> String {
        let file = folder.join("clients.crt");
        std::fs::write(&file, format!("{}{more}", self.believed.certificate())).expect("written");
        file.display().to_string()
    }
}

/// Whether the server refused the handle, with an error about certificates.
fn is_refused(outcome: &Result<impl Sized, CellsError>) -> bool {
    let words = ["certificate", "Certificate", "UnknownCA", "unknown certificate authority"];
    matches!(outcome, Err(CellsError::Unreachable(why)) if words.iter().any(|word| why.contains(word)))
}

/// A handle shows the certificate that is in its files when it connects. Without a good one it is told what is missing.
async fn only_a_good_certificate_is_let_in(store: &Store, url: &str, authorities: &Authorities) {
    let (certificate, key) = authorities.shows(&authorities.believed);
    let with_files = |certificate: &Path, key: &Path| {
        format!("{url}&sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    let good = with_files(&certificate, &key);
    let mut cells =
        Cells::connect(&config(store, good.clone())).await.expect("a good certificate is accepted");
    let timeline = cells.timeline().await.expect("the store is there");
    let made = cells.swap(&timeline, &[swap("a", None, Some(cell(1, b"7")))]).await;
    assert_eq!(made, Ok(vec![Swapped::Done]));

    let none = Cells::connect(&config(store, url.to_owned())).await;
    assert!(is_refused(&none), "{none:?}");

    // The next connection of the same handle shows the other certificate. Connections that exist go on.
    authorities.shows(&authorities.foreign);
    assert_eq!(cells.timeline().await, Ok(timeline.clone()));
    let mut next = cells.another();
    let foreign = next.timeline().await;
    assert!(is_refused(&foreign), "{foreign:?}");
    authorities.shows(&authorities.believed);
    assert_eq!(next.timeline().await, Ok(timeline.clone()));

    // If the files do not fit together, the earlier certificate stays in use.
    let before = std::fs::read(&key).expect("a readable file");
    std::fs::write(&key, "half of a s3cret").expect("written");
    assert_eq!(cells.another().timeline().await, Ok(timeline));

    // Where there is no earlier one, the error names the option and the file, and nothing of its content.
    let refused =
        |url: &str| Cells::new(&config(store, url.to_owned())).expect_err("no such files").to_string();
    let broken = refused(&good);
    assert!(
        broken.contains(&format!("sslkey: {}: ", key.display())) && !broken.contains("s3cret"),
        "{broken}"
    );
    std::fs::write(&key, before).expect("written");
    let nowhere = refused(&with_files(Path::new("/nowhere.crt"), &key));
    assert!(nowhere.contains("sslcert: /nowhere.crt: cannot be read"), "{nowhere}");
    let other = authorities.believed.sign(Purpose::Client, VALID).expect("random numbers");
    let (_, others_key) = other.write(authorities.folder.path(), "other").expect("written");
    let unfit = refused(&with_files(&certificate, &others_key));
    assert!(unfit.contains("sslkey: ") && unfit.contains("other.key is not the key of"), "{unfit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_lets_in_a_good_certificate_alone() {
    let server = Arc::new(Server::start(StoreKind::Redis, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let (certificate, key) = certificate(&server.folder());
    let authorities = Authorities::new();
    let clients = authorities.file(&server.folder(), "");
    let port = server.address().port().to_string();
    server.start_again(&[
        ("port", "0"),
        ("tls-port", &port),
        ("tls-cert-file", &certificate),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", &clients),
        ("tls-auth-clients", "yes"),
    ]);
    let url = format!("rediss://:{}@{}?sslrootcert={certificate}", server.password(), server.address());
    only_a_good_certificate_is_let_in(&store, &url, &authorities).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_lets_in_a_good_certificate_alone() {
    let authorities = Authorities::new();
    let clients = |folder: &Path| Some(authorities.file(folder, ""));
    let (store, server, certificate, _bus) = cluster_with_tls(clients).await;
    let address = server.address();
    let url = format!("rediss://:{}@{address}/?cluster=true&sslrootcert={certificate}", server.password());
    let (shown, its_key) = authorities.shows(&authorities.believed);
    let good = format!("{url}&sslcert={}&sslkey={}", shown.display(), its_key.display());
    let good = config(&store, good);
    let look = async || Cells::connect(&good).await.ok()?.load(&["a".to_owned()]).await.ok();
    super::trouble::wait_for(look, |_| true).await;
    only_a_good_certificate_is_let_in(&store, &url, &authorities).await;
}

/// The certificate takes the place of the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_lets_in_a_good_certificate_alone() {
    let server = Arc::new(Server::start(StoreKind::Postgres, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let folder = server.folder();
    let (certificate, key) = certificate(&folder);
    let authorities = Authorities::new();
    let clients = authorities.file(&folder, "");
    let (hosts, names) = (folder.join("hosts"), folder.join("names"));
    std::fs::write(&hosts, "hostssl all all 127.0.0.1/32 cert map=nodes\n").expect("written");
    // The common name of the certificates that are made here, and the user that they may be.
    std::fs::write(&names, "nodes node lessor\n").expect("written");
    let (hosts, names) = (hosts.display().to_string(), names.display().to_string());
    server.start_again(&[
        ("ssl", "on"),
        ("ssl_cert_file", &certificate),
        ("ssl_key_file", &key),
        ("ssl_ca_file", &clients),
        ("hba_file", &hosts),
        ("ident_file", &names),
    ]);
    let address = server.address();
    let url = format!("postgres://lessor@{address}/lessor?sslmode=verify-full&sslrootcert={certificate}");
    only_a_good_certificate_is_let_in(&store, &url, &authorities).await;
}

/// With authentication, etcd's gateway refuses certificates with a common name, such as those that are made here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_lets_in_a_good_certificate_alone() {
    let server = Arc::new(Server::start(StoreKind::Etcd, &[]));
    let store = Store::on(Arc::clone(&server)).await;
    let (certificate, key) = certificate(&server.folder());
    let authorities = Authorities::new();
    // The gateway shows the server's own certificate to the member.
    let own = std::fs::read_to_string(&certificate).expect("a readable file");
    let clients = authorities.file(&server.folder(), &own);
    let address = server.address();
    let client = format!("https://{address}");
    let with_tls = [
        ("listen-client-urls", client.as_str()),
        ("advertise-client-urls", &client),
        ("cert-file", &certificate),
        ("key-file", &key),
        ("trusted-ca-file", &clients),
        ("client-cert-auth", "true"),
    ];
    server.start_again(&with_tls);
    let (shown, its_key) = authorities.shows(&authorities.believed);
    let files = format!("sslrootcert={certificate}&sslcert={}&sslkey={}", shown.display(), its_key.display());
    let url = format!("etcds://root:{}@{address}?{files}", server.password());
    let named = Cells::connect(&config(&store, url)).await;
    assert!(
        matches!(&named, Err(CellsError::Unfit(why)) if why.contains("sslcert: the certificate has a common name")),
        "{named:?}"
    );
    server.start_again(&[]);
    server.tell("/v3/auth/disable {}");
    server.start_again(&with_tls);
    let url = format!("etcds://{address}?sslrootcert={certificate}");
    only_a_good_certificate_is_let_in(&store, &url, &authorities).await;
}
