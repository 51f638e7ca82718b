//! A server for one test, in its process, with as many clients as it wants. Tests start and end it; it checks nothing.

use lessor::Client;
use lessor_allocator::{Config, Server};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Looks this often at something that will come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longest that anything takes which comes by itself, on a machine that is busy with something else.
const EVENTUALLY: Duration = Duration::from_secs(20);

/// A server of an allocator.
#[derive(Debug)]
pub struct Fleet {
    /// Where it listens.
    pub url: String,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Fleet {
    /// A server of `config` on a port of its own.
    ///
    /// # Panics
    /// If `config` is wrong.
    pub async fn start(config: &str) -> Self {
        Fleet::start_at(config, "127.0.0.1:0").await
    }

    /// The same at `address`.
    ///
    /// # Panics
    /// If `config` is wrong, or another process is there.
    pub async fn start_at(config: &str, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let server = Server::new(Config::parse(config).expect("a good configuration"), true);
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            // Told, or the test is over: both mean stop.
            let _ = stopped.await;
        };
        Fleet { url, stop, server: tokio::spawn(server.run(listener, shutdown)) }
    }

    /// A client that has reached it.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn client(&self, node: &str) -> Client {
        Client::builder(&self.url).node(node).connect().await.expect("the server answers")
    }

    /// A number in the books of the first pool of `limit`.
    ///
    /// # Panics
    /// If there is none.
    pub async fn number(&self, limit: &str, field: &str) -> u64 {
        let books = self.books(limit).await;
        books["pools"][0][field].as_u64().unwrap_or_else(|| panic!("{field} in {books}"))
    }

    /// The books of all pools of `limit`.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn books(&self, limit: &str) -> Value {
        let body = reqwest::get(format!("{}/v1/limits/{limit}/pools", self.url)).await.expect("it answers");
        serde_json::from_str(&body.text().await.expect("a text")).expect("JSON")
    }

    /// Ends it.
    ///
    /// # Panics
    /// If it has failed.
    pub async fn stop(self) {
        // An error means that it is over already, and why shows next.
        let _ = self.stop.send(());
        self.server.await.expect("no panic").expect("no error");
    }
}

/// What `look` finds, once it does.
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
