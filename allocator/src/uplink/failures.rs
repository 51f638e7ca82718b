//! What failed exchanges say of an upstream.

use lessor_protocol::Moment;
use std::time::Duration;

/// Time after a failed exchange for which an upstream counts as failing though nothing is due.
const FAILING_FOR: Duration = Duration::from_secs(10);

/// Exchanges in a row that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failures {
    pub(super) first: Moment,
    pub(super) last: Moment,
}

/// Whether an exchange that fails `now`, after `earlier` ones, shows that the upstream is silent, because they have failed for
/// `silence`. A single failure may be chance.
pub(super) fn is_silent(earlier: Option<Failures>, silence: Duration, now: Moment) -> bool {
    earlier.is_some_and(|earlier| now.since(earlier.first) >= silence)
}

/// Whether `failures` say nothing of the upstream any more, at `now`.
pub(super) fn is_over(failures: Option<Failures>, now: Moment) -> bool {
    failures.is_none_or(|failures| now.since(failures.last) >= FAILING_FOR)
}
