//! Where log lines go, and their format. They go to stderr: stdout belongs to the output of a command.

use clap::ValueEnum;
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One object a line, for machines.
    Json,
}

/// Sends log lines that pass `filter` to stderr. Called once, before anything else.
pub(crate) fn install(format: Format, filter: EnvFilter) {
    Registry::default().with(lines(format, filter)).init();
}

/// Returns the layer of [`install`], to be combined with others.
pub(crate) fn lines<S>(format: Format, filter: EnvFilter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Reporting that stderr cannot be written, on stderr, would panic.
        .log_internal_errors(false)
        .with_ansi(has_colors(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR").as_deref()));
    match format {
        Format::Text => lines.with_filter(filter).boxed(),
        Format::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    }
}

/// Whether log lines have colors: on a terminal, unless the variable `NO_COLOR` is set and not empty.
fn has_colors(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// The level of log lines of an allocator if none is set.
pub(crate) const LEVEL: &str = "info";

/// Parses a filter: a level (`info`), or levels by module (`warn,lessor_allocator=debug`). A word alone is a level: the
/// filter itself would take a mistyped level for the name of a module, and hide the lines of all others.
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    let is_word = |part: &&str| !part.is_empty() && !part.contains(['=', '[', ']', '{', '}']);
    let mut words = text.split(',').map(str::trim).filter(is_word);
    if let Some(word) = words.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(format!(
            "{word:?} is no level: write off, error, warn, info, debug or trace, or a module with its level, such as \
             lessor_allocator=debug"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: only the terminal was looked at.
    #[test]
    fn a_terminal_has_colors_unless_an_operator_wants_none() {
        let set = |text: &'static str| Some(OsStr::new(text));
        assert!(has_colors(true, None) && has_colors(true, set("")));
        assert!(!has_colors(true, set("1")) && !has_colors(false, None));
    }

    /// The bug: a mistyped level was taken for the name of a module, and hid all lines, errors included.
    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in
            ["info", "WARN", "off", "", "warn,lessor_allocator=debug", "warn,[exchange{limit}]=trace", "2"]
        {
            assert_eq!(parse_filter(good).as_deref(), Ok(good));
        }
        for (bad, word) in [
            ("warning", "\"warning\" is no level: write off, error, warn, info, debug or trace"),
            ("debgu", "debgu"),
            ("info, lessor_allocator", "lessor_allocator"),
            ("lessor_allocator=warning", ""),
        ] {
            let error = parse_filter(bad).expect_err(bad);
            println!("{bad}: {error}");
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
