//! The time of a store that has no clock. One allocator, the *keeper*, counts it on its own clock, and writes it to a
//! cell a few times a second: a *stamp*. All others follow: the stamps that they read bound the time from below and
//! from above.
//!
//! - From below: at the end of a read the time is no earlier than the stamp says.
//! - From above: a stamp says by when the one before was written. That one was not written before the start of a read
//!   that did not show it. So a follower that waits for the next stamp reads again and again until the stamp is there.
//!   Then it knows the time as well as two reads and a write are close.
//!
//! What an allocator knows of a keeper holds for a second after the start of a read that showed that keeper. A follower
//! takes over when it has seen no new stamp for longer than that. It goes on with the earliest time that it can be, so
//! the time may go back a little, and never ahead. So two allocators are never further apart than
//! [`TimeSource::uncertainty`](super::TimeSource::uncertainty).
//!
//! If no allocator is left that knows the time, another *life* of the time begins by the calendar of the first one that
//! comes, and with it another era of all roots.

use super::{RootClock, SIGN_EVERY};
use crate::cells::{Cell, Swap, check_count};
use lessor_protocol::Moment;
use lessor_protocol::moment::{nanos, span_of};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of the cell of the stamp.
pub(super) const CLOCK_CELL: &str = "clock";

/// Format of a stamp. A stamp of another format is not guessed at.
const FORMAT: u32 = 1;

/// The highest life that begins by a calendar. Others can follow it.
const BY_CALENDAR_MAX: u64 = u64::MAX - u32::MAX as u64;

/// Shortest time between two stamps. The keeper writes stamps as it signs the head.
const STAMP_EVERY: Duration = SIGN_EVERY.saturating_sub(Duration::from_millis(50));

/// How long an allocator goes by a keeper after the start of a read that showed that keeper.
const HOLDS: Duration = Duration::from_secs(1);

/// Time without a new stamp after which a follower takes over. By then no allocator goes by the keeper before the one
/// that is replaced.
const TAKES_OVER_AFTER: Duration = Duration::from_millis(1_250);

/// Time without a new stamp after which an allocator that does not know the time begins another life of it. An
/// allocator that knows the time has taken over by then.
const BEGINS_AFTER: Duration = Duration::from_secs(2);

/// Stamps in a row that were written, but whose answers the keeper missed, after which it leaves the time to others.
/// They cannot come to know the time from stamps that the keeper confirms late.
const MISSED_MAX: u32 = 2;

/// How long such a keeper writes no stamp. Any other allocator has taken over by then, or has begun another life.
const RESTS: Duration = Duration::from_secs(3);

/// Longest span in which a follower knows the time well. If its span is longer, it waits for the next stamp.
const WELL_KNOWN: Duration = Duration::from_millis(16);

/// How long before the next stamp is expected a follower begins to read, and how long after that it stops.
const AWAITS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(50));

/// How long an allocator that does not know the time reads on. Two stamps come in that time.
const LEARNS: Duration = SIGN_EVERY.saturating_mul(3);

/// Fastest slew of the keeper's time towards its calendar, in thousandths of the drift of clocks. An allocator's
/// steered clock leaves that much of the drift.
const SLEW: u128 = 9;

/// What the keeper writes to the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    format: u32,
    /// The life of the time. How long ago another life was is unknown. Later lives have higher numbers.
    life: u64,
    /// The number of the keeper. No allocator keeps the time twice under one number.
    keeper: u64,
    /// Counts the stamps of the keeper.
    number: u64,
    /// The time when the stamp was sent.
    said: u64,
    /// The time by which the stamp before was in the cell, if the same keeper wrote that one.
    done: Option<u64>,
}

impl Stamp {
    fn read(value: &[u8]) -> Result<Self, String> {
        let stamp: Stamp = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        // Not a count: it may be a moment of any calendar.
        if stamp.life == u64::MAX {
            return Err("life is the last number, which none can follow".to_owned());
        }
        check_count("number", stamp.number)?;
        match stamp.format {
            FORMAT => Ok(stamp),
            other => Err(format!("it has format {other}, and this version knows {FORMAT}")),
        }
    }

    fn said(&self) -> Moment {
        Moment::from_nanos(self.said)
    }
}

/// A read of the cell, with its instants on the own clock.
#[derive(Debug)]
pub(super) struct StampRead {
    /// The content of the cell.
    pub cell: Option<Cell>,
    /// When the first of several consecutive reads began.
    pub began: Moment,
    /// When this one began.
    pub asked: Moment,
    /// When it was over.
    pub answered: Moment,
}

/// What an allocator does next about the time.
#[derive(Debug)]
pub(super) enum Todo {
    /// Goes by what its clock knows.
    Know,
    /// Reads the cell.
    Read,
    /// Writes the cell; the swap is sent at once.
    Write(Swap),
    /// Lends nothing: the time is not known.
    Wait,
}

/// What an allocator knows of the keeper, or as the keeper.
#[derive(Debug)]
pub(super) struct Timekeeping {
    drift_ppm: u32,
    own: Option<KeeperState>,
    seen: Option<FollowedStamp>,
    /// The life of the time that it knows.
    life: Option<u64>,
}

/// The state of a keeper, or of an allocator that becomes the keeper if its stamp is written.
#[derive(Debug)]
struct KeeperState {
    life: u64,
    keeper: u64,
    /// The time, and the instant on the own clock at which it was that time.
    base: (Moment, Moment),
    /// Version of the cell, as far as is known: the next stamp takes its place.
    version: Option<u64>,
    /// Whether that version is its own stamp.
    is_keeper: bool,
    /// Number of its last stamp in the cell. `said` is the time when that was sent, `done` the time by which it was
    /// there.
    number: u64,
    said: Moment,
    done: Option<Moment>,
    /// The version of the stamp that was sent last.
    sent: u64,
    /// Stamps in a row that were written and whose answers it missed.
    missed: u32,
    /// When it may write a stamp again after it missed too many answers.
    rests_until: Moment,
}

/// The stamp that was read last.
#[derive(Debug)]
struct FollowedStamp {
    version: u64,
    stamp: Stamp,
    /// When the first read that showed it was over.
    since: Moment,
    /// When the last read that showed it began.
    read: Moment,
    /// The earliest instant at which it can have been written, if that is known.
    not_before: Option<Moment>,
}

impl Timekeeping {
    /// Creates a state that knows nothing yet. The own clock may be off by `drift_ppm`.
    pub(super) fn new(drift_ppm: u32) -> Self {
        Timekeeping { drift_ppm, own: None, seen: None, life: None }
    }

    /// Returns the life of the time that it knows.
    pub(super) fn life(&self) -> Option<u64> {
        self.life
    }

    /// Whether this allocator keeps the time, as far as it knows.
    pub(super) fn is_keeper(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_keeper)
    }

    /// Forgets all that it knows, which is of another store.
    pub(super) fn forget(&mut self) {
        *self = Timekeeping::new(self.drift_ppm);
    }

    /// Returns what comes first when the time is asked for.
    pub(super) fn begin(&mut self, now: Moment, clock: &RootClock, wall: Moment, version: u64) -> Todo {
        match &mut self.own {
            Some(own) if own.is_keeper && own.is_due(now) => {
                own.follow(wall, self.drift_ppm, now);
                Todo::Write(own.write(version, now))
            }
            Some(own) if own.is_keeper && clock.now(now).is_some() => Todo::Know,
            Some(_) | None => Todo::Read,
        }
    }

    /// Takes a read of the cell, and returns what comes next. `draw` draws numbers that no other call has drawn.
    ///
    /// # Errors
    /// What is wrong with the stamp. Nothing may be lent then.
    pub(super) fn on_read(
        &mut self,
        reading: StampRead,
        clock: &mut RootClock,
        wall: Moment,
        mut draw: impl FnMut() -> u64,
    ) -> Result<Todo, String> {
        let Some(cell) = &reading.cell else {
            self.own.take_if(|own| own.version.is_some());
            (self.seen, self.life) = (None, None);
            clock.forget();
            return Ok(self.write_first(None, 0, wall, reading.answered, draw));
        };
        let (version, stamp) = (cell.version, Stamp::read(&cell.value)?);
        if let Some(own) = self.own.as_mut().filter(|own| own.keeper == stamp.keeper) {
            own.is_written(version, &stamp, reading.answered);
            own.tell(clock, reading.asked, reading.answered);
            (self.life, self.seen) = (Some(own.life), None);
            return Ok(self.begin(reading.answered, clock, wall, draw()));
        }
        // A stamp that it sent as the keeper can replace only the version for which it was sent.
        self.own.take_if(|own| own.is_keeper || own.version != Some(version));
        let is_new = self.seen.as_ref().is_none_or(|seen| seen.version != version);
        if self.life == Some(stamp.life)
            && clock.late(reading.answered).is_some_and(|late| stamp.said() > late)
        {
            // The keeper's clock was set ahead, or the own one stood still: what was lent counts as if it were lent
            // now.
            clock.forget();
            return Ok(self.write_first(Some(version), stamp.life, wall, reading.answered, draw));
        }
        self.follow(version, stamp, &reading, clock);
        let Some(seen) = &self.seen else { return Ok(Todo::Wait) };
        let (now, still) = (reading.answered, reading.asked.since(seen.since));
        let known = clock.now(now);
        if still >= TAKES_OVER_AFTER
            && let Some(there) = known
        {
            return Ok(self.take_over(version, stamp.life, there, now, draw));
        }
        if still >= BEGINS_AFTER {
            return Ok(self.write_first(Some(version), stamp.life, wall, now, draw));
        }
        let took = now.since(reading.began);
        Ok(match known {
            Some(_) if !is_new && seen.is_awaited(clock, now) => Todo::Read,
            Some(_) => Todo::Know,
            None if took < LEARNS && still < SIGN_EVERY * 2 => Todo::Read,
            None => Todo::Wait,
        })
    }

    /// Records that the stamp sent at `sent` is written, as is known `now`.
    pub(super) fn on_written(&mut self, clock: &mut RootClock, sent: Moment, now: Moment) {
        let Some(own) = &mut self.own else { return };
        (own.version, own.is_keeper) = (Some(own.sent), true);
        own.number += 1;
        own.missed = 0;
        (own.said, own.done) = (own.at(sent), Some(own.at(now)));
        own.tell(clock, sent, now);
        (self.life, self.seen) = (Some(own.life), None);
    }

    /// Records that it is unknown whether the last stamp is written: the allocator reads before it writes again.
    pub(super) fn mark_write_unknown(&mut self) {
        self.own.iter_mut().for_each(|own| own.is_keeper = false);
    }

    /// Returns when a follower would best read next, on the own clock. `None` if that does not matter.
    pub(super) fn next_read(&self, clock: &RootClock, now: Moment) -> Option<Moment> {
        let (seen, latest) = (self.seen.as_ref()?, clock.late(now)?);
        let is_wanted = clock.span(now).is_some_and(|span| span > WELL_KNOWN);
        is_wanted.then(|| now + (seen.stamp.said() + SIGN_EVERY).since(latest))
    }

    /// Notes the stamp of another keeper.
    fn follow(&mut self, version: u64, stamp: Stamp, reading: &StampRead, clock: &mut RootClock) {
        let is_older =
            |seen: &FollowedStamp| seen.stamp.keeper == stamp.keeper && seen.stamp.number > stamp.number;
        if self.life != Some(stamp.life) || self.seen.as_ref().is_some_and(is_older) {
            clock.forget();
            (self.life, self.seen) = (Some(stamp.life), None);
        }
        let before = self.seen.take();
        if let Some(seen) = before.as_ref().filter(|seen| seen.version == version) {
            let FollowedStamp { since, read, not_before, .. } = *seen;
            // While this allocator could not read, perhaps the keeper could not write.
            let since = if reading.asked.since(read) > HOLDS { reading.answered } else { since };
            self.seen = Some(FollowedStamp { version, stamp, since, read: reading.asked, not_before });
        } else {
            let not_before = before.as_ref().map(|seen| seen.read);
            let is_same = before.as_ref().is_some_and(|seen| seen.stamp.keeper == stamp.keeper);
            if !is_same {
                // The time of the keeper before was no earlier than the time of this one, so its upper bound still
                // holds.
                clock.forget_early();
            }
            // The stamp before was not there at that time either, unless it is the one that was seen.
            let follows = before.as_ref().filter(|seen| is_same && seen.stamp.number + 1 == stamp.number);
            let written = follows.map_or(not_before, |seen| seen.not_before);
            if let (Some(done), Some(written)) = (stamp.done, written) {
                clock.is_at_most(Moment::from_nanos(done), written, reading.answered);
            }
            clock.is_at_least(stamp.said(), reading.answered, reading.answered);
            if clock.early(reading.answered) > clock.late(reading.answered)
                && clock.late(reading.answered).is_some()
            {
                // The keeper's clock stood still, or the own one was set ahead. What was known is void, and the next
                // two stamps tell the time anew.
                clock.forget();
                clock.is_at_least(stamp.said(), reading.answered, reading.answered);
            }
            let (since, read) = (reading.answered, reading.asked);
            self.seen = Some(FollowedStamp { version, stamp, since, read, not_before });
        }
        clock.holds_until(reading.asked + HOLDS);
    }

    /// Takes over as the keeper: goes on with the time, which is `there`. A takeover that was tried before is tried
    /// again.
    fn take_over(
        &mut self,
        version: u64,
        life: u64,
        there: Moment,
        now: Moment,
        mut draw: impl FnMut() -> u64,
    ) -> Todo {
        let keeper = draw();
        let own = self.own.get_or_insert_with(|| KeeperState::new(life, keeper, Some(version), there, now));
        Todo::Write(own.write(draw(), now))
    }

    /// Begins another life of the time, after `life`, by the calendar.
    fn write_first(
        &mut self,
        version: Option<u64>,
        life: u64,
        wall: Moment,
        now: Moment,
        mut draw: impl FnMut() -> u64,
    ) -> Todo {
        // The life in a cell that is gone began before now.
        let life = (life + 1).max(wall.as_nanos().min(BY_CALENDAR_MAX));
        let keeper = draw();
        let own = self.own.get_or_insert_with(|| KeeperState::new(life, keeper, version, wall, now));
        Todo::Write(own.write(draw(), now))
    }
}

impl FollowedStamp {
    /// Whether to go on reading until the next stamp is there.
    fn is_awaited(&self, clock: &RootClock, now: Moment) -> bool {
        let (Some(early), Some(late)) = (clock.early(now), clock.late(now)) else { return true };
        let next = self.stamp.said() + SIGN_EVERY;
        let is_due = late + AWAITS.0 >= next && early < next + AWAITS.1;
        is_due && late.since(early) > WELL_KNOWN
    }
}

impl KeeperState {
    fn new(life: u64, keeper: u64, version: Option<u64>, there: Moment, now: Moment) -> Self {
        let base = (there, now);
        KeeperState {
            life,
            keeper,
            base,
            version,
            is_keeper: false,
            number: 0,
            said: there,
            done: None,
            sent: 0,
            missed: 0,
            rests_until: now,
        }
    }

    /// Returns the time at `local` on the own clock.
    fn at(&self, local: Moment) -> Moment {
        self.base.0 + local.since(self.base.1)
    }

    fn is_due(&self, now: Moment) -> bool {
        now >= self.rests_until && self.at(now).since(self.said) >= STAMP_EVERY
    }

    /// Moves the time slowly towards the calendar.
    fn follow(&mut self, wall: Moment, drift_ppm: u32, now: Moment) {
        let (there, passed) = (self.at(now), now.since(self.base.1));
        let most = u128::from(nanos(passed)) * u128::from(drift_ppm) * SLEW / 1_000_000_000;
        let most = span_of(most);
        let there = match wall > there {
            true => there + wall.since(there).min(most),
            false => there.before(there.since(wall).min(most)),
        };
        self.base = (there, now);
    }

    /// Returns the swap for the next stamp, which is sent `now` and takes the place of what is in the cell.
    fn write(&mut self, version: u64, now: Moment) -> Swap {
        let stamp = Stamp {
            format: FORMAT,
            life: self.life,
            keeper: self.keeper,
            number: self.number + 1,
            said: self.at(now).as_nanos(),
            done: self.done.map(Moment::as_nanos),
        };
        self.sent = version;
        let value = serde_json::to_vec(&stamp).expect("numbers");
        Swap { name: CLOCK_CELL.to_owned(), expected: self.version, next: Some(Cell { version, value }) }
    }

    /// Records that its own `stamp` was read: perhaps one whose answer it missed.
    fn is_written(&mut self, version: u64, stamp: &Stamp, now: Moment) {
        if self.number != stamp.number || self.done.is_none() {
            self.done = Some(self.at(now));
            self.missed += 1;
        }
        if self.missed >= MISSED_MAX {
            (self.missed, self.rests_until) = (0, now + RESTS);
        }
        (self.version, self.is_keeper) = (Some(version), true);
        (self.number, self.said) = (stamp.number, stamp.said());
    }

    /// Sets `clock` to the exact time, which the keeper knows: the allocator was the keeper when it `asked`.
    fn tell(&self, clock: &mut RootClock, asked: Moment, now: Moment) {
        clock.forget();
        let there = self.at(now);
        clock.is_at_least(there, now, now);
        clock.is_at_most(there, now, now);
        clock.holds_until(asked + HOLDS);
    }
}
