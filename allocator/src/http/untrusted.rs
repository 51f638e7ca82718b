//! Decodes and answers the bytes of a node without a server, a lock or a clock. For fuzz targets only: no part of the
//! API.

use super::{exchange, leave};
use lessor_ledger::registry::{Caller, Registry};
use lessor_protocol::Moment;
use lessor_protocol::wire::LeasesResponse;

/// Answers the `body` of a request for leases; `None` if the body as a whole is refused.
pub fn leases(registry: &Registry, now: Moment, body: &[u8]) -> Option<Vec<u8>> {
    let exchange = exchange::decode(body).ok()?;
    let answered = registry.answers(now, &exchange.caller, exchange.entries());
    let Caller { session, seq, .. } = exchange.caller;
    let response = LeasesResponse { epoch: registry.epoch(), session, seq, grants: answered.grants };
    Some(serde_json::to_vec(&response).expect("an answer is plain data"))
}

/// Answers the `body` of a goodbye from `node`; `None` if the body as a whole is refused.
pub fn leave(registry: &Registry, now: Moment, node: &str, body: &[u8]) -> Option<Vec<u8>> {
    let (caller, spent) = leave::decode(node, body).ok()?;
    let response = registry.leave(now, &caller, &spent);
    Some(serde_json::to_vec(&response).expect("an answer is plain data"))
}
