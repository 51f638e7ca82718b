//! What nodes take of a limit from now on, as far as they say. Rules forecast from it how long until a permit is
//! missing. That forecast is for people: no grant depends on it. Pools also compare the demand with what a limit lends
//! on average.

use lessor_protocol::sizing::lasts;
use std::time::Duration;

/// Permits that nodes take from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Permits taken at once.
    pub at_once: u64,
    /// Permits per 1,000 s from then on.
    pub demand_milli: u64,
}

/// The span over which [`Draw::demand_milli`] counts.
pub(crate) const THOUSAND_SECONDS: Duration = Duration::from_secs(1_000);

impl Draw {
    /// Returns how long `left` permits last if none comes back: until the first one is missing. `None` if that never
    /// happens.
    pub fn lasts(self, left: u64) -> Option<Duration> {
        let Some(rest) = left.checked_sub(self.at_once) else { return Some(Duration::ZERO) };
        (self.demand_milli > 0).then(|| lasts(rest.saturating_add(1), self.demand_milli))
    }

    /// Returns the draw less `milli` permits per 1,000 s that come back.
    #[must_use]
    pub fn less(self, milli: u64) -> Draw {
        Draw { demand_milli: self.demand_milli.saturating_sub(milli), ..self }
    }

    /// Returns the draw with `permits` more taken at once.
    #[must_use]
    pub fn and_at_once(self, permits: u64) -> Draw {
        Draw { at_once: self.at_once.saturating_add(permits), ..self }
    }

    /// Returns the sum of both draws.
    #[must_use]
    pub fn and(self, other: Draw) -> Draw {
        let demand_milli = self.demand_milli.saturating_add(other.demand_milli);
        Draw { demand_milli, ..self.and_at_once(other.at_once) }
    }

    /// Whether nothing is taken.
    pub fn is_none(self) -> bool {
        self == Draw::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_the_first_permit_is_wanted_that_is_not_there() {
        let second = Duration::from_secs(1);
        let draw = Draw { at_once: 5, demand_milli: 2_000 };
        assert_eq!(draw.lasts(4), Some(Duration::ZERO), "it is wanted now");
        assert_eq!(draw.lasts(5), Some(second / 2), "half a second until the next one");
        assert_eq!(draw.lasts(14), Some(5 * second));
        assert_eq!(Draw { demand_milli: 0, ..draw }.lasts(5), None);
        assert_eq!(Draw { demand_milli: 1, ..draw }.lasts(u64::MAX), Some(Duration::from_nanos(u64::MAX)));
        assert_eq!(draw.less(1_000).lasts(5), Some(second));
        assert_eq!(draw.less(3_000).lasts(5), None, "more comes back than is taken");
        assert_eq!(draw.and(draw).lasts(13), Some(second));
    }
}
