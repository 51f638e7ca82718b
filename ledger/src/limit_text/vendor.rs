//! Checks how far the vendor's own count is believed, and writes it back. The check of how a limit is shared calls
//! this.

use super::RawVendor;
use crate::rule_text::{Count, Timespan, timespan};
use crate::share::{Believe, Trust};
use std::time::Duration;

/// Longest time for which one word of a vendor is believed: a day. With a longer one an operator might find out only
/// next week why a limit lends nothing.
const LONGEST_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest such time. A shorter pause would be over before all nodes have heard of it.
const LONGEST_MIN: Duration = Duration::from_millis(1);

/// Checks how far the vendor is believed. An error says what is wrong with `raw`.
pub(super) fn trust(raw: Option<&RawVendor>) -> Result<Trust, String> {
    let default = Trust::default();
    let Some(raw) = raw else { return Ok(default) };
    let RawVendor { believe, longest, keep_percent, ease } = raw;
    let believe = match believe {
        None => default.believe,
        Some(word) => {
            let problem = || {
                let words = Believe::ALL.map(Believe::name).join(", ");
                format!("vendor.believe is {word:?}: use one of {words}")
            };
            Believe::named(word).ok_or_else(problem)?
        }
    };
    let longest = longest.map_or(default.longest, |Timespan(span)| span);
    if !(LONGEST_MIN..=LONGEST_MAX).contains(&longest) {
        let (least, most) = (timespan(LONGEST_MIN), timespan(LONGEST_MAX));
        return Err(format!("vendor.longest is {}: use {least} to {most}", timespan(longest)));
    }
    let keep_percent = keep_percent.map_or(default.keep_percent, |Count(percent)| percent);
    if !(1..=100).contains(&keep_percent) {
        return Err(format!("vendor.keep_percent is {keep_percent}: use a number from 1 to 100"));
    }
    let ease = ease.map_or(default.ease, |Timespan(span)| span);
    if ease > LONGEST_MAX {
        return Err(format!("vendor.ease is {}: use at most {}", timespan(ease), timespan(LONGEST_MAX)));
    }
    Ok(Trust { believe, longest, keep_percent, ease })
}

/// Returns `trust` as it would be written.
pub(super) fn raw(trust: &Trust) -> RawVendor {
    RawVendor {
        believe: Some(trust.believe.name().to_owned()),
        longest: Some(Timespan(trust.longest)),
        keep_percent: Some(Count(trust.keep_percent)),
        ease: Some(Timespan(trust.ease)),
    }
}
