//! A Unix socket at a path. The socket of a dead process is replaced; the socket of a live one, and anything else, is
//! left as it is. A lock file beside it, held while the process lives, keeps two processes from replacing each other's
//! socket.

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Access mode: its user and its group may connect.
const MODE: u32 = 0o660;

/// A listening socket. Dropping this removes its file, if that is still the one that was made.
#[derive(Debug)]
pub(super) struct Socket {
    // Dropped in this order: the file goes before connections are refused, and the lock last.
    made: Made,
    listener: UnixListener,
    _lock: Lock,
}

impl Socket {
    /// Listens at `path`, with at most `backlog` connections that wait to be accepted.
    ///
    /// # Errors
    /// If another process listens there, something else is there, or no socket can be made.
    pub(super) fn listen(path: &Path, backlog: u32) -> io::Result<Self> {
        let lock = Lock::of(path)?;
        clear(path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        // Before it listens no peer can connect, so the mode that the umask gave it until now does not matter.
        let made = Made::of(path)?;
        Ok(Socket { made, listener: socket.listen(backlog)?, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.made.path
    }

    /// Waits for the next connection. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

fn wrong(kind: ErrorKind, problem: &'static str) -> io::Error {
    io::Error::new(kind, problem)
}

/// Removes the socket of a dead process at `path`, if there is one.
fn clear(path: &Path) -> io::Result<()> {
    let file = match path.symlink_metadata() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(wrong(
            ErrorKind::AlreadyExists,
            "the file there is no socket, and is left as it is: use another path, or remove the file",
        ));
    }
    // Connecting to a socket with a full backlog would block.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN) => Err(wrong(ErrorKind::AddrInUse, "another process listens there")),
        Err(error) => Err(error.into()),
    }
}

/// The file of a socket that this process made.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Its device and its inode.
    id: (u64, u64),
}

impl Made {
    /// Takes the socket that was just made at `path`, and sets its mode.
    fn of(path: &Path) -> io::Result<Self> {
        // Follows no link, whatever is at the path by now.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(wrong(ErrorKind::AlreadyExists, "another process replaced the socket"));
        }
        let made = Made { path: path.to_owned(), id: (found.st_dev, found.st_ino) };
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::set_permissions(opened, Permissions::from_mode(MODE))?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if id(&self.path) == Some(self.id)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket cannot be removed");
        }
    }
}

/// The right to make and to remove a socket, until it is dropped.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks the socket at `path` by the file beside it that ends in `.lock`.
    fn of(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(&path)?;
        let is_taken = match file.try_lock() {
            // The process that had the lock may have removed its file, and another one made it again.
            Ok(()) => id(&path) != Some(file.metadata().map(|file| (file.dev(), file.ino()))?),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if is_taken {
            return Err(wrong(ErrorKind::AddrInUse, "another process listens there"));
        }
        Ok(Lock { path, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the lock of a socket cannot be removed");
        }
    }
}

/// Returns device and inode of what is at `path`; a link is not followed.
fn id(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refused(path: &Path) -> String {
        Socket::listen(path, 1).map(|_| ()).expect_err("it is taken").to_string()
    }

    #[tokio::test]
    async fn a_socket_is_for_its_group_and_gone_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        for _ in 0..2 {
            let socket = Socket::listen(&path, 1).expect("nothing is there");
            let mode = path.symlink_metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, MODE);
            let (peer, _accepted) = tokio::join!(UnixStream::connect(&path), socket.accept());
            peer.expect("it listens");
            drop(socket);
            assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left");
        }
    }

    /// The socket of a dead process is replaced. The socket of a live process is not, even if its backlog is full.
    #[tokio::test]
    async fn what_a_live_process_listens_on_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let foreign = std::os::unix::net::UnixListener::bind(&path).expect("nothing is there");
        assert_eq!(refused(&path), "another process listens there");
        drop(foreign);
        let _waiting = {
            let full = UnixSocket::new_stream().expect("a socket");
            std::fs::remove_file(&path).expect("it is stale");
            full.bind(&path).expect("nothing is there");
            let full = full.listen(0).expect("it is bound");
            let waiting = UnixStream::connect(&path).await.expect("one may wait");
            assert_eq!(refused(&path), "another process listens there");
            drop(full);
            waiting
        };
        let socket = Socket::listen(&path, 1).expect("it is stale");
        assert_eq!(refused(&path), "another process listens there", "of a process of its own kind");
        // A file that was put there since is not removed.
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "mine").expect("written");
        drop(socket);
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "mine");
    }

    /// Without the lock, two processes that find a stale socket at once would replace each other's.
    #[tokio::test]
    async fn one_process_at_a_time_makes_a_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let lock = Lock::of(&path).expect("no process has it");
        assert_eq!(refused(&path), "another process listens there");
        drop(lock);
        Socket::listen(&path, 1).expect("no process has it");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "mine").expect("written");
        std::fs::create_dir(at("folder")).expect("made");
        let _live = std::os::unix::net::UnixListener::bind(at("live")).expect("nothing is there");
        drop(std::os::unix::net::UnixListener::bind(at("stale")).expect("nothing is there"));
        for target in ["file", "live", "stale", "nothing"] {
            symlink(at(target), at(&format!("link-{target}"))).expect("a link");
        }
        for name in ["file", "folder", "link-file", "link-live", "link-stale", "link-nothing"] {
            assert!(refused(&at(name)).starts_with("the file there is no socket"), "{name}");
            assert!(at(name).symlink_metadata().is_ok(), "{name}");
        }
        assert!(at("stale").symlink_metadata().is_ok() && !at("nothing").exists());
        // No link is followed for the lock file either.
        symlink(at("file"), at("a.lock")).expect("a link");
        assert!(Socket::listen(&at("a"), 1).is_err());
        assert!(Socket::listen(&at("no/folder"), 1).is_err());
    }
}
