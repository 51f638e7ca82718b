//! What nodes take of a limit from now on, as far as they say: rules tell by it in how long the first permit is wanted that is
//! not there. For people; nothing that is lent depends on it.

use lessor_protocol::sizing::PERMIT;
use std::time::Duration;

/// What is taken from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Permits that are taken at once.
    pub at_once: u64,
    /// Permits in 1,000 s from then on.
    pub demand_milli: u64,
}

/// The time in which as many permits are taken as `demand_milli` says.
pub(crate) const THOUSAND_SECONDS: Duration = Duration::from_secs(1_000);

impl Draw {
    /// For how long `left` permits last if none comes back: until the first is wanted that is not there. `None` if that is
    /// never.
    pub fn lasts(self, left: u64) -> Option<Duration> {
        let Some(rest) = left.checked_sub(self.at_once) else { return Some(Duration::ZERO) };
        let lasts = (u128::from(rest) + 1) * PERMIT;
        let lasts = lasts.checked_div(u128::from(self.demand_milli))?;
        Some(Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX)))
    }

    /// What is left of it if `milli` permits come back in 1,000 s.
    #[must_use]
    pub fn less(self, milli: u64) -> Draw {
        Draw { demand_milli: self.demand_milli.saturating_sub(milli), ..self }
    }

    /// The same with `permits` more at once.
    #[must_use]
    pub fn and_at_once(self, permits: u64) -> Draw {
        Draw { at_once: self.at_once.saturating_add(permits), ..self }
    }

    /// Both.
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
