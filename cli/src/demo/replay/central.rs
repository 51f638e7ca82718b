//! One central, omniscient limiter: every client in one place, no leases, no network. The replay measures Lessor
//! against it. It runs in virtual time and decides each request as it arrives.

use lessor_protocol::Moment;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A sliding window for each client, whose requests wait their turn for at most `patience`.
#[derive(Debug)]
pub(crate) struct Central<'a> {
    limit: usize,
    per: Duration,
    patience: Duration,
    /// The last `limit` admissions of each client, some of them still to come.
    admitted: HashMap<&'a str, VecDeque<Moment>>,
}

impl<'a> Central<'a> {
    /// Creates a limiter of at most `limit` requests of each client in any window of length `per`.
    pub(crate) fn new(limit: usize, per: Duration, patience: Duration) -> Self {
        Central { limit, per, patience, admitted: HashMap::new() }
    }

    /// Decides a request of `client` that arrives at `now`, no earlier than the one before. Returns when it is
    /// admitted, or `None` if its turn would come too late; then nothing is booked.
    pub(crate) fn arrive(&mut self, client: &'a str, now: Moment) -> Option<Moment> {
        let admitted = self.admitted.entry(client).or_default();
        // First come, first served: not before the request ahead. And only once the window has room. Windows are
        // half-open, so that is exactly one window after the admission that is `limit` back.
        let behind = admitted.back().copied().unwrap_or(Moment::ORIGIN);
        let room = match admitted.len() < self.limit {
            true => Moment::ORIGIN,
            false => admitted.front().map_or(Moment::NEVER, |&oldest| oldest + self.per),
        };
        let turn = now.max(behind).max(room);
        if turn.since(now) > self.patience {
            return None;
        }
        admitted.push_back(turn);
        if admitted.len() > self.limit {
            admitted.pop_front();
        }
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(6);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn a_request_waits_for_its_turn_if_it_can_come_in_time() {
        let mut central = Central::new(2, PER, PATIENCE);
        assert_eq!(central.arrive("a", at(0)), Some(at(0)));
        assert_eq!(central.arrive("a", at(1)), Some(at(1)));
        assert_eq!(central.arrive("a", at(53)), None);
        // A wait of exactly the patience is in time.
        assert_eq!(central.arrive("a", at(54)), Some(at(60)));
        assert_eq!(central.arrive("a", at(55)), Some(at(61)));
        assert_eq!(central.arrive("a", at(62)), None);
    }

    #[test]
    fn clients_do_not_see_each_other() {
        let mut central = Central::new(1, PER, PATIENCE);
        assert_eq!(central.arrive("a", at(0)), Some(at(0)));
        assert_eq!(central.arrive("b", at(0)), Some(at(0)));
        assert_eq!(central.arrive("a", at(1)), None);
    }

    #[test]
    fn those_that_wait_are_admitted_in_the_order_they_came() {
        let mut central = Central::new(2, PER, PATIENCE);
        for second in [0, 5] {
            central.arrive("a", at(second));
        }
        assert_eq!(central.arrive("a", at(59)), Some(at(60)));
        assert_eq!(central.arrive("a", at(60)), Some(at(65)));
        assert_eq!(central.arrive("a", at(61)), None);
    }

    #[test]
    fn a_limit_of_zero_refuses_everything() {
        assert_eq!(Central::new(0, PER, PATIENCE).arrive("a", at(0)), None);
    }

    #[test]
    fn it_never_admits_more_than_the_limit_in_any_window() {
        let mut central = Central::new(30, PER, PATIENCE);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut now = Moment::ORIGIN;
        let mut admitted = Vec::new();
        for _ in 0..20_000 {
            now = now + Duration::from_millis(rng.u64(0..1500));
            admitted.extend(central.arrive("a", now));
        }
        assert_eq!(super::super::window::most_in_any(&mut admitted, PER), 30);
        assert!(admitted.len() > 4_000, "only {}", admitted.len());
    }
}
