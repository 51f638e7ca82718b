//! Renews the certificates and the token of a demo all along, as `docs/access.md` and `docs/security.md` say: new ones
//! are in force before old ones are taken away. The nodes go on meanwhile, and after each rotation one more client
//! connects with the new ones.

use super::books::Books;
use super::line::{Proof, Tally};
use crate::failure::Failure;
use crate::token::{self, Kept};
use http::{Request, StatusCode};
use lessor::Client;
use lessor_access::{NewToken, TokenId};
use lessor_tls::dev_ca::{CLIENT, DevCa, Purpose, VALID};
use lessor_tls::{HttpClient, TlsError, Token};
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::{NamedTempFile, TempDir};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Shortest time between two rotations: an allocator takes over a new file within 0.1 s, or a few tenths on a busy
/// machine.
pub(crate) const EVERY_MIN: Duration = Duration::from_millis(500);

/// The identity that the tokens prove.
const NAME: &str = "demo";

/// Interval at which the allocator is asked whether it knows a new token, and longest time until it does.
const ASK_EVERY: Duration = Duration::from_millis(20);
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Longest time that an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The files with which the allocator of a demo and its nodes prove their identities, in a folder that goes with this
/// value.
pub(crate) struct Credentials {
    folder: TempDir,
    ca: DevCa,
    first: TokenId,
}

/// The results of the rotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rotated {
    /// Number of times that everything was renewed and the old token revoked.
    pub(crate) rotations: u64,
    /// Clients that connected with the new files, one after each rotation, and how many of them failed.
    pub(crate) new_clients: u64,
    pub(crate) new_clients_failed: u64,
    /// Requests of nodes with a revoked token. Each was sent once more, with the new one.
    pub(crate) tokens_refused: u64,
    /// Exchanges of nodes that failed.
    pub(crate) exchanges_failed: u64,
    /// Calls that nodes refused for another reason than the contract.
    pub(crate) calls_refused: u64,
}

impl Credentials {
    /// Makes an authority, certificates signed by it, and a token.
    pub(crate) fn make() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("lessor-demo-").tempdir();
        let folder = folder
            .map_err(|error| Failure::Run(format!("cannot make a folder for certificates: {error}")))?;
        let ca = DevCa::open(folder.path()).map_err(|error| unmade(&error))?;
        let made = renew(folder.path(), &ca)?;
        give(&folder.path().join(TOKEN), &made)?;
        Ok(Credentials { folder, ca, first: made.id })
    }

    /// Returns `config` for an allocator that asks for these credentials.
    pub(crate) fn config(&self, config: &str) -> Result<String, Failure> {
        asking(config, self.folder.path())
    }

    /// Returns the files with which a node proves its identity.
    pub(crate) fn proof(&self) -> Proof {
        let file = |name: &str| self.folder.path().join(name);
        Proof {
            ca: file("ca.crt"),
            certificate: file("client.crt"),
            key: file("client.key"),
            token: file(TOKEN),
        }
    }
}

/// The file with the token of the nodes.
const TOKEN: &str = "node.token";

/// The file with the tokens that the allocator knows.
const TOKENS: &str = "tokens.toml";

/// Returns `config` for an allocator that asks for the certificates and the token in `folder`. Certificates may read
/// its books.
pub(crate) fn asking(config: &str, folder: &Path) -> Result<String, Failure> {
    let file = |name: &str| {
        let file = folder.join(name);
        let named = file.to_str().map(|file| toml::Value::from(file).to_string());
        named.ok_or_else(|| Failure::Run(format!("a configuration cannot name {}", file.display())))
    };
    Ok(format!(
        "[server]\ntls = {{ certificate = {}, key = {}, client_ca = {} }}\n\n[auth]\ntokens = {}\n\n\
         [[role]]\nname = \"nodes\"\nidentities = [\"token:{NAME}\"]\nlease = [\"*\"]\nas = [\"demo-*\"]\n\n\
         [[role]]\nname = \"books\"\nidentities = [\"certificate:{CLIENT}\"]\nread = [\"*\"]\nmetrics = true\n\n{config}",
        file("server.crt")?,
        file("server.key")?,
        file("ca.crt")?,
        file(TOKENS)?,
    ))
}

/// A running rotation, until it is told to end.
#[derive(Debug)]
pub(crate) struct Rotation {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<Rotated, Failure>>,
}

impl Rotation {
    /// Renews `credentials`, which the allocator of `books` asks for, at the interval `every`.
    pub(crate) fn begin(credentials: Arc<Credentials>, books: Books, every: Duration) -> Self {
        let (end, ended) = oneshot::channel();
        Rotation { end, task: tokio::spawn(work(credentials, books, every, ended)) }
    }

    /// Ends after the rotation that is going on.
    ///
    /// # Errors
    /// If a file could not be renewed.
    pub(crate) async fn end(self) -> Result<Rotated, Failure> {
        // A task that is over receives nothing.
        let _ = self.end.send(());
        self.task.await.unwrap_or_else(|error| Err(Failure::Run(format!("the rotation failed: {error}"))))
    }
}

impl Rotated {
    /// Adds the counts of the nodes.
    pub(crate) fn with(self, tally: &Tally) -> Self {
        Rotated { exchanges_failed: tally.failed_exchanges, calls_refused: tally.unlent, ..self }
    }
}

async fn work(
    credentials: Arc<Credentials>,
    books: Books,
    every: Duration,
    mut ended: oneshot::Receiver<()>,
) -> Result<Rotated, Failure> {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate.
    ticks.tick().await;
    let (mut rotated, mut old, mut refused_here) = (Rotated::default(), credentials.first.clone(), 0);
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => break,
            _ = ticks.tick() => {}
        }
        let made = apart({
            let credentials = credentials.clone();
            move || renew(credentials.folder.path(), &credentials.ca)
        });
        let made = made.await?;
        refused_here += known(&credentials, books.url(), &made).await?;
        let next = made.id.clone();
        let replaced = apart({
            let credentials = credentials.clone();
            move || {
                give(&credentials.folder.path().join(TOKEN), &made)?;
                token::revoke(&tokens(credentials.folder.path()), &old)
            }
        });
        replaced.await?;
        (old, rotated.rotations) = (next, rotated.rotations + 1);
        rotated.new_clients += 1;
        if let Err(problem) = connect(&credentials.proof(), books.url()).await {
            rotated.new_clients_failed += 1;
            tracing::warn!(%problem, "a client could not connect with the new certificates and token");
        }
    }
    rotated.tokens_refused = books.unauthenticated().await?.saturating_sub(refused_here);
    Ok(rotated)
}

/// Runs a step that waits for the disk on another thread, so that the demo goes on.
async fn apart<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(step).await;
    done.unwrap_or_else(|error| Err(Failure::Run(format!("the rotation failed: {error}"))))
}

/// Puts new certificates signed by `ca` into `folder`, and adds one token to the list there.
fn renew(folder: &Path, ca: &DevCa) -> Result<NewToken, Failure> {
    for (purpose, name) in [(Purpose::Server, "server"), (Purpose::Client, "client")] {
        ca.sign(purpose, VALID)
            .and_then(|signed| signed.write(folder, name))
            .map_err(|error| unmade(&error))?;
    }
    token::make(&tokens(folder), NAME, None)
}

fn tokens(folder: &Path) -> Kept {
    Kept::File(folder.join(TOKENS))
}

/// Puts the token `made` into `file` in one step, readable by its owner alone.
fn give(file: &Path, made: &NewToken) -> Result<(), Failure> {
    let write = || {
        let mut new = NamedTempFile::new_in(file.parent().unwrap_or(Path::new(".")))?;
        writeln!(new, "{}", made.text.reveal())?;
        new.persist(file).map_err(|error| error.error)
    };
    write().map(drop).map_err(|error| Failure::Run(format!("cannot write {}: {error}", file.display())))
}

/// Waits until the allocator at `url` knows the token `made`. Returns how often it refused the token until then.
async fn known(credentials: &Credentials, url: &str, made: &NewToken) -> Result<u64, Failure> {
    let cannot =
        |problem: String| Failure::Run(format!("the allocator does not accept the new token: {problem}"));
    let tls = Some(credentials.proof().tls());
    let http = HttpClient::try_new(ANSWER_WITHIN, tls).and_then(|http| {
        let token = Token::new(made.text.reveal());
        http.with_token(Some(token))
    });
    let http = http.map_err(|error| unmade(&error))?;
    let asked = async {
        let mut refused = 0;
        loop {
            let request = Request::get(format!("{url}/v1/whoami")).body(vec![]);
            let request = request.map_err(|error| cannot(error.to_string()))?;
            let answer =
                http.send(request, ANSWER_WITHIN).await.map_err(|error| cannot(error.to_string()))?;
            match answer.status() {
                StatusCode::OK => return Ok(refused),
                StatusCode::UNAUTHORIZED => refused += 1,
                status => return Err(cannot(format!("the answer is {status}"))),
            }
            sleep(ASK_EVERY).await;
        }
    };
    let asked = timeout(KNOWN_WITHIN, asked).await;
    asked.unwrap_or_else(|_| Err(cannot(format!("not within {KNOWN_WITHIN:?}"))))
}

/// Connects one more client to the allocator at `url`, with its own connection and an exchange.
async fn connect(proof: &Proof, url: &str) -> Result<(), lessor::ExchangeError> {
    let client = proof.given_to(Client::builder(url)).node("demo-new").connect().await?;
    client.shutdown().await;
    Ok(())
}

fn unmade(error: &TlsError) -> Failure {
    Failure::Run(format!("certificates: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_allocator::Config;

    #[test]
    fn an_allocator_asks_for_what_nodes_have() {
        let credentials = Credentials::make().expect("a temporary folder");
        let text = credentials.config(super::super::contract::CONFIG).expect("a path in Unicode");
        let config = Config::parse(&text).expect("good");
        assert!(config.auth.is_some() && config.server.tls.is_some());
        let proof = credentials.proof();
        proof.tls().check().expect("they go together");
        let token = |proof: &Proof| Token::file(&proof.token).shown().expect("it is there");
        let before = token(&proof);
        give(&proof.token, &renew(credentials.folder.path(), &credentials.ca).expect("renewed"))
            .expect("ours");
        proof.tls().check().expect("they go together");
        assert_ne!(token(&proof), before);
        let files = std::fs::read_dir(credentials.folder.path()).expect("ours").flatten();
        let open = files.filter(|file| lessor_files::is_open_to_all(&file.path()));
        assert_eq!(open.count(), 0);
    }
}
