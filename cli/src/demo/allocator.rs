//! The allocator of a demo: the shipping one, in this process, on a free port. The demo starts it fresh (no earlier
//! process can have lent), reads its books as any operator could, and stops it.

use super::books::Books;
use crate::failure::Failure;
use lessor_allocator::{Config, Server};
use lessor_tls::Tls;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest time that it may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A running allocator.
#[derive(Debug)]
pub(crate) struct Hosted {
    books: Books,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Hosted {
    /// Starts an allocator with the configuration `text`, at `listen` if an operator wants to find it there. If it
    /// speaks TLS, `tls` is for the client that reads its books.
    pub(crate) async fn open(
        text: &str,
        listen: Option<SocketAddr>,
        tls: Option<Tls>,
    ) -> Result<Self, Failure> {
        let config = Config::parse(text)
            .map_err(|error| Failure::Input(format!("the demo's own configuration: {error}")))?;
        let address = listen.unwrap_or(super::ANY_PORT);
        let cannot = |error| Failure::Run(format!("the allocator cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let books = Books::at(listener.local_addr().map_err(cannot)?, listen.is_some(), tls)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(config, true);
        let server = tokio::spawn(server.run(listener, async {
            let _ = stopped.await;
        }));
        Ok(Hosted { books, stop, server })
    }

    /// Returns its books.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// Stops it.
    pub(crate) async fn close(self) {
        // If it has ended already, it cannot be told.
        let _ = self.stop.send(());
        if timeout(STOP_WITHIN, self.server).await.is_err() {
            tracing::warn!(within = ?STOP_WITHIN, "the allocator did not stop");
        }
    }
}
