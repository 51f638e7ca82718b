//! Real processes: the `lessor` binary as an operator starts it, and nodes that obey a test. Every process is known by
//! its id and dies with the test that started it.

use lessor_allocator::cells::private::HeldPort;
use lessor_protocol::Moment;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Any free port.
const ANYWHERE: &str = "127.0.0.1:0";

/// Returns the path of the `lessor` binary beside this test's own.
///
/// # Panics
/// If it was not built: `cargo build --workspace --bins` builds it, as `tests/run` does first.
pub fn lessor() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(Path::parent).expect("tests live in <target>/<profile>/deps");
    let binary = profile.join("lessor");
    assert!(binary.exists(), "{} is missing: run `cargo build --workspace --bins` first", binary.display());
    binary
}

/// Makes a folder with `config` in the file `lessor.toml`.
pub fn folder_with(config: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("lessor.toml"), config).expect("a writable file");
    folder
}

/// A child process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts `command` with pipes on stdin and stdout.
    pub fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = child.stdin.take().expect("the pipe is there");
        let stdout = BufReader::new(child.stdout.take().expect("the pipe is there"));
        Running { child, stdin, stdout }
    }

    /// Returns the next line that the process prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout can be read");
        line.trim_end().to_owned()
    }

    /// Returns the URL in the next line, in which the process says that it listens.
    pub fn listens(&mut self) -> String {
        let line = self.line();
        let url = line.strip_prefix("listening on ");
        url.unwrap_or_else(|| panic!("the process said {line:?}")).to_owned()
    }

    /// Writes a line to the process.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the process reads its stdin");
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the process, in bytes.
    ///
    /// # Panics
    /// If Linux does not say it.
    pub fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the line is there");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")).expect("not zero");
        kill_process(pid, signal).expect("the process is not yet waited for");
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("the process ends");
    }

    /// Waits until the process ends by itself.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the process ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `kill` and `wait` the process is gone: both calls fail, and there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An allocator, as `lessor serve` runs it.
#[derive(Debug)]
pub struct Allocator {
    /// The process.
    pub running: Running,
    /// `http://127.0.0.1:…`, or `https://` if its configuration has certificates.
    pub url: String,
    folder: TempDir,
    /// The port in all its lives, if the system chose it.
    port: Option<HeldPort>,
    log: Log,
}

/// Where an allocator writes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// Errors, to the output of the test.
    Errors,
    /// Everything from `info` on, to a file in its folder.
    File,
}

impl Allocator {
    /// Starts an allocator with `config` on `listen` (`127.0.0.1:0` for any free port) and waits until it listens. Its
    /// store is in a folder of its own.
    pub fn start(config: &str, listen: &str, fresh: bool) -> Self {
        let folder = folder_with(config);
        let port = (listen == ANYWHERE).then(|| HeldPort::any().expect("a free port"));
        let listen = port.as_ref().map_or_else(|| listen.to_owned(), |port| port.address().to_string());
        Self::start_in(folder, port, Log::Errors, &listen, fresh, &mut Command::new(lessor()))
    }

    /// Starts an allocator on any free port, with a log that [`Allocator::log`] reads.
    pub fn start_with_log(config: &str) -> Self {
        let folder = folder_with(config);
        let port = HeldPort::any().expect("a free port");
        let listen = port.address().to_string();
        Self::start_in(folder, Some(port), Log::File, &listen, true, &mut Command::new(lessor()))
    }

    /// Returns the log of all its lives, if [`Allocator::start_with_log`] started it.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a readable file")
    }

    /// Starts an allocator whose process outlives SIGXFSZ, the signal sent when a file grows beyond the size that a
    /// test allows. Its log is a file in its folder, as on a disk that is full.
    pub fn start_to_be_limited(config: &str) -> Self {
        let folder = folder_with(config);
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(lessor());
        let log = File::create(folder.path().join("log")).expect("a writable file");
        Self::start_in(folder, None, Log::Errors, ANYWHERE, true, command.stderr(log))
    }

    /// Kills the allocator and starts it again at once, on the same address and with the same files.
    pub fn restart(self) -> Self {
        self.restart_after(|_| ())
    }

    /// Ends the allocator in good order and starts it again `pause` later, on the same address and with the same files.
    ///
    /// # Panics
    /// If it has failed.
    pub fn replace(self, pause: Duration) -> Self {
        let listen = self.address().to_owned();
        let Allocator { running, folder, port, log, .. } = self;
        running.signal(Signal::TERM);
        assert!(running.wait().success());
        std::thread::park_timeout(pause);
        Self::start_in(folder, port, log, &listen, false, &mut Command::new(lessor()))
    }

    /// Kills the allocator, lets `act` change its folder, and starts it again.
    pub fn restart_after(self, act: impl FnOnce(&Path)) -> Self {
        let listen = self.address().to_owned();
        let Allocator { running, folder, port, log, .. } = self;
        running.kill();
        act(folder.path());
        Self::start_in(folder, port, log, &listen, false, &mut Command::new(lessor()))
    }

    /// The folder with its configuration and its store.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn start_in(
        folder: TempDir,
        port: Option<HeldPort>,
        log: Log,
        listen: &str,
        fresh: bool,
        command: &mut Command,
    ) -> Self {
        let file = folder.path().join("lessor.toml");
        let level = match log {
            Log::Errors => "error",
            Log::File => {
                let file = File::options().create(true).append(true).open(folder.path().join("log"));
                command.stderr(file.expect("the log can be made"));
                "info"
            }
        };
        command.arg("serve").arg("--config").arg(&file).args(["--listen", listen, "--log-level", level]);
        if fresh {
            command.arg("--fresh");
        }
        let mut running = Running::start(command);
        let url = running.listens();
        Allocator { running, url, folder, port, log }
    }

    /// Writes another configuration into its configuration file.
    pub fn rewrite(&self, config: &str) {
        std::fs::write(self.folder.path().join("lessor.toml"), config).expect("a writable file");
    }

    /// The allocator's address, without the scheme.
    pub fn address(&self) -> &str {
        self.url.split_once("://").map_or(&self.url, |(_, address)| address)
    }
}

/// A node: a `spender` process, which obeys orders and answers with what came of them.
#[derive(Debug)]
pub struct Node {
    /// The process.
    pub running: Running,
}

impl Node {
    /// Starts a node called `name` and waits until it has exchanged with the allocator at `url`.
    pub fn start(spender: &str, url: &str, limit: &str, name: &str) -> Self {
        Node::start_by(&mut Command::new(spender), url, limit, name)
    }

    /// Starts a node by `spender`, a command that may have an environment of its own.
    ///
    /// # Panics
    /// If it cannot connect.
    pub fn start_by(spender: &mut Command, url: &str, limit: &str, name: &str) -> Self {
        let mut running = Running::start(spender.args([url, limit, name]));
        assert_eq!(running.line(), "connected", "{name} could not connect");
        Node { running }
    }

    /// Tries `calls` calls of one permit each, at once. Returns the instant of each admission.
    pub fn spend(&mut self, calls: u64) -> Vec<Moment> {
        self.running.tell(&format!("spend {calls}"));
        self.answer()
    }

    /// Makes `calls` calls of one permit each, waiting up to `patience_ms` for each.
    pub fn acquire(&mut self, calls: u64, patience_ms: u64) -> Vec<Moment> {
        self.running.tell(&format!("acquire {calls} {patience_ms}"));
        self.answer()
    }

    /// Begins to try a call each millisecond for `millis`. [`Node::answer`] waits for the end and returns the
    /// admissions.
    pub fn begin(&mut self, millis: u64) {
        self.running.tell(&format!("run {millis}"));
    }

    /// Begins to call for `millis`, with `gap_us` in between. [`Node::answer`] then returns one instant for each
    /// millisecond in which some calls were admitted. That instant is before the call. A first call has been admitted
    /// when this returns.
    pub fn rush(&mut self, millis: u64, gap_us: u64) {
        self.running.tell(&format!("rush {millis} {gap_us}"));
        assert_eq!(self.running.line(), "in a rush");
    }

    /// Returns the permits that the node holds.
    pub fn available(&mut self) -> u64 {
        self.running.tell("available");
        self.running.line().parse().expect("a number")
    }

    /// Returns the admissions of the last order.
    pub fn answer(&mut self) -> Vec<Moment> {
        let line = self.running.line();
        line.split_whitespace()
            .map(|nanos| {
                Moment::from_nanos(nanos.parse().unwrap_or_else(|_| panic!("the process said {line:?}")))
            })
            .collect()
    }

    /// Ends the node in good order.
    pub fn quit(mut self) {
        self.running.tell("quit");
        assert!(self.running.wait().success());
    }
}
