//! Permits of one session that are presumed in flight, because the end of their calls is never reported. Each is presumed so for
//! as long as a call may take. What one session has in flight is counted in `flights.rs`; here is only which of it lands when.

use crate::rule::{At, Since};
use lessor_protocol::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// Permits that were spent within this part of the longest call land together. As many entries at most are kept, and no session
/// waits longer than so much more.
const PARTS: u32 = 16;

/// Permits that linger, soonest to land first.
#[derive(Clone, Debug, Default)]
pub(super) struct Lingering {
    landings: VecDeque<Landing>,
}

/// Permits that land together.
#[derive(Clone, Copy, Debug)]
struct Landing {
    permits: u64,
    /// When the first of them could have.
    first: Moment,
    at: Moment,
}

impl Lingering {
    /// Those that land when `landings` say, soonest first.
    pub(super) fn of(landings: impl Iterator<Item = (Moment, u64)>) -> Self {
        let landings = landings.map(|(at, permits)| Landing { permits, first: at, at });
        Lingering { landings: landings.collect() }
    }

    /// When how many of them land, soonest first.
    pub(super) fn landings(&self) -> impl Iterator<Item = (Moment, u64)> {
        self.landings.iter().map(|landing| (landing.at, landing.permits))
    }

    /// How many there are.
    pub(super) fn permits(&self) -> u64 {
        self.landings.iter().map(|landing| landing.permits).sum()
    }

    /// When the first of them land, if there are any.
    pub(super) fn lands(&self) -> Option<Moment> {
        self.landings.front().map(|landing| landing.at)
    }

    /// All of it, to be put away: how many land together, when the first of those could have, and when they do.
    pub(super) fn save(&self) -> Vec<(u64, At, At)> {
        let save = |landing: &Landing| (landing.permits, landing.first.into(), landing.at.into());
        self.landings.iter().map(save).collect()
    }

    /// What was put away; `None` if nothing can have been so.
    pub(super) fn thawed(saved: &[(u64, At, At)], since: Since) -> Option<Self> {
        let is_sane = saved.iter().all(|(permits, first, at)| *permits > 0 && first <= at)
            && saved.is_sorted_by_key(|(_, _, at)| *at)
            && saved.iter().try_fold(0_u64, |sum, (permits, _, _)| sum.checked_add(*permits)).is_some();
        let landing = |&(permits, first, at): &(u64, At, At)| Landing {
            permits,
            first: since.moment(first),
            at: since.moment(at),
        };
        is_sane.then(|| Lingering { landings: saved.iter().map(landing).collect() })
    }

    /// `permits` were spent by `at` on calls that take the `longest` time at most.
    pub(super) fn add(&mut self, permits: u64, at: Moment, longest: Duration) {
        if permits == 0 {
            return;
        }
        let lands = at + longest;
        match self.landings.back_mut() {
            // Never sooner than those before.
            Some(last) if lands.since(last.first) <= longest / PARTS => {
                (last.permits, last.at) = (last.permits + permits, last.at.max(lands));
            }
            last => {
                let lands = last.map_or(lands, |last| last.at.max(lands));
                self.landings.push_back(Landing { permits, first: lands, at: lands });
            }
        }
    }

    /// Those have landed that were to land until `now`.
    pub(super) fn land(&mut self, now: Moment) {
        while self.lands().is_some_and(|lands| lands <= now) {
            self.landings.pop_front();
        }
    }

    /// No more than `most` of them can still be in flight: those that land last.
    pub(super) fn cut_to(&mut self, most: u64) {
        let mut surplus = self.permits().saturating_sub(most);
        while let Some(first) = self.landings.front_mut()
            && surplus > 0
        {
            let cut = surplus.min(first.permits);
            (first.permits, surplus) = (first.permits - cut, surplus - cut);
            if first.permits == 0 {
                self.landings.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(16);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn permits_that_are_spent_all_the_time_land_all_the_time() {
        let mut lingering = Lingering::default();
        let mut most = 0;
        for second in 0..100 {
            lingering.land(at(second));
            lingering.add(3, at(second), LONGEST);
            most = most.max(lingering.permits());
            assert!(lingering.landings.len() <= PARTS as usize + 2, "{lingering:?}");
        }
        assert!((16 * 3..=18 * 3).contains(&most), "{most}");
    }

    #[test]
    fn none_lands_before_its_call_may_have_taken_its_time() {
        let mut lingering = Lingering::default();
        lingering.add(1, at(0), LONGEST);
        lingering.add(2, at(1), LONGEST);
        lingering.add(4, at(3), LONGEST);
        lingering.land(at(16));
        assert_eq!(lingering.permits(), 7, "the second lands with the first");
        lingering.land(at(17));
        assert_eq!((lingering.permits(), lingering.lands()), (4, Some(at(19))));
    }

    #[test]
    fn those_are_cut_that_land_first() {
        let mut lingering = Lingering::default();
        lingering.add(2, at(0), LONGEST);
        lingering.add(2, at(8), LONGEST);
        lingering.cut_to(3);
        lingering.land(at(16));
        assert_eq!(lingering.permits(), 2);
        lingering.cut_to(0);
        assert_eq!((lingering.permits(), lingering.lands()), (0, None));
    }
}
