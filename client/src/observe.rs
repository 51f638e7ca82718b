//! Passes the vendor's answers on to the fleet. Callers hand in each answer, and the handle reports what is worth
//! telling. An answer that says nothing costs a few lookups.

use crate::limit::Limit;
use crate::local_pool::{CLOCK, Condition, LocalPool};
use crate::rate_limit_headers::{HeaderNames, RateLimitHeaders};
use http::{HeaderMap, StatusCode};
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{Moment, Observed};
use std::time::Duration;

static KNOWN: HeaderNames = HeaderNames::known();

impl Limit {
    /// Reports the vendor's answer to a call on this limit. Call it with each answer.
    ///
    /// A 429, or a 503 with `Retry-After`, stops spending for as long as the vendor says: in this process at once, in
    /// all others within a round trip to the allocator. A lower count or a smaller contract than the allocator's own
    /// makes it lend less. The allocator's configuration says how far it believes the vendor. It never lends more
    /// because of an answer, and each effect ends by itself. See [`RateLimitHeaders::read`] for what is read.
    ///
    /// An answer that says nothing takes no lock and allocates nothing.
    pub fn observe(&self, status: StatusCode, headers: &HeaderMap) {
        self.report(&RateLimitHeaders::read(status, headers, &KNOWN));
    }

    /// As [`Limit::observe`], for a vendor whose headers have other `names`.
    pub fn observe_as(&self, names: &HeaderNames, status: StatusCode, headers: &HeaderMap) {
        self.report(&RateLimitHeaders::read(status, headers, names));
    }

    /// Returns how long no call should be sent, as far as this process knows: the vendor has just refused one, or the
    /// limit is paused. Worth a look before sending a call whose permit was taken a while ago.
    pub fn paused(&self) -> Option<Duration> {
        self.pool().paused()
    }

    /// As [`Limit::observe`], for an answer that the caller has read itself, such as that of a vendor that does not
    /// speak HTTP.
    pub fn report(&self, headers: &RateLimitHeaders) {
        if !headers.is_empty() {
            self.pool().saw(headers);
        }
    }
}

impl LocalPool {
    fn saw(&self, headers: &RateLimitHeaders) {
        let (now, in_hand) = (CLOCK.now(), self.available());
        let is_urgent = self.feedback_or_new().lock_anyway().see(headers, now, in_hand);
        if !is_urgent {
            return;
        }
        let mut refill = self.refill();
        if headers.refused {
            // The vendor would refuse the permits in hand too. The allocator lends again if it knows better.
            refill.stop(self.slot());
        }
        refill.report(now);
        drop(refill);
        self.wake_to_tell();
    }

    /// See [`Limit::paused`].
    fn paused(&self) -> Option<Duration> {
        let now = CLOCK.now();
        let by_vendor = self.feedback().and_then(|feedback| feedback.lock_anyway().waits(now));
        let is_paused = self.condition() == Condition::Paused;
        if is_paused && self.standby().has_heard_stop() {
            self.ask_if_idle(now);
        }
        let by_allocator = if is_paused { self.not_now(0).retry_after() } else { None };
        by_vendor.max(by_allocator)
    }

    /// Asks whether a pause that an event told of still lasts: no answer says so while the pool is idle.
    fn ask_if_idle(&self, now: Moment) {
        let mut refill = self.refill();
        if refill.is_idle() {
            refill.ask_though_idle(now, true, 0);
            drop(refill);
            self.wake_to_tell();
        }
    }

    /// Notes that an event said to stop; `is_of_key` says that it is about one key. The next answer says for how long.
    pub(crate) fn on_pause(&self, is_of_key: bool) {
        self.standby().hear_stop(is_of_key);
        if matches!(self.condition(), Condition::Good | Condition::Unreachable | Condition::Quarantine) {
            self.set_condition(Condition::Paused);
        }
    }

    /// Whether the vendor disagreed since the last call of this.
    pub(crate) fn takes_disagreement(&self) -> bool {
        self.feedback().is_some_and(|feedback| feedback.lock_anyway().takes_disagreement())
    }

    /// Number of answers so far in which the vendor refused.
    pub(crate) fn vendor_refused(&self) -> u64 {
        self.feedback().map_or(0, |feedback| feedback.lock_anyway().refused())
    }

    /// Returns the observations to send with an ask that is written at `now`.
    pub(crate) fn observed(&self, now: Moment) -> Option<Observed> {
        self.feedback().and_then(|feedback| feedback.lock_anyway().tell(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;
    use http::{HeaderName, HeaderValue};
    use lessor_protocol::{Announced, Left};

    #[test]
    fn a_vendor_with_other_names_is_read_by_those_names_alone() {
        const OWN: [&str; 3] = ["x-calls", "x-calls-left", "x-calls-reset"];
        const KNOWN: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
        let [limit, remaining, reset] = OWN.map(HeaderName::from_static);
        let names = HeaderNames::none().with(limit, remaining, reset);
        let answer = |names: [&'static str; 3]| {
            let values = ["100", "3", "30"].map(HeaderValue::from_static);
            names.map(HeaderName::from_static).into_iter().zip(values).collect::<HeaderMap>()
        };
        let shared = by_hand::shared();
        let mut names_of_limits = ["a", "b", "c", "d"].into_iter();
        let mut told = |observe: &dyn Fn(&Limit)| {
            let limit = by_hand::limit(&shared, names_of_limits.next().expect("a limit for each"));
            // The count is worth telling for a tenth of a second, which a busy machine may take for the call.
            let before = CLOCK.now();
            observe(&limit);
            let observed = limit.pool().observed(before)?;
            Some((observed.left.map(|left: Left| left.permits), observed.announced[0]))
        };
        let all = Some((Some(3), Some(Announced { limit: 100, per: None })));
        assert_eq!(told(&|limit| limit.observe_as(&names, StatusCode::OK, &answer(OWN))), all);
        assert_eq!(told(&|limit| limit.observe(StatusCode::OK, &answer(OWN))), None);
        assert_eq!(told(&|limit| limit.observe_as(&names, StatusCode::OK, &answer(KNOWN))), None);
        assert_eq!(told(&|limit| limit.observe(StatusCode::OK, &answer(KNOWN))), all);
    }
}
