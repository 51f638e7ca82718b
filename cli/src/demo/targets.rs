//! Tells a Prometheus where the processes of a demo are: a file for its `file_sd_configs`, written when an operator
//! asks.

use super::fleet::Fleet;
use crate::failure::Failure;
use serde_json::json;
use std::path::Path;

/// Writes the addresses of the metrics of `allocators` and of the nodes of `fleet` into `file`, if there is one. Their
/// jobs are those in `dashboards/prometheus`.
pub(super) fn write(file: Option<&Path>, allocators: &[&str], fleet: &Fleet) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let allocators: Vec<&str> =
        allocators.iter().map(|url| url.strip_prefix("http://").unwrap_or(url)).collect();
    let nodes: Vec<String> = fleet.metrics().map(|address| address.to_string()).collect();
    let targets = json!([
        { "labels": { "job": "lessor" }, "targets": allocators },
        { "labels": { "job": "calls" }, "targets": nodes },
    ]);
    // In one step: a process that reads the file meanwhile sees all of the new file, or the old one.
    let draft = file.with_extension("new");
    std::fs::write(&draft, format!("{targets:#}\n"))
        .and_then(|()| std::fs::rename(&draft, file))
        .map_err(|error| Failure::Run(format!("cannot write {}: {error}", file.display())))
}
