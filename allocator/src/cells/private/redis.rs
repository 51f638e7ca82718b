//! Starts a private Redis.

use super::{Setting, find};
use std::io;
use std::path::Path;
use std::process::Command;

/// Line of output that says that it is ready.
pub(super) const READY: &str = "Ready to accept connections";

/// Own settings: loopback only, and nothing persisted unless the caller asks for it.
const SETTINGS: [Setting; 4] =
    [("bind", "127.0.0.1"), ("save", ""), ("appendonly", "no"), ("daemonize", "no")];

pub(super) fn command(folder: &Path, port: u16, password: &str, settings: &[Setting]) -> io::Result<Command> {
    let program =
        find::redis().ok_or_else(|| io::Error::other("there is no redis-server here: install it"))?;
    let mut command = Command::new(program);
    command.current_dir(folder).arg("--port").arg(port.to_string()).arg("--dir").arg(folder);
    // Every user that lists processes sees a password on the command line, but not one in a file.
    let secret = folder.join("secret.conf");
    std::fs::create_dir_all(folder)?;
    std::fs::write(&secret, format!("requirepass {password}\nmasterauth {password}\n"))?;
    command.arg("--include").arg(secret);
    for (name, value) in SETTINGS.into_iter().chain(settings.iter().copied()) {
        command.arg(format!("--{name}"));
        match value {
            "" => command.arg(""),
            _ => command.args(value.split(' ')),
        };
    }
    Ok(command)
}
