//! Formats runs as JSON: an array with one object for each seed and policy. Shares are from 0 to 1, of the pool or of
//! the permits that the limit allowed.

use super::runs::Run;
use serde_json::{Value, json};

/// Formats all of `runs`.
pub(super) fn json(runs: &[Run]) -> Value {
    runs.iter().map(one).collect()
}

fn one(run: &Run) -> Value {
    let report = match &run.result {
        Ok(report) => report,
        Err(failure) => {
            return json!({
                "policy": run.policy.name(), "seed": run.seed, "over_admissions": u64::from(failure.is_over),
                "failure": failure.what,
            });
        }
    };
    let figures = &report.figures;
    let (median, worst) = figures.catch_up_terms.unzip();
    let (short, asks) = figures.after_boundary.unzip();
    json!({
        "policy": run.policy.name(),
        "seed": run.seed,
        "admitted": figures.admitted,
        "used_share": figures.used_share,
        "first_empty_refusal_at_share": figures.first_empty_refusal_at_share,
        "first_empty_refusal_at_s": figures.first_empty_refusal_at,
        "stranded_share": figures.stranded_share,
        "refused_while_available_share": figures.refused_while_available_share,
        "exchanges_per_second": figures.exchanges_per_second,
        "jain": figures.jain,
        "worst_wait_s": figures.worst_wait,
        "modest_refused_share": figures.modest_refused_share,
        "short_after_boundary_share": short,
        "asks_after_boundary": asks,
        "slowest_second_share": figures.even.map(|even| even.seconds.0),
        "fastest_second_share": figures.even.map(|even| even.seconds.1),
        "second_off_share": figures.even.map(|even| even.off),
        "first_windows_share": figures.even.map(|even| even.windows.0),
        "later_windows_share": figures.even.map(|even| even.windows.1),
        "catch_up_terms_median": median,
        "catch_up_terms_worst": worst,
        "over_admissions": report.over_admissions,
        "hash": format!("{:016x}", report.hash),
    })
}
