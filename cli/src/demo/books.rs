//! The books of a demo's allocator, read over HTTP as any operator can, wherever the allocator runs.

use crate::failure::Failure;
use http::{Request, StatusCode};
use lessor_tls::{HttpClient, Tls};
use serde::Deserialize;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time that reading the books may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The metric of requests that proved no identity.
const UNAUTHENTICATED: &str = "lessor_refused_total{reason=\"unauthenticated\"}";

/// A client for the books of one allocator.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    url: String,
    http: HttpClient,
}

/// The books of one pool, as far as a demo needs them.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Pool {
    /// Permits that could be lent now.
    available: u64,
    /// Permits lent, and not yet settled or returned.
    outstanding: u64,
}

#[derive(Debug, Deserialize)]
struct Pools {
    pools: Vec<Pool>,
}

impl Books {
    /// Returns the books of the allocator at `address`, which speaks TLS if `tls` is set. Prints `address` and the
    /// address of the page, if an operator wants to find it there.
    pub(crate) fn at(address: SocketAddr, is_asked_for: bool, tls: Option<Tls>) -> Result<Self, Failure> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        if is_asked_for {
            // The lines need no reader.
            let _ = writeln!(std::io::stderr(), "listening on {url}\npage: {url}/");
        }
        let http = HttpClient::try_new(ANSWER_WITHIN, tls)
            .map_err(|error| Failure::Run(format!("cannot make an HTTP client: {error}")))?;
        Ok(Books { url, http })
    }

    /// Returns the allocator's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the permits of `limit` that could be lent now. The limit has no keys.
    pub(crate) async fn available(&self, limit: &str) -> Result<u64, Failure> {
        Ok(self.pools(limit).await?.iter().map(|pool| pool.available).sum())
    }

    /// Returns the permits lent out on all of `limits` together. They have no keys.
    pub(crate) async fn outstanding(&self, limits: &[&str]) -> Result<u64, Failure> {
        let mut sum = 0;
        for limit in limits {
            sum += self.pools(limit).await?.iter().map(|pool| pool.outstanding).sum::<u64>();
        }
        Ok(sum)
    }

    async fn pools(&self, limit: &str) -> Result<Vec<Pool>, Failure> {
        let cannot = |error: String| Failure::Run(format!("cannot read the pools of {limit}: {error}"));
        // A name may hold slashes; they must stay in one segment of the path.
        let path = format!("/v1/limits/{}/pools", limit.replace('/', "%2F"));
        let body = self.read(&path).await.map_err(cannot)?;
        let pools: Pools = serde_json::from_slice(&body).map_err(|error| cannot(error.to_string()))?;
        Ok(pools.pools)
    }

    /// Returns how many requests it has refused because they proved no identity.
    pub(crate) async fn unauthenticated(&self) -> Result<u64, Failure> {
        let cannot = |error: String| Failure::Run(format!("cannot read the metrics: {error}"));
        let body = self.read("/metrics").await.map_err(cannot)?;
        let text = String::from_utf8_lossy(&body);
        let value = text.lines().find_map(|line| line.strip_prefix(UNAUTHENTICATED));
        value
            .and_then(|value| value.trim().parse().ok())
            .ok_or_else(|| cannot(format!("{UNAUTHENTICATED} is missing")))
    }

    /// Reads the body at `path`.
    async fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let request = Request::get(format!("{}{path}", self.url)).body(vec![]);
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.http.send(request, ANSWER_WITHIN).await;
        let mut answer = answer.map_err(|error| error.to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer is {}", answer.status()));
        }
        let mut body = vec![];
        while let Some(piece) = answer.chunk().await.map_err(|error| error.to_string())? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}
