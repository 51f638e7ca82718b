//! `token_bucket`: a burst and a rate. What the contract says, checked; it counts nothing.

use super::{RuleError, WarmUp, check_per, check_permits};
use lessor_protocol::PERMITS_MAX;
use std::time::Duration;

/// A bucket of `capacity` permits that gains `refill` permits every `per`.
///
/// It gains them evenly, unless the style is [`RefillStyle::Interval`]. With a `debt` of D it may be in the red. A call is served
/// if the bucket holds at least one permit and is left with no less than −D. The next call waits until it holds one again. So one
/// call can take capacity + D, and an interval T sees at most capacity + D + r·T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    per: Duration,
    initial: u64,
    style: RefillStyle,
    debt: u64,
    warm_up: Option<WarmUp>,
}

/// When a bucket gains what it gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefillStyle {
    /// Evenly: each permit as soon as its part of `per` is over. A full bucket gains nothing, not even a part of one.
    #[default]
    Greedy,
    /// All `refill` at once at the instants `start + k·per`, k = 1, 2, …, as far as there is room; in between nothing. The start
    /// is when the bucket was made. One that was forgotten, because it was full and not used, is made anew.
    Interval,
}

impl RefillStyle {
    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            RefillStyle::Greedy => "greedy",
            RefillStyle::Interval => "interval",
        }
    }

    /// The one called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self, RuleError> {
        match name {
            "greedy" => Ok(RefillStyle::Greedy),
            "interval" => Ok(RefillStyle::Interval),
            _ => {
                let problem = format!("is {name:?}: use \"greedy\" or \"interval\"");
                Err(RuleError { field: "refill_style", problem })
            }
        }
    }
}

impl TokenBucket {
    /// A bucket that refills evenly, warm and without debt. Checks the numbers.
    ///
    /// # Errors
    /// If `capacity`, `refill` or `initial` is above 2^53 − 1, `initial` is above `capacity`, or `per` is zero
    /// or above 366 days.
    pub fn try_new(capacity: u64, refill: u64, per: Duration, initial: u64) -> Result<Self, RuleError> {
        check_permits("capacity", capacity)?;
        check_permits("refill", refill)?;
        check_per(per)?;
        if initial > capacity {
            let problem = format!("is {initial}, more than the bucket holds: use at most {capacity}");
            return Err(RuleError { field: "initial", problem });
        }
        let style = RefillStyle::default();
        Ok(TokenBucket { capacity, refill, per, initial, style, debt: 0, warm_up: None })
    }

    /// The same, refilled in another style.
    ///
    /// # Errors
    /// If it is to warm up, which needs an even refill.
    pub fn with_refill_style(self, style: RefillStyle) -> Result<Self, RuleError> {
        TokenBucket { style, ..self }.checked()
    }

    /// The same, which may be `debt` in the red.
    ///
    /// # Errors
    /// If what one call can take is then above 2^53 − 1, or it is to warm up.
    pub fn with_debt(self, debt: u64) -> Result<Self, RuleError> {
        TokenBucket { debt, ..self }.checked()
    }

    /// The same, which refills slowly at first.
    ///
    /// # Errors
    /// If it refills at intervals or may be in the red, or what it takes to warm it up is above 2^53 − 1 permits.
    pub fn with_warm_up(self, warm_up: WarmUp) -> Result<Self, RuleError> {
        TokenBucket { warm_up: Some(warm_up), ..self }.checked()
    }

    fn checked(self) -> Result<Self, RuleError> {
        let wrong = |field, problem| Err(RuleError { field, problem });
        if self.debt > PERMITS_MAX - self.capacity {
            let (debt, most) = (self.debt, PERMITS_MAX - self.capacity);
            return wrong(
                "debt",
                format!("is {debt}, too much with capacity = {}: use at most {most}", self.capacity),
            );
        }
        let Some(warm_up) = self.warm_up else {
            return Ok(self);
        };
        if self.style == RefillStyle::Interval {
            let problem =
                "is \"interval\", but a bucket with warm_up refills evenly: use \"greedy\", or no warm_up";
            return wrong("refill_style", problem.to_owned());
        }
        if self.debt > 0 {
            let problem =
                format!("is {}, but a bucket with warm_up has none: leave one of them out", self.debt);
            return wrong("debt", problem);
        }
        if warm_up.coldest_milli(self.refill, self.per) > u128::from(PERMITS_MAX) * 1_000 {
            let problem = format!(
                "is {:?}, in which more than 2^53 - 1 permits are spent: use a shorter one",
                warm_up.over()
            );
            return wrong("warm_up.over", problem);
        }
        Ok(self)
    }

    /// The most the bucket holds. 0 refuses everything.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Permits gained every [`TokenBucket::per`]. 0 never refills.
    pub fn refill(&self) -> u64 {
        self.refill
    }

    /// The period of [`TokenBucket::refill`].
    pub fn per(&self) -> Duration {
        self.per
    }

    /// What is in the bucket at the start.
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// When it gains what it gains.
    pub fn refill_style(&self) -> RefillStyle {
        self.style
    }

    /// How far it may be in the red.
    pub fn debt(&self) -> u64 {
        self.debt
    }

    /// Whether and how it warms up.
    pub fn warm_up(&self) -> Option<WarmUp> {
        self.warm_up
    }
}
