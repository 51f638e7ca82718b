//! An nginx that counts calls by `limit_req`: on a free port of loopback, with all that it writes in a folder of its own.

use lessor_allocator::cells::private::HeldPort;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A running server, which ends with this.
pub(super) struct Nginx {
    folder: TempDir,
    port: HeldPort,
}

impl Nginx {
    /// A server of the `nginx` that is found; `None` if there is none.
    pub(super) fn start() -> io::Result<Option<Self>> {
        let (folder, port) = (tempfile::tempdir()?, HeldPort::any()?);
        std::fs::write(folder.path().join("nginx.conf"), config(folder.path(), port.address()))?;
        // It listens, and goes on in the background, when this returns.
        match command(folder.path()).status() {
            Ok(status) if status.success() => Ok(Some(Nginx { folder, port })),
            Ok(status) => Err(io::Error::other(format!("nginx ended at once: {status}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The process whose number is in its folder ends, with its workers. What fails here fails in a bench that is over.
        let _ = command(self.folder.path()).args(["-s", "stop"]).stderr(Stdio::null()).status();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).stdin(Stdio::null());
    command
}

/// Two workers, as this machine has cores, that count every call to one limit with plenty.
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
