//! Rules, moments and hosts of tests, in few words.

use crate::Rule;
use crate::overrides::{LimitOverrides, Suspensions, Version};
use crate::roots::{Host, Notice, RootAsk};
use crate::rule::{Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket, Windows};
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Returns a moment that long after a round start, so that fixed windows of a second begin on whole seconds.
pub(crate) fn millis(millis: u64) -> Moment {
    Moment::from_nanos(1_000_000_000_000 + millis * 1_000_000)
}

pub(crate) fn sliding(limit: u64, per: Duration) -> Rule {
    Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
}

pub(crate) fn log(limit: u64, per: Duration) -> Rule {
    Rule::SlidingLog(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
}

pub(crate) fn fixed(limit: u64, per: Duration) -> Rule {
    Rule::FixedWindow(FixedWindow::try_new(limit, per).expect("valid"))
}

pub(crate) fn first_use(limit: u64, per: Duration) -> Rule {
    Rule::FixedWindow(FixedWindow::of(limit, Windows::FirstUse { per }).expect("valid"))
}

pub(crate) fn bucket(capacity: u64, refill: u64, per: Duration) -> Rule {
    Rule::TokenBucket(TokenBucket::try_new(capacity, refill, per, capacity).expect("valid"))
}

pub(crate) fn at_intervals(capacity: u64, refill: u64, per: Duration) -> Rule {
    let bucket = TokenBucket::try_new(capacity, refill, per, capacity).expect("valid");
    Rule::TokenBucket(bucket.with_refill_style(RefillStyle::Interval).expect("valid"))
}

pub(crate) fn flow(burst: u64, refill: u64, per: Duration) -> Rule {
    Rule::LeakyBucket(LeakyBucket::try_new(burst, refill, per).expect("valid"))
}

pub(crate) fn in_flight(limit: u64, longest: Duration) -> Rule {
    Rule::Concurrency(Concurrency::try_new(limit, longest).expect("valid"))
}

/// An allocator without limits, which draws one number after the other, and follows what is decided elsewhere.
#[derive(Default)]
pub(crate) struct Quiet {
    pub(crate) drawn: u64,
    pub(crate) wall: Moment,
    pub(crate) is_fresh: bool,
    pub(crate) asks: Vec<Option<RootAsk>>,
    /// How often it held back.
    pub(crate) held_back: u64,
    pub(crate) overrides: LimitOverrides,
    pub(crate) suspensions: Suspensions,
}

impl Host for Quiet {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }
    fn wall(&self) -> Moment {
        self.wall
    }
    fn is_fresh(&self) -> bool {
        self.is_fresh
    }
    fn asks(&mut self) -> Vec<Option<RootAsk>> {
        self.asks.clone()
    }
    fn suspensions(&self) -> Suspensions {
        self.suspensions.clone()
    }
    fn configuration(&self) -> (Version, BTreeMap<String, String>) {
        (Version { file: 1, serial: self.overrides.serial() }, BTreeMap::new())
    }
    fn overrides(&self) -> LimitOverrides {
        self.overrides.clone()
    }
    fn follow_overrides(&mut self, there: &LimitOverrides) {
        self.overrides.merge(there);
    }
    fn follow_suspensions(&mut self, there: &Suspensions, _: Moment) {
        self.suspensions.merge(there);
    }
    fn hold_back(&mut self) {
        self.held_back += 1;
    }
    fn tell(&mut self, _: Notice) {}
}
