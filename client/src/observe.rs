//! Telling the fleet what the vendor says: callers hand in each answer, and the handle passes on what is worth it. Answers
//! that say nothing cost a few lookups; no answer is waited for.

use crate::feedback::Feedback;
use crate::limit::Limit;
use crate::local_pool::{CLOCK, Condition, LocalPool};
use crate::rate_limit_headers::{HeaderNames, RateLimitHeaders};
use http::{HeaderMap, StatusCode};
use lessor_protocol::{Moment, Observed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static KNOWN: HeaderNames = HeaderNames::known();

impl Limit {
    /// Tells the fleet what the vendor said in answer to a call on this limit: call it with each answer.
    ///
    /// A 429, or a 503 with `Retry-After`, ends the spending of this process at once and, within a round trip of the
    /// allocator, that of all others, for as long as the vendor says; a count that is lower than ours, or a contract that
    /// is, has less lent. The allocator's configuration says how far any of that is believed. It is never lent more for
    /// it, and it ends by itself. See [`RateLimitHeaders::read`] for what is read.
    ///
    /// An answer that says nothing is read without a lock or an allocation.
    pub fn observe(&self, status: StatusCode, headers: &HeaderMap) {
        self.report(&RateLimitHeaders::read(status, headers, &KNOWN));
    }

    /// The same for a vendor whose headers have other `names`.
    pub fn observe_as(&self, names: &HeaderNames, status: StatusCode, headers: &HeaderMap) {
        self.report(&RateLimitHeaders::read(status, headers, names));
    }

    /// How long no call should be sent, as far as this process knows: the vendor refused it a moment ago, or the limit is
    /// paused. Worth a look before a call is sent whose permit was taken a while ago.
    pub fn paused(&self) -> Option<Duration> {
        self.pool().paused()
    }

    /// The same for what other code has read, of a vendor that does not speak HTTP for example.
    pub fn report(&self, headers: &RateLimitHeaders) {
        if !headers.is_empty() {
            self.pool().saw(headers);
        }
    }
}

impl LocalPool {
    fn saw(&self, headers: &RateLimitHeaders) {
        let (now, in_hand) = (CLOCK.now(), self.available());
        let is_urgent = lock(self.feedback_or_new()).see(headers, now, in_hand);
        if !is_urgent {
            return;
        }
        let mut refill = self.refill();
        if headers.refused {
            // Whatever is in hand would be refused too. The allocator gives it back if it knows better.
            refill.stop(self.slot());
        }
        refill.report(now);
        drop(refill);
        self.wake_to_tell();
    }

    /// See [`Limit::paused`].
    fn paused(&self) -> Option<Duration> {
        let by_vendor = self.feedback().and_then(|feedback| lock(feedback).waits(CLOCK.now()));
        let is_paused = self.condition() == Condition::Paused;
        let by_allocator = if is_paused { self.not_now(0).retry_after() } else { None };
        by_vendor.max(by_allocator)
    }

    /// The allocator said that calls are to stop. The next answer says for how long.
    pub(crate) fn on_pause(&self) {
        if matches!(self.condition(), Condition::Good | Condition::Unreachable | Condition::Quarantine) {
            self.set_condition(Condition::Paused);
        }
    }

    /// Whether the vendor disagreed since this was last asked.
    pub(crate) fn takes_disagreement(&self) -> bool {
        self.feedback().is_some_and(|feedback| lock(feedback).takes_disagreement())
    }

    /// Answers so far in which the vendor refused.
    pub(crate) fn vendor_refused(&self) -> u64 {
        self.feedback().map_or(0, |feedback| lock(feedback).refused())
    }

    /// What to say of the vendor with an ask that is written at `now`.
    pub(crate) fn observed(&self, now: Moment) -> Option<Observed> {
        self.feedback().and_then(|feedback| lock(feedback).tell(now))
    }
}

fn lock(feedback: &Mutex<Feedback>) -> MutexGuard<'_, Feedback> {
    // A few numbers: no panic elsewhere can have left them half changed.
    feedback.lock().unwrap_or_else(PoisonError::into_inner)
}
