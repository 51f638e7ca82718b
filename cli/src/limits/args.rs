//! The command line of `lessor limits`. Parsing only.

use clap::{Args, Subcommand, ValueEnum, value_parser};
use std::path::PathBuf;

/// `lessor limits`.
#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// The allocator.
    #[arg(
        long,
        value_name = "URL",
        env = "LESSOR_SERVER",
        default_value = "http://127.0.0.1:7400",
        global = true
    )]
    pub(crate) server: String,
    /// Print JSON, as the allocator answers.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: LimitsCommand,
}

/// What to do with the limits of an allocator.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// All limits, and how they stand.
    List,
    /// One limit as it is configured, and how it stands.
    Get {
        /// The limit.
        name: String,
    },
    /// Make a limit, or change one that is in use. Leases that are out stay valid until they end.
    Set(SetArgs),
    /// Take a limit away: nothing is lent from it any more, what is out ends by itself.
    Rm {
        /// The limit.
        name: String,
    },
    /// Let permits be lent once, beyond what the rules say.
    TopUp {
        /// The limit.
        name: String,
        /// How many.
        #[arg(value_parser = value_parser!(u64).range(1..))]
        permits: u64,
        /// Whose pool, if the limit is keyed.
        #[arg(long)]
        key: Option<String>,
        /// A name of your choice: what is sent again under the same name is not added again.
        #[arg(long)]
        id: Option<String>,
    },
    /// Lend nothing to any node, until an operator resumes the limit or the time is up.
    Pause {
        /// The limit.
        name: String,
        /// For how long, for example 10m. Without it: until it is resumed.
        #[arg(long = "for", value_name = "SPAN")]
        span: Option<String>,
    },
    /// Lend again.
    Resume {
        /// The limit.
        name: String,
    },
    /// Lend nothing to one node.
    Block {
        /// The limit.
        name: String,
        /// The node, by its name.
        node: String,
    },
    /// Lend to a node again.
    Unblock {
        /// The limit.
        name: String,
        /// The node, by its name.
        node: String,
    },
}

/// `lessor limits set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The limit.
    pub(crate) name: String,
    /// Its rules, as in the configuration: '[{ kind = "sliding_window", limit = 50, per = "1s" }]'. Everything else
    /// stays as it is.
    #[arg(long, value_name = "TOML", required_unless_present = "file", conflicts_with = "file")]
    pub(crate) rules: Option<String>,
    /// A file with what a [[limit]] holds, without that line; - for stdin. What is not in it has its default.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What becomes of the balances.
    #[arg(long, value_enum, default_value = "as-is")]
    pub(crate) carry: CarryArg,
    /// Only show what it would do to each pool.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Lend at once from a limit that is new: states that no earlier life of the allocator lent from it.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// What becomes of the balances of a limit that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarryArg {
    /// What is charged stays charged.
    AsIs,
    /// The same part of the limit is left.
    Proportional,
    /// What is left changes by as much as the limit.
    Additive,
    /// Begin anew, with what is out charged.
    Reset,
}

impl CarryArg {
    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CarryArg::AsIs => "as_is",
            CarryArg::Proportional => "proportional",
            CarryArg::Additive => "additive",
            CarryArg::Reset => "reset",
        }
    }
}
