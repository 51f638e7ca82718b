//! The times of the background task, and how it learns the round trip. The simulator's nodes use them, too; nothing
//! here reads a clock.

use std::time::Duration;

/// Time within which a pool that is due goes along with one that is due now.
pub const TOGETHER: Duration = Duration::from_millis(1);

/// Longest sleep, and longest wait after a refusal: a pool whose handles are gone is forgotten at the next look.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Longest time that one exchange may take. A lease lasts two seconds at most: an answer later than half of that is
/// hardly worth waiting for.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Divisor of the longest exchange time: the longest wait while there is another allocator to ask, the cost of a machine that
/// has gone silent. A shorter wait would leave an allocator whose disk is slow for a moment; a longer one would outlast leases.
const PATIENCE_PART: u32 = 4;

/// Least wait in round trips: as many as a lease outlasts.
const PATIENCE_RTTS: u32 = 4;

/// Round trip to assume until one was measured.
pub const INITIAL_RTT: Duration = Duration::from_millis(2);

/// A new round trip counts as one eighth: one slow answer changes little, and a slower network is learnt in a few.
const RTT_PART: u32 = 8;

/// Returns the round trip to assume after another one `took` that long. At most [`EXCHANGE_TIMEOUT`] is believed: a
/// process that was suspended during an exchange measures the suspension.
pub fn learnt(rtt: Duration, took: Duration) -> Duration {
    rtt - rtt / RTT_PART + took.min(EXCHANGE_TIMEOUT) / RTT_PART
}

/// Returns how long to wait for an answer while there is another allocator to ask, if an exchange may take `timeout`.
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
