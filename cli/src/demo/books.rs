//! The books of a demo's allocator, as any operator can look into them: over HTTP, wherever it runs.

use crate::failure::Failure;
use serde::Deserialize;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// How long it may take to look into the books.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The way to them.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    url: String,
    http: reqwest::Client,
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

impl Books {
    /// Returns the books of the allocator at `address`. Prints `address` and where its page is, if an operator wants to
    /// find it there.
    pub(crate) fn at(address: SocketAddr, is_asked_for: bool) -> Result<Self, Failure> {
        let url = format!("http://{address}");
        if is_asked_for {
            // The lines need no reader.
            let _ = writeln!(std::io::stderr(), "listening on {url}\npage: {url}/");
        }
        let http = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .no_proxy()
            .build()
            .map_err(|error| Failure::Run(format!("cannot make an HTTP client: {error}")))?;
        Ok(Books { url, http })
    }

    /// The allocator's address.
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
}
