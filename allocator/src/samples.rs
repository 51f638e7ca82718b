//! Configurations for tests that are not about their text.

use crate::config::Config;
use crate::shared::Shared;
use std::sync::Arc;

/// A limit `a` of one permit a day.
pub(crate) const LIMIT: &str =
    "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1d\" }]\n";

/// A shared store that is away. Its other keys may follow.
pub(crate) const STORE: &str = "[store]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:1\"\n";

/// Returns one limit for each name, of so many permits a day. The other keys of the last one may follow.
pub(crate) fn limits(limits: &[(&str, u64)]) -> String {
    let limit = |(name, permits): &(&str, u64)| {
        let rule = format!("{{ kind = \"fixed_window\", limit = {permits}, per = \"1d\" }}");
        format!("[[limit]]\nname = {name:?}\nrules = [{rule}]\n")
    };
    limits.iter().map(limit).collect()
}

/// Returns what the text configures.
pub(crate) fn config(text: &str) -> Config {
    Config::parse(text).expect("valid")
}

/// Returns an allocator that begins afresh with this configuration.
pub(crate) fn allocator(text: &str) -> Arc<Shared> {
    Arc::new(Shared::new(config(text), true))
}
