//! The time of a store that has no clock. One allocator, the *keeper*, counts it on its own clock, and writes what it is to a cell
//! a few times a second: a *stamp*. All others follow: what they read bounds the time from below, and from above.
//!
//! - From below: at the end of a read it is no earlier than its stamp says.
//! - From above: a stamp says by when the one before was written. It was not written before a read began that did not show it. So
//!   a follower that waits for the next stamp reads again and again until that is there, and knows the time then as well as two
//!   reads and a write are close.
//!
//! What an allocator knows of a keeper holds for a second after it began a read that showed that one. A follower takes over when
//! it has seen no new stamp for longer than that, and goes on with the earliest time that it can be: the time may go back a little,
//! and never ahead. So two allocators are never further apart than [`TimeSource::uncertainty`](super::TimeSource::uncertainty).
//!
//! If none is left that knows the time, another *life* of it begins by the calendar of the first that comes, and with it another
//! era of all roots.

use super::{RootClock, SIGN_EVERY};
use crate::cells::{Cell, Swap};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The cell of the stamp.
pub(super) const CLOCK: &str = "clock";

/// What cells of another version say is not guessed at.
const FORMAT: u32 = 1;

/// The keeper writes no stamp sooner after the last one. It does so as it signs.
const STAMP_EVERY: Duration = SIGN_EVERY.saturating_sub(Duration::from_millis(50));

/// For so long after an allocator began to read that an allocator keeps the time, it goes by that.
const HOLDS: Duration = Duration::from_secs(1);

/// For so long a follower has seen no new stamp when it takes over. No allocator goes by the time of two keepers before by then.
const TAKES_OVER_AFTER: Duration = Duration::from_millis(1_250);

/// For so long an allocator that does not know the time has seen no new stamp when it begins another life of it. Any that knows has
/// taken over by then.
const BEGINS_AFTER: Duration = Duration::from_secs(2);

/// A keeper that missed the answers to so many stamps in a row, which were written, leaves the time to others. They cannot come to
/// know it from stamps of which it learns late that they were written.
const MISSED_MAX: u32 = 2;

/// For so long it writes no stamp then. Any other allocator has taken over by then, or has begun another life.
const RESTS: Duration = Duration::from_secs(3);

/// A follower that knows the time no better than that waits for the next stamp.
const WELL_KNOWN: Duration = Duration::from_millis(16);

/// So long before the next stamp is expected a follower begins to read, and for so long after that it goes on.
const AWAITS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(50));

/// For so long one that does not know the time reads on: two stamps.
const LEARNS: Duration = SIGN_EVERY.saturating_mul(3);

/// The keeper's time follows its calendar by no more than that, in a thousandth of a million of what the clocks may drift: an
/// allocator's clock leaves so much of that.
const SLEW: u128 = 9;

/// What the keeper wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    format: u32,
    /// How long ago something was in another life is unknown. Later lives have higher numbers.
    life: u64,
    /// The number of the keeper. No allocator keeps the time twice under one number.
    keeper: u64,
    /// Counts its stamps.
    number: u64,
    /// What time it was when it was sent.
    said: u64,
    /// No later than then the stamp before was in the cell, if the same keeper wrote that.
    done: Option<u64>,
}

impl Stamp {
    fn read(value: &[u8]) -> Result<Self, String> {
        let stamp: Stamp = serde_json::from_slice(value).map_err(|error| error.to_string())?;
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
pub(super) struct Reading {
    /// What is in the cell.
    pub cell: Option<Cell>,
    /// When the first read began, of those one after the other.
    pub began: Moment,
    /// When this one began.
    pub asked: Moment,
    /// When it was over.
    pub answered: Moment,
}

/// What an allocator does about the time.
#[derive(Debug)]
pub(super) enum Todo {
    /// Goes by what its clock knows.
    Know,
    /// Reads the cell.
    Read,
    /// Writes the cell; the swap was sent at once.
    Write(Swap),
    /// Lends nothing: the time is not known.
    Wait,
}

/// What an allocator knows of the keeper, or as the keeper.
#[derive(Debug)]
pub(super) struct Timekeeping {
    drift_ppm: u32,
    own: Option<Own>,
    seen: Option<Seen>,
    /// The life of the time that it knows.
    life: Option<u64>,
}

/// What it does as the keeper, or will if its stamp is written.
#[derive(Debug)]
struct Own {
    life: u64,
    keeper: u64,
    /// It was that time at that instant on the own clock.
    base: (Moment, Moment),
    /// What is in the cell, as far as it knows: the stamp is written in the place of that.
    version: Option<u64>,
    /// Whether that is its own stamp.
    is_keeper: bool,
    /// The last stamp in the cell, when that was sent, and by when it was there.
    number: u64,
    said: Moment,
    done: Option<Moment>,
    /// The version of the stamp that was sent last.
    sent: u64,
    /// How many stamps in a row were written whose answers it missed.
    missed: u32,
    /// It writes no stamp before.
    rests_until: Moment,
}

/// The stamp that was read last.
#[derive(Debug)]
struct Seen {
    version: u64,
    stamp: Stamp,
    /// When the first read was over that showed it.
    since: Moment,
    /// When the last read began that showed it.
    read: Moment,
    /// It was not written before.
    not_before: Option<Moment>,
}

impl Timekeeping {
    /// One that knows nothing yet, where the own clock may be off by `drift_ppm`.
    pub(super) fn new(drift_ppm: u32) -> Self {
        Timekeeping { drift_ppm, own: None, seen: None, life: None }
    }

    /// The life of the time that it knows.
    pub(super) fn life(&self) -> Option<u64> {
        self.life
    }

    /// Whether it keeps the time, as far as it knows.
    pub(super) fn is_keeper(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_keeper)
    }

    /// All that it knows is of another store.
    pub(super) fn forget(&mut self) {
        *self = Timekeeping::new(self.drift_ppm);
    }

    /// What comes first where the time is asked for.
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

    /// The cell was read. `draw` draws numbers that no other call has drawn.
    ///
    /// # Errors
    /// What is wrong with the stamp. Nothing may be lent then.
    pub(super) fn on_read(
        &mut self,
        reading: Reading,
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
        // What it sent as a keeper can be written only in the place of what it was sent for.
        self.own.take_if(|own| own.is_keeper || own.version != Some(version));
        let is_new = self.seen.as_ref().is_none_or(|seen| seen.version != version);
        if self.life == Some(stamp.life)
            && clock.late(reading.answered).is_some_and(|late| stamp.said() > late)
        {
            // The keeper's clock was set ahead, or the own one stood still: what was lent counts as if that were now.
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

    /// The stamp that was sent at `sent` is written, as is known `now`.
    pub(super) fn on_written(&mut self, clock: &mut RootClock, sent: Moment, now: Moment) {
        let Some(own) = &mut self.own else { return };
        (own.version, own.is_keeper) = (Some(own.sent), true);
        own.number += 1;
        own.missed = 0;
        (own.said, own.done) = (own.at(sent), Some(own.at(now)));
        own.tell(clock, sent, now);
        (self.life, self.seen) = (Some(own.life), None);
    }

    /// Whether what it sent is written is not known: it reads before it writes again.
    pub(super) fn is_unsure(&mut self) {
        self.own.iter_mut().for_each(|own| own.is_keeper = false);
    }

    /// When a follower would best read next, on the own clock, if that matters.
    pub(super) fn next_read(&self, clock: &RootClock, now: Moment) -> Option<Moment> {
        let (seen, latest) = (self.seen.as_ref()?, clock.late(now)?);
        let is_wanted = clock.span(now).is_some_and(|span| span > WELL_KNOWN);
        is_wanted.then(|| now + (seen.stamp.said() + SIGN_EVERY).since(latest))
    }

    /// Notes the stamp of another keeper.
    fn follow(&mut self, version: u64, stamp: Stamp, reading: &Reading, clock: &mut RootClock) {
        let is_older = |seen: &Seen| seen.stamp.keeper == stamp.keeper && seen.stamp.number > stamp.number;
        if self.life != Some(stamp.life) || self.seen.as_ref().is_some_and(is_older) {
            clock.forget();
            (self.life, self.seen) = (Some(stamp.life), None);
        }
        let before = self.seen.take();
        if let Some(seen) = before.as_ref().filter(|seen| seen.version == version) {
            let Seen { since, read, not_before, .. } = *seen;
            // While it could not read, the keeper could not write, perhaps.
            let since = if reading.asked.since(read) > HOLDS { reading.answered } else { since };
            self.seen = Some(Seen { version, stamp, since, read: reading.asked, not_before });
        } else {
            let not_before = before.as_ref().map(|seen| seen.read);
            let is_same = before.as_ref().is_some_and(|seen| seen.stamp.keeper == stamp.keeper);
            if !is_same {
                // The time of the one before was no earlier than this, so what bounds it from above does so still.
                clock.forget_early();
            }
            // The stamp before was not there either at that time, unless it is the one that was seen.
            let follows = before.as_ref().filter(|seen| is_same && seen.stamp.number + 1 == stamp.number);
            let written = follows.map_or(not_before, |seen| seen.not_before);
            if let (Some(done), Some(written)) = (stamp.done, written) {
                clock.is_at_most(Moment::from_nanos(done), written, reading.answered);
            }
            clock.is_at_least(stamp.said(), reading.answered, reading.answered);
            if clock.early(reading.answered) > clock.late(reading.answered)
                && clock.late(reading.answered).is_some()
            {
                // The keeper's clock stood still, or the own one was set ahead. That time is over, and the next two stamps tell anew.
                clock.forget();
                clock.is_at_least(stamp.said(), reading.answered, reading.answered);
            }
            let (since, read) = (reading.answered, reading.asked);
            self.seen = Some(Seen { version, stamp, since, read, not_before });
        }
        clock.holds_until(reading.asked + HOLDS);
    }

    /// Goes on with the time where it is `there`. What was tried before is tried again.
    fn take_over(
        &mut self,
        version: u64,
        life: u64,
        there: Moment,
        now: Moment,
        mut draw: impl FnMut() -> u64,
    ) -> Todo {
        let keeper = draw();
        let own = self.own.get_or_insert_with(|| Own::new(life, keeper, Some(version), there, now));
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
        // A cell that is gone had a life that began before now.
        let life = (life + 1).max(wall.as_nanos());
        let keeper = draw();
        let own = self.own.get_or_insert_with(|| Own::new(life, keeper, version, wall, now));
        Todo::Write(own.write(draw(), now))
    }
}

impl Seen {
    /// Whether to go on reading until the next stamp is there.
    fn is_awaited(&self, clock: &RootClock, now: Moment) -> bool {
        let (Some(early), Some(late)) = (clock.early(now), clock.late(now)) else { return true };
        let next = self.stamp.said() + SIGN_EVERY;
        let is_due = late + AWAITS.0 >= next && early < next + AWAITS.1;
        is_due && late.since(early) > WELL_KNOWN
    }
}

impl Own {
    fn new(life: u64, keeper: u64, version: Option<u64>, there: Moment, now: Moment) -> Self {
        let base = (there, now);
        Own {
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

    /// The time at `local` on the own clock.
    fn at(&self, local: Moment) -> Moment {
        self.base.0 + local.since(self.base.1)
    }

    fn is_due(&self, now: Moment) -> bool {
        now >= self.rests_until && self.at(now).since(self.said) >= STAMP_EVERY
    }

    /// Goes slowly towards the calendar.
    fn follow(&mut self, wall: Moment, drift_ppm: u32, now: Moment) {
        let (there, passed) = (self.at(now), now.since(self.base.1));
        let most = u128::from(nanos(passed)) * u128::from(drift_ppm) * SLEW / 1_000_000_000;
        let most = Duration::from_nanos(u64::try_from(most).unwrap_or(u64::MAX));
        let there = match wall > there {
            true => there + wall.since(there).min(most),
            false => there.before(there.since(wall).min(most)),
        };
        self.base = (there, now);
    }

    /// The next stamp, which is sent `now`, in the place of what is in the cell.
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
        Swap { name: CLOCK.to_owned(), expected: self.version, next: Some(Cell { version, value }) }
    }

    /// Its own `stamp` was read: perhaps one that was sent in vain, as it seemed.
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

    /// The time is known for sure by the keeper, which it was when `asked`.
    fn tell(&self, clock: &mut RootClock, asked: Moment, now: Moment) {
        clock.forget();
        let there = self.at(now);
        clock.is_at_least(there, now, now);
        clock.is_at_most(there, now, now);
        clock.holds_until(asked + HOLDS);
    }
}
