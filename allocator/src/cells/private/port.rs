//! A port of loopback that a process reserves for a server it starts, over all restarts of that server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

/// A port that a server can listen on, and that the system gives to no other process.
///
/// The system hands a port that was just free, or that a killed server used, to the next connection that asks for any
/// port. This port stays bound, by a socket that does not listen. A server that sets `SO_REUSEADDR`, as axum, Redis,
/// PostgreSQL and Go programs do, can bind it, too. Only Linux shares a port like that: elsewhere it is released at
/// once.
#[derive(Debug)]
pub struct HeldPort {
    address: SocketAddr,
    _socket: Option<TcpSocket>,
}

impl HeldPort {
    /// Reserves any free port.
    ///
    /// # Errors
    /// If the system has none.
    pub fn any() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        Ok(HeldPort { address, _socket: cfg!(target_os = "linux").then_some(socket) })
    }

    /// The address of a server on this port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// No other socket can bind the port before a server does. After that the system itself keeps it for a while.
    #[test]
    #[cfg(target_os = "linux")]
    fn one_server_after_another_listens_on_it_and_no_other_socket_is_given_it() {
        let port = HeldPort::any().expect("one is free");
        let taken = TcpSocket::new_v4().and_then(|other| other.bind(port.address()));
        assert_eq!(taken.expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
        for _ in 0..3 {
            let server = TcpListener::bind(port.address()).expect("it is kept for this");
            let client = TcpStream::connect(port.address()).expect("it listens");
            let (served, _) = server.accept().expect("it was connected to");
            drop((served, client, server));
        }
        let refused = TcpStream::connect(port.address()).expect_err("nothing listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
