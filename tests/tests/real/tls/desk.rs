//! A folder with a throw-away authority, certificates signed by it, and an allocator that uses them.

use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
use lessor_tls::{HttpClient, Tls};
use scenarios::process::{Running, lessor};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The folder and its authority.
pub(crate) struct Desk {
    folder: TempDir,
    authority: DevCa,
}

/// An allocator that is killed when this value is dropped.
pub(crate) struct Allocator {
    pub(crate) running: Running,
    /// `https://127.0.0.1:…`, or `http://` without a certificate.
    pub(crate) url: String,
}

impl Allocator {
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
    }
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = DevCa::open(folder.path()).expect("a folder to write in");
        let desk = Desk { folder, authority };
        desk.signed(Purpose::Server, VALID, "server");
        desk.signed(Purpose::Client, VALID, "client");
        desk
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// Returns the paths of the certificate and the key with that name.
    pub(crate) fn files(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.file(&format!("{name}.crt")), self.file(&format!("{name}.key")))
    }

    /// Signs a new certificate with that name. If no time is `left`, it has expired already.
    pub(crate) fn signed(&self, purpose: Purpose, left: Duration, name: &str) -> (PathBuf, PathBuf) {
        let signed = match left.is_zero() {
            true => self.authority.sign_until(purpose, SystemTime::UNIX_EPOCH + VALID),
            false => self.authority.sign(purpose, left),
        };
        signed.expect("good").write(self.folder.path(), name).expect("a folder to write in")
    }

    /// Renews the server's certificate, and returns the new one as the server then shows it.
    pub(crate) fn renew(&self) -> Vec<u8> {
        let (certificate, _) = self.signed(Purpose::Server, VALID, "server");
        CertificateDer::from_pem_file(certificate).expect("a readable file").to_vec()
    }

    /// Returns a client with a good certificate, without a connection yet.
    pub(crate) fn client(&self) -> HttpClient {
        self.client_of(self.ca())
    }

    /// Returns such a client that trusts the authorities in `ca`.
    pub(crate) fn client_of(&self, ca: PathBuf) -> HttpClient {
        let (certificate, key) = self.files("client");
        let tls = Tls::new().ca(ca).certificate(certificate, key);
        HttpClient::try_new(PATIENCE, Some(tls)).expect("good files")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the configuration and returns the `lessor serve` command for it. Clients must have a certificate if
    /// `is_mutual`.
    pub(crate) fn command(&self, is_mutual: bool) -> Command {
        let limit = "[[limit]]\nname = \"vendor\"\n\
                     rules = [{ kind = \"sliding_window\", limit = 600, per = \"60s\", margin = \"0s\" }]\n";
        self.command_with(is_mutual, limit)
    }

    /// Returns the line of a configuration that sets the certificate of the server.
    pub(crate) fn setting(&self, is_mutual: bool) -> String {
        let (certificate, key) = self.files("server");
        let client_ca = if is_mutual { format!(", client_ca = {:?}", self.ca()) } else { String::new() };
        format!("tls = {{ certificate = {certificate:?}, key = {key:?}{client_ca} }}\n")
    }

    /// Returns the command for a configuration with other limits.
    pub(crate) fn command_with(&self, is_mutual: bool, limits: &str) -> Command {
        let config = format!("[server]\n{}[store]\nkind = \"memory\"\n{limits}", self.setting(is_mutual));
        fs::write(self.file("lessor.toml"), config).expect("a writable file");
        let mut command = Command::new(lessor());
        command
            .args(["serve", "--fresh", "--listen", "127.0.0.1:0", "--config"])
            .arg(self.file("lessor.toml"));
        command
    }

    /// Returns the first line of the log that has all these words.
    pub(crate) fn logged(&self, words: &[&str]) -> Option<String> {
        let log = fs::read_to_string(self.file("log")).expect("a readable file");
        log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
    }

    /// Returns the certificate that the allocator shows on a new connection.
    pub(crate) async fn shown_by(&self, allocator: &Allocator) -> Vec<u8> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca()).expect("a readable file")).expect("an authority");
        let (certificate, key) = self.files("client");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(certificate).expect("a readable file")],
                PrivateKeyDer::from_pem_file(key).expect("a readable file"),
            );
        let connector = TlsConnector::from(Arc::new(config.expect("certificate and key go together")));
        let stream = TcpStream::connect(allocator.address()).await.expect("the server listens");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let stream = connector.connect(name, stream).await.expect("the certificate is trusted");
        stream.get_ref().1.peer_certificates().expect("the server shows a certificate")[0].to_vec()
    }
}

/// Starts an allocator, which lets in only clients with a certificate if `is_mutual`.
pub(crate) fn serve(desk: &Desk, is_mutual: bool) -> Allocator {
    serve_by(desk, desk.command(is_mutual))
}

/// Starts an allocator by `command`.
pub(crate) fn serve_by(desk: &Desk, mut command: Command) -> Allocator {
    let log = File::create(desk.file("log")).expect("a writable file");
    let mut running = Running::start(command.stderr(log));
    let url = running.listens();
    Allocator { running, url }
}

/// Returns the status of `url`, or what went wrong.
pub(crate) async fn get(client: &HttpClient, url: &str) -> Result<u16, String> {
    let request = http::Request::get(url).body(vec![]).expect("a request");
    let mut answer = client.send(request, PATIENCE).await.map_err(|error| error.to_string())?;
    while answer.chunk().await.map_err(|error| error.to_string())?.is_some() {}
    Ok(answer.status().as_u16())
}

/// Returns the body of `url`, or what went wrong.
pub(crate) async fn text(client: &HttpClient, url: &str) -> Result<String, String> {
    let request = http::Request::get(url).body(vec![]).expect("a request");
    let mut answer = client.send(request, PATIENCE).await.map_err(|error| error.to_string())?;
    let mut read = vec![];
    while let Some(piece) = answer.chunk().await.map_err(|error| error.to_string())? {
        read.extend_from_slice(&piece);
    }
    String::from_utf8(read).map_err(|error| error.to_string())
}
