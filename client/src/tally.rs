//! What one limit did in this process, over all its keys, and how that reaches the metrics. Once a second the
//! background task adds up figures that its pools have anyway and passes them to the exporter. An admitted call counts
//! nothing for this. No metric names a key.

mod gauges;
mod names;
mod refused;

use gauges::Gauges;
use lessor_protocol::Fallback;
use lessor_protocol::lock_anyway::LockAnyway;
use metrics::{Counter, counter, histogram};
pub use names::HISTOGRAMS;
pub(crate) use names::MOVES;
use refused::Cells;
pub(crate) use refused::Reason;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often metrics are updated. More would be of no use: scrapers read every few seconds at best.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(1);

/// The counts of one limit, or of all limits under one label.
#[derive(Debug)]
pub(crate) struct Tally {
    limit: Arc<str>,
    /// Refusals that the slots do not count, or count without their reason.
    refused: Cells,
    sums: Mutex<Sums>,
    gauges: Gauges,
}

/// Totals of a pool or of a limit, in permits except for the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) admitted: u64,
    /// As the slot counts them: calls let pass are included, calls refused for good are not.
    pub(crate) refused: u64,
    /// Permits let pass in shadow mode.
    pub(crate) shadow: u64,
    /// Permits let pass in fallback.
    pub(crate) fallback: u64,
    /// Answers in which the vendor refused.
    pub(crate) vendor_refused: u64,
}

/// Current figures of a pool or of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) available: u64,
    pub(crate) waiting: u64,
    /// Time since the lease was asked for; of a limit, that of its oldest lease.
    pub(crate) lease_age: Duration,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Admitted,
    /// Waiting will not help any more.
    Refused,
    /// The caller ran out of patience or dropped the wait.
    Left,
}

/// Sums that the background task keeps.
#[derive(Debug, Default)]
struct Sums {
    totals: Totals,
    now: Now,
    published: Totals,
    published_refused: [u64; Reason::ALL.len()],
}

impl Totals {
    /// Returns what was added since `earlier`. A total that fell counts as zero.
    pub(crate) fn since(self, earlier: Totals) -> Totals {
        self.with(earlier, u64::saturating_sub)
    }

    /// Returns the larger of each total.
    pub(crate) fn max(self, other: Totals) -> Totals {
        self.with(other, u64::max)
    }

    fn with(self, other: Totals, both: impl Fn(u64, u64) -> u64) -> Totals {
        Totals {
            admitted: both(self.admitted, other.admitted),
            refused: both(self.refused, other.refused),
            shadow: both(self.shadow, other.shadow),
            fallback: both(self.fallback, other.fallback),
            vendor_refused: both(self.vendor_refused, other.vendor_refused),
        }
    }
}

impl Now {
    /// Returns the figures of both pools together.
    fn with(self, other: Now) -> Now {
        Now {
            available: self.available.saturating_add(other.available),
            waiting: self.waiting.saturating_add(other.waiting),
            lease_age: self.lease_age.max(other.lease_age),
        }
    }
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Admitted => "admitted",
            End::Refused => "refused",
            End::Left => "left",
        }
    }
}

impl Tally {
    /// The label of limits without a label of their own. No limit can have this name.
    pub(crate) const OTHERS: &str = "(others)";

    /// Makes the tally of a limit, or of all limits under one label.
    pub(crate) fn new(limit: Arc<str>) -> Self {
        Tally { gauges: Gauges::new(limit.clone()), limit, refused: Cells::new(), sums: Mutex::default() }
    }

    /// Counts a refused call whose `reason` the slot does not know.
    pub(crate) fn refuse(&self, reason: Reason, permits: u64) {
        self.refused.add(reason, permits);
    }

    /// Records how long a caller stood in line.
    pub(crate) fn waited(&self, span: Duration, end: End) {
        self.wait_seconds(end).record(span);
    }

    /// Records how long a call took that was chosen to be timed.
    pub(crate) fn timed(&self, span: Duration, admitted: bool) {
        self.check_seconds(admitted).record(span);
    }

    /// Adds what one pool of the limit did since it was last added.
    pub(crate) fn add(&self, more: Totals) {
        let mut sums = self.sums.lock_anyway();
        sums.totals = sums.totals.with(more, u64::saturating_add);
    }

    #[cfg(test)]
    pub(crate) fn label(&self) -> &str {
        &self.limit
    }

    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.sums.lock_anyway().totals
    }

    /// Resets the current figures, before each pool adds its own by [`Tally::add_now`].
    pub(crate) fn begin(&self) {
        self.sums.lock_anyway().now = Now::default();
    }

    /// Adds the current figures of one pool.
    pub(crate) fn add_now(&self, pool: Now) {
        let now = &mut self.sums.lock_anyway().now;
        *now = now.with(pool);
    }

    /// Updates all metrics. Everything is looked up anew, because an exporter may have been installed since the last
    /// time.
    pub(crate) fn publish(&self, fallen: Option<Fallback>) {
        let mut sums = self.sums.lock_anyway();
        let Sums { totals, now, published, published_refused } = &mut *sums;
        let refused = self.refused.by_reason(*totals);
        let limit = || self.limit.clone();
        advance(&counter!(names::ADMITTED, "limit" => limit()), &mut published.admitted, totals.admitted);
        for ((reason, refused), published) in Reason::ALL.into_iter().zip(refused).zip(published_refused) {
            let counter = counter!(names::REFUSED, "limit" => limit(), "reason" => reason.name());
            advance(&counter, published, refused);
        }
        advance(&counter!(names::SHADOW, "limit" => limit()), &mut published.shadow, totals.shadow);
        advance(&counter!(names::PASSED, "limit" => limit()), &mut published.fallback, totals.fallback);
        let vendor_refused = counter!(names::VENDOR_REFUSED, "limit" => limit());
        advance(&vendor_refused, &mut published.vendor_refused, totals.vendor_refused);
        self.gauges.show(*now, fallen);
        // A lookup registers the metric, so it exists from the start.
        let _ = [End::Admitted, End::Refused, End::Left].map(|end| self.wait_seconds(end));
        let _ = [true, false].map(|admitted| self.check_seconds(admitted));
    }

    /// Shows no figures and no fallback from now on, because the client is closed.
    pub(crate) fn end(&self) {
        self.gauges.show(Now::default(), None);
    }

    /// Shows the fallback that the limit is in, if any.
    pub(crate) fn tell_fallback(&self, fallen: Option<Fallback>) {
        self.gauges.show_fallback(fallen);
    }

    fn wait_seconds(&self, end: End) -> metrics::Histogram {
        histogram!(names::WAIT_SECONDS, "limit" => self.limit.clone(), "outcome" => end.name())
    }

    fn check_seconds(&self, admitted: bool) -> metrics::Histogram {
        let outcome = if admitted { End::Admitted } else { End::Refused };
        histogram!(names::CHECK_SECONDS, "limit" => self.limit.clone(), "outcome" => outcome.name())
    }
}

/// Counts an exchange that was answered after `took`, or failed.
pub(crate) fn exchanged(took: Option<Duration>) {
    let [ok, failed] = exchanges();
    match took {
        Some(took) => {
            ok.increment(1);
            histogram!(names::EXCHANGE_SECONDS).record(took);
        }
        None => failed.increment(1),
    }
}

/// Registers the metrics of a client that has done nothing yet.
pub(crate) fn begin() {
    names::describe();
    // A lookup registers the metric, so it exists from the start.
    let _ = (exchanges(), histogram!(names::EXCHANGE_SECONDS), counter!(MOVES));
}

fn exchanges() -> [Counter; 2] {
    ["ok", "failed"].map(|result| counter!(names::EXCHANGES, "result" => result))
}

/// Adds what is new. Several clients of one process add to the same counter.
fn advance(counter: &Counter, published: &mut u64, total: u64) {
    counter.increment(total.saturating_sub(*published));
    *published = total.max(*published);
}

#[cfg(test)]
mod tests;
