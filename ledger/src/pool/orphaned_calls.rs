//! Permits of one session that are presumed in flight, because the end of their calls is never reported. Each is presumed so for
//! as long as a call may take. `calls.rs` counts what one session has in flight; this file knows when orphaned permits expire.

use crate::packed::Carrier;
use crate::rule::{At, Since};
use lessor_protocol::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// Part of the longest call, a sixteenth, within which spent permits expire together. So about 16 entries are kept at
/// most, and no permit counts for more than a sixteenth longer than it must.
const PARTS: u32 = 16;

/// Permits whose calls are orphaned, soonest to expire first.
#[derive(Clone, Debug, Default)]
pub(super) struct OrphanedCalls {
    expiries: VecDeque<Expiry>,
}

/// Permits that expire together.
#[derive(Clone, Copy, Debug)]
struct Expiry {
    permits: u64,
    /// When the first of them could have expired.
    first: Moment,
    at: Moment,
}

impl OrphanedCalls {
    /// No orphaned calls.
    pub(super) const NONE: OrphanedCalls = OrphanedCalls { expiries: VecDeque::new() };

    /// Returns orphaned calls that expire as `expiries` say, soonest first.
    pub(super) fn of(expiries: impl Iterator<Item = (Moment, u64)>) -> Self {
        let expiries = expiries.map(|(at, permits)| Expiry { permits, first: at, at });
        OrphanedCalls { expiries: expiries.collect() }
    }

    /// Iterates over when permits expire and how many, soonest first.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (Moment, u64)> {
        self.expiries.iter().map(|expiry| (expiry.at, expiry.permits))
    }

    /// Returns the number of permits.
    pub(super) fn permits(&self) -> u64 {
        self.expiries.iter().map(|expiry| expiry.permits).sum()
    }

    /// Returns when the first permits expire, if there are any.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.expiries.front().map(|expiry| expiry.at)
    }

    /// Carries every entry.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let blank = Expiry { permits: 0, first: Moment::ORIGIN, at: Moment::ORIGIN };
        carrier.list(
            &mut self.expiries,
            || blank,
            |carrier, expiry| {
                carrier.number(&mut expiry.permits);
                carrier.moment(&mut expiry.first);
                carrier.moment(&mut expiry.at);
            },
        );
    }

    /// Returns the calls as they are written down: how many permits expire together, when the first of those could
    /// have, and when they do.
    pub(super) fn save(&self) -> Vec<(u64, At, At)> {
        let save = |expiry: &Expiry| (expiry.permits, expiry.first.into(), expiry.at.into());
        self.expiries.iter().map(save).collect()
    }

    /// Restores `saved` calls; `None` if they are impossible.
    pub(super) fn restore(saved: &[(u64, At, At)], since: Since) -> Option<Self> {
        let is_sane = saved.iter().all(|(permits, first, at)| *permits > 0 && first <= at)
            && saved.is_sorted_by_key(|(_, _, at)| *at)
            && saved.iter().try_fold(0_u64, |sum, (permits, _, _)| sum.checked_add(*permits)).is_some();
        let expiry = |&(permits, first, at): &(u64, At, At)| Expiry {
            permits,
            first: since.moment(first),
            at: since.moment(at),
        };
        is_sane.then(|| OrphanedCalls { expiries: saved.iter().map(expiry).collect() })
    }

    /// Adds `permits` that were spent by `at` on calls that take at most `longest`.
    pub(super) fn add(&mut self, permits: u64, at: Moment, longest: Duration) {
        if permits == 0 {
            return;
        }
        let expires = at + longest;
        match self.expiries.back_mut() {
            // No entry expires sooner than the one before.
            Some(last) if expires.since(last.first) <= longest / PARTS => {
                (last.permits, last.at) = (last.permits + permits, last.at.max(expires));
            }
            last => {
                let expires = last.map_or(expires, |last| last.at.max(expires));
                self.expiries.push_back(Expiry { permits, first: expires, at: expires });
            }
        }
    }

    /// Forgets permits that expire by `now`.
    pub(super) fn expire(&mut self, now: Moment) {
        while self.next_expiry().is_some_and(|expires| expires <= now) {
            self.expiries.pop_front();
        }
    }

    /// Keeps at most `most` permits, those that expire last: no more can still be in flight.
    pub(super) fn cut_to(&mut self, most: u64) {
        let mut surplus = self.permits().saturating_sub(most);
        while let Some(first) = self.expiries.front_mut()
            && surplus > 0
        {
            let cut = surplus.min(first.permits);
            (first.permits, surplus) = (first.permits - cut, surplus - cut);
            if first.permits == 0 {
                self.expiries.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::seconds as at;

    const LONGEST: Duration = Duration::from_secs(16);

    #[test]
    fn permits_that_are_spent_all_the_time_expire_all_the_time() {
        let mut orphaned = OrphanedCalls::default();
        let mut most = 0;
        for second in 0..100 {
            orphaned.expire(at(second));
            orphaned.add(3, at(second), LONGEST);
            most = most.max(orphaned.permits());
            assert!(orphaned.expiries.len() <= PARTS as usize + 2, "{orphaned:?}");
        }
        assert!((16 * 3..=18 * 3).contains(&most), "{most}");
    }

    #[test]
    fn none_expires_before_its_call_may_have_taken_its_time() {
        let mut orphaned = OrphanedCalls::default();
        orphaned.add(1, at(0), LONGEST);
        orphaned.add(2, at(1), LONGEST);
        orphaned.add(4, at(3), LONGEST);
        orphaned.expire(at(16));
        assert_eq!(orphaned.permits(), 7, "the second expires with the first");
        orphaned.expire(at(17));
        assert_eq!((orphaned.permits(), orphaned.next_expiry()), (4, Some(at(19))));
    }

    #[test]
    fn those_are_cut_that_expire_first() {
        let mut orphaned = OrphanedCalls::default();
        orphaned.add(2, at(0), LONGEST);
        orphaned.add(2, at(8), LONGEST);
        orphaned.cut_to(3);
        orphaned.expire(at(16));
        assert_eq!(orphaned.permits(), 2);
        orphaned.cut_to(0);
        assert_eq!((orphaned.permits(), orphaned.next_expiry()), (0, None));
    }
}
