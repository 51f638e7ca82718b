//! The clock that an allocator goes by: spans as the hardware measures them, windows as the calendar has them. The
//! shell (`clock`) reads the clocks of the machine and hands them in.
//!
//! Leases, windows and buckets are *spans*, and need a clock whose rate is within the drift of real time: the steady
//! one. Fixed windows begin when those of the vendor do, today and in a year. Hardware that is off by 50 ppm is off by
//! four seconds after a day, so they need the disciplined clock, which a daemon slews as fast as it likes. This clock
//! goes at the rate of the hardware, and is *steered* towards the disciplined clock by a part of the drift at most.

use lessor_protocol::clock::Instants;
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment};

const MILLION: u64 = 1_000_000;

/// Part of the drift, in percent, that is left to steering; hardware may have the other half. Together they make `(1 +
/// 0.49·d)·(1 + 0.5·d) ≤ 1 + d` for all `d` up to four percent. Above that [`STEER_PPM_MAX`] is less.
const STEER_PERCENT: u64 = 49;

/// Most to steer by, in parts per million, whatever drift is allowed for: as fast as the kernel lets a daemon set the
/// frequency for good. A larger value would follow slews.
const STEER_PPM_MAX: u64 = 490;

/// Reading of a clock from which another one goes on, in this process or in another of the same boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// What the clock showed last.
    pub shown: Moment,
    /// Reading of the steady clock then.
    pub steady: Moment,
    /// Nanoseconds by which the clock is ahead of the disciplined clock once it is where it is steered to.
    pub aim: u64,
}

impl Course {
    /// Returns the course of a clock that shows `shown` now and is where it is steered to.
    pub fn at(shown: Moment, now: Instants) -> Self {
        let aim = shown.as_nanos().saturating_sub(now.disciplined.as_nanos());
        Course { shown, steady: now.steady, aim }
    }
}

/// The clock of an allocator.
///
/// Between any two readings it moves by what the steady clock does, within `± limit_ppm` of that and a nanosecond. So
/// with hardware within half of the drift its rate is within the drift of real time, whatever the disciplined clock does.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    limit_ppm: u64,
    course: Course,
    /// Steering left over from the last reading, in millionths of a nanosecond: less than one nanosecond.
    left: u64,
}

impl Steering {
    /// Creates a clock that goes on from `course`.
    pub fn new(course: Course, clocks: ClockBounds) -> Self {
        let limit_ppm = (u64::from(clocks.drift_ppm()) * STEER_PERCENT / 100).min(STEER_PPM_MAX);
        Steering { limit_ppm, course, left: 0 }
    }

    /// Returns what the clock shows at `now`, which must not be earlier than the last reading.
    pub fn show(&mut self, now: Instants) -> Moment {
        let Course { shown, steady, aim } = self.course;
        let gone = nanos(now.steady.since(steady));
        let ahead = shown.as_nanos().saturating_add(gone);
        let aimed = now.disciplined.as_nanos().saturating_add(aim);
        // The product saturates only after half a year (2^54 ns) or more without a reading: steering is less than it
        // might be then.
        let may = gone.saturating_mul(self.limit_ppm).saturating_add(self.left);
        let most = may / MILLION;
        let shown = Moment::from_nanos(aimed.clamp(ahead.saturating_sub(most), ahead.saturating_add(most)));
        // Unused steering is not saved up, except for the part below a nanosecond that could not be used.
        self.left = may % MILLION;
        self.course = Course { shown, steady: steady.max(now.steady), aim };
        shown
    }

    /// Returns the course of the clock as of its last reading.
    pub fn course(&self) -> Course {
        self.course
    }
}

#[cfg(test)]
mod tests;
