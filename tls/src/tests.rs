//! Files that change, are broken, or are readable by others; failed handshakes; names of peers.

use crate::dev_ca::{CLIENT, DevCa, Purpose, VALID};
use crate::{Acceptor, HANDSHAKE_WAIT, HttpClient, ServerFiles, Tls};
use lessor_files::Look;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Makes a folder with an authority, a server's certificate and a client's.
fn desk() -> (TempDir, DevCa, ServerFiles) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = DevCa::open(folder.path()).expect("a folder to write in");
    let sign = |purpose, name| {
        ca.sign(purpose, VALID).expect("good").write(folder.path(), name).expect("a folder to write in")
    };
    let (certificate, key) = sign(Purpose::Server, "server");
    sign(Purpose::Client, "client");
    let files = ServerFiles { certificate, key, client_ca: Some(folder.path().join("ca.crt")) };
    (folder, ca, files)
}

fn renew(ca: &DevCa, files: &ServerFiles) {
    let signed = ca.sign(Purpose::Server, VALID).expect("good");
    signed.write(files.key.parent().expect("a folder"), "server").expect("a folder to write in");
}

#[test]
fn new_files_are_taken_over_once_they_go_together() {
    let (_folder, ca, files) = desk();
    let acceptor = Acceptor::load(&files).expect("good");
    assert_eq!(acceptor.look(), Look::Same);
    renew(&ca, &files);
    assert_eq!([(); 3].map(|()| acceptor.look()), [Look::Unfinished, Look::Taken, Look::Same]);
    // Files change one after the other. Halfway they do not fit together, which is not reported to operators.
    let signed = ca.sign(Purpose::Server, VALID).expect("good");
    fs::write(&files.certificate, &signed.certificate).expect("it is ours");
    assert_eq!(acceptor.look(), Look::Unfinished);
    fs::write(&files.key, &signed.key).expect("it is ours");
    assert_eq!((acceptor.look(), acceptor.look()), (Look::Unfinished, Look::Taken));
}

#[test]
fn broken_files_leave_the_old_ones_in_force_and_are_named() {
    let (_folder, ca, files) = desk();
    let acceptor = Acceptor::load(&files).expect("good");
    let broken: [(&Path, &str); 4] = [
        (&files.certificate, "-----BEGIN CERTIFICATE-----\nMIIB"),
        (&files.key, "no key"),
        (&files.key, "-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n"),
        (files.client_ca.as_ref().expect("it has one"), ""),
    ];
    for (file, text) in broken {
        let good = fs::read(file).expect("it is there");
        fs::write(file, text).expect("it is ours");
        assert_eq!(acceptor.look(), Look::Unfinished, "it may be half written");
        let (first, again) = (acceptor.look(), acceptor.look());
        let Look::Refused(problem) = &first else { panic!("{first:?}") };
        assert_eq!(first, again);
        let said = problem.to_string();
        assert!(said.contains(&file.display().to_string()) && !said.contains("secret"), "{said}");
        fs::write(file, good).expect("it is ours");
        assert_eq!((acceptor.look(), acceptor.look()), (Look::Unfinished, Look::Taken));
    }
    fs::remove_file(&files.key).expect("it is ours");
    assert_eq!(acceptor.look(), Look::Unfinished);
    assert!(matches!(acceptor.look(), Look::Refused(_)));
    renew(&ca, &files);
    assert_eq!((acceptor.look(), acceptor.look()), (Look::Unfinished, Look::Taken));
}

#[test]
fn what_cannot_be_used_at_the_start_is_named() {
    let (folder, ca, files) = desk();
    let loads = |files: &ServerFiles| Acceptor::load(files).map(|_| ()).map_err(|error| error.to_string());
    let nowhere = PathBuf::from("/nowhere/server.crt");
    let said = loads(&ServerFiles { certificate: nowhere, ..files.clone() }).expect_err("it is not there");
    assert!(said.starts_with("/nowhere/server.crt: cannot be read: "), "{said}");
    let said = loads(&ServerFiles { key: folder.path().to_owned(), ..files.clone() }).expect_err("a folder");
    assert!(said.contains("it is no regular file"), "{said}");
    let other = ca.sign(Purpose::Client, VALID).expect("good");
    let (_, key) = other.write(folder.path(), "other").expect("a folder to write in");
    let said = loads(&ServerFiles { key: key.clone(), ..files.clone() }).expect_err("of another");
    assert!(said.contains(&format!("{} is not the key of ", key.display())), "{said}");
    let tls = Tls::new().ca(folder.path().join("ca.crt")).certificate(&files.certificate, &key);
    let said = HttpClient::try_new(Duration::from_secs(1), Some(tls)).expect_err("of another").to_string();
    assert!(said.contains("is not the key of"), "{said}");
}

#[test]
fn keys_that_are_made_are_for_their_owner_alone() {
    let (folder, ..) = desk();
    for name in ["ca.key", "server.key", "client.key"] {
        let mode = fs::metadata(folder.path().join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let again = DevCa::open(folder.path()).expect("it is there");
    let signed = again.sign(Purpose::Server, VALID).expect("good");
    assert!(!format!("{signed:?}").contains(&signed.key));
}

/// The bug: an authority whose certificate was lost, or not yet written when its maker ended, never had one again.
#[test]
fn the_certificate_of_an_authority_is_written_again_if_it_is_missing() {
    let (folder, ..) = desk();
    let file = folder.path().join("ca.crt");
    fs::remove_file(&file).expect("it is there");
    let again = DevCa::open(folder.path()).expect("the key is there");
    assert_eq!(fs::read_to_string(&file).expect("it is there again"), again.certificate());
}

#[test]
fn a_peer_is_named_by_its_spiffe_id_or_else_its_host() {
    let (folder, ..) = desk();
    let name = |file: &str| {
        let certificate = CertificateDer::from_pem_file(folder.path().join(file)).expect("it is there");
        crate::PeerName::of(&certificate).map(|name| name.to_string())
    };
    assert_eq!(name("client.crt").as_deref(), Some(CLIENT));
    assert_eq!(name("server.crt").as_deref(), Some("localhost"));
    assert_eq!(name("ca.crt"), None);
}

#[test]
fn the_end_of_a_certificate_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = DevCa::try_new().expect("good");
    for end in [1_000_000_000, 2_000_000_000, 4_000_000_000] {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(end);
        let signed = ca.sign_until(Purpose::Client, end).expect("good");
        let (file, _) = signed.write(folder.path(), "client").expect("a folder to write in");
        let certificate = CertificateDer::from_pem_file(file).expect("it is there");
        assert_eq!(crate::validity::end(&certificate), Some(end));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_stalls_is_cut() {
    let (_folder, _, files) = desk();
    let acceptor = Acceptor::load(&files).expect("good");
    // The head of a record of 512 bytes, of which no more comes.
    for begun in ["", "\u{16}\u{3}\u{1}\u{2}\u{0}"] {
        let (mut peer, ours) = duplex(1 << 10);
        peer.write_all(begun.as_bytes()).await.expect("it is read");
        let second = Duration::from_secs(1);
        let mut handshake = std::pin::pin!(acceptor.accept(ours));
        assert!(timeout(HANDSHAKE_WAIT - second, &mut handshake).await.is_err(), "it has time");
        let cut = timeout(2 * second, handshake).await.expect("no more than that");
        assert_eq!(cut.expect_err("nothing more comes").kind(), std::io::ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn a_peer_that_speaks_no_tls_is_told_so_and_closed() {
    let (_folder, _, files) = desk();
    let acceptor = Acceptor::load(&files).expect("good");
    let (mut peer, ours) = duplex(1 << 10);
    peer.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("it is read");
    assert!(acceptor.accept(ours).await.is_err());
    let mut said = vec![];
    peer.read_to_end(&mut said).await.expect("it is closed");
    assert_eq!(said.first(), Some(&21), "an alert: {said:?}");
}

/// The bug: a library's error about unexpected bytes is of no help to an operator.
#[tokio::test]
async fn where_only_one_side_speaks_tls_that_is_said() {
    let (folder, _, _) = desk();
    let said = async |scheme: &str, answer: &'static [u8]| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let peer = tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.expect("a client");
            let asked = peer.read(&mut [0; 512]).await.expect("it asks");
            assert!(asked > 0);
            peer.write_all(answer).await.expect("it is read");
        });
        let patience = Duration::from_secs(10);
        let tls = Tls::new().ca(folder.path().join("ca.crt"));
        let client = HttpClient::try_new(patience, Some(tls)).expect("good");
        let request = http::Request::get(format!("{scheme}://{address}/readyz")).body(vec![]);
        let answer = client.send(request.expect("good"), patience).await;
        peer.await.expect("no panic");
        answer.map(|_| ()).expect_err("they do not understand each other").to_string()
    };
    let clear = said("https", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    assert!(clear.contains("may not speak TLS"), "{clear}");
    let encrypted = said("http", &[21, 3, 3, 0, 2, 2, 22]).await;
    assert!(encrypted.contains("may speak TLS"), "{encrypted}");
}
