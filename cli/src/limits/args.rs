//! The command line of `lessor limits`. Parsing only.

use super::AddressArgs;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args, Subcommand, ValueEnum, value_parser};
use std::path::PathBuf;

/// Refuses an empty name, which an unset variable of a script leaves.
fn named() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

/// `lessor limits`.
#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(crate) server: AddressArgs,
    /// Print JSON, as the allocator answers.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Confirm what needs it: a removal, a change of a limit that is unusually large or takes a cap away, a top-up beyond
    /// the limit.
    #[arg(long, global = true)]
    pub(crate) yes: bool,
    /// The reason of a change, for the audit log.
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) reason: Option<String>,
    #[command(subcommand)]
    pub(crate) command: LimitsCommand,
}

/// What to do with the limits of an allocator.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// List all limits with their figures.
    List,
    /// Print one limit's configuration and figures.
    Get {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
    },
    /// Add a limit, or change one that is in use. Its leases stay valid until they end.
    Set(SetArgs),
    /// Remove a limit: nothing is lent from it any more. Its leases stay valid until they end.
    Rm {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
    },
    /// Add permits once, beyond what the rules allow. Not for a limit in a store that allocators share; a limit with an
    /// upstream is topped up there.
    TopUp {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
        /// The number of permits.
        #[arg(value_parser = value_parser!(u64).range(1..))]
        permits: u64,
        /// The key of the pool, if the limit is keyed.
        #[arg(long)]
        pool_key: Option<String>,
        /// A name of your choice. A top-up that is sent again with the same name is not added again.
        #[arg(long)]
        id: Option<String>,
    },
    /// Lend nothing to any node until an operator resumes the limit or the time is over.
    Pause {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
        /// The length of the pause, for example 10m. Without it: until an operator resumes the limit.
        #[arg(long = "for", value_name = "SPAN")]
        span: Option<String>,
    },
    /// Lend again after a pause.
    Resume {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
    },
    /// Lend nothing to one node.
    Block {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
        /// The name of the node.
        node: String,
    },
    /// Lend to a node again.
    Unblock {
        /// The name of the limit.
        #[arg(value_parser = named())]
        name: String,
        /// The name of the node.
        node: String,
    },
}

/// `lessor limits set`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["rules", "file"])))]
pub(crate) struct SetArgs {
    /// The name of the limit.
    #[arg(value_parser = named())]
    pub(crate) name: String,
    /// The rules, as in the configuration: '[{ kind = "sliding_window", limit = 50, per = "1s" }]'. All other options
    /// stay as they are. A new limit whose name fits a pattern gets the other options of that pattern.
    #[arg(long, value_name = "TOML")]
    pub(crate) rules: Option<String>,
    /// A file with the options of a [[limit]], without that line; - for stdin. Options that are missing get their default.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How balances are carried over.
    #[arg(long, value_enum, default_value = "as-is")]
    pub(crate) carry: CarryOverArg,
    /// Only print the effect on each pool.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Lend at once from a new limit. Use it only if the allocator never lent from it before. It does
    /// not end a quarantine: for a limit in quarantine it is refused.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// How the balances of a changed limit are carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarryOverArg {
    /// Charged permits stay charged.
    AsIs,
    /// The same share of the limit is left.
    Proportional,
    /// The permits left rise or fall by as much as the limit.
    Additive,
    /// Balances start afresh; outstanding permits are charged.
    Reset,
}

impl CarryOverArg {
    /// Returns its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CarryOverArg::AsIs => "as_is",
            CarryOverArg::Proportional => "proportional",
            CarryOverArg::Additive => "additive",
            CarryOverArg::Reset => "reset",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::Parser as _;

    /// The bug: if both options were missing, only one of them was named.
    #[test]
    fn what_a_limit_becomes_is_said_by_one_of_two_options() {
        let parsed = |more: &str| {
            let line = format!("lessor limits set a{more}");
            Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!((parsed(" --rules []"), parsed(" --file a.toml")), (Ok(()), Ok(())));
        let neither = parsed("").expect_err("nothing is said");
        assert!(neither.contains("--rules <TOML>") && neither.contains("--file <FILE>"), "{neither}");
        let both = parsed(" --rules [] --file a.toml").expect_err("which is meant?");
        assert!(both.contains("cannot be used with"), "{both}");
    }

    /// The bug: the key of a pool and the key of a certificate had one name, and a top-up of a pool ended in a panic.
    #[test]
    fn a_top_up_of_one_pool_is_sent_with_a_certificate() {
        let certificate = "--cert client.crt --key client.key";
        for line in [
            "lessor limits top-up export 5 --pool-key user-42".to_owned(),
            format!("lessor limits {certificate} top-up export 5 --pool-key user-42"),
            format!("lessor limits top-up export 5 --pool-key user-42 {certificate}"),
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            let shown = format!("{:?}", parsed.unwrap_or_else(|error| panic!("{line}: {error}")).command);
            assert!(shown.contains("pool_key: Some(\"user-42\")"), "{shown}");
            assert_eq!(shown.contains("key: Some(\"client.key\")"), line.contains("client.key"), "{shown}");
        }
    }
}
