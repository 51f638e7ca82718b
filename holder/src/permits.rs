//! Where a holder's permits are kept, as this crate sees it: a count that callers take from, and a bucket beside it
//! where the limit has a steady flow. The client implements both with atomics; [`crate::hand`] is a plain
//! implementation for one thread.

use lessor_protocol::Moment;
use std::sync::Arc;

/// Permits that were granted and not spent, and the instant at which their lease ends.
///
/// Callers take from it at any time; a [`crate::refill::Refill`] changes it, one call at a time.
pub trait Permits {
    /// Returns the permits in it now. All others were spent or taken out.
    fn balance(&self) -> Balance;

    /// Returns the instant at which the lease ends.
    fn deadline(&self) -> Moment;

    /// Returns the permits that callers were refused so far, in total.
    fn refused(&self) -> u64;

    /// Spends `permits` and returns how many are still free.
    ///
    /// # Errors
    /// If fewer are free, or the lease is over. Nothing changes then.
    fn take(&self, permits: u64, now: Moment) -> Result<u64, Short>;

    /// Spends `permits` that a call had set aside, and returns how many are still free.
    fn spend_held(&self, permits: u64) -> u64;

    /// Adds `permits`, takes `lost` out (as far as they are free), and moves the deadline forward to `deadline` unless
    /// it is later already. Returns how many of `lost` were free.
    fn install(&self, permits: u64, lost: u64, deadline: Moment) -> u64;

    /// Takes out the free permits beyond `keep`, and returns their number.
    fn shed(&self, keep: u64) -> u64;

    /// Ends the lease, whatever its deadline, takes out all free permits, and returns their number. The next
    /// [`Permits::install`] sets the deadline anew.
    fn end(&self) -> u64;
}

/// A bucket that mints the permits of a steady flow. Callers take from it after they have taken from the [`Permits`].
pub trait Pacer: Default {
    /// Starts minting by `rate` from `now` on. The bucket holds what is minted in `saved` nanoseconds. Only after
    /// [`Pacer::stop`].
    fn go(&self, rate: BucketRate, saved: u64, now: Moment);

    /// Stops: lets no call through from now on. Returns the content of the bucket, as the nanoseconds in which it is
    /// minted, if a rate was lent.
    fn stop(&self, now: Moment) -> Option<u64>;
}

impl<P: Pacer> Pacer for Arc<P> {
    fn go(&self, rate: BucketRate, saved: u64, now: Moment) {
        P::go(self, rate, saved, now);
    }

    fn stop(&self, now: Moment) -> Option<u64> {
        P::stop(self, now)
    }
}

/// The permits held at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Free to spend.
    pub free: u64,
    /// Set aside by calls that need several limits.
    pub held: u64,
}

impl Balance {
    /// Returns all permits that may still be spent.
    pub fn total(self) -> u64 {
        self.free + self.held
    }
}

/// Why permits could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// Too few permits are free.
    Empty,
    /// The lease is over.
    Expired,
    /// The permits are there, but the steady flow does not allow them yet: see [`Pacer`].
    Early,
}

/// Longest time, in nanoseconds, for which a bucket may have been filling: 2^53 can be told, and stretching for a clock
/// that runs fast at most doubles it. The clock of a node may have run for less.
pub const FILLS_MAX: u64 = 1 << 54;

/// Speed and size of a bucket, in nanoseconds of the node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketRate {
    /// Time in which one permit is minted.
    pub interval: u64,
    /// Time in which the bucket fills up. A call that costs more never passes.
    pub depth: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hand::Bucket;

    #[test]
    fn a_shared_bucket_goes_and_stops_as_its_own() {
        let (bucket, now) = (Arc::<Bucket>::default(), Moment::from_nanos(100));
        assert_eq!(bucket.take(1, now), Err(Short::Early), "no rate is lent");
        Pacer::go(&bucket, BucketRate { interval: 10, depth: 40 }, 20, now);
        assert_eq!(bucket.take(1, now), Ok(()));
        assert_eq!(Pacer::stop(&bucket, now), Some(10));
        assert_eq!(bucket.take(1, now), Err(Short::Early));
    }

    #[test]
    fn a_bucket_may_hold_what_took_longer_to_mint_than_the_clock_has_run() {
        let second = 1_000_000_000;
        let rate = BucketRate { interval: 36 * second, depth: 3_600 * second };
        let (bucket, now) = (Bucket::default(), Moment::from_nanos(600 * second));
        bucket.go(rate, rate.depth, now);
        assert_eq!(bucket.stop(now), Some(rate.depth));
        bucket.go(rate, rate.depth, now);
        assert_eq!((bucket.take(100, now), bucket.take(1, now)), (Ok(()), Err(Short::Early)));
    }
}
