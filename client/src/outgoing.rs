//! A middleware for `reqwest-middleware`: each outgoing request takes a permit, waits for one or is refused, and what the
//! vendor answers is told to the fleet.

use crate::limit::Limit;
use crate::refusal::Refusal;
use http::Extensions;
use reqwest_middleware::{Error, Middleware, Next};
use std::time::Duration;

/// Takes a permit of a limit for each request, and observes each answer.
#[derive(Clone, Debug)]
pub struct Outgoing {
    limit: Limit,
    patience: Option<Duration>,
}

impl Outgoing {
    /// Waits for a permit for as long as it takes.
    pub fn waiting(limit: Limit) -> Self {
        Outgoing { limit, patience: None }
    }

    /// Waits for at most `patience`; with none, refuses at once. The error holds the [`Refusal`].
    pub fn refusing(limit: Limit, patience: Duration) -> Self {
        Outgoing { limit, patience: Some(patience) }
    }

    async fn acquire(&self) -> Result<(), Refusal> {
        match self.patience {
            None => self.limit.acquire(1).await,
            Some(Duration::ZERO) => self.limit.try_acquire(1),
            Some(patience) => self.limit.acquire_within(1, patience).await,
        }
    }
}

#[async_trait::async_trait]
impl Middleware for Outgoing {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        self.acquire().await.map_err(Error::middleware)?;
        let response = next.run(request, extensions).await?;
        self.limit.observe(response.status(), response.headers());
        Ok(response)
    }
}
