//! Renews the certificates and the token of a demo all along, as `docs/access.md` and `docs/security.md` say: what is new is in force
//! before what is old is taken away. The nodes go on meanwhile, and after each rotation one more client connects by what is new.

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

/// The shortest time between two rotations: an allocator takes over a new file within a tenth of a second, or a few on a busy machine.
pub(crate) const EVERY_MIN: Duration = Duration::from_millis(500);

/// What the tokens prove.
const NAME: &str = "demo";

/// How often the allocator is asked whether it knows a new token, and for how long.
const ASK_EVERY: Duration = Duration::from_millis(20);
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What the allocator of a demo and its nodes prove with who they are: files in a folder that goes with this.
pub(crate) struct Credentials {
    folder: TempDir,
    ca: DevCa,
    first: TokenId,
}

/// What came of the rotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rotated {
    /// How often all were renewed, and the old token revoked.
    pub(crate) rotations: u64,
    /// Clients that connected by what was new, one after each rotation, and those of them that could not.
    pub(crate) new_clients: u64,
    pub(crate) new_clients_failed: u64,
    /// Requests of nodes with a token that was revoked by then. Each was sent once more, with the new one.
    pub(crate) tokens_refused: u64,
    /// Exchanges of nodes that failed.
    pub(crate) exchanges_failed: u64,
    /// Calls that nodes refused although that was not for the contract.
    pub(crate) calls_refused: u64,
}

impl Credentials {
    /// Makes an authority, certificates by it, and a token.
    pub(crate) fn make() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("lessor-demo-").tempdir();
        let folder = folder.map_err(|error| Failure::Run(format!("no folder for certificates: {error}")))?;
        let ca = DevCa::open(folder.path()).map_err(|error| unmade(&error))?;
        let made = renew(folder.path(), &ca)?;
        give(&folder.path().join(TOKEN), &made)?;
        Ok(Credentials { folder, ca, first: made.id })
    }

    /// `config`, of an allocator that asks for them.
    pub(crate) fn config(&self, config: &str) -> Result<String, Failure> {
        asking(config, self.folder.path())
    }

    /// What a node proves with who it is.
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

/// The file of the token that nodes show.
const TOKEN: &str = "node.token";

/// The file of those that the allocator knows.
const TOKENS: &str = "tokens.toml";

/// `config`, of an allocator that asks for the certificates and the token in `folder`. Its books are shown to certificates.
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

/// At work, until it is told to end.
#[derive(Debug)]
pub(crate) struct Rotation {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<Rotated, Failure>>,
}

impl Rotation {
    /// Renews `credentials`, which the allocator of `books` asks for, after `every`, and again and again.
    pub(crate) fn begin(credentials: Arc<Credentials>, books: Books, every: Duration) -> Self {
        let (end, ended) = oneshot::channel();
        Rotation { end, task: tokio::spawn(work(credentials, books, every, ended)) }
    }

    /// Ends with the rotation that is going on.
    ///
    /// # Errors
    /// If something could not be renewed.
    pub(crate) async fn end(self) -> Result<Rotated, Failure> {
        // A task that is over hears nothing any more.
        let _ = self.end.send(());
        self.task.await.unwrap_or_else(|error| Err(Failure::Run(format!("the rotation broke: {error}"))))
    }
}

impl Rotated {
    /// With what nodes have counted.
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
    // The first one is at once.
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
            tracing::warn!(%problem, "a client could not connect by the new certificates and token");
        }
    }
    rotated.tokens_refused = books.unauthenticated().await?.saturating_sub(refused_here);
    Ok(rotated)
}

/// A step that waits for the disk, apart from what must go on.
async fn apart<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(step).await;
    done.unwrap_or_else(|error| Err(Failure::Run(format!("the rotation broke: {error}"))))
}

/// Puts new certificates by `ca` in place in `folder`, and one more token into the list there.
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

/// Puts the token `made` into `file` in one step, for its owner alone.
fn give(file: &Path, made: &NewToken) -> Result<(), Failure> {
    let write = || {
        let mut new = NamedTempFile::new_in(file.parent().unwrap_or(Path::new(".")))?;
        writeln!(new, "{}", made.text.reveal())?;
        new.persist(file).map_err(|error| error.error)
    };
    write().map(drop).map_err(|error| Failure::Run(format!("cannot write {}: {error}", file.display())))
}

/// Waits until the allocator at `url` knows the token `made`. How often it did not until then.
async fn known(credentials: &Credentials, url: &str, made: &NewToken) -> Result<u64, Failure> {
    let cannot = |problem: String| Failure::Run(format!("a new token is not known: {problem}"));
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

/// One more client of the allocator at `url`: a connection of its own, and an exchange.
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
