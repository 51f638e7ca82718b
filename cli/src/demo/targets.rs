//! Where a Prometheus finds the processes of a demo: a file as its `file_sd_configs` reads it, written when an operator asks.

use super::fleet::Fleet;
use crate::failure::Failure;
use serde_json::json;
use std::path::Path;

/// Writes into `file`, if there is to be one, where the metrics of the `allocators` are and those of the nodes of `fleet`.
/// Their jobs are those of `dashboards/prometheus`.
pub(super) fn write(file: Option<&Path>, allocators: &[&str], fleet: &Fleet) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let allocators: Vec<&str> =
        allocators.iter().map(|url| url.strip_prefix("http://").unwrap_or(url)).collect();
    let nodes: Vec<String> = fleet.metrics().map(|address| address.to_string()).collect();
    let targets = json!([
        { "labels": { "job": "lessor" }, "targets": allocators },
        { "labels": { "job": "calls" }, "targets": nodes },
    ]);
    // In one step: a process that reads it meanwhile reads all of it, or what was there before.
    let draft = file.with_extension("new");
    std::fs::write(&draft, format!("{targets:#}\n"))
        .and_then(|()| std::fs::rename(&draft, file))
        .map_err(|error| Failure::Run(format!("cannot write {}: {error}", file.display())))
}
