//! The allocator of a demo: the shipping one, in this process, on a free port. The demo starts it fresh (no
//! earlier life can be spending), looks into its books as any operator could, and stops it.

use crate::failure::Failure;
use lessor_allocator::{Config, Server};
use serde::Deserialize;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long it may take to look into the books, and to stop.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A running allocator.
#[derive(Debug)]
pub(crate) struct Hosted {
    url: String,
    http: reqwest::Client,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

/// The books of one pool, as far as a demo looks at them.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Pool {
    /// What could be lent now.
    available: u64,
    /// Lent, and not yet settled or returned.
    outstanding: u64,
}

#[derive(Debug, Deserialize)]
struct Pools {
    pools: Vec<Pool>,
}

impl Hosted {
    /// Starts one with the configuration `text`, at `listen` if somebody wants to find it there.
    pub(crate) async fn open(text: &str, listen: Option<SocketAddr>) -> Result<Self, Failure> {
        let config = Config::parse(text)
            .map_err(|error| Failure::Input(format!("the demo's own configuration: {error}")))?;
        let address = listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        let cannot = |error| Failure::Run(format!("the allocator cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let url = format!("http://{}", listener.local_addr().map_err(cannot)?);
        if listen.is_some() {
            // Nobody has to read it.
            let _ = writeln!(std::io::stderr(), "listening on {url}");
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(config, true);
        let server = tokio::spawn(server.run(listener, async {
            let _ = stopped.await;
        }));
        let http = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .no_proxy()
            .build()
            .map_err(|error| Failure::Run(format!("cannot make an HTTP client: {error}")))?;
        Ok(Hosted { url, http, stop, server })
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What could be lent of `limit` now. It has no keys.
    pub(crate) async fn available(&self, limit: &str) -> Result<u64, Failure> {
        Ok(self.pools(limit).await?.iter().map(|pool| pool.available).sum())
    }

    /// What is lent out on all of `limits` together. They have no keys.
    pub(crate) async fn outstanding(&self, limits: &[&str]) -> Result<u64, Failure> {
        let mut sum = 0;
        for limit in limits {
            sum += self.pools(limit).await?.iter().map(|pool| pool.outstanding).sum::<u64>();
        }
        Ok(sum)
    }

    async fn pools(&self, limit: &str) -> Result<Vec<Pool>, Failure> {
        let cannot = |error| Failure::Run(format!("cannot read the pools of {limit}: {error}"));
        // A name may hold slashes; in a path they are part of one segment.
        let url = format!("{}/v1/limits/{}/pools", self.url, limit.replace('/', "%2F"));
        let answer = self.http.get(url).send().await.and_then(reqwest::Response::error_for_status);
        let pools: Pools = answer.map_err(cannot)?.json().await.map_err(cannot)?;
        Ok(pools.pools)
    }

    /// Stops it.
    pub(crate) async fn close(self) {
        // One that has ended already needs no telling.
        let _ = self.stop.send(());
        if timeout(ANSWER_WITHIN, self.server).await.is_err() {
            tracing::warn!(within = ?ANSWER_WITHIN, "the allocator did not stop");
        }
    }
}
