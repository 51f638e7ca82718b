//! How scarce permits are over the pools of a limit, and when the first pool will be empty. A limit keeps this up to
//! date a pool at a time, like its sums; a look costs the same for one key and for a million.
//!
//! The forecast of a pool counts until its sessions have been quiet for a while. The limit does not look at the pool at
//! that moment, so forecasts are kept by the span of time in which they end. A look adds up the spans that are not
//! over. They are some tens at most, because no forecast lasts longer than a few terms.

use crate::pool::Forecast;
use crate::sizing::Scarcity;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// Length of a span. A forecast counts up to this much longer than it lasts; shorter spans would be more to look at.
const SPAN: Duration = Duration::from_millis(250);

/// Pools that are not rich, or will be empty, by the number of the span in which their forecast ends. Each pool is in
/// one span at most.
#[derive(Debug, Default)]
pub(super) struct Forecasts(BTreeMap<u64, Span>);

/// Forecasts that end in one span.
#[derive(Debug, Default)]
struct Span {
    drain: u64,
    trickle: u64,
    /// Number of pools that will be empty, by the moment.
    empties: BTreeMap<Moment, u64>,
}

/// The forecasts of all pools at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForecastSum {
    /// Pools that drain.
    pub drain: u64,
    /// Pools that lend only a trickle.
    pub trickle: u64,
    /// Time until a session wants a permit that its pool does not have; `None` if none is expected to.
    pub time_to_empty: Option<Duration>,
}

impl Forecasts {
    /// Replaces the forecast `old` of a pool by `new`.
    pub(super) fn count(&mut self, old: Forecast, new: Forecast) {
        if old != new {
            self.take(old);
            self.put(new);
        }
    }

    /// Sums up the forecasts of all pools at `now`.
    pub(super) fn forecast(&self, now: Moment) -> ForecastSum {
        let spans = self.0.range(span_of(now)..).map(|(_, span)| span);
        let mut forecast = ForecastSum::default();
        let mut empties: Option<Moment> = None;
        for span in spans {
            forecast.drain += span.drain;
            forecast.trickle += span.trickle;
            let first = span.empties.first_key_value().map(|(first, _)| *first);
            empties = empties.into_iter().chain(first).min();
        }
        forecast.time_to_empty = empties.map(|empties| empties.since(now));
        forecast
    }

    fn put(&mut self, forecast: Forecast) {
        if is_nothing(forecast) {
            return;
        }
        let span = self.0.entry(span_of(forecast.until)).or_default();
        if let Some(pools) = span.pools(forecast.standing) {
            *pools += 1;
        }
        if let Some(empties) = forecast.empties {
            *span.empties.entry(empties).or_default() += 1;
        }
    }

    fn take(&mut self, forecast: Forecast) {
        let index = span_of(forecast.until);
        // A forecast that says nothing is in no span.
        let Some(span) = self.0.get_mut(&index).filter(|_| !is_nothing(forecast)) else { return };
        if let Some(pools) = span.pools(forecast.standing) {
            *pools -= 1;
        }
        if let Some(empties) = forecast.empties
            && let Entry::Occupied(mut pools) = span.empties.entry(empties)
        {
            *pools.get_mut() -= 1;
            if *pools.get() == 0 {
                pools.remove();
            }
        }
        if span.drain == 0 && span.trickle == 0 && span.empties.is_empty() {
            self.0.remove(&index);
        }
    }
}

impl Span {
    /// Returns the counter for `standing`; `None` for rich pools, which are not counted.
    fn pools(&mut self, standing: Scarcity) -> Option<&mut u64> {
        match standing {
            Scarcity::Abundant => None,
            Scarcity::Draining => Some(&mut self.drain),
            Scarcity::Scarce => Some(&mut self.trickle),
        }
    }
}

fn is_nothing(forecast: Forecast) -> bool {
    forecast.standing == Scarcity::Abundant && forecast.empties.is_none()
}

fn span_of(at: Moment) -> u64 {
    at.as_nanos() / nanos(SPAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis as at;

    fn one(standing: Scarcity, empties: Option<u64>, until: u64) -> Forecast {
        Forecast { standing, empties: empties.map(at), until: at(until) }
    }

    fn forecast(drain: u64, trickle: u64, millis: Option<u64>) -> ForecastSum {
        ForecastSum { drain, trickle, time_to_empty: millis.map(Duration::from_millis) }
    }

    #[test]
    fn each_pool_counts_once_until_it_has_been_quiet_for_long() {
        let (mut all, none) = (Forecasts::default(), Forecast::default());
        let drains = one(Scarcity::Draining, Some(700), 600);
        let trickles = one(Scarcity::Scarce, Some(100), 1_600);
        let lasts = one(Scarcity::Abundant, Some(400), 1_600);
        for pool in [drains, trickles, lasts, lasts] {
            all.count(none, pool);
        }
        assert_eq!(all.forecast(at(50)), forecast(1, 1, Some(50)));
        assert_eq!(all.forecast(at(200)), forecast(1, 1, Some(0)), "since 100 ms");
        assert_eq!(all.forecast(at(749)), forecast(1, 1, Some(0)), "its span is not over");
        assert_eq!(all.forecast(at(750)), forecast(0, 1, Some(0)));
        // Pools change their forecasts one by one.
        all.count(trickles, none);
        assert_eq!(all.forecast(at(300)), forecast(1, 0, Some(100)));
        all.count(lasts, one(Scarcity::Abundant, Some(650), 1_600));
        assert_eq!(all.forecast(at(300)), forecast(1, 0, Some(100)), "there are two of them");
        all.count(lasts, none);
        assert_eq!(all.forecast(at(300)), forecast(1, 0, Some(350)));
        all.count(one(Scarcity::Abundant, Some(650), 1_600), none);
        assert_eq!(all.forecast(at(300)), forecast(1, 0, Some(400)));
        all.count(drains, none);
        assert!(all.0.is_empty(), "{all:?}");
        assert_eq!(all.forecast(at(0)), ForecastSum::default());
    }
}
