//! Listens for the connections of a server: at an address, or on a Unix socket. Binaries and tests own the listener.

mod socket;

use crate::addresses::Address;
use crate::config::Listen;
use socket::Socket;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

/// Most connections that wait to be accepted: a fleet that starts, or that lost its allocator, connects at once. The
/// system may allow fewer (`net.core.somaxconn`); the rest try again after a second.
const BACKLOG: u32 = 4_096;

/// Accepts connections for [`Server::run`](crate::Server::run). Dropping it removes its Unix socket.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(Socket),
}

/// An accepted connection.
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Listens at `listen`. A Unix socket is for its user and its group (mode 0660), and replaces one that a dead process
/// left.
///
/// # Errors
/// If nothing can listen there. Of a Unix socket, also if another process listens on it, or something else is at its
/// path.
pub fn listen(listen: &Listen) -> io::Result<Listener> {
    match listen {
        Listen::Address(address) => tcp(*address).map(Listener::from),
        Listen::Unix(path) => Socket::listen(path, BACKLOG).map(|socket| Listener(Kind::Unix(socket))),
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier life may linger at the address.
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
    /// Returns where it listens, with the actual port.
    ///
    /// # Errors
    /// If it has no address.
    pub fn place(&self) -> io::Result<Listen> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().map(Listen::Address),
            Kind::Unix(socket) => Ok(Listen::Unix(socket.path().to_owned())),
        }
    }

    /// Waits for the next connection. Cancel-safe.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Kind::Tcp(listener) => listener.accept().await.map(|(stream, from)| Accepted::Tcp(stream, from)),
            Kind::Unix(socket) => socket.accept().await.map(Accepted::Unix),
        }
    }
}

impl Accepted {
    /// Returns the address of the peer.
    pub(crate) fn address(&self) -> Address {
        match self {
            Accepted::Tcp(_, from) => Address::Ip(from.ip()),
            Accepted::Unix(_) => Address::Unix,
        }
    }
}
