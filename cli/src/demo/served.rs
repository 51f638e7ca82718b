//! The allocator of a demo in its own process: `lessor serve`, from this same program, with its configuration in a
//! temporary folder. It dies by SIGKILL, when asked for or when this value is dropped, and the folder goes with it.

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

/// Longest time until it listens. It needs milliseconds, and longer if it has books to read.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Most bytes that are kept of the output of one process. A log at its usual level is a few lines.
const SAID_MAX: u64 = 64 << 10;

/// The text before the address on the line that it prints once it listens.
const LISTENING: &str = "listening on http://";

/// The file with its configuration.
const FILE: &str = "lessor.toml";

/// An allocator process, and all that is needed to restart it unchanged.
#[derive(Debug)]
pub(crate) struct Served {
    // Dropped before the folder: the process may be writing into it.
    life: Life,
    books: Books,
    address: SocketAddr,
    /// The port of all its processes, if the system chose it.
    _port: Option<HeldPort>,
    folder: TempDir,
}

/// One process of the allocator.
#[derive(Debug)]
struct Life {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Its output on stderr, once that is closed.
    said: JoinHandle<String>,
}

impl Served {
    /// Starts an allocator with the `config` for its own folder, at `listen` if an operator wants to find it there. No
    /// earlier allocator has lent anything.
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

    /// Returns its books.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// Kills the allocator, and starts it again at the same address. The new process knows what the old one has written
    /// down.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        let said = self.life.end().await;
        // The text needs no reader.
        let _ = std::io::stderr().write_all(said.as_bytes());
        (self.life, _) = Life::begin(self.folder.path(), self.address, &[]).await?;
        Ok(())
    }

    /// Waits until the allocator ends although the demo did not kill it, and returns the failure. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Failure {
        // The allocator prints nothing more after the line with its address.
        while let Ok(Some(_)) = self.life.stdout.next_line().await {}
        let said = self.life.end().await;
        Failure::Run(format!("the allocator ended by itself{}", it_said(&said)))
    }
}

impl Life {
    /// Starts it on `listen`, and waits until it prints its address.
    async fn begin(folder: &Path, listen: SocketAddr, more: &[&str]) -> Result<(Self, SocketAddr), Failure> {
        let mut life = Life::spawn(folder, listen, more)
            .map_err(|error| Failure::Run(format!("cannot start the allocator: {error}")))?;
        let why = match timeout(UP_WITHIN, life.stdout.next_line()).await {
            Ok(Ok(Some(line))) => {
                let address = line.strip_prefix(LISTENING).and_then(|address| address.parse().ok());
                match address {
                    Some(address) => return Ok((life, address)),
                    None => format!("it printed {line:?} in place of its address"),
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

    /// Kills it and waits until it is gone. Returns its output.
    async fn end(&mut self) -> String {
        self.kill();
        (&mut self.said).await.unwrap_or_default()
    }

    fn kill(&mut self) {
        // A process that has ended cannot be killed; it is waited for all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads everything to the end, and returns the first [`SAID_MAX`] bytes.
async fn listen_to(mut from: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    // An error counts as the end of the output.
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
