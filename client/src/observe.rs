//! Telling the fleet what the vendor says: callers hand in each answer, and the handle passes on what is worth it. Answers
//! that say nothing cost a few lookups; no answer is waited for.

use crate::feedback::Feedback;
use crate::limit::Limit;
use crate::local_pool::{CLOCK, LocalPool};
use crate::sighting::{HeaderNames, Sighting};
use http::{HeaderMap, StatusCode};
use lessor_protocol::{Moment, Observed};
use std::sync::{Mutex, MutexGuard, PoisonError};

static KNOWN: HeaderNames = HeaderNames::known();

impl Limit {
    /// Tells the fleet what the vendor said in answer to a call on this limit: call it with each answer.
    ///
    /// A 429, or a 503 with `Retry-After`, ends the spending of this process at once and, within a round trip of the
    /// allocator, that of all others, for as long as the vendor says; a count that is lower than ours, or a contract that
    /// is, has less lent. The allocator's configuration says how far any of that is believed. It is never lent more for
    /// it, and it ends by itself. See [`Sighting::read`] for what is read.
    ///
    /// An answer that says nothing is read without a lock or an allocation.
    pub fn observe(&self, status: StatusCode, headers: &HeaderMap) {
        self.report(&Sighting::read(status, headers, &KNOWN));
    }

    /// The same for a vendor whose headers have other `names`.
    pub fn observe_as(&self, names: &HeaderNames, status: StatusCode, headers: &HeaderMap) {
        self.report(&Sighting::read(status, headers, names));
    }

    /// The same for what somebody else has read, of a vendor that does not speak HTTP for example.
    pub fn report(&self, sighting: &Sighting) {
        if !sighting.is_empty() {
            self.pool().saw(sighting);
        }
    }
}

impl LocalPool {
    fn saw(&self, sighting: &Sighting) {
        let (now, in_hand) = (CLOCK.now(), self.available());
        let feedback = self.feedback.get_or_init(Box::default);
        let is_urgent = lock(feedback).see(sighting, now, in_hand);
        if !is_urgent {
            return;
        }
        let mut refill = self.refill();
        if sighting.refused {
            // Whatever is in hand would be refused too. The allocator gives it back if it knows better.
            refill.stop(self.slot());
        }
        refill.report(now);
        drop(refill);
        self.wake.notify_one();
    }

    /// What to say of the vendor with an ask that is written at `now`.
    pub(crate) fn observed(&self, now: Moment) -> Option<Observed> {
        self.feedback.get().and_then(|feedback| lock(feedback).tell(now))
    }
}

fn lock(feedback: &Mutex<Feedback>) -> MutexGuard<'_, Feedback> {
    // A few numbers: no panic elsewhere can have left them half changed.
    feedback.lock().unwrap_or_else(PoisonError::into_inner)
}
