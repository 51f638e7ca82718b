//! Where log lines go and what they look like. They go to stderr: stdout belongs to what a command prints.

use clap::ValueEnum;
use std::io::IsTerminal as _;
use tracing::Subscriber;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// What a log line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One object a line, for machines.
    Json,
}

/// Sends log lines that pass `filter` to stderr. Called once, first.
pub(crate) fn install(format: Format, filter: EnvFilter) {
    Registry::default().with(lines(format, filter)).init();
}

/// The same beside something else that is installed.
pub(crate) fn lines<S>(format: Format, filter: EnvFilter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // To say on a stderr that cannot be written that it cannot would be a panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        Format::Text => lines.with_filter(filter).boxed(),
        Format::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    }
}

/// Reads a filter: a level (`info`), or levels by module (`warn,lessor_allocator=debug`).
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
