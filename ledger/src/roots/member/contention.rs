//! How long it takes to swap roots for which other allocators are often faster. An allocator tells roots that it is
//! that far away. Then its leases last longer, it asks for more at once, and all allocators ask less often.

use lessor_protocol::Moment;
use std::time::Duration;

/// Inverse weight of one exchange in the average.
const PART: u32 = 8;

/// Longest distance that is told: a term is four times as long, and no term is longer than two seconds.
const MOST: Duration = Duration::from_millis(500);

/// What an allocator has found out about swaps of roots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contention {
    /// Since when it has asked without success.
    since: Option<Moment>,
    /// How long it took lately to swap roots, on average.
    learnt: Duration,
}

impl Contention {
    /// Begins an exchange with roots that are `rtt` away. Returns how far away to say that they are: as long as it
    /// takes to swap them, if that is longer.
    pub(super) fn begins(&mut self, now: Moment, rtt: Duration) -> Duration {
        self.since.get_or_insert(now);
        rtt.max(self.learnt)
    }

    /// Ends an exchange. It `is_done` if its roots are swapped; otherwise other allocators were faster each time.
    pub(super) fn ends(&mut self, now: Moment, is_done: bool) {
        if is_done && let Some(since) = self.since.take() {
            self.learnt = self.learnt - self.learnt / PART + now.since(since).min(MOST) / PART;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis as at;

    const RTT: Duration = Duration::from_millis(2);

    /// Runs an exchange between two instants in milliseconds. Returns how far away it says that roots are.
    fn exchange(contention: &mut Contention, from: u64, to: u64, is_done: bool) -> Duration {
        let told = contention.begins(at(from), RTT);
        contention.ends(at(to), is_done);
        told
    }

    #[test]
    fn roots_are_as_far_away_as_it_takes_to_swap_them() {
        let mut contention = Contention::default();
        assert_eq!(exchange(&mut contention, 0, 2, true), RTT);
        // Each time others are faster for four exchanges, and the fifth is over after 80 ms.
        for turn in (1_000..41_000).step_by(1_000) {
            (0..4).for_each(|step| {
                _ = exchange(&mut contention, turn + step * 20, turn + step * 20 + 12, false)
            });
            exchange(&mut contention, turn + 70, turn + 80, true);
        }
        let told = contention.begins(at(50_000), RTT);
        assert!(told > Duration::from_millis(78) && told <= Duration::from_millis(80), "{told:?}");
        // The others are gone.
        (50_000..50_040).for_each(|from| _ = exchange(&mut contention, from, from + 1, true));
        assert_eq!(contention.begins(at(60_000), RTT), RTT);
    }

    #[test]
    fn an_allocator_that_waits_for_long_says_no_more_than_half_a_second() {
        let mut contention = Contention::default();
        (0..60).for_each(|turn| _ = exchange(&mut contention, turn * 60_000, turn * 60_000 + 30_000, true));
        assert!(contention.begins(at(4_000_000), RTT) <= MOST);
    }
}
