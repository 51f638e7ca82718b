//! The limit that is simulated, from the command line or from an allocator's configuration. Either way it is read as
//! the allocator would read it, or refused in one line.

use crate::configuration::{self, FILE_MAX};
use lessor_allocator::config::{Config, Keyed, LimitConfig};
use lessor_ledger::pool::Plan;
use lessor_sim::setup::{parse_rules, plan};
use std::path::Path;

/// The limit that is simulated.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) plan: Plan,
    /// Its description in titles.
    pub(super) words: String,
}

/// Parses the limit in `text`.
pub(super) fn from_text(text: &str, ease_off: Option<bool>) -> Result<Chosen, String> {
    let rules = parse_rules(text).map_err(|problem| format!("--limit {text:?}: {problem}"))?;
    Ok(Chosen { plan: plan(rules, ease_off.unwrap_or(true)), words: text.to_owned() })
}

/// Reads the limit `name` of the configuration in `path`, or the only one.
pub(super) fn from_file(path: &Path, name: Option<&str>, ease_off: Option<bool>) -> Result<Chosen, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("--config {path:?}: {problem}");
    let text = lessor_files::text(path, FILE_MAX).map_err(|error| wrong(&error.problem))?;
    let config = Config::parse_in(&text, &configuration::folder(path)).map_err(|error| wrong(&error))?;
    let limit = pick(&config.limits, name).map_err(|problem| wrong(&problem))?;
    // A limit in a store that several allocators share still has its rules here.
    if let Some(upstream) = limit.leased_from() {
        return Err(wrong(&format!(
            "{}: upstream is {upstream}, whose configuration has the rules",
            limit.name
        )));
    }
    let one_key = if limit.keyed == Keyed::No { "" } else { ", one key" };
    Ok(Chosen {
        plan: Plan {
            clocks: config.clocks,
            lessees_max: limit.lessees_max,
            sharing: limit.sharing.clone(),
            ..plan(limit.rules.clone(), ease_off.unwrap_or(limit.ease_off))
        },
        words: format!("{}{one_key}", limit.name),
    })
}

fn pick<'a>(limits: &'a [LimitConfig], name: Option<&str>) -> Result<&'a LimitConfig, String> {
    let names = || limits.iter().map(|limit| limit.name.to_string()).collect::<Vec<_>>().join(", ");
    match (name, limits) {
        (None, [only]) => Ok(only),
        (None, _) => Err(format!("it has several limits, pick one with --name: {}", names())),
        (Some(name), _) => limits
            .iter()
            .find(|limit| limit.name.to_string() == name)
            .ok_or_else(|| format!("--name {name:?} is not one of its limits: {}", names())),
    }
}
