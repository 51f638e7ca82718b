//! A bad network between one client and one server: a proxy on loopback that applies a fault to each request and
//! answer. The test may change the fault at any time. The proxy knows where a message ends, knows nothing of leases,
//! and judges nothing.
//!
//! In reading order: [`fault`] (what it can do), [`malformed`] and [`dress`] (how it changes answers), [`message`]
//! (where a message ends), `connection` (one client connection).

mod connection;
pub mod dress;
pub mod fault;
pub mod malformed;
pub mod message;

use connection::serve;
use fault::Fault;
use lessor_protocol::lock_anyway::LockAnyway;
use message::Message;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    link: Arc<Link>,
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    accepting: JoinHandle<()>,
}

/// What all connections of a proxy share.
#[derive(Debug)]
struct Link {
    server: SocketAddr,
    requests: AtomicU64,
    /// Requests on their way to the server, of any connection. A request arrives even if its connection has gone.
    errands: Mutex<JoinSet<()>>,
}

impl Proxy {
    /// Starts a proxy before `server`, on a free port, without a fault.
    pub async fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let (fault, told) = watch::channel(Fault::None);
        let link = Arc::new(Link { server, requests: AtomicU64::new(0), errands: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, link.clone(), told));
        Proxy { link, address, fault, accepting }
    }

    /// The URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Applies `fault` to each request that arrives from now on, and [`Fault::Cut`] to every connection. Earlier
    /// requests go on as they were.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Requests that have arrived from the client.
    pub fn requests(&self) -> u64 {
        self.link.requests.load(Ordering::Acquire)
    }

    /// Waits until every request for the server has reached it and was answered. Copies and new requests are waited for
    /// as well.
    pub async fn drain(&self) {
        loop {
            let mut errands = std::mem::take(&mut *self.link.errands.lock_anyway());
            if errands.is_empty() {
                return;
            }
            while errands.join_next().await.is_some() {}
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.link.errands.lock_anyway().abort_all();
    }
}

/// Accepts connections and owns them: they end with this task.
async fn accept(listener: TcpListener, link: Arc<Link>, fault: watch::Receiver<Fault>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("the process has free file descriptors");
                connections.spawn(serve(stream, link.clone(), fault.clone()));
            }
            Some(ended) = connections.join_next() => ended.expect("a connection does not panic"),
        }
    }
}

impl Link {
    /// Sends `request` to the server after `wait`. The request arrives even if the caller drops the receiver of the
    /// answer.
    fn send(&self, request: Message, wait: Duration, pause: Option<Duration>) -> oneshot::Receiver<Message> {
        let (bring, answer) = oneshot::channel();
        let server = self.server;
        self.errands.lock_anyway().spawn(async move {
            sleep(wait).await;
            // If the server is not there or breaks off, the client receives nothing.
            if let Ok(Some(message)) = exchange(server, &request, pause).await {
                let _ = bring.send(message);
            }
        });
        answer
    }
}

/// Sends one request and reads its answer, on a connection of its own.
async fn exchange(
    server: SocketAddr,
    request: &Message,
    pause: Option<Duration>,
) -> io::Result<Option<Message>> {
    let mut stream = TcpStream::connect(server).await?;
    write(&mut stream, &request.bytes(), pause).await?;
    Message::read(&mut BufReader::new(stream)).await
}

/// Writes `bytes`: all at once, or one by one with a `pause` between them.
async fn write(stream: &mut TcpStream, bytes: &[u8], pause: Option<Duration>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(pause) = pause else { return stream.write_all(bytes).await };
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        if pause.is_zero() { tokio::task::yield_now().await } else { sleep(pause).await }
    }
    Ok(())
}
