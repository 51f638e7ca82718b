//! Real servers of stores, each for one test: commanded, stopped, killed and started again while clients use them, and
//! behind a wire that can be cut.

use crate::shim::Shim;
use crate::wire::Wire;
use lessor_allocator::cells::private::{PrivateServer, Setting, postgres_program};
use lessor_allocator::cells::{CellsConfig, StoreKind};
use lessor_protocol::lock_anyway::LockAnyway;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// Environment variable that names the folder with template clusters, which servers start from copies of. `tests/run`
/// makes and removes the folder.
const TEMPLATES: &str = "LESSOR_TEST_TEMPLATES";

/// Returns the template of a PostgreSQL cluster, which the first test process that asks makes.
fn template() -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let folder = PathBuf::from(std::env::var_os(TEMPLATES)?);
    let (template, made) = (folder.join("postgres"), folder.join(format!("postgres-{}", std::process::id())));
    let _making = ONE_AT_A_TIME.lock_anyway();
    if !template.exists() {
        PrivateServer::prepare_postgres(&made).unwrap_or_else(|error| panic!("{}: {error}", made.display()));
        // If another process was faster, its cluster serves as well.
        if std::fs::rename(&made, &template).is_err() && !template.exists() {
            panic!("{} cannot be used", template.display());
        }
    }
    Some(template)
}

/// A server of a store. It ends when this value is dropped, and then its folder is removed.
#[derive(Debug)]
pub struct Server {
    server: Mutex<PrivateServer>,
    address: SocketAddr,
    _folder: TempDir,
}

impl Server {
    /// Starts a server that no other test uses. A PostgreSQL cluster is a copy of the template if
    /// `LESSOR_TEST_TEMPLATES` names a folder.
    pub fn start(kind: StoreKind, settings: &[Setting]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let template = if kind == StoreKind::Postgres { template() } else { None };
        let started = match template {
            Some(template) => PrivateServer::start_postgres_from(&template, folder.path(), settings),
            None => PrivateServer::start(kind, folder.path(), settings),
        };
        Server::of(started.unwrap_or_else(|error| panic!("{kind:?}: {error}")), folder)
    }

    /// Returns a server that other tests use, too. Each test has a prefix of its own.
    pub fn shared(kind: StoreKind) -> Arc<Self> {
        static SHARED: Mutex<Vec<(StoreKind, Weak<Server>)>> = Mutex::new(vec![]);
        let mut shared = SHARED.lock().expect("no test panics in here");
        let known = shared.iter().find(|(known, server)| *known == kind && server.strong_count() > 0);
        if let Some(server) = known.and_then(|(_, server)| server.upgrade()) {
            return server;
        }
        let server = Arc::new(Server::start(kind, &[]));
        shared.retain(|(known, _)| *known != kind);
        shared.push((kind, Arc::downgrade(&server)));
        server
    }

    /// Starts a replica of this server, or a standby.
    pub fn replica(&self) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let started = self.with(|server| server.replica(folder.path(), &[]));
        Server::of(started.unwrap_or_else(|error| panic!("replica: {error}")), folder)
    }

    /// Starts another server with the same password, which knows nothing of this one.
    pub fn beside(&self, settings: &[Setting]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let started = self.with(|server| server.beside(folder.path(), settings));
        Server::of(started.unwrap_or_else(|error| panic!("beside: {error}")), folder)
    }

    pub(crate) fn of(server: PrivateServer, folder: TempDir) -> Self {
        Server { address: server.address(), server: Mutex::new(server), _folder: folder }
    }

    fn with<T>(&self, what: impl FnOnce(&mut PrivateServer) -> T) -> T {
        what(&mut self.server.lock().expect("nothing panics while it is held"))
    }

    /// Returns the URL of the store, with its password.
    pub fn url(&self) -> String {
        self.with(|server| server.url())
    }

    /// Returns the configuration of a handle on the store's cells, with this prefix.
    pub fn config(&self, prefix: &str) -> CellsConfig {
        self.config_of(&self.with(|server| server.url()), prefix)
    }

    /// Returns the configuration of a handle with another password.
    pub fn config_with(&self, password: &str, prefix: &str) -> CellsConfig {
        self.config_of(&self.with(|server| server.url_with(password)), prefix)
    }

    /// Returns the configuration of a handle that connects through a wire.
    pub fn config_through(&self, wire: &Wire, prefix: &str) -> CellsConfig {
        self.config_of(&self.url_through(wire), prefix)
    }

    /// Returns the URL of the store through a wire.
    pub fn url_through(&self, wire: &Wire) -> String {
        self.url().replace(&self.address.to_string(), &wire.address().to_string())
    }

    fn config_of(&self, url: &str, prefix: &str) -> CellsConfig {
        let url = url.parse().expect("a URL of ours");
        // On a machine that is busy with a build, servers answer late.
        CellsConfig { prefix: prefix.to_owned(), timeout: Duration::from_secs(5), ..CellsConfig::new(url) }
    }

    /// The password of the store.
    pub fn password(&self) -> String {
        self.with(|server| server.password().to_owned())
    }

    /// The folder into which the server writes.
    pub fn folder(&self) -> PathBuf {
        self.with(|server| server.folder().to_owned())
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the server with SIGKILL, and the process of each connection: those of PostgreSQL may answer once more
    /// after their server is gone.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        self.with(PrivateServer::kill).expect("the server can be killed");
    }

    /// Starts the server again with these settings, on the same port and with the same folder.
    pub fn start_again(&self, settings: &[Setting]) {
        self.with(|server| server.start_again(settings)).unwrap_or_else(|error| panic!("again: {error}"));
    }

    /// Starts the server again with `shim` loaded before libc, which applies the faults set there.
    pub fn start_again_with(&self, shim: &Shim) {
        let environment = shim.environment().map(|(name, path)| (name.into(), path.into()));
        self.with(|server| server.set_environment(environment.into()));
        self.start_again(&[]);
    }

    /// Makes a replica its own master, or a standby the primary.
    pub fn promote(&self) {
        match self.with(|server| server.kind()) {
            StoreKind::Redis => assert_eq!(self.tell("REPLICAOF NO ONE"), "+OK"),
            StoreKind::Memory | StoreKind::Postgres | StoreKind::Etcd => {
                self.with(|server| server.promote()).unwrap_or_else(|error| panic!("promote: {error}"))
            }
        }
    }

    /// Stops the server with SIGSTOP, and for PostgreSQL the process of each connection. Returns once no thread of them
    /// runs: threads of a busy etcd have answered a call since the signal.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        while self.processes().into_iter().any(is_running) {
            std::thread::yield_now();
        }
    }

    /// Continues the server with SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // The server comes first: it replaces children that end.
        for pid in self.processes() {
            // The process of a connection may have ended meanwhile.
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).expect("not zero"), signal);
        }
    }

    /// Returns the ids of the server's process and of the process of each connection, if there are any.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn processes(&self) -> Vec<u32> {
        let server = self.with(|server| server.pid()).expect("the server runs");
        let children = format!("/proc/{server}/task/{server}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children.split(' ').filter_map(|pid| pid.trim().parse().ok());
        [server].into_iter().chain(children).collect()
    }

    /// Runs a command of Redis or a statement of PostgreSQL, or posts a path and a body to etcd, as a user with all
    /// rights. Returns the first line of the answer.
    pub fn tell(&self, what: &str) -> String {
        match self.with(|server| server.kind()) {
            StoreKind::Redis => self.tell_redis(what),
            StoreKind::Memory | StoreKind::Postgres => self.tell_postgres(what),
            StoreKind::Etcd => self.tell_etcd(what),
        }
    }

    fn tell_redis(&self, command: &str) -> String {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        let mut stream = BufReader::new(stream);
        let mut ask = |command: &str| {
            stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("the peer reads");
            let mut line = String::new();
            stream.read_line(&mut line).expect("the server answers");
            match line.strip_prefix('$').and_then(|length| length.trim_end().parse().ok()) {
                Some(length) => {
                    let mut bytes = vec![0; length];
                    stream.read_exact(&mut bytes).expect("the server answers");
                    String::from_utf8_lossy(&bytes).into_owned()
                }
                None => line.trim_end().to_owned(),
            }
        };
        assert_eq!(ask(&format!("AUTH {}", self.password())), "+OK");
        let said = ask(command);
        // The server has let this connection go once it has closed it too, so no later command finds it there. After a
        // command that ends the server, the connection is closed already.
        let _ = stream.get_ref().shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut vec![]);
        said
    }

    fn tell_etcd(&self, what: &str) -> String {
        let (path, body) = what.split_once(' ').expect("a path and a body");
        let told = self.with(|server| server.tell_etcd(path, body));
        told.unwrap_or_else(|error| panic!("{what}: {error}")).trim_end().to_owned()
    }

    fn tell_postgres(&self, statement: &str) -> String {
        let psql = postgres_program("psql").expect("psql comes with the server");
        let url = self.with(|server| server.admin_url());
        let output = Command::new(psql)
            .args([
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--set=ON_ERROR_STOP=1",
                "--command",
            ])
            .args([statement, &url])
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

/// Whether any thread of the process `pid` is not stopped. A thread or a process that is gone counts as stopped.
fn is_running(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    // The state follows the name, which is in brackets.
    let is_stopped =
        |stat: &str| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z', 'X']));
    let stat = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).ok();
    threads.flatten().filter_map(stat).any(|stat| !is_stopped(&stat))
}
