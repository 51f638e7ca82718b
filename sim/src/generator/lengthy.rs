//! Draws fleets with periods as long as in contracts: a minute and more, where other setups have five seconds at most.

use super::any;
use crate::live::Act;
use crate::setup::Setup;
use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RuleError, SlidingWindow, TokenBucket, Windows,
};

/// Most calls a second: a run is long, and more would show nothing new and take longer.
const DEMAND_MAX: f64 = 60.0;

/// Draws the fleet of `any(seed)` with rules that count for 5 to 25 times as long. Round trips and faults keep their
/// length.
pub fn lengthy(seed: u64) -> Setup {
    let mut setup = any(seed);
    let times = fastrand::Rng::with_seed(seed ^ 0x1e46_7ed0_0000_0000).u32(5..=25);
    stretch(&mut setup.plan.rules, times);
    for live in &mut setup.live {
        live.at *= u64::from(times);
        if let Act::Change(_, rules) | Act::Put(rules) = &mut live.act {
            stretch(rules, times);
        }
    }
    setup.lasts *= u64::from(times);
    setup.demand = (setup.demand / f64::from(times)).clamp(2.0, DEMAND_MAX);
    setup.named()
}

fn stretch(rules: &mut [Rule], times: u32) {
    for rule in rules {
        *rule = stretched(rule, times).expect("numbers in range");
    }
}

/// Returns `rule` with periods `times` as long. A calendar stays as it is.
fn stretched(rule: &Rule, times: u32) -> Result<Rule, RuleError> {
    match rule {
        Rule::SlidingWindow(rule) => {
            SlidingWindow::try_new(rule.limit(), rule.per() * times, rule.margin() * times)
                .map(Rule::SlidingWindow)
        }
        Rule::SlidingLog(rule) => {
            SlidingWindow::try_new(rule.limit(), rule.per() * times, rule.margin() * times)
                .map(Rule::SlidingLog)
        }
        Rule::FixedWindow(rule) => {
            let windows = match rule.windows() {
                Windows::Epoch { per } => Windows::Epoch { per: per * times },
                Windows::FirstUse { per } => Windows::FirstUse { per: per * times },
                calendar @ Windows::Calendar(_) => calendar,
            };
            FixedWindow::of(rule.limit(), windows).map(Rule::FixedWindow)
        }
        Rule::Concurrency(rule) => {
            Concurrency::try_new(rule.limit(), rule.longest() * times).map(Rule::Concurrency)
        }
        Rule::LeakyBucket(rule) => {
            LeakyBucket::try_new(rule.burst(), rule.refill(), rule.per() * times).map(Rule::LeakyBucket)
        }
        Rule::TokenBucket(rule) => {
            let bucket =
                TokenBucket::try_new(rule.capacity(), rule.refill(), rule.per() * times, rule.initial())?;
            let bucket = bucket.with_refill_style(rule.refill_style())?;
            let bucket = if rule.debt() == 0 { bucket } else { bucket.with_debt(rule.debt())? };
            let bucket = match rule.warm_up() {
                Some(warm_up) => bucket.with_warm_up(warm_up)?,
                None => bucket,
            };
            Ok(Rule::TokenBucket(bucket))
        }
    }
}
