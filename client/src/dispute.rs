//! What to do about an answer that is no use: an error of the allocator's, or a grant that cannot be. The background
//! task and the simulator ask it; it does no IO and decides nothing about leases.

use crate::refill::Refill;
use crate::slot::Slot;
use crate::timing::LOOK_AGAIN;
use lessor_protocol::wire::code;
use lessor_protocol::{Moment, Refusal, RefusalReason};
use std::time::Duration;

/// How long to leave a pool alone whose answer was no use: the allocator says what cannot be, or does not know a lease
/// that it has not granted. One that always does so must not be asked at network speed.
pub const DISPUTE_PAUSE: Duration = Duration::from_millis(50);

/// The same when a whole session begins again, which says so in the log.
pub const SESSION_PAUSE: Duration = Duration::from_secs(1);

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The lease is not known: use up what is held of this pool and count from zero then, see [`disown`].
    Disown,
    /// The allocator and we do not agree on this session: begin another, which owns nothing, and start every pool of
    /// it over, after [`SESSION_PAUSE`].
    BeginSession,
    /// Nothing can be had from this pool. Calls are refused; somebody may mend it, so look again now and then.
    LookAgain,
}

/// What to do about an error with the word `code`. A word that is not known here may come from a later allocator.
pub fn remedy(code: &str) -> Remedy {
    match code {
        code::LEASE_UNKNOWN => Remedy::Disown,
        code::TOTALS_WRONG | code::STALE_SEQUENCE => Remedy::BeginSession,
        _ => Remedy::LookAgain,
    }
}

/// Uses up what is held of a pool and counts from zero then, after a pause. `dice` is any number: it spreads the next ask.
pub fn disown(refill: &mut Refill, slot: &Slot, now: Moment, dice: u64) {
    let pause = pause_from_zero(refill);
    refill.disown(slot, now);
    refill.refused(now, pause, dice);
}

/// How long to wait before counting from zero. Not at all the first time: whoever is silent for long is forgotten, and so
/// is everybody by a restart. Then for [`DISPUTE_PAUSE`].
fn pause_from_zero(refill: &Refill) -> Duration {
    if refill.is_known() { Duration::ZERO } else { DISPUTE_PAUSE }
}

/// How long to wait after a refusal: as long as it says, within reason. What somebody decided lasts for [`DISPUTE_PAUSE`]
/// at least, and so does what only a later allocator could explain; whoever ends it sooner says so.
pub fn pause_refused(refusal: Refusal) -> Duration {
    let least = match refusal.reason {
        RefusalReason::Quarantine | RefusalReason::Stopping => Duration::ZERO,
        RefusalReason::Paused | RefusalReason::Blocked | RefusalReason::Other => DISPUTE_PAUSE,
    };
    refusal.retry_after.clamp(least, LOOK_AGAIN)
}

/// Drops what is held of a pool and counts from zero, after a `pause`. `dice` is any number: it spreads the next ask.
pub fn start_over(refill: &mut Refill, slot: &Slot, now: Moment, pause: Duration, dice: u64) {
    refill.forget(slot);
    refill.refused(now, pause, dice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_starts_over_is_left_alone_for_the_pause() {
        let (slot, now) = (Slot::new(), Moment::from_nanos(1_000));
        let mut refill = Refill::new(now, true);
        start_over(&mut refill, &slot, now, SESSION_PAUSE, 0);
        assert_eq!(refill.not_before(), now + SESSION_PAUSE);
        assert_eq!(pause_from_zero(&refill), DISPUTE_PAUSE);
        assert_eq!(remedy("of a later version"), Remedy::LookAgain);
    }

    /// The bug: a word that is not known came without a time, and was asked about again at network speed.
    #[test]
    fn nothing_that_somebody_decided_is_asked_about_at_network_speed() {
        use RefusalReason::{Blocked, Other, Paused, Quarantine};
        let pause =
            |reason, millis| pause_refused(Refusal { reason, retry_after: Duration::from_millis(millis) });
        assert_eq!([Other, Paused, Blocked].map(|reason| pause(reason, 0)), [DISPUTE_PAUSE; 3]);
        assert_eq!(
            (pause(Quarantine, 1), pause(Paused, 70)),
            (Duration::from_millis(1), Duration::from_millis(70))
        );
        assert_eq!(pause(Paused, u64::MAX / 2), LOOK_AGAIN);
    }
}
