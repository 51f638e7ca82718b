//! The clock of an allocator: it reads those of the machine, and lets [`lessor_ledger::steering`] say what follows. Its origin is the
//! Unix epoch, as the wall clock showed it once: fixed windows are aligned to that, and later steps of the wall clock do not
//! reach it.

use lessor_ledger::steering::{Course, Steering};
use lessor_protocol::clock::{Instants, wall};
use lessor_protocol::{ClockBounds, Moment};
use std::sync::{Mutex, PoisonError};

/// Where a clock begins that begins now.
pub(crate) fn begin() -> Course {
    Course::at(wall(), Instants::now())
}

/// A clock that runs.
#[derive(Debug)]
pub(crate) struct EpochClock(Mutex<Steering>);

impl EpochClock {
    /// A clock that goes on from `course`. `clocks` say how far its rate may be from real time.
    pub(crate) fn new(course: Course, clocks: ClockBounds) -> Self {
        EpochClock(Mutex::new(Steering::new(course, clocks)))
    }

    /// This instant.
    pub(crate) fn now(&self) -> Moment {
        self.read().0
    }

    /// Where it is now, for one that goes on in another process of this boot.
    pub(crate) fn course(&self) -> Course {
        self.read().1
    }

    fn read(&self) -> (Moment, Course) {
        // Plain numbers: no panic can have left them half changed.
        let mut steering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: instants then come in order.
        let now = steering.show(Instants::now());
        (now, steering.course())
    }
}
