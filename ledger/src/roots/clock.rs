//! The time that roots go by: that of the store, as far as an allocator can tell. It asks for it now and then, and knows from
//! its own clock how long that took and how much has passed since: so the time is in a span, and all allocators that ask the
//! same store are in it together. Roots go by the early end, which is never ahead of the store.
//!
//! No allocator relies on a store whose clock is set: what it says then fits none of what it said before.

use super::TimeSource;
use crate::cells::Timeline;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

const MILLION: u128 = 1_000_000;

/// What an allocator knows of the time of a store.
#[derive(Clone, Debug)]
pub struct RootClock {
    /// How much the clocks of both may drift apart, in a million.
    drift_ppm: u32,
    source: TimeSource,
    /// The server whose time this is.
    timeline: Option<Timeline>,
    /// It was that time or later at that instant on the own clock.
    early: Option<(Moment, Moment)>,
    /// It was that time or earlier.
    late: Option<(Moment, Moment)>,
    /// After that instant on the own clock nothing is known, where that is said.
    until: Option<Moment>,
}

/// The store said what cannot be, if it went on as before: its clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped;

impl RootClock {
    /// One that knows nothing yet of the time of `source`, where either clock may be off by `drift_ppm`.
    pub const fn new(drift_ppm: u32, source: TimeSource) -> Self {
        let drift_ppm = apart(drift_ppm);
        RootClock { drift_ppm, source, timeline: None, early: None, late: None, until: None }
    }

    /// Goes by the time of the server of `timeline`. `false` if it went by another one, whose time it forgets: ask again.
    pub fn follow(&mut self, timeline: &Timeline) -> bool {
        if self.timeline.as_ref() == Some(timeline) {
            return true;
        }
        self.timeline = Some(timeline.clone());
        self.forget();
        false
    }

    /// Who tells that time.
    pub fn source(&self) -> TimeSource {
        self.source
    }

    /// The server whose time it goes by.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Forgets what is known of the time.
    pub fn forget(&mut self) {
        (self.early, self.late, self.until) = (None, None, None);
    }

    /// The store was asked at `asked` on the own clock, answered by `answered`, and said that it was `said`.
    ///
    /// # Errors
    /// If that fits nothing of what it said before. It knows nothing of the time then but for this.
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

    /// It was `said` or later at `at` on the own clock, as is known `now`.
    pub(super) fn is_at_least(&mut self, said: Moment, at: Moment, now: Moment) {
        if self.early(now).is_none_or(|early| early <= self.earlier((said, at), now)) {
            self.early = Some((said, at));
        }
    }

    /// It was `said` or earlier at `at` on the own clock, as is known `now`.
    pub(super) fn is_at_most(&mut self, said: Moment, at: Moment, now: Moment) {
        if self.late(now).is_none_or(|late| late >= self.later((said, at), now)) {
            self.late = Some((said, at));
        }
    }

    /// Forgets how late it is at least.
    pub(super) fn forget_early(&mut self) {
        self.early = None;
    }

    /// What is known holds no longer than that on the own clock.
    pub(super) fn holds_until(&mut self, until: Moment) {
        self.until = Some(until);
    }

    /// The time at `local` on the own clock, or a little before it; `None` if it cannot be told well enough.
    pub fn now(&self, local: Moment) -> Option<Moment> {
        let holds = self.until.is_none_or(|until| local < until);
        let early = self.early(local).filter(|_| holds)?;
        (self.span(local)? <= self.source.span()).then_some(early)
    }

    /// The time at `local` on the own clock, or a little after it, if [`RootClock::now`] can tell. It is no earlier by whichever
    /// source another allocator goes.
    pub fn latest(&self, local: Moment) -> Option<Moment> {
        Some(self.late(local)? + self.source.step())
    }

    /// In how long a span the time is known to be.
    pub(super) fn span(&self, local: Moment) -> Option<Duration> {
        Some(self.late(local)?.since(self.early(local)?))
    }

    /// The earliest time that it can be.
    pub(super) fn early(&self, local: Moment) -> Option<Moment> {
        Some(self.earlier(self.early?, local))
    }

    /// The latest time that it can be.
    pub(super) fn late(&self, local: Moment) -> Option<Moment> {
        Some(self.later(self.late?, local))
    }

    fn earlier(&self, (said, at): (Moment, Moment), local: Moment) -> Moment {
        let passed = u128::from(nanos(local.since(at)));
        said + span(passed - passed * u128::from(self.drift_ppm) / MILLION)
    }

    fn later(&self, (said, at): (Moment, Moment), local: Moment) -> Moment {
        let passed = u128::from(nanos(local.since(at)));
        said + span(passed + (passed * u128::from(self.drift_ppm)).div_ceil(MILLION))
    }
}

/// By how much, in a million, a clock may run faster than another one, where either may be off by `drift_ppm`. By a little more than both
/// together: the other one runs slow.
const fn apart(drift_ppm: u32) -> u32 {
    let (both, slow) =
        (2 * drift_ppm as u64 * MILLION as u64, (MILLION as u64).saturating_sub(drift_ppm as u64));
    let apart = both.div_ceil(if slow == 0 { 1 } else { slow });
    if apart > u32::MAX as u64 { u32::MAX } else { apart as u32 }
}

fn span(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

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

    /// The bug: by twice as much as one clock may be off, the store seemed to be set within minutes, and its time began anew.
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
