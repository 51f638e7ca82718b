//! Rules with other numbers: shares of a limit, changes by an operator, periods of another length.

use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RuleError, SlidingWindow, TokenBucket, Windows,
};
use std::time::Duration;

/// Returns `rule` with `permits` of each number of permits and `span` of each period. A calendar and the time to warm up
/// stay as they are.
pub(crate) fn remade(
    rule: &Rule,
    permits: impl Fn(u64) -> u64,
    span: impl Fn(Duration) -> Duration,
) -> Result<Rule, RuleError> {
    let window = |rule: &SlidingWindow| {
        SlidingWindow::try_new(permits(rule.limit()), span(rule.per()), span(rule.margin()))
    };
    match rule {
        Rule::SlidingWindow(rule) => window(rule).map(Rule::SlidingWindow),
        Rule::SlidingLog(rule) => window(rule).map(Rule::SlidingLog),
        Rule::FixedWindow(rule) => {
            let windows = match rule.windows() {
                Windows::Epoch { per } => Windows::Epoch { per: span(per) },
                Windows::FirstUse { per } => Windows::FirstUse { per: span(per) },
                calendar @ Windows::Calendar(_) => calendar,
            };
            FixedWindow::of(permits(rule.limit()), windows).map(Rule::FixedWindow)
        }
        Rule::Concurrency(rule) => {
            Concurrency::try_new(permits(rule.limit()), span(rule.longest())).map(Rule::Concurrency)
        }
        Rule::LeakyBucket(rule) => {
            LeakyBucket::try_new(permits(rule.burst()), permits(rule.refill()), span(rule.per()))
                .map(Rule::LeakyBucket)
        }
        Rule::TokenBucket(rule) => {
            let (capacity, initial) = (permits(rule.capacity()), permits(rule.initial()));
            let bucket = TokenBucket::try_new(capacity, permits(rule.refill()), span(rule.per()), initial)?;
            with_options(bucket, rule, permits(rule.debt()))
        }
    }
}

/// Returns `bucket` with a debt of up to `debt`, and with the other options of `rule`.
pub(crate) fn with_options(bucket: TokenBucket, rule: &TokenBucket, debt: u64) -> Result<Rule, RuleError> {
    let bucket = bucket.with_refill_style(rule.refill_style())?.with_debt(debt)?;
    let bucket = rule.warm_up().map_or(Ok(bucket), |warm_up| bucket.with_warm_up(warm_up));
    bucket.map(Rule::TokenBucket)
}
