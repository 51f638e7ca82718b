//! Where log lines go, and their format. They go to stderr: stdout belongs to the output of a command.

use clap::ValueEnum;
use std::io::IsTerminal as _;
use tracing::Subscriber;
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
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        Format::Text => lines.with_filter(filter).boxed(),
        Format::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    }
}

/// Parses a filter: a level (`info`), or levels by module (`warn,lessor_allocator=debug`).
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
