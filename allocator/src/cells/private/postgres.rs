//! Makes, starts and stops a private PostgreSQL. PostgreSQL does not run as root: then another user runs it.

use super::{Setting, USER, find, run};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Line of output that says that it is ready.
pub(super) const READY: &str = "database system is ready to accept";

/// Its error while processes of a killed one are still there.
pub(super) const STILL_THERE: &str = "is still in use";

/// The file with the password.
const SECRET: &str = "secret";

/// The administrator.
pub(super) const ADMIN: &str = "postgres";

/// Users that run it if this process is root.
const OTHERS: [&str; 2] = ["postgres", "nobody"];

/// Own settings: few connections on loopback, in little memory. Durability is left at its defaults.
const SETTINGS: [Setting; 6] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("max_connections", "60"),
    ("shared_buffers", "16MB"),
    ("logging_collector", "off"),
    ("wal_receiver_status_interval", "1s"),
];

/// Makes a cluster, and in it a user without special rights, with its own database.
pub(super) fn prepare(folder: &Path, password: &str) -> io::Result<()> {
    own(folder)?;
    let secret = secret(folder, password)?;
    let mut initdb = program("initdb")?;
    initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]);
    initdb.arg(format!("--username={ADMIN}"));
    run(initdb.arg("--pwfile").arg(secret).arg("-D").arg(data(folder)))?;
    let mut single = program("postgres")?;
    single.arg("--single").arg("-D").arg(data(folder)).arg("postgres");
    let mut child = single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let sql =
        format!("CREATE ROLE {USER} LOGIN PASSWORD '{password}'\nCREATE DATABASE {USER} OWNER {USER}\n");
    child
        .stdin
        .take()
        .ok_or_else(|| io::Error::other("no way to say anything"))?
        .write_all(sql.as_bytes())?;
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("postgres --single failed")),
    }
}

/// Copies the cluster in `template`, which no server uses. Returns its password.
pub(super) fn prepare_from(template: &Path, folder: &Path) -> io::Result<String> {
    own(folder)?;
    run(Command::new("cp").arg("-a").arg(data(template)).arg(data(folder)))?;
    std::fs::read_to_string(template.join(SECRET))
}

/// Makes a standby of the server on this port.
pub(super) fn copy(port: u16, password: &str, folder: &Path) -> io::Result<()> {
    own(folder)?;
    let mut copy = program("pg_basebackup")?;
    copy.env("PGPASSWORD", password).args(["-h", "127.0.0.1", "-U", ADMIN, "-R", "-c", "fast", "--no-sync"]);
    run(copy.arg("-p").arg(port.to_string()).arg("-D").arg(data(folder)))
}

pub(super) fn command(folder: &Path, port: u16, settings: &[Setting]) -> io::Result<Command> {
    let mut command = program("postgres")?;
    command.current_dir(folder).arg("-D").arg(data(folder)).arg("-p").arg(port.to_string());
    for (name, value) in SETTINGS.into_iter().chain(settings.iter().copied()) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    Ok(command)
}

pub(super) fn promote(folder: &Path) -> io::Result<()> {
    run(program("pg_ctl")?.arg("promote").arg("-w").arg("-s").arg("-D").arg(data(folder)))
}

/// Stops it at once, and removes its shared memory.
pub(super) fn stop(folder: &Path) {
    // If this fails, it is killed afterwards.
    let _ = program("pg_ctl").and_then(|mut stop| {
        run(stop.args(["stop", "-m", "immediate", "-w", "-t", "10", "-s", "-D"]).arg(data(folder)))
    });
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn secret(folder: &Path, password: &str) -> io::Result<PathBuf> {
    let path = folder.join(SECRET);
    std::fs::write(&path, password)?;
    give(&path)?;
    Ok(path)
}

/// Returns a command for a program of PostgreSQL, under a user that it accepts.
fn program(name: &str) -> io::Result<Command> {
    let missing = || io::Error::other("there is no PostgreSQL server here: install it");
    let mut command = Command::new(find::postgres(name).ok_or_else(missing)?);
    command.env("LC_ALL", "C").current_dir("/");
    if let Some((user, group)) = other_user()? {
        command.uid(user).gid(group);
    }
    Ok(command)
}

/// Gives the folder of a server to the user that runs it.
fn own(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    give(folder)
}

fn give(path: &Path) -> io::Result<()> {
    match other_user()? {
        Some((user, group)) => std::os::unix::fs::chown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// Returns user and group that run it instead of root.
fn other_user() -> io::Result<Option<(u32, u32)>> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let of = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':'));
        let mut found = fields.find_map(|mut line| (line.next() == Some(name)).then_some(line))?;
        let user = found.nth(1)?.parse().ok()?;
        Some((user, found.next()?.parse().ok()?))
    };
    let found = OTHERS.into_iter().find_map(of);
    found
        .map(Some)
        .ok_or_else(|| io::Error::other("PostgreSQL does not run as root, and there is no other user"))
}
