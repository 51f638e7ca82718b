//! The allocator of a demo as a process of its own: `lessor serve`, from this same program, with its configuration in a
//! temporary folder. It dies with SIGKILL, whenever that is asked for and at the latest when this is let go of, and the
//! folder with it.

use super::books::Books;
use crate::failure::Failure;
use lessor_allocator::cells::private::HeldPort;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long it may take until it listens. It needs milliseconds, and longer where it has books to read.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// What is kept of what one life prints. A log at its usual level is a few lines.
const SAID_MAX: u64 = 64 << 10;

/// What it writes before the address on the line that says that it listens.
const LISTENING: &str = "listening on http://";

/// The file with its configuration.
const FILE: &str = "lessor.toml";

/// A process, and all that it needs to be started again as it was.
#[derive(Debug)]
pub(crate) struct Served {
    // Before the folder: it may be writing into it.
    life: Life,
    books: Books,
    address: SocketAddr,
    /// The port of all its lives, if the system chose it.
    _port: Option<HeldPort>,
    folder: TempDir,
}

/// One life of it.
#[derive(Debug)]
struct Life {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    /// What it printed on stderr, once that is closed.
    said: JoinHandle<String>,
}

impl Served {
    /// Starts an allocator with the `config` for a folder of its own, at `listen` if an operator wants to find it
    /// there. No earlier allocator has lent anything.
    pub(crate) async fn open(
        config: impl FnOnce(&Path) -> Result<String, Failure>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let cannot = |error| Failure::Run(format!("cannot write the allocator's configuration: {error}"));
        let folder = tempfile::Builder::new().prefix("lessor-demo-").tempdir().map_err(cannot)?;
        std::fs::write(folder.path().join(FILE), config(folder.path())?).map_err(cannot)?;
        let none = |error| Failure::Run(format!("no port for the allocator: {error}"));
        let port = if listen.is_none() { Some(HeldPort::any().map_err(none)?) } else { None };
        let address = port.as_ref().map(HeldPort::address).or(listen).unwrap_or(super::ANY_PORT);
        let (life, address) = Life::begin(folder.path(), address, &["--fresh"]).await?;
        let books = Books::at(address, listen.is_some(), None)?;
        Ok(Served { life, books, address, _port: port, folder })
    }

    /// Its books.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// Kills it, and starts it again at the same address. Of the life before it knows what that has written down.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        let said = self.life.end().await;
        // The text needs no reader.
        let _ = std::io::stderr().write_all(said.as_bytes());
        (self.life, _) = Life::begin(self.folder.path(), self.address, &[]).await?;
        Ok(())
    }

    /// Waits until the allocator ends although the demo did not kill it, and says so. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Failure {
        // It has no more to say than that it listens.
        while let Ok(Some(_)) = self.life.stdout.next_line().await {}
        let said = self.life.end().await;
        Failure::Run(format!("the allocator ended by itself{}", it_said(&said)))
    }
}

impl Life {
    /// Starts it on `listen`, and waits until it says where it listens.
    async fn begin(folder: &Path, listen: SocketAddr, more: &[&str]) -> Result<(Self, SocketAddr), Failure> {
        let mut life = Life::spawn(folder, listen, more)
            .map_err(|error| Failure::Run(format!("cannot start the allocator: {error}")))?;
        let why = match timeout(UP_WITHIN, life.stdout.next_line()).await {
            Ok(Ok(Some(line))) => {
                let address = line.strip_prefix(LISTENING).and_then(|address| address.parse().ok());
                match address {
                    Some(address) => return Ok((life, address)),
                    None => format!("it said {line:?}"),
                }
            }
            Ok(_) => "it ended".to_owned(),
            Err(_) => format!("it did not listen within {UP_WITHIN:?}"),
        };
        let said = life.end().await;
        Err(Failure::Run(format!("the allocator did not come up: {why}{}", it_said(&said))))
    }

    fn spawn(folder: &Path, listen: SocketAddr, more: &[&str]) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--config").arg(folder.join(FILE)).arg("--listen").arg(listen.to_string());
        command.args(more).env(super::LOG, super::log_or(super::LOG_LEVEL));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in a terminal goes to a whole group: this process gets it, and ends the allocator.
        let mut child = command.process_group(0).spawn()?;
        let stdout = child.stdout.take().expect("it was asked to be piped");
        let stderr = child.stderr.take().expect("it was asked to be piped");
        let stdout = BufReader::new(ChildStdout::from_std(stdout)?).lines();
        let said = tokio::spawn(listen_to(ChildStderr::from_std(stderr)?));
        Ok(Life { child, stdout, said })
    }

    /// Kills it and waits until it is gone. Returns what it printed.
    async fn end(&mut self) -> String {
        self.kill();
        (&mut self.said).await.unwrap_or_default()
    }

    fn kill(&mut self) {
        // One that has ended already cannot be killed; it is waited for all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All that comes, of which the beginning is kept.
async fn listen_to(mut from: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    // What cannot be read was not said.
    let _ = (&mut from).take(SAID_MAX).read_to_end(&mut said).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&said).into_owned()
}

fn it_said(said: &str) -> String {
    match said.trim() {
        "" => ", and printed nothing".to_owned(),
        said => format!(", and printed: {said}"),
    }
}
