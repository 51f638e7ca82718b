//! How often each identity has asked lately. One that asks more often than it may is answered that before its request is read, so
//! that it costs others little.

use lessor_ledger::share::Owner;
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What may be asked at once is what may be asked in so long.
const BURST: Duration = Duration::from_secs(1);

/// Identities, each part of which is behind a lock of its own.
const PARTS: usize = 16;

/// So many identities of a part are remembered before those are forgotten that have asked for nothing lately.
const REMEMBERED: usize = 256;

/// The paces of all identities, each of which may ask so often.
#[derive(Debug)]
pub(crate) struct Paces {
    interval: Duration,
    parts: [Mutex<BTreeMap<Owner, Moment>>; PARTS],
}

impl Paces {
    /// Each may ask `per_second` times in a second, at least once.
    pub(crate) fn new(per_second: u32) -> Self {
        Paces { interval: Duration::from_secs(1) / per_second.max(1), parts: Default::default() }
    }

    /// `owner` asks at `now`. Callers without an identity may ask as often as they like.
    ///
    /// # Errors
    /// If it asks too often: how long it should wait.
    pub(crate) fn ask(&self, owner: Owner, now: Moment) -> Result<(), Duration> {
        if owner == Owner::NONE {
            return Ok(());
        }
        let place = usize::try_from((owner.0 >> 1) % PARTS as u64).unwrap_or(0);
        // Moments: no panic elsewhere can have left them half changed.
        let mut known = self.parts[place].lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED && !known.contains_key(&owner) {
            // Who is not ahead of its pace is as good as one that never asked.
            known.retain(|_, due| *due > now);
        }
        let due = known.entry(owner).or_insert(now);
        *due = (*due).max(now);
        let ahead = due.since(now);
        if ahead + self.interval > BURST {
            return Err((ahead + self.interval).saturating_sub(BURST));
        }
        *due = *due + self.interval;
        Ok(())
    }
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
