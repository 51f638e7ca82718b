//! Recent exchanges of each identity. An identity that asks more often than it may is refused before its request is
//! read, so that it costs others little.

use lessor_ledger::share::Owner;
use lessor_protocol::Moment;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::moment::nanos;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Largest burst: exchanges that an identity may do in this time may come at once.
const BURST: Duration = Duration::from_secs(1);

/// Parts of the map, each with a lock of its own.
const PARTS: usize = 16;

/// Identities of a part beyond which idle ones are forgotten.
const REMEMBERED: usize = 256;

/// The paces of all identities.
#[derive(Debug)]
pub(crate) struct Paces {
    /// Time between two exchanges of one identity, in nanoseconds.
    interval: AtomicU64,
    parts: [Mutex<BTreeMap<Owner, Moment>>; PARTS],
}

impl Paces {
    /// Allows each identity `per_second` exchanges per second, at least one.
    pub(crate) fn new(per_second: u32) -> Self {
        Paces { interval: AtomicU64::new(interval(per_second)), parts: Default::default() }
    }

    /// Allows each identity `per_second` exchanges per second from now on, at least one.
    pub(crate) fn set(&self, per_second: u32) {
        // The number guards no other memory.
        self.interval.store(interval(per_second), Ordering::Relaxed);
    }

    /// Counts an exchange of `owner` at `now`. Callers without an identity are not bounded.
    ///
    /// # Errors
    /// If it asks too often. The error is the time to wait.
    pub(crate) fn ask(&self, owner: Owner, now: Moment) -> Result<(), Duration> {
        if owner == Owner::NONE {
            return Ok(());
        }
        let place = usize::try_from((owner.0 >> 1) % PARTS as u64).unwrap_or(0);
        let mut known = self.parts[place].lock_anyway();
        if known.len() >= REMEMBERED && !known.contains_key(&owner) {
            // An identity that is not ahead of its pace is like one that never asked.
            known.retain(|_, due| *due > now);
        }
        let due = known.entry(owner).or_insert(now);
        *due = (*due).max(now);
        let interval = Duration::from_nanos(self.interval.load(Ordering::Relaxed));
        // After a slower pace was raised, an identity has no more to wait for than the longest burst.
        let ahead = due.since(now).min(BURST);
        if ahead + interval > BURST {
            return Err((ahead + interval).saturating_sub(BURST));
        }
        *due = now + ahead + interval;
        Ok(())
    }
}

/// Returns the time between two of `per_second` exchanges, in nanoseconds.
fn interval(per_second: u32) -> u64 {
    nanos(Duration::from_secs(1)) / u64::from(per_second.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn each_identity_asks_as_often_as_it_may_and_no_more() {
        let (paces, one, other) = (Paces::new(10), Owner(3), Owner(5));
        for _ in 0..10 {
            assert_eq!(paces.ask(one, millis(0)), Ok(()));
        }
        assert_eq!(paces.ask(one, millis(0)), Err(Duration::from_millis(100)));
        assert_eq!(paces.ask(one, millis(70)), Err(Duration::from_millis(30)));
        assert_eq!(paces.ask(other, millis(70)), Ok(()), "another one has its own");
        assert_eq!(paces.ask(one, millis(100)), Ok(()));
        assert!(paces.ask(one, millis(100)).is_err());
        assert_eq!(paces.ask(Owner::NONE, millis(100)), Ok(()), "of these there may be many");
    }

    /// The bug: a configuration file that changed the pace took effect only with the next start, and no warning said so.
    #[test]
    fn a_new_pace_holds_at_once() {
        let (paces, one) = (Paces::new(1), Owner(3));
        assert_eq!(paces.ask(one, millis(0)), Ok(()));
        assert_eq!(paces.ask(one, millis(0)), Err(Duration::from_secs(1)));
        paces.set(10);
        assert_eq!(paces.ask(one, millis(0)), Err(Duration::from_millis(100)));
        assert_eq!(paces.ask(one, millis(100)), Ok(()));
        paces.set(2);
        assert_eq!(paces.ask(one, millis(100)), Err(Duration::from_millis(500)));
    }

    #[test]
    fn those_that_have_not_asked_lately_are_forgotten() {
        let paces = Paces::new(10);
        for number in 0..100_000 {
            assert_eq!(paces.ask(Owner(1 + number), millis(number)), Ok(()));
        }
        let known: usize = paces.parts.iter().map(|part| part.lock().expect("no panic").len()).sum();
        assert!(known <= (REMEMBERED + 1) * PARTS, "{known}");
    }
}
