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

/// Round trip to reckon with until one was measured.
pub const RTT_UNTOLD: Duration = Duration::from_millis(2);

/// Each new round trip counts an eighth: one slow answer does not scare it, a slower network is learnt in a few.
const RTT_PART: u32 = 8;

/// The round trip to reckon with, once another one `took` so long.
pub fn learnt(rtt: Duration, took: Duration) -> Duration {
    rtt - rtt / RTT_PART + took / RTT_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_answer_does_not_scare_it_and_a_slower_network_is_learnt() {
        let slow = Duration::from_millis(80);
        let mut rtt = learnt(RTT_UNTOLD, slow);
        assert!(rtt < slow / 4);
        (0..20).for_each(|_| rtt = learnt(rtt, slow));
        assert!(rtt > slow / 10 * 9);
    }
}
