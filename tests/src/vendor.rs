//! A strict vendor: it counts every admission of all clients of a test, on the clock that they share, and judges
//! whether the contract was kept. It knows nothing of leases.
//!
//! An admission happened somewhere between two readings of the clock, which may be far apart on a busy machine. The
//! vendor complains only of an excess that exists wherever in between each admission was, so its verdict never depends
//! on the scheduler.

use lessor::Limit;
use lessor_ledger::Rule;
use lessor_ledger::rule::SlidingWindow;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::moment::nanos;
use lessor_protocol::{CLOCK, Moment};
use lessor_sim::reference::{Spend, breach};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

/// Pause of a caller that was refused.
const CALM: Duration = Duration::from_millis(1);

/// A contract of at most `limit` calls in any window of length `per`, and the calls so far.
#[derive(Debug)]
pub struct Vendor {
    limit: u64,
    per: Duration,
    admissions: Mutex<Vec<Admission>>,
}

/// An admitted call, not before `after` and not after `by`.
#[derive(Clone, Copy, Debug)]
struct Admission {
    after: Moment,
    by: Moment,
}

impl Vendor {
    /// A vendor whose contract is `limit` calls in any `per`.
    pub fn new(limit: u64, per: Duration) -> Vendor {
        Vendor { limit, per, admissions: Mutex::default() }
    }

    /// Tries one call and returns whether it was admitted.
    pub fn call(&self, limit: &Limit) -> bool {
        let after = CLOCK.now();
        let admitted = limit.try_acquire(1).is_ok();
        if admitted {
            self.admit(after);
        }
        admitted
    }

    /// Makes one call, waits up to `patience` for its turn, and returns whether it was admitted. After a refusal it
    /// returns a millisecond later: callers that try again at once would keep a processor busy.
    pub async fn wait(&self, limit: &Limit, patience: Duration) -> bool {
        let mut call = pin!(limit.acquire_within(1, patience));
        // A call is admitted during a poll: the last one.
        let mut after = CLOCK.now();
        let admitted = poll_fn(|cx| {
            after = CLOCK.now();
            call.as_mut().poll(cx)
        });
        let admitted = admitted.await.is_ok();
        match admitted {
            true => self.admit(after),
            false => tokio::time::sleep(CALM).await,
        }
        admitted
    }

    /// Calls admitted so far.
    pub fn count(&self) -> u64 {
        self.admissions.lock_anyway().len() as u64
    }

    /// Calls that were certainly admitted after `moment`.
    pub fn count_after(&self, moment: Moment) -> usize {
        self.admissions.lock_anyway().iter().filter(|admission| admission.after > moment).count()
    }

    /// The longest time without an admitted call, between the first and the last.
    pub fn longest_gap(&self) -> Duration {
        let mut by: Vec<Moment> =
            self.admissions.lock_anyway().iter().map(|admission| admission.by).collect();
        by.sort_unstable();
        by.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or_default()
    }

    /// Adds the admissions of another vendor to these.
    pub fn merge(&self, other: &Vendor) {
        self.admissions.lock_anyway().extend_from_slice(&other.admissions.lock_anyway());
    }

    /// Describes the first window that certainly holds more calls than the contract allows.
    pub fn breach(&self) -> Option<String> {
        let admissions = self.admissions.lock_anyway();
        let mut after: Vec<u64> = admissions.iter().map(|admission| admission.after.as_nanos()).collect();
        let mut by: Vec<u64> = admissions.iter().map(|admission| admission.by.as_nanos()).collect();
        after.sort_unstable();
        by.sort_unstable();
        after.iter().enumerate().find_map(|(before, &start)| {
            // All calls that were over before the window's end, less those that may have begun before its start.
            let over = by.partition_point(|&by| by < start + nanos(self.per));
            let within = over.saturating_sub(before) as u64;
            let what = || {
                format!("{within} calls within {:?} from {start} ns: the limit is {}", self.per, self.limit)
            };
            (within > self.limit).then(what)
        })
    }

    fn admit(&self, after: Moment) {
        let by = CLOCK.now();
        self.admissions.lock_anyway().push(Admission { after, by });
    }
}

/// Asserts that no window of length `per` has more than `limit` of the permits `spent`. Returns the number of calls.
///
/// # Panics
/// If one has.
pub fn judge(limit: u64, per: Duration, spent: impl IntoIterator<Item = (Moment, u64)>) -> usize {
    let mut spent: Vec<(Moment, u64)> = spent.into_iter().collect();
    spent.sort_unstable();
    let spend =
        |(at, permits): (Moment, u64)| Spend { real: at.as_nanos(), allocator: at.as_nanos(), permits };
    let spends: Vec<Spend> = spent.into_iter().map(spend).collect();
    let rule = SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid");
    assert_eq!(breach(&Rule::SlidingWindow(rule), &spends), None);
    spends.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a contract of two calls in 100 ns is kept by admissions within these spans.
    fn is_kept(spans: &[(u64, u64)]) -> bool {
        let vendor = Vendor::new(2, Duration::from_nanos(100));
        let at = Moment::from_nanos;
        vendor
            .admissions
            .lock_anyway()
            .extend(spans.iter().map(|&(after, by)| Admission { after: at(after), by: at(by) }));
        vendor.breach().is_none()
    }

    #[test]
    fn it_sees_a_call_too_many_and_only_if_there_is_no_doubt() {
        assert!(is_kept(&[(0, 0), (99, 99), (100, 100), (199, 199)]));
        assert!(!is_kept(&[(0, 0), (98, 98), (99, 99)]));
        assert!(is_kept(&[(0, 0), (98, 98), (99, 100)]), "the last call may be in the next window");
        assert!(!is_kept(&[(0, 0), (50, 70), (60, 99)]), "one call too many, whenever each of them was");
        assert!(is_kept(&[(0, 500), (50, 70), (60, 99)]));
    }
}
