//! One exchange as the background task sees it: what is sent, the span that it is, and whether what came answers it.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool, PoolName};
use crate::tally;
use crate::timing::learnt;
use crate::transport::{ExchangeError, excerpt};
use lessor_protocol::lease::millis_up;
use lessor_protocol::trace;
use lessor_protocol::wire::{AskBody, GrantBody, LeasesRequest, LeasesResponse};
use std::sync::Arc;
use tracing::Instrument as _;
use tracing::field::Empty;

impl Refiller {
    /// One exchange, as a span of its own: whoever spends what it brings is not known, and may be anybody.
    pub(super) async fn send(&mut self, asks: Vec<AskBody>) -> Result<LeasesResponse, ExchangeError> {
        let span = tracing::debug_span!(
            target: trace::TARGET, parent: None, "renew", otel.kind = "client", otel.status_code = Empty,
            asks = asks.len(), allocator = %self.ways[self.rotation.current()].name(),
        );
        let answer = self.say(asks).instrument(span.clone()).await;
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    async fn say(&mut self, asks: Vec<AskBody>) -> Result<LeasesResponse, ExchangeError> {
        let (node, rtt_ms) = (self.node.clone(), millis_up(self.rtt));
        let (session, seq) = (self.rotation.session(), self.rotation.next_seq());
        let request = LeasesRequest { node, session, seq, rtt_ms, asks };
        let sent = CLOCK.now();
        let response = self.answer(&request).await.inspect_err(|_| tally::exchanged(None))?;
        // Something between the allocator and us may keep answers and give us an old one.
        if (response.session, response.seq) != (session, seq) {
            let LeasesResponse { session, seq, .. } = response;
            return Err(ExchangeError::Rubbish(format!("an answer to exchange {seq} of session {session}")));
        }
        let took = CLOCK.now().since(sent);
        self.rtt = learnt(self.rtt, took);
        tally::exchanged(Some(took));
        Ok(response)
    }
}

/// The grants of a response that answers exactly what was asked.
pub(super) fn matching(
    response: LeasesResponse,
    pools: &[Arc<LocalPool>],
) -> Result<Vec<GrantBody>, ExchangeError> {
    let named = |name: &PoolName, body: &GrantBody| {
        *name.limit == *body.limit && name.key.as_deref() == body.key.as_deref()
    };
    if response.grants.len() != pools.len() {
        let (got, asked) = (response.grants.len(), pools.len());
        return Err(ExchangeError::Rubbish(format!("{got} grants for {asked} asks")));
    }
    match pools.iter().zip(&response.grants).find(|(pool, body)| !named(pool.name(), body)) {
        Some((pool, _)) => Err(ExchangeError::Rubbish(format!(
            "a grant for another limit than {}",
            excerpt(&pool.name().limit)
        ))),
        None => Ok(response.grants),
    }
}
