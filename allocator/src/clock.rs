//! The clock of an allocator: it reads the clocks of the machine, and [`lessor_ledger::steering`] decides what it
//! shows. Its origin is the Unix epoch as the wall clock once showed it. Fixed windows are aligned to that, and later
//! steps of the wall clock do not reach it.

use lessor_ledger::steering::{Course, Steering};
use lessor_protocol::clock::{Instants, wall};
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{ClockBounds, Moment};
use std::sync::Mutex;

/// Returns the course of a clock that begins now.
pub(crate) fn begin() -> Course {
    Course::at(wall(), Instants::now())
}

/// A running clock.
#[derive(Debug)]
pub(crate) struct EpochClock(Mutex<Steering>);

impl EpochClock {
    /// Makes a clock that goes on from `course`. `clocks` bounds how far its rate may be from real time.
    pub(crate) fn new(course: Course, clocks: ClockBounds) -> Self {
        EpochClock(Mutex::new(Steering::new(course, clocks)))
    }

    /// Returns this instant.
    pub(crate) fn now(&self) -> Moment {
        self.read().0
    }

    /// Returns where the clock is now, for another process of this boot to go on from.
    pub(crate) fn course(&self) -> Course {
        self.read().1
    }

    fn read(&self) -> (Moment, Course) {
        let mut steering = self.0.lock_anyway();
        // The lock keeps instants in order.
        let now = steering.show(Instants::now());
        (now, steering.course())
    }
}
