//! The times that the background task goes by, and how it learns the round trip. The simulator's nodes go by the same;
//! nothing here reads a clock.

use std::time::Duration;

/// Pools that are due within this time go along with one that is due now.
pub const TOGETHER: Duration = Duration::from_millis(1);

/// Longest sleep: a pool whose handles are gone is forgotten at the next look.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Longest that one exchange may take. A lease lasts two seconds at most: an answer that comes later than half of
/// that is hardly worth waiting for.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Of the longest that an exchange may take, the part that is waited for while there is another allocator to ask: what a machine
/// that has gone silent costs. Less would leave one whose disk is slow for a moment, more would outlast leases.
const PATIENCE_PART: u32 = 4;

/// Round trips that are waited for at least: as many as a lease outlasts.
const PATIENCE_RTTS: u32 = 4;

/// Round trip to reckon with until one was measured.
pub const INITIAL_RTT: Duration = Duration::from_millis(2);

/// Each new round trip counts an eighth: one slow answer does not scare it, a slower network is learnt in a few.
const RTT_PART: u32 = 8;

/// The round trip to reckon with, once another one `took` so long. No more than [`EXCHANGE_TIMEOUT`] is believed: a process
/// that was suspended during an exchange measures the suspension.
pub fn learnt(rtt: Duration, took: Duration) -> Duration {
    rtt - rtt / RTT_PART + took.min(EXCHANGE_TIMEOUT) / RTT_PART
}

/// How long to wait for an answer while there is another allocator to ask, where an exchange may take `timeout`.
pub fn patience(timeout: Duration, rtt: Duration) -> Duration {
    (timeout / PATIENCE_PART).max(rtt * PATIENCE_RTTS).min(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_can_ask_another_waits_less_and_longer_where_the_way_is() {
        let patience = |rtt| patience(EXCHANGE_TIMEOUT, Duration::from_millis(rtt)).as_millis();
        assert_eq!([patience(2), patience(100), patience(300)], [250, 400, 1_000]);
    }

    /// The bug: after an hour of suspension in the middle of an exchange, the next ask was due in 447 s.
    #[test]
    fn a_suspension_during_an_exchange_is_no_round_trip() {
        let rtt = learnt(INITIAL_RTT, Duration::from_secs(3600));
        assert!(rtt < Duration::from_millis(130), "{rtt:?}");
    }

    #[test]
    fn one_slow_answer_does_not_scare_it_and_a_slower_network_is_learnt() {
        let slow = Duration::from_millis(80);
        let mut rtt = learnt(INITIAL_RTT, slow);
        assert!(rtt < slow / 4);
        (0..20).for_each(|_| rtt = learnt(rtt, slow));
        assert!(rtt > slow / 10 * 9);
    }
}
