//! One exchange of the background task: its request, its span, and whether the response answers it.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool, PoolName};
use crate::tally;
use crate::transport::{ExchangeError, Transport};
use lessor_holder::connection::Exchange;
use lessor_protocol::foreign::excerpt;
use lessor_protocol::lease::millis_up;
use lessor_protocol::trace;
use lessor_protocol::wire::{AskBody, GrantBody, LeasesRequest, LeasesResponse};
use std::sync::Arc;
use tracing::Instrument as _;
use tracing::field::Empty;

impl Refiller {
    /// Sends `asks` in `exchange`, in a span of its own: it is unknown which callers will spend the permits.
    pub(super) async fn send(
        &mut self,
        exchange: &Exchange,
        asks: Vec<AskBody>,
    ) -> Result<LeasesResponse, ExchangeError> {
        let span = tracing::debug_span!(
            target: trace::TARGET, parent: None, "renew", otel.kind = "client", otel.status_code = Empty,
            asks = asks.len(), allocator = %self.transports[exchange.place].name(),
        );
        let answer = self.say(exchange, asks).instrument(span.clone()).await;
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    async fn say(
        &mut self,
        exchange: &Exchange,
        asks: Vec<AskBody>,
    ) -> Result<LeasesResponse, ExchangeError> {
        let &Exchange { session, epoch, seq, patience, rtt, .. } = exchange;
        let (node, rtt_ms) = (self.node.clone(), millis_up(rtt));
        let request = LeasesRequest { node, session, epoch, seq, rtt_ms, asks };
        let transport = &self.transports[exchange.place];
        let answer = tokio::time::timeout(patience, transport.leases(&request)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(transport.unreachable(&format!("no answer within {patience:?}"))));
        let response = answer.inspect_err(|_| tally::exchanged(None))?;
        // A middlebox between the allocator and the node may deliver an old answer.
        let LeasesResponse { session, seq, .. } = response;
        let Some((_, took)) = self.connection.on_answer(session, seq, CLOCK.now()) else {
            let why = format!("it answers exchange {seq} of session {session}, which is not open");
            return Err(transport.rubbish(&why));
        };
        tally::exchanged(Some(took));
        Ok(response)
    }
}

/// Returns the grants of a response of `allocator` that answers exactly what was asked.
pub(super) fn matching(
    allocator: &Transport,
    response: LeasesResponse,
    pools: &[Arc<LocalPool>],
) -> Result<Vec<GrantBody>, ExchangeError> {
    let named = |name: &PoolName, body: &GrantBody| {
        *name.limit == *body.limit && name.key.as_deref() == body.key.as_deref()
    };
    if response.grants.len() != pools.len() {
        let (got, asked) = (response.grants.len(), pools.len());
        return Err(allocator.rubbish(&format!("{got} grants for {asked} asks")));
    }
    match pools.iter().zip(&response.grants).find(|(pool, body)| !named(pool.name(), body)) {
        Some((pool, _)) => {
            let limit = excerpt(&pool.name().limit);
            Err(allocator.rubbish(&format!("a grant for another limit or key, where {limit} was asked for")))
        }
        None => Ok(response.grants),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{self, NOWHERE};
    use std::time::Duration;

    #[tokio::test]
    async fn an_allocator_that_gives_no_answer_in_time_is_named() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("the listener is bound"));
        let mut refiller = by_hand::refiller_of(&by_hand::shared(), &url, Duration::from_millis(20));
        let error = refiller.greet().await.expect_err("no answer").to_string();
        assert_eq!(error, format!("the allocator could not be reached: {url}: no answer within 20ms"));
    }

    /// The bug: the error named no allocator.
    #[test]
    fn an_allocator_that_answers_something_else_is_named() {
        let (shared, transport) = (by_hand::shared(), by_hand::transport(NOWHERE));
        let pools = [shared.pool("a", None), shared.pool("b", None)];
        let said = |limits: &[&str]| {
            let grant = |limit: &&str| GrantBody { limit: (*limit).to_owned(), ..GrantBody::default() };
            let grants = limits.iter().map(grant).collect();
            let response = LeasesResponse { epoch: 1, session: 1, seq: 1, grants };
            matching(&transport, response, &pools).expect_err("no answer to the asks").to_string()
        };
        let unusable = format!("the allocator's answer is unusable: {NOWHERE}: ");
        assert_eq!(said(&[]), format!("{unusable}0 grants for 2 asks"));
        assert_eq!(
            said(&["a", "c"]),
            format!("{unusable}a grant for another limit or key, where b was asked for")
        );
    }
}
