//! What a server accepts connections from: an address, or a Unix socket. Binaries and tests own it.

mod socket;

use crate::addresses::Address;
use crate::config::Listen;
use socket::Socket;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

/// Connections that wait to be accepted: a fleet that is started at once, or that lost its allocator, comes at once. The system
/// may allow fewer (`net.core.somaxconn`); those beyond it try again after a second.
const BACKLOG: u32 = 4_096;

/// Accepts connections for [`Server::run`](crate::Server::run). A Unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(Socket),
}

/// A connection that was accepted.
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// A listener at `listen`. A Unix socket is for its user and its group (mode 0660). One that a dead process left behind is replaced.
///
/// # Errors
/// If nothing can listen there; of a Unix socket also if another process listens on it, or something else is at its path.
pub fn listen(listen: &Listen) -> io::Result<Listener> {
    match listen {
        Listen::Address(address) => tcp(*address).map(Listener::from),
        Listen::Unix(path) => Socket::listen(path, BACKLOG).map(|socket| Listener(Kind::Unix(socket))),
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier life may linger there.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Listener(Kind::Tcp(listener))
    }
}

impl Listener {
    /// Where it listens, with the port that it has.
    ///
    /// # Errors
    /// If it has no address.
    pub fn place(&self) -> io::Result<Listen> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().map(Listen::Address),
            Kind::Unix(socket) => Ok(Listen::Unix(socket.path().to_owned())),
        }
    }

    /// The next connection. Cancel-safe.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Kind::Tcp(listener) => listener.accept().await.map(|(stream, from)| Accepted::Tcp(stream, from)),
            Kind::Unix(socket) => socket.accept().await.map(Accepted::Unix),
        }
    }
}

impl Accepted {
    /// Where its peer is.
    pub(crate) fn address(&self) -> Address {
        match self {
            Accepted::Tcp(_, from) => Address::Ip(from.ip()),
            Accepted::Unix(_) => Address::Unix,
        }
    }
}
