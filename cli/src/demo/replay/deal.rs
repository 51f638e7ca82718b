//! Deals the requests of a trace to the nodes. A seeded generator draws the node of each request, as behind a load
//! balancer without affinity, so that every client's requests are spread over the fleet.

use super::trace::Request;
use crate::demo::line::DealtCall;
use fastrand::Rng;
use std::time::Duration;

/// Returns the calls of each of `nodes` nodes, at `speed` times the pace of the trace, in the order they come due.
pub(crate) fn deal(requests: &[Request], nodes: usize, speed: f64, seed: u64) -> Vec<Vec<DealtCall>> {
    let mut rng = Rng::with_seed(seed);
    let mut hands = vec![Vec::new(); nodes];
    for request in requests {
        hands[rng.usize(..nodes)]
            .push(DealtCall { due_ns: nanos(request.offset.div_f64(speed)), client: request.client.clone() });
    }
    hands
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("offsets are at most a year, slowed down at most a hundredfold")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let request =
            |second| Request { offset: Duration::from_secs(second), client: (second % 7).to_string() };
        (0..1000).map(request).collect()
    }

    #[test]
    fn every_request_lands_on_one_node_in_order_and_at_its_pace() {
        let hands = deal(&requests(), 4, 60.0, 1);
        let mut due: Vec<u64> = hands.iter().flatten().map(|call| call.due_ns).collect();
        assert!(hands.iter().all(|hand| hand.is_sorted_by_key(|call| call.due_ns)));
        assert!(hands.iter().all(|hand| hand.len() > 180), "spread evenly");
        due.sort_unstable();
        assert_eq!(due.len(), 1000);
        assert_eq!(due[60], 1_000_000_000);
    }

    #[test]
    fn one_client_lands_on_every_node() {
        let hands = deal(&requests(), 4, 60.0, 1);
        assert!(hands.iter().all(|hand| hand.iter().any(|call| call.client == "3")));
    }

    #[test]
    fn one_seed_is_one_deal() {
        assert_eq!(deal(&requests(), 4, 60.0, 1), deal(&requests(), 4, 60.0, 1));
        assert_ne!(deal(&requests(), 4, 60.0, 1), deal(&requests(), 4, 60.0, 2));
    }
}
