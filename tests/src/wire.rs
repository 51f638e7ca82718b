//! A wire to a server that can be cut, be slow, lose an answer, or lead to another server. It passes bytes on and knows
//! nothing of their meaning.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// A wire that exists until it is dropped.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    state: watch::Sender<State>,
    loses: Arc<AtomicBool>,
    accepting: AbortHandle,
}

/// The state of a wire.
#[derive(Clone, Copy, Debug)]
struct State {
    server: SocketAddr,
    is_cut: bool,
    /// The delay of each answer.
    late: Duration,
}

impl Wire {
    /// Starts a wire to `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let (state, told) = watch::channel(State { server, is_cut: false, late: Duration::ZERO });
        let loses = Arc::new(AtomicBool::new(false));
        let will_lose = Arc::clone(&loses);
        let accepting = tokio::spawn(async move {
            let mut carrying = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                carrying.spawn(carry(client, told.clone(), Arc::clone(&will_lose)));
            }
        });
        Wire { address, state, loses, accepting: accepting.abort_handle() }
    }

    /// The address at which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses the next answer, and closes its connection.
    pub fn lose_an_answer(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }

    /// Cuts the wire: nothing passes, and neither end is told. A client that connects gets no answer either.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.is_cut = true);
    }

    /// Mends the wire. Bytes that were under way arrive late and are not lost.
    pub fn mend(&self) {
        self.state.send_modify(|state| state.is_cut = false);
    }

    /// Delays each answer by `late`.
    pub fn delay_by(&self, late: Duration) {
        self.state.send_modify(|state| state.late = late);
    }

    /// Leads to another server from now on. Connections to the earlier one end.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(mut client: TcpStream, mut told: watch::Receiver<State>, loses: Arc<AtomicBool>) {
    let passes = |state: &State| !state.is_cut;
    let Ok(State { server, .. }) = told.wait_for(passes).await.map(|state| *state) else { return };
    let Ok(mut there) = TcpStream::connect(server).await else { return };
    let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
    loop {
        // Waiting here holds up both directions and keeps their order.
        let Ok(State { server: now, late, .. }) = told.wait_for(passes).await.map(|state| *state) else {
            return;
        };
        if now != server {
            return;
        }
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            read = client.read(&mut asked) => match read {
                Ok(length) if length > 0 && there.write_all(&asked[..length]).await.is_ok() => {}
                _ => return,
            },
            read = there.read(&mut answered) => match read {
                Ok(length) if length > 0 => {
                    sleep(late).await;
                    let is_lost = loses.swap(false, Ordering::SeqCst);
                    if is_lost || client.write_all(&answered[..length]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}
