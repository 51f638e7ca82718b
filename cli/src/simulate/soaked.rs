//! Prints the result of a soak, in words or as JSON.

use lessor_sim::soak::Soaked;
use serde_json::{Map, Value, json};

/// Prints the result; returns false if anything failed.
pub(super) fn show(soaked: &Soaked, as_json: bool) -> bool {
    let faults: Map<String, Value> =
        soaked.struck.iter().map(|(fault, times)| (fault.name().to_owned(), json!(times))).collect();
    let broken = soaked.failures.len() - soaked.over_admissions();
    let (hours, over) = (soaked.hours(), soaked.over_admissions());
    if as_json {
        let (seeds, admissions) = (soaked.seeds, soaked.admissions);
        println!(
            "{}",
            json!({
                "seeds": seeds, "simulated_hours": hours, "admissions": admissions, "faults": faults,
                "over_admissions": over, "invariant_failures": broken,
            })
        );
    } else {
        println!("{} seeds, {hours:.1} simulated hours", soaked.seeds);
        println!("{} admissions checked, {over} over-admissions", soaked.admissions);
        println!("{broken} other invariants failed");
        for (fault, times) in faults {
            println!("  {fault:<26} {times}");
        }
        for failure in &soaked.failures {
            println!("failed: {}: {}", failure.replay, failure.what);
        }
    }
    soaked.failures.is_empty()
}
