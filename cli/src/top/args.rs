//! The command line of `lessor top`. Parsing only.

use crate::limits::AddressArgs;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Text below the help of `lessor top`.
pub(crate) const TOP_EXAMPLE: &str = "\
Examples:
  lessor top --server http://127.0.0.1:7400
  lessor top --once --sort spent
  lessor top --json --every 5s

Keys: q quits, s changes the order, up and down choose a limit, enter shows which sessions hold and want most of it, esc goes back.
Exit codes: 0 done, 1 the allocator cannot be asked, 2 bad command line, or the allocator refuses.";

/// `lessor top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) server: AddressArgs,
    /// The time between two readings of the figures.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_every)]
    pub(crate) every: Duration,
    /// The order of the limits.
    #[arg(long, value_enum, default_value = "attention")]
    pub(crate) sort: TopSort,
    /// Read the figures twice, print a table with the rates in between, and end. The default if stdout is not a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print that table as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The order of limits in `lessor top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopSort {
    /// Limits that need an operator first.
    Attention,
    /// The least left first.
    Left,
    /// The fastest spent first.
    Spent,
    /// The most refused first.
    Refused,
    /// By name.
    Name,
}

impl TopSort {
    /// Returns the order after a key press.
    pub(crate) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).expect("all orders are there");
        all[(at + 1) % all.len()]
    }

    /// Returns the name of the order.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no order is hidden").get_name().to_owned()
    }
}

/// Parses the time between two looks. An operator cannot read more than ten a second, and an answer with all limits may be large.
fn parse_every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if every < Duration::from_millis(100) { Err("less than 100ms".to_owned()) } else { Ok(every) }
}
