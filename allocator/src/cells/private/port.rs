//! A port of loopback that a process keeps for a server it starts, through all of that server's lives.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

/// A port that a server can listen on, and that the system gives to no other process meanwhile.
///
/// The system hands a port that was free a moment ago, or that a killed server listened on, to the next connection that asks
/// for any port. This one is bound all along, by a
/// socket that does not listen. A server that sets `SO_REUSEADDR`, as axum, Redis, PostgreSQL and what is written in Go do,
/// can bind it too. Only Linux shares a port so: elsewhere it is let go of at once.
#[derive(Debug)]
pub struct HeldPort {
    address: SocketAddr,
    _socket: Option<TcpSocket>,
}

impl HeldPort {
    /// Any port that is free.
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

    /// Where a server on it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// No other socket has it before a server does. After one did, the system keeps a port for a while by itself.
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
