//! An allocator on a bad disk, with a wrong wall clock, or one that dies at a certain call: the shipped binary with a [`Shim`].

use crate::process::{Running, lessor};
use crate::shim::Shim;
use lessor_allocator::cells::private::HeldPort;
use lessor_protocol::Clock;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const CLOCK: Clock = Clock::since_boot();

/// How often to look whether it has died, and for how long at most.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const DIES_WITHIN: Duration = Duration::from_secs(20);

/// An allocator and its files, through all of its lives.
#[derive(Debug)]
pub struct Faulty {
    // Before the folder: it may be writing into it.
    running: Option<Running>,
    port: HeldPort,
    folder: TempDir,
    shim: Shim,
}

impl Faulty {
    /// Starts one with `config`, as it is without any fault.
    ///
    /// # Panics
    /// If there is no C compiler, or it does not come up.
    pub fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("lessor.toml"), config).expect("a file in it");
        let shim = Shim::new();
        let port = HeldPort::any().expect("a free port");
        let mut this = Faulty { running: None, port, folder, shim };
        assert!(this.begin(true), "it does not listen");
        this
    }

    /// From now on this is what happens: a setting a line, all others as they are without a fault.
    pub fn set(&self, settings: &str) {
        self.shim.set(settings);
    }

    /// Another life of it, on the same files and at the same address. Whether it came so far as to listen.
    pub fn live(&mut self) -> bool {
        self.kill();
        self.begin(false)
    }

    /// Whether it has died as it was set to.
    pub fn is_dead(&self) -> bool {
        self.shim.died().exists()
    }

    /// Waits until it dies as it was set to, and says where that was: the name of the call, and the file.
    ///
    /// # Panics
    /// If it does not.
    pub fn died(&mut self) -> (String, String) {
        let since = CLOCK.now();
        let died = loop {
            match std::fs::read_to_string(self.shim.died()) {
                Ok(died) if died.ends_with('\n') => break died,
                Ok(_) | Err(_) => {}
            }
            assert!(CLOCK.now().since(since) < DIES_WITHIN, "it has not come to that call");
            std::thread::park_timeout(LOOK_EVERY);
        };
        self.kill();
        let (call, path) = died.trim_end().split_once(' ').expect("two words");
        let file = match Path::new(path) == self.folder.path() {
            true => "its folder".into(),
            false => Path::new(path).file_name().unwrap_or_default().to_string_lossy(),
        };
        (call.to_owned(), file.into_owned())
    }

    /// Kills it, if it lives.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
        // There is none if it did not die by itself.
        let _ = std::fs::remove_file(self.shim.died());
    }

    /// The exit code of one that ends by itself.
    pub fn ended(&mut self) -> Option<i32> {
        self.running.take()?.wait().code()
    }

    /// The process.
    ///
    /// # Panics
    /// If it does not live.
    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("it lives")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same with its scheme.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// A file in its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begin(&mut self, fresh: bool) -> bool {
        let mut command = Command::new(lessor());
        command.arg("serve").arg("--config").arg(self.file("lessor.toml"));
        command.arg("--listen").arg(self.address().to_string()).args(["--log-level", "error"]);
        command.args(fresh.then_some("--fresh"));
        command.envs(self.shim.environment());
        let mut running = Running::start(&mut command);
        let listens = running.line().starts_with("listening on http://");
        self.running = Some(running);
        listens
    }
}
