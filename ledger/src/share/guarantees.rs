//! Permits kept for the guaranteed groups of one pool.

use crate::packed::Carrier;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Buckets of permits that guaranteed groups may still take. Others leave that many, even while a group is idle. A
/// bucket is full again after a window or, if the pool leases from a root, holds what the root lends for the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantees {
    levels: Vec<Level>,
    /// Nanoseconds in which a bucket fills: a window, or the time in which the limit refills. Zero where no bucket
    /// fills by itself.
    span: u64,
    now: Moment,
}

/// The bucket of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Permits up to which the bucket fills.
    pub most: u64,
    /// Permits in the bucket.
    pub permits: u64,
    /// Part of the next permit, in parts of the span.
    fraction: u128,
}

impl Level {
    /// Creates a bucket that has `permits` of `most`.
    pub fn new(most: u64, permits: u64) -> Self {
        Level { most, permits, fraction: 0 }
    }
}

impl Guarantees {
    /// Guarantees of a limit that guarantees nothing.
    pub const NONE: Self = Guarantees { levels: vec![], span: 0, now: Moment::ORIGIN };

    /// Creates full buckets at `now`, for a limit that lends its ceiling in `span`.
    pub fn new(guaranteed: &[u64], span: Duration, now: Moment) -> Self {
        let levels = guaranteed.iter().map(|&most| Level::new(most, most));
        Guarantees { levels: levels.collect(), span: nanos(span).max(1), now }
    }

    /// Creates empty buckets, which do not fill by themselves.
    pub fn borrowed(guaranteed: &[u64], now: Moment) -> Self {
        let levels = guaranteed.iter().map(|&most| Level::new(most, 0));
        Guarantees { levels: levels.collect(), span: 0, now }
    }

    /// Carries how full each bucket is; the plan of the pool has the rest.
    pub(crate) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.now);
        carrier.number(&mut self.span);
        for level in &mut self.levels {
            carrier.number(&mut level.permits);
            carrier.wide(&mut level.fraction);
        }
    }

    /// Returns size, permits and fraction of each bucket, as they are written down.
    pub(crate) fn save(&self) -> impl Iterator<Item = [u64; 3]> {
        let part = |fraction| u64::try_from(fraction).unwrap_or(u64::MAX);
        self.levels.iter().map(move |level| [level.most, level.permits, part(level.fraction)])
    }

    /// Restores `saved` buckets. Under another configuration, a bucket keeps what it had, up to its new size. A bucket
    /// that was not saved is full.
    pub(crate) fn restore(&mut self, saved: &[[u64; 3]]) {
        let whole = self.span.saturating_sub(1);
        for (level, &[most, permits, fraction]) in self.levels.iter_mut().zip(saved) {
            level.permits = permits.min(most).min(level.most);
            level.fraction = if level.permits < level.most { fraction.min(whole).into() } else { 0 };
        }
    }

    /// Fills the buckets up to `now`.
    pub fn advance(&mut self, now: Moment) {
        let (elapsed, span) = (u128::from(nanos(now.since(self.now))), u128::from(self.span));
        self.now = self.now.max(now);
        if span == 0 {
            return;
        }
        for level in &mut self.levels {
            let parts = level.fraction + elapsed * u128::from(level.most);
            let more = u64::try_from(parts / span).unwrap_or(u64::MAX);
            level.permits = level.permits.saturating_add(more).min(level.most);
            level.fraction = if level.permits == level.most { 0 } else { parts % span };
        }
    }

    /// Returns the bucket of each group.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    fn level_mut(&mut self, group: Option<usize>) -> Option<&mut Level> {
        self.levels.get_mut(group?)
    }

    /// Returns the permits that a session of `group` must leave to others.
    pub fn kept_from(&self, group: Option<usize>) -> u64 {
        let others = self.levels.iter().enumerate().filter(|(index, _)| Some(*index) != group);
        others.map(|(_, level)| level.permits).sum()
    }

    /// Returns the most that [`Guarantees::kept_from`] can ever be.
    pub fn kept_at_most(&self, group: Option<usize>) -> u64 {
        let others = self.levels.iter().enumerate().filter(|(index, _)| Some(*index) != group);
        others.map(|(_, level)| level.most).sum()
    }

    /// Returns the permits that `group` may take whatever others want.
    pub fn owed(&self, group: Option<usize>) -> u64 {
        group.and_then(|group| self.levels.get(group)).map_or(0, |level| level.permits)
    }

    /// Returns the permits of `left` that `group` may have. If fewer are left than all buckets hold, each group has its part.
    pub fn part_of(&self, group: usize, left: u64) -> u64 {
        let all: u64 = self.levels.iter().map(|level| level.permits).fold(0, u64::saturating_add);
        let own = self.owed(Some(group));
        if all <= left {
            return left - (all - own);
        }
        let part = (u128::from(left) * u128::from(own)).div_ceil(all.into());
        u64::try_from(part).unwrap_or(u64::MAX).max(left.saturating_sub(all - own))
    }

    /// Takes `permits` that were lent to `group` out of its bucket.
    pub fn lent(&mut self, group: Option<usize>, permits: u64) {
        if let Some(level) = self.level_mut(group) {
            level.permits = level.permits.saturating_sub(permits);
        }
    }

    /// Puts `permits` that came back from `group` unspent into its bucket.
    pub fn returned(&mut self, group: Option<usize>, permits: u64) {
        if let Some(level) = self.level_mut(group) {
            level.permits = level.permits.saturating_add(permits).min(level.most.max(level.permits));
        }
    }

    /// Puts `permits` that the root has lent for `group` into its bucket.
    pub fn came(&mut self, group: usize, permits: u64) {
        if let Some(level) = self.level_mut(Some(group)) {
            level.permits = level.permits.saturating_add(permits);
        }
    }
}
