//! The ask for one pool, on the wire.

use super::observed::ObservedBody;
use super::{RateBody, is_false, is_zero};
use crate::exchange::{Ask, RateClaim};
use crate::sizing::MILLI;
use serde::{Deserialize, Serialize};

/// [`Ask`] on the wire. Names have the type `N`: a body that is only read borrows them, see [`super::Text`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "N: Deserialize<'de>"))]
pub struct AskBody<N = String> {
    /// The limit.
    pub limit: N,
    /// The key, if the limit is keyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<N>,
    /// Permits spent since the session began.
    pub spent_total: u64,
    /// Permits still held.
    pub held: u64,
    /// Permits wanted on top.
    pub want: u64,
    /// Demand in permits a second, rounded up.
    #[serde(default)]
    pub demand: u64,
    /// Permits that callers queue for.
    #[serde(default)]
    pub waiting: u64,
    /// Permits that were spent and whose calls are in flight. Set once a grant has set `longest_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Permits spent on calls whose end the session will never report, since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unguarded: u64,
    /// Permits that are held and in use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub busy: u64,
    /// Permits let pass in shadow mode since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shadow_refused: u64,
    /// Of a steady flow, the largest call so far; of another limit, the call that waits first. In permits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub largest: u64,
    /// Whether the session lends on what it leases.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lends_on: bool,
    /// The rate lease that the session uses or has let go; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
    /// What the vendor said of its own count; absent if it said nothing lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedBody>,
}

impl<N> AskBody<N> {
    /// Returns the ask, in the units of the core.
    pub fn ask(&self) -> Ask {
        Ask {
            spent_total: self.spent_total,
            held: self.held,
            want: self.want,
            waiting: self.waiting,
            demand_milli: self.demand.saturating_mul(MILLI),
            largest: self.largest,
            lends_on: self.lends_on,
            rate: self.rate.map_or(RateClaim::None, RateBody::claim),
            running: self.running,
            unguarded: self.unguarded,
            busy: self.busy,
            shadow_refused: self.shadow_refused,
        }
    }

    /// Returns the field and value of the first number that is out of range.
    pub fn out_of_range(&self) -> Option<(&'static str, u64)> {
        let rate = self.rate.unwrap_or_default();
        let numbers = [
            ("spent_total", self.spent_total),
            ("held", self.held),
            ("want", self.want),
            ("demand", self.demand),
            ("waiting", self.waiting),
            ("largest", self.largest),
            ("rate.number", rate.number),
            ("rate.cap", rate.cap),
            ("rate.interval_ns", rate.interval_ns),
            ("rate.credit_ns", rate.credit_ns),
            ("running", self.running.unwrap_or(0)),
            ("unguarded", self.unguarded),
            ("busy", self.busy),
            ("shadow_refused", self.shadow_refused),
        ];
        // All bits of the bound are ones, so the numbers together are beyond it if one of them is.
        const { assert!(crate::PERMITS_MAX.trailing_ones() + crate::PERMITS_MAX.leading_zeros() == u64::BITS) };
        let all = numbers.iter().fold(0, |all, (_, value)| all | value);
        let beyond = || numbers.into_iter().find(|&(_, value)| value > crate::PERMITS_MAX);
        let beyond = if all > crate::PERMITS_MAX { beyond() } else { None };
        beyond.or_else(|| self.observed.as_ref()?.out_of_range())
    }
}

impl AskBody {
    /// Creates the body of `ask` for `limit` and `key`.
    pub fn of(limit: &str, key: Option<&str>, ask: Ask) -> Self {
        AskBody {
            limit: limit.to_owned(),
            key: key.map(str::to_owned),
            spent_total: ask.spent_total,
            held: ask.held,
            want: ask.want,
            demand: ask.demand_milli.div_ceil(MILLI),
            waiting: ask.waiting,
            running: ask.running,
            unguarded: ask.unguarded,
            busy: ask.busy,
            shadow_refused: ask.shadow_refused,
            largest: ask.largest,
            lends_on: ask.lends_on,
            rate: RateBody::of_claim(ask.rate),
            observed: None,
        }
    }
}
