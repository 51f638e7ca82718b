//! An nginx that counts calls by `limit_req`, on a free port of loopback, with all its files in a temporary folder.

use lessor_allocator::cells::private::HeldPort;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A running server, which stops when this is dropped.
pub(super) struct Nginx {
    folder: TempDir,
    port: HeldPort,
}

impl Nginx {
    /// Starts the installed `nginx`; `None` if there is none.
    pub(super) fn start() -> io::Result<Option<Self>> {
        let (folder, port) = (tempfile::tempdir()?, HeldPort::any()?);
        std::fs::write(folder.path().join("nginx.conf"), config(folder.path(), port.address()))?;
        // When this returns, the server listens and runs in the background.
        match command(folder.path()).status() {
            Ok(status) if status.success() => Ok(Some(Nginx { folder, port })),
            Ok(status) => Err(io::Error::other(format!("nginx ended at once: {status}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The address on which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Stops the process whose id is in the folder, with its workers. A failure here does not matter: the bench is
        // over.
        let _ = command(self.folder.path()).args(["-s", "stop"]).stderr(Stdio::null()).status();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).stdin(Stdio::null());
    command
}

/// Configures two workers, one for each core of the machine measured, that count every call against a limit that never
/// runs short.
fn config(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.map(|what| format!("    {what}_temp_path {folder}/{what};\n")).concat();
    format!(
        "worker_processes 2;\npid {folder}/pid;\nerror_log {folder}/errors crit;\nevents {{}}\nhttp {{\n\
         {temporary}    access_log off;\n    keepalive_requests 1000000000;\n\
         \x20   limit_req_zone hot zone=hot:1m rate=1000000r/s;\n    server {{\n        listen {address};\n\
         \x20       location / {{\n            limit_req zone=hot burst=1000000 nodelay;\n            empty_gif;\n\
         \x20       }}\n    }}\n}}\n"
    )
}
