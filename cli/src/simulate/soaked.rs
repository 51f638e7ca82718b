//! The result of a soak, in words or as JSON.

use lessor_sim::soak::Soaked;
use serde_json::{Map, Value, json};

/// Returns the result as text.
pub(super) fn told(soaked: &Soaked, as_json: bool) -> String {
    let faults: Map<String, Value> =
        soaked.struck.iter().map(|(fault, times)| (fault.name().to_owned(), json!(times))).collect();
    let broken = soaked.failures.len() - soaked.over_admissions();
    let (hours, over) = (soaked.hours(), soaked.over_admissions());
    let (seeds, admissions) = (soaked.seeds, soaked.admissions);
    if as_json {
        let told = json!({
            "seeds": seeds, "simulated_hours": hours, "admissions": admissions, "faults": faults,
            "over_admissions": over, "invariant_failures": broken,
        });
        return format!("{told}\n");
    }
    let mut told = format!(
        "{seeds} seeds, {hours:.1} simulated hours\n{admissions} admissions checked, {over} over-admissions\n\
         {broken} other invariants failed\n"
    );
    for (fault, times) in faults {
        told.push_str(&format!("  {fault:<26} {times}\n"));
    }
    for failure in &soaked.failures {
        told.push_str(&format!("failed: {}: {}\n", failure.replay, failure.what));
    }
    told
}
