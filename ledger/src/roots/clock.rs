//! The time that roots go by: the store's time, as far as an allocator can tell. An allocator asks for it now and then.
//! From its own clock it knows how long that took and how much has passed since, so it knows a span that the time is
//! in. The store's time is in the spans of all allocators. Roots go by the early end, which is never ahead of the
//! store.
//!
//! If the clock of a store is set, its answer does not fit earlier ones, and no allocator relies on it.

use super::TimeSource;
use crate::cells::Timeline;
use lessor_protocol::Moment;
use lessor_protocol::moment::{nanos, span_of};
use std::time::Duration;

const MILLION: u128 = 1_000_000;

/// What an allocator knows of the time of a store.
#[derive(Clone, Debug)]
pub struct RootClock {
    /// Millionths by which one of both clocks may run faster than the other.
    drift_ppm: u32,
    source: TimeSource,
    /// The timeline of the server whose time this is.
    timeline: Option<Timeline>,
    /// A lower bound: the time was the first or later when the own clock showed the second.
    early: Option<(Moment, Moment)>,
    /// An upper bound: the time was the first or earlier when the own clock showed the second.
    late: Option<(Moment, Moment)>,
    /// The instant on the own clock from which on nothing is known, if there is one.
    until: Option<Moment>,
}

/// An answer of the store that does not fit earlier ones: its clock was set, or the own clock was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped;

impl RootClock {
    /// Creates a clock that knows nothing yet of the time of `source`. Either clock may be off by `drift_ppm`.
    pub const fn new(drift_ppm: u32, source: TimeSource) -> Self {
        let drift_ppm = apart(drift_ppm);
        RootClock { drift_ppm, source, timeline: None, early: None, late: None, until: None }
    }

    /// Follows the time of the server of `timeline`. Returns `false` if it followed no server or another one, whose
    /// time it forgets: then ask again.
    pub fn follow(&mut self, timeline: &Timeline) -> bool {
        if self.timeline.as_ref() == Some(timeline) {
            return true;
        }
        self.timeline = Some(timeline.clone());
        self.forget();
        false
    }

    /// Returns the source of the time.
    pub fn source(&self) -> TimeSource {
        self.source
    }

    /// Returns the timeline of the server whose time it follows.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Forgets what is known of the time.
    pub fn forget(&mut self) {
        (self.early, self.late, self.until) = (None, None, None);
    }

    /// Takes an answer of the store, asked at `asked` on the own clock and answered by `answered`: the time was `said`.
    ///
    /// # Errors
    /// If the answer does not fit earlier ones. Then only this answer is known.
    pub fn on_answer(&mut self, said: Moment, asked: Moment, answered: Moment) -> Result<(), Stepped> {
        let (early, late) = (self.early(answered), self.late(answered));
        let (fresh_early, fresh_late) = (said, self.later((said, asked), answered));
        if early.is_some_and(|early| early > fresh_late) || late.is_some_and(|late| fresh_early > late) {
            (self.early, self.late) = (Some((said, answered)), Some((said, asked)));
            return Err(Stepped);
        }
        self.is_at_least(said, answered, answered);
        self.is_at_most(said, asked, answered);
        Ok(())
    }

    /// Takes a lower bound, if it is the better one `now`: the time was `said` or later at `at` on the own clock.
    pub(super) fn is_at_least(&mut self, said: Moment, at: Moment, now: Moment) {
        if self.early(now).is_none_or(|early| early <= self.earlier((said, at), now)) {
            self.early = Some((said, at));
        }
    }

    /// Takes an upper bound, if it is the better one `now`: the time was `said` or earlier at `at` on the own clock.
    pub(super) fn is_at_most(&mut self, said: Moment, at: Moment, now: Moment) {
        if self.late(now).is_none_or(|late| late >= self.later((said, at), now)) {
            self.late = Some((said, at));
        }
    }

    /// Forgets the lower bound.
    pub(super) fn forget_early(&mut self) {
        self.early = None;
    }

    /// Lets what is known hold no longer than `until` on the own clock.
    pub(super) fn holds_until(&mut self, until: Moment) {
        self.until = Some(until);
    }

    /// Returns the time at `local` on the own clock, or a little before it. `None` if it is not known well enough.
    pub fn now(&self, local: Moment) -> Option<Moment> {
        let holds = self.until.is_none_or(|until| local < until);
        let early = self.early(local).filter(|_| holds)?;
        (self.span(local)? <= self.source.span()).then_some(early)
    }

    /// Returns the time at `local` on the own clock, or a little after it. No allocator takes the time to be later,
    /// whichever keeper it goes by. `None` if no upper bound is known.
    pub fn latest(&self, local: Moment) -> Option<Moment> {
        Some(self.late(local)? + self.source.step())
    }

    /// Returns the length of the span that the time is known to be in.
    pub(super) fn span(&self, local: Moment) -> Option<Duration> {
        Some(self.late(local)?.since(self.early(local)?))
    }

    /// Returns the earliest time that it can be.
    pub(super) fn early(&self, local: Moment) -> Option<Moment> {
        Some(self.earlier(self.early?, local))
    }

    /// Returns the latest time that it can be.
    pub(super) fn late(&self, local: Moment) -> Option<Moment> {
        Some(self.later(self.late?, local))
    }

    fn earlier(&self, (said, at): (Moment, Moment), local: Moment) -> Moment {
        let passed = u128::from(nanos(local.since(at)));
        said + span_of(passed - passed * u128::from(self.drift_ppm) / MILLION)
    }

    fn later(&self, (said, at): (Moment, Moment), local: Moment) -> Moment {
        let passed = u128::from(nanos(local.since(at)));
        said + span_of(passed + (passed * u128::from(self.drift_ppm)).div_ceil(MILLION))
    }
}

/// Returns by how many millionths a clock may run faster than another one, where either may be off by `drift_ppm`. That
/// is a little more than both together, because it is counted on the slow clock.
const fn apart(drift_ppm: u32) -> u32 {
    let (both, slow) =
        (2 * drift_ppm as u64 * MILLION as u64, (MILLION as u64).saturating_sub(drift_ppm as u64));
    let apart = both.div_ceil(if slow == 0 { 1 } else { slow });
    if apart > u32::MAX as u64 { u32::MAX } else { apart as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis as at;

    #[test]
    fn it_is_never_ahead_of_the_store_and_as_exact_as_the_quickest_answer() {
        let mut clock = RootClock::new(0, TimeSource::Store);
        assert_eq!(clock.now(at(5)), None);
        clock.on_answer(at(1_010), at(0), at(30)).expect("it said nothing before");
        assert_eq!(clock.now(at(30)), None, "it may be any time from 1,010 to 1,040");
        clock.on_answer(at(1_032), at(40), at(48)).expect("that is at 1,032 to 1,040");
        assert_eq!(clock.now(at(48)), Some(at(1_032)));
        clock.on_answer(at(1_050), at(60), at(90)).expect("at 90 it is 1,074 to 1,080");
        assert_eq!(clock.now(at(100)), Some(at(1_084)), "what it knew before is better");
    }

    #[test]
    fn the_time_of_one_server_says_nothing_of_another_one() {
        let mut clock = RootClock::new(0, TimeSource::Store);
        assert!(!clock.follow(&Timeline::new("a")));
        clock.on_answer(at(1_010), at(0), at(1)).expect("the first");
        assert!(clock.follow(&Timeline::new("a")));
        assert_eq!(clock.now(at(5)), Some(at(1_014)));
        // The clock of its replica is 6 ms behind, and its answer took 8 ms: by both together it would be 1,018 to 1,019.
        assert!(!clock.follow(&Timeline::new("b")));
        clock.on_answer(at(1_011), at(2), at(10)).expect("the first of another server");
        assert_eq!((clock.now(at(10)), clock.latest(at(10))), (Some(at(1_011)), Some(at(1_019))));
    }

    #[test]
    fn what_it_knows_fades() {
        let mut clock = RootClock::new(1_000, TimeSource::Store);
        clock.on_answer(at(1_000), at(0), at(1)).expect("the first");
        assert_eq!(clock.now(at(1)), Some(at(1_000)));
        assert!(clock.now(at(1_001)).is_some_and(|now| now <= at(1_998)));
        assert_eq!(clock.now(at(4_000)), None, "by now that may be 16 ms off");
    }

    /// The bug: with twice the drift of one clock, the store seemed to be set within minutes, and its time began anew.
    #[test]
    fn the_fastest_store_beside_the_slowest_allocator_is_not_taken_for_one_whose_clock_is_set() {
        for (own, store) in [(999, 1_001), (1_001, 999)] {
            let mut clock = RootClock::new(1_000, TimeSource::Store);
            for asked in (0..10_000).map(|step| step * 250) {
                let [asked, answered, said] = [(asked, own), (asked, own), (asked, store)]
                    .map(|(millis, rate)| Moment::from_nanos(millis * rate * 1_000));
                let answered = answered + Duration::from_micros(100);
                clock.on_answer(said, asked, answered).expect("both are as exact as was said");
            }
        }
    }

    #[test]
    fn a_store_whose_clock_is_set_is_noticed_either_way() {
        for said in [900, 1_400] {
            let mut clock = RootClock::new(1_000, TimeSource::Store);
            clock.on_answer(at(1_000), at(0), at(1)).expect("the first");
            assert_eq!(clock.on_answer(at(said), at(100), at(101)), Err(Stepped));
            assert_eq!(clock.now(at(101)), Some(at(said)), "from then on it goes by that");
        }
    }
}
