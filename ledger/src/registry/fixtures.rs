//! Configurations of tests, written as an operator writes them.

use super::{LimitConfig, Registry, Upstream, Written};
use crate::limit_text::{self, RawLimit};
use crate::pool::Past;
use crate::rule::{Gap, SlidingWindow};
use lessor_protocol::{ClockBounds, Moment};
use serde::Deserialize;

/// The configuration of a test.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) clocks: ClockBounds,
    pub(crate) limits: Vec<LimitConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    clock_drift_ppm: Option<u32>,
    limit: Vec<RawLimit>,
}

fn address(text: &str) -> Result<Upstream, String> {
    Ok(Upstream::Address(text.to_owned()))
}

impl Config {
    /// Reads `text`, which is TOML.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| error.to_string())?;
        let clocks = raw.clock_drift_ppm.and_then(ClockBounds::try_new).unwrap_or_default();
        let limits = raw.limit.iter().map(|limit| limit_text::limit(limit, SlidingWindow::MARGIN, address));
        Ok(Config { clocks, limits: limits.collect::<Result<_, _>>()? })
    }

    /// Makes a new registry of its limits.
    pub(crate) fn registry(&self, past: Past, now: Moment, epoch: u64) -> Registry {
        Registry::new(&self.limits, self.clocks, past, now, epoch)
    }

    /// Makes a registry that goes on with what is `written`.
    pub(crate) fn restored(&self, written: &Written, gap: Gap, now: Moment, epoch: u64) -> Registry {
        Registry::restored(&self.limits, self.clocks, written, gap, now, epoch)
    }
}
