//! A server for one test, in its process, with as many clients as the test wants. This module checks nothing.

use lessor::Client;
use lessor_allocator::{Config, Server};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How often to look for something that will come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longest wait for something that comes by itself, on a machine that is busy with other work.
const EVENTUALLY: Duration = Duration::from_secs(60);

/// An allocator's server.
#[derive(Debug)]
pub struct Fleet {
    /// The URL at which the server listens.
    pub url: String,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Fleet {
    /// Starts a server of `config` on a port of its own.
    ///
    /// # Panics
    /// If `config` is wrong.
    pub async fn start(config: &str) -> Self {
        Fleet::start_at(config, "127.0.0.1:0").await
    }

    /// Starts a server of `config` at `address`.
    ///
    /// # Panics
    /// If `config` is wrong, or another process listens there.
    pub async fn start_at(config: &str, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let server = Server::new(Config::parse(config).expect("a good configuration"), true);
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            // Told to stop, or the sender is gone because the test is over: both mean stop.
            let _ = stopped.await;
        };
        Fleet { url, stop, server: tokio::spawn(server.run(listener, shutdown)) }
    }

    /// Returns a client that has reached the server.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn client(&self, node: &str) -> Client {
        Client::builder(&self.url).node(node).connect().await.expect("the server answers")
    }

    /// Returns a number in the books of the first pool of `limit`.
    ///
    /// # Panics
    /// If there is none.
    pub async fn number(&self, limit: &str, field: &str) -> u64 {
        let books = self.books(limit).await;
        books["pools"][0][field].as_u64().unwrap_or_else(|| panic!("{field} in {books}"))
    }

    /// Returns the books of all pools of `limit`.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn books(&self, limit: &str) -> Value {
        let body =
            reqwest::get(format!("{}/v1/limits/{limit}/pools", self.url)).await.expect("the server answers");
        serde_json::from_str(&body.text().await.expect("a text")).expect("JSON")
    }

    /// Ends the server.
    ///
    /// # Panics
    /// If it has failed.
    pub async fn stop(self) {
        // An error means that the server is over already. The next line shows why.
        let _ = self.stop.send(());
        self.server.await.expect("no panic").expect("no error");
    }
}

/// Returns what `look` finds, once it finds something.
///
/// # Panics
/// If that takes too long.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    };
    tokio::time::timeout(EVENTUALLY, found).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}
