//! Private servers for demos and tests: on a free port of loopback, in a given folder, with a random password. A server
//! ends with its handle. Nothing that serves nodes uses this.

mod etcd;
mod find;
mod port;
mod postgres;
mod redis;

pub use self::port::HeldPort;

use super::StoreKind;
use lessor_protocol::{CLOCK, Moment, entropy};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longest start of a server, until it is ready or says why not.
const START_MAX: Duration = Duration::from_secs(60);

/// Pause before another start, where the remains of a killed server are in the way.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Last lines of a server's output, which are reported if it does not start.
const LINES_KEPT: usize = 8;

/// The user of the server's database.
const USER: &str = "lessor";

/// A setting of a server and its value.
pub type Setting<'a> = (&'a str, &'a str);

/// A private server. Dropping this kills it.
pub struct PrivateServer {
    kind: StoreKind,
    folder: PathBuf,
    port: HeldPort,
    password: String,
    environment: Vec<(OsString, OsString)>,
    /// The member of its cluster, if it is an etcd.
    member: Option<etcd::Member>,
    child: Option<Child>,
}

/// Whether a program of this kind is installed.
pub fn is_installed(kind: StoreKind) -> bool {
    match kind {
        StoreKind::Memory => false,
        StoreKind::Redis => find::redis().is_some(),
        StoreKind::Postgres => find::postgres("postgres").is_some(),
        StoreKind::Etcd => find::on_path("etcd").is_some(),
    }
}

/// Returns the path of a program of PostgreSQL.
pub fn postgres_program(name: &str) -> Option<PathBuf> {
    find::postgres(name)
}

impl PrivateServer {
    /// Starts a new server. It keeps all its files in `folder`, which must be empty.
    pub fn start(kind: StoreKind, folder: &Path, settings: &[Setting]) -> io::Result<Self> {
        let password = password();
        match kind {
            StoreKind::Memory => return Err(io::Error::other("memory: needs no server")),
            StoreKind::Redis => {}
            StoreKind::Postgres => postgres::prepare(folder, &password)?,
            StoreKind::Etcd => {
                let one = Self::start_etcd(&[folder.to_owned()], settings)?;
                return one.into_iter().next().ok_or_else(|| io::Error::other("no member"));
            }
        }
        Self::on_a_free_port(kind, folder, password, settings)
    }

    /// Starts the members of an etcd, one in each of these folders.
    pub fn start_etcd(folders: &[PathBuf], settings: &[Setting]) -> io::Result<Vec<Self>> {
        let password = password();
        let members = etcd::members(folders.len())?;
        let make = |(folder, member): (&PathBuf, _)| {
            let (kind, password) = (StoreKind::Etcd, password.clone());
            let mut server = Self::not_started(kind, folder, password)?;
            server.member = Some(member);
            Ok(server)
        };
        let mut servers = folders.iter().zip(members).map(make).collect::<io::Result<Vec<_>>>()?;
        // No member is ready before most have started.
        thread::scope(|scope| {
            let starting = servers.iter_mut().map(|server| scope.spawn(|| server.start_again(settings)));
            let starting: Vec<_> = starting.collect();
            let started = |starting: thread::ScopedJoinHandle<'_, _>| {
                starting.join().unwrap_or_else(|_| Err(io::Error::other("a panic at the start")))
            };
            starting.into_iter().try_for_each(started)
        })?;
        if let Some(first) = servers.first() {
            etcd::secure(first.address(), &password)?;
        }
        Ok(servers)
    }

    /// Sends a request to the JSON gateway of an etcd, as its root user.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    pub fn tell_etcd(&self, path: &str, body: &str) -> io::Result<String> {
        etcd::tell(self.address(), &self.password, path, body)
    }

    /// Makes a PostgreSQL cluster in this folder, as a template for servers. A copy takes a tenth of the processor time
    /// of a new cluster. But copies have one password, and are one system on one timeline.
    pub fn prepare_postgres(template: &Path) -> io::Result<()> {
        postgres::prepare(template, &password())
    }

    /// Starts a PostgreSQL server with a copy of `template`, and all its files in `folder`.
    pub fn start_postgres_from(template: &Path, folder: &Path, settings: &[Setting]) -> io::Result<Self> {
        let password = postgres::prepare_from(template, folder)?;
        Self::on_a_free_port(StoreKind::Postgres, folder, password, settings)
    }

    /// Starts a replica, or standby, of this server, with all its files in `folder`.
    pub fn replica(&self, folder: &Path, settings: &[Setting]) -> io::Result<Self> {
        let port = self.address().port();
        let master = format!("127.0.0.1 {port}");
        let mut all = vec![];
        match self.kind {
            StoreKind::Memory => {}
            StoreKind::Redis => {
                all.push(("replicaof", master.as_str()));
            }
            StoreKind::Postgres => postgres::copy(port, &self.password, folder)?,
            StoreKind::Etcd => return Err(io::Error::other("an etcd has members")),
        }
        all.extend_from_slice(settings);
        Self::on_a_free_port(self.kind, folder, self.password.clone(), &all)
    }

    /// Starts an independent server of the same kind and with the same password, and all its files in `folder`.
    pub fn beside(&self, folder: &Path, settings: &[Setting]) -> io::Result<Self> {
        match self.kind {
            StoreKind::Memory | StoreKind::Redis => {}
            StoreKind::Postgres => postgres::prepare(folder, &self.password)?,
            StoreKind::Etcd => return Err(io::Error::other("an etcd draws its own password")),
        }
        Self::on_a_free_port(self.kind, folder, self.password.clone(), settings)
    }

    fn on_a_free_port(
        kind: StoreKind,
        folder: &Path,
        password: String,
        settings: &[Setting],
    ) -> io::Result<Self> {
        let mut server = Self::not_started(kind, folder, password)?;
        server.start_again(settings)?;
        Ok(server)
    }

    fn not_started(kind: StoreKind, folder: &Path, password: String) -> io::Result<Self> {
        let (folder, port) = (folder.to_owned(), HeldPort::any()?);
        Ok(PrivateServer { kind, folder, port, password, environment: vec![], member: None, child: None })
    }

    /// Starts the server with these settings, on its port and with the files in its folder. A running one is killed
    /// first.
    pub fn start_again(&mut self, settings: &[Setting]) -> io::Result<()> {
        self.kill()?;
        let port = self.address().port();
        let ready = match self.kind {
            StoreKind::Memory | StoreKind::Redis => redis::READY,
            StoreKind::Postgres => postgres::READY,
            StoreKind::Etcd => etcd::READY,
        };
        let until = CLOCK.now() + START_MAX;
        loop {
            let mut command = match self.kind {
                StoreKind::Memory | StoreKind::Redis => {
                    redis::command(&self.folder, port, &self.password, settings)
                }
                StoreKind::Postgres => postgres::command(&self.folder, port, settings),
                StoreKind::Etcd => match &self.member {
                    Some(member) => etcd::command(&self.folder, member, self.address(), settings),
                    None => Err(io::Error::other("an etcd is a member")),
                },
            }?;
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            match spawn(&mut command, ready, until) {
                Err(error) if error.to_string().contains(postgres::STILL_THERE) && CLOCK.now() < until => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the remains of a killed one go by themselves"
                    )]
                    thread::sleep(AGAIN_AFTER);
                }
                Err(error) => return Err(error),
                Ok(child) => {
                    self.child = Some(child);
                    return Ok(());
                }
            }
        }
    }

    /// Sets additional environment variables for its next starts.
    pub fn set_environment(&mut self, environment: Vec<(OsString, OsString)>) {
        self.environment = environment;
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The kind of store.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The URL of its store, with the password in it.
    pub fn url(&self) -> String {
        self.url_with(&self.password)
    }

    /// The URL of its store with another password.
    pub fn url_with(&self, password: &str) -> String {
        let address = self.address();
        match self.kind {
            StoreKind::Memory | StoreKind::Redis => format!("redis://:{password}@{address}"),
            StoreKind::Postgres => format!("postgres://{USER}:{password}@{address}/{USER}"),
            StoreKind::Etcd => format!("etcd://{}:{password}@{address}", etcd::ROOT),
        }
    }

    /// The URL of its administrator.
    pub fn admin_url(&self) -> String {
        match self.kind {
            StoreKind::Memory | StoreKind::Redis | StoreKind::Etcd => self.url(),
            StoreKind::Postgres => {
                let (admin, address) = (postgres::ADMIN, self.address());
                format!("postgres://{admin}:{}@{address}/{USER}", self.password)
            }
        }
    }

    /// Promotes a standby of PostgreSQL to primary. For Redis, send `REPLICAOF NO ONE` instead.
    pub fn promote(&self) -> io::Result<()> {
        match self.kind {
            StoreKind::Memory | StoreKind::Redis | StoreKind::Etcd => {
                Err(io::Error::other("only a standby of postgres"))
            }
            StoreKind::Postgres => postgres::promote(&self.folder),
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if self.child.is_some() && self.kind == StoreKind::Postgres {
            // Killed, it would leave a segment of shared memory behind, and the folder may be removed at once.
            postgres::stop(&self.folder);
        }
        // No caller would hear of an error, and a process that is gone already is no error.
        let _ = self.kill();
    }
}

impl fmt::Debug for PrivateServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateServer({:?}, {})", self.kind, self.address())
    }
}

fn password() -> String {
    format!("{:016x}", entropy::number())
}

/// Starts a server, and waits until it says that it is ready, or until the time is up.
fn spawn(command: &mut Command, ready: &'static str, until: Moment) -> io::Result<Child> {
    let (sender, receiver) = mpsc::channel();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    listen(child.stdout.take(), ready, sender.clone());
    listen(child.stderr.take(), ready, sender);
    let mut said = VecDeque::new();
    loop {
        let left = until.since(CLOCK.now());
        match receiver.recv_timeout(left) {
            Ok(Line::Ready) => return Ok(child),
            Ok(Line::Other(line)) if !left.is_zero() => {
                said.push_back(line);
                if said.len() > LINES_KEPT {
                    said.pop_front();
                }
            }
            Ok(Line::Other(_)) | Err(_) => {
                child.kill()?;
                child.wait()?;
                let said = Vec::from(said).join("; ");
                return Err(io::Error::other(format!("the server did not begin: {said}")));
            }
        }
    }
}

enum Line {
    Ready,
    Other(String),
}

/// Reads the output of a server to its end, so that the server never blocks on it.
fn listen(pipe: Option<impl Read + Send + 'static>, ready: &'static str, sender: mpsc::Sender<Line>) {
    let Some(pipe) = pipe else { return };
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let line = if line.contains(ready) { Line::Ready } else { Line::Other(line) };
            // The receiver is gone once the server is ready.
            let _ = sender.send(line);
        }
    });
}

/// Runs a command to its end. The error has its output.
fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().display().to_string();
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: each line of a server gave it another minute, so that one that says the same for ever was waited for
    /// for ever.
    #[test]
    fn a_server_that_only_talks_is_waited_for_once() {
        let began = CLOCK.now();
        let until = began + Duration::from_millis(200);
        let mut talks = Command::new("sh");
        talks.args(["-c", "for line in $(seq 1000); do echo not yet; sleep 0.02; done"]);
        let error = spawn(&mut talks, "ready", until).expect_err("it is never ready");
        assert!(error.to_string().contains("not yet"), "{error}");
        assert!(CLOCK.now().since(began) < Duration::from_secs(10), "it talks for twenty seconds");
        let mut begins = Command::new("sh");
        begins.args(["-c", "echo not yet; echo ready"]);
        let mut child = spawn(&mut begins, "ready", CLOCK.now() + START_MAX).expect("it says so");
        assert!(child.wait().expect("it ends").success());
    }
}
