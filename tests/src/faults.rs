//! An allocator on a bad disk, with a wrong wall clock, or one that dies at a certain call: the shipped binary with a [`Shim`].

use crate::process::{Running, folder_with, lessor};
use crate::shim::Shim;
use lessor_allocator::cells::private::HeldPort;
use lessor_protocol::CLOCK;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How often to look whether the process has died, and for how long at most.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const DIES_WITHIN: Duration = Duration::from_secs(20);

/// An allocator and its files, through all its lives.
#[derive(Debug)]
pub struct Faulty {
    // Dropped before the folder: the process may be writing into it.
    running: Option<Running>,
    port: HeldPort,
    folder: TempDir,
    shim: Shim,
}

impl Faulty {
    /// Starts an allocator with `config` and without any fault.
    ///
    /// # Panics
    /// If there is no C compiler, or the allocator does not come up.
    pub fn start(config: &str) -> Self {
        let folder = folder_with(config);
        let shim = Shim::new();
        let port = HeldPort::any().expect("a free port");
        let mut this = Faulty { running: None, port, folder, shim };
        assert!(this.begin(), "the allocator does not listen");
        this
    }

    /// Sets the faults from now on, one setting a line. Settings that are not named are without fault.
    pub fn set(&self, settings: &str) {
        self.shim.set(settings);
    }

    /// Starts the allocator again on the same files and address, with the same command, as a service manager does. Returns
    /// whether it came as far as to listen.
    pub fn live(&mut self) -> bool {
        self.kill();
        self.begin()
    }

    /// Whether the allocator has died at the call that was set.
    pub fn is_dead(&self) -> bool {
        self.shim.died().exists()
    }

    /// Waits until the allocator dies at the call that was set. Returns the name of that call and the file.
    ///
    /// # Panics
    /// If it does not die in time.
    pub fn died(&mut self) -> (String, String) {
        let since = CLOCK.now();
        let died = loop {
            match std::fs::read_to_string(self.shim.died()) {
                Ok(died) if died.ends_with('\n') => break died,
                Ok(_) | Err(_) => {}
            }
            assert!(CLOCK.now().since(since) < DIES_WITHIN, "the process did not die at that call in time");
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

    /// Kills the allocator, if it runs.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
        // The file is missing if the process did not die by itself.
        let _ = std::fs::remove_file(self.shim.died());
    }

    /// Waits until the allocator ends by itself, and returns its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        self.running.take()?.wait().code()
    }

    /// The process of the allocator.
    ///
    /// # Panics
    /// If it does not run.
    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("the process lives")
    }

    /// The address on which the allocator listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL of the allocator.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the path of a file in the allocator's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begin(&mut self) -> bool {
        let mut command = Command::new(lessor());
        command.args(["serve", "--fresh", "--config"]).arg(self.file("lessor.toml"));
        command.arg("--listen").arg(self.address().to_string()).args(["--log-level", "error"]);
        command.envs(self.shim.environment());
        let mut running = Running::start(&mut command);
        let listens = running.line().starts_with("listening on http://");
        self.running = Some(running);
        listens
    }
}
