//! The command line, and the environment where an operator expects it. Parsing only: a bad command line is one
//! message and exit code 2, before anything is opened.

use crate::audit::{AUDIT_EXAMPLE, AuditArgs};
use crate::demo::{Part, rotation};
use crate::failure::Failure;
use crate::limits::LimitsArgs;
use crate::logging::{self, Format};
use crate::manual::{CompletionsArgs, ManArgs};
use crate::simulate::SimulateArgs;
use crate::status::{STATUS_EXAMPLE, StatusArgs};
use crate::store::{STORE_EXAMPLE, StoreArgs};
use crate::tls::{TLS_EXAMPLE, TlsArgs};
use crate::token::{TOKEN_EXAMPLE, TokensArgs};
use crate::top::{TOP_EXAMPLE, TopArgs};
use clap::builder::Resettable;
use clap::{
    Arg, ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, value_parser,
};
use lessor_allocator::config::Listen;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

/// Keeps a fleet of processes inside a quota that belongs to another party.
#[derive(Debug, Parser)]
#[command(name = "lessor", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line and the environment. Ends the process if either is bad.
    pub(crate) fn read() -> Cli {
        let command = without_empty_variables(Cli::command());
        Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// Returns `command`, which ignores empty variables: an empty variable is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let without = |arg: Arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an allocator: it owns the limits of a configuration and lends them to nodes.
    #[command(after_help = SERVE_EXAMPLE)]
    Serve(ServeArgs),
    /// Check a configuration and print what was understood, every default included.
    #[command(after_help = CHECK_EXAMPLE)]
    Check(CheckArgs),
    /// List, change, top up and pause the limits of a running allocator.
    #[command(after_help = LIMITS_EXAMPLE)]
    Limits(LimitsArgs),
    /// Print whether a running allocator is ready, the reasons if not, and its limits.
    #[command(after_help = STATUS_EXAMPLE)]
    Status(StatusArgs),
    /// Print who decided what, and what was refused, from the audit log of an allocator.
    #[command(after_help = AUDIT_EXAMPLE)]
    Audit(AuditArgs),
    /// Watch the limits of a running allocator; limits that need an operator come first.
    #[command(after_help = TOP_EXAMPLE)]
    Top(TopArgs),
    /// Check or export an allocator's store, import it on another machine, or prepare a store that several allocators share.
    #[command(after_help = STORE_EXAMPLE)]
    Store(StoreArgs),
    /// Make throw-away certificates, to try encryption out.
    #[command(after_help = TLS_EXAMPLE)]
    Tls(TlsArgs),
    /// Make, list and revoke the tokens that prove an identity to allocators.
    #[command(after_help = TOKEN_EXAMPLE)]
    Token(TokensArgs),
    /// Run a fleet of processes that share a vendor's contract, or replay real traffic.
    #[command(after_help = DEMO_EXAMPLE)]
    Demo(DemoArgs),
    /// Try a configuration on your own traffic: requests in, answers out, in virtual time and without a server.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Simulate a fleet that shares one limit, in virtual time. An oracle counts every permit.
    #[command(after_help = crate::simulate::after_help())]
    Simulate(SimulateArgs),
    /// Print a shell's completion script for `lessor`.
    #[command(after_help = COMPLETIONS_EXAMPLE)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands to a folder.
    #[command(after_help = MAN_EXAMPLE)]
    Man(ManArgs),
    /// A node process of `lessor demo`.
    #[command(name = crate::demo::NODE_COMMAND, hide = true)]
    DemoNode,
}

const SERVE_EXAMPLE: &str = "\
Example:
  lessor serve --config lessor.toml --listen 10.0.0.1:7400 --log json

Prints one line with the address once it listens. The file is read again when it changes and on SIGHUP. Changed limits follow
the new file at once; only SIGHUP removes limits that the file no longer has. A file with an error is refused whole.
Each limit has one owner: two allocators with a store each lend it twice. Several allocators share a store ([store] kind =
\"redis\", \"postgres\" or \"etcd\"), or lease from one allocator (upstream).
SIGTERM and SIGINT stop the allocator; requests in flight are finished.
An address that other machines reach is refused without tls with client_ca, [auth], or insecure = true in its section.
Exit codes: 0 stopped, 1 broken, 2 bad command line or configuration.";

const CHECK_EXAMPLE: &str = "\
Example:
  lessor check lessor.toml

It also reads the files that serve reads: certificates, keys, tokens, passwords. Run it on the allocator's machine, as its user.
Exit codes: 0 good, 2 bad, with one line that names the key and the value.";

const COMPLETIONS_EXAMPLE: &str = "\
Example:
  lessor completions bash > /etc/bash_completion.d/lessor

Exit codes: 0 printed, 1 the script cannot be written, 2 bad command line.";

const MAN_EXAMPLE: &str = "\
Examples:
  lessor man | man -l -
  lessor man --into /usr/local/share/man/man1

Exit codes: 0 done, 1 a page cannot be written, 2 bad command line.";

const LIMITS_EXAMPLE: &str = "\
Examples:
  lessor limits list
  lessor limits set vendor/rest --rules '[{ kind = \"sliding_window\", limit = 50, per = \"1s\" }]' --dry-run
  lessor limits top-up vendor/rest 500 --id ticket-1234
  lessor limits pause vendor/rest --for 10m

A change lasts until the limit's entry in the allocator's file changes. With a store it survives a restart; with
[store] kind = \"memory\" a restart forgets it. In a store that allocators share it holds for all of them, until their file has a
higher store.version.
Exit codes: 0 done, 1 the allocator cannot be asked, or a change is in force and its store cannot be written, 2 bad command
line, or the allocator refuses.";

const DEMO_EXAMPLE: &str = "\
Examples:
  lessor demo                                            eight processes, one contract, one minute
  lessor demo --nodes 16 --seconds 90 --seed 7 --json    the same as one JSON object
  lessor demo --watch                                    prints the address of the page for a browser
  lessor demo --seconds 600 --targets demo.json          writes the targets for Prometheus
  lessor demo --trace tests/data/access-log.csv          an hour and a half of real requests, in 84 seconds
  lessor demo --scenario export-per-user                 ten minutes of rising load; --speed 30 makes it 20 seconds
  lessor demo --kill-every 5                             the allocator is killed every 5 seconds
  lessor demo --allocators 3 --kill-every 5              three allocators and their upstream are killed in turn
  lessor demo --store redis --allocators 3 --kill-every 5   three allocators that share a store are killed in turn
  lessor demo --rotate-every 600ms                       certificates and tokens are renewed a hundred times
  lessor demo vendor, lessor demo node                   one part by itself, on a machine of its own

Ctrl-C ends the demo and prints the table so far.";

const REPLAY_HELP: &str = "\
Examples:
  lessor replay --config lessor.toml requests.jsonl
  tail -f requests.jsonl | lessor replay --config lessor.toml
  lessor replay --config lessor.toml --limit export --summary access-log.csv

One JSON object a line in:
  {\"at_ns\": 0, \"limit\": \"export\", \"key\": \"ann\", \"node\": \"a\", \"op\": \"try_acquire\", \"permits\": 1}
  op is try_acquire, peek, acquire (with \"timeout_ns\", or without a bound on the wait), refund, top_up, or set
  (with \"rules\", and \"carry\": as_is, proportional, additive or reset). at_ns counts from the Unix epoch.
One out, in the same order, as soon as it is known:
  {\"ok\": false, \"remaining\": 0, \"retry_after_ns\": 2000000000}
  remaining: the permits that are available after this call. retry_after_ns: the wait until the same call would
  succeed; it is missing if it never would. wait_ns: the wait until an acquire is served, or would have been.
  error: what is wrong with the line (line, field, value), or TooLarge. Such a line changes nothing, and replay goes on.

With --nodes the requests go to nodes that lease from an allocator: the shipping code, in virtual time. An acquire that
waits is answered when it is served, and later requests are answered after it. Without --nodes one central limiter
answers, exact to the nanosecond. It uses a margin only if the configuration sets one: the default is for a distant
vendor. A request older than the latest one is decided at the latest one's time. docs/replay.md has the details.

Exit codes: 0 all lines were answered (a bad one with an error), 1 broken, 2 bad command line or configuration.";

/// `lessor replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The configuration: limits and their rules.
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG")]
    pub(crate) config: PathBuf,
    /// The limit that the requests of a CSV file go to. Default: the only limit of the configuration.
    #[arg(long, value_name = "NAME")]
    pub(crate) limit: Option<String>,
    /// How long the requests of a CSV file wait. Without it they are served at once or refused.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) patience: Option<Duration>,
    /// Number of nodes that lease. A request goes to its "node", or else to each node in turn. Without it one central
    /// limiter decides.
    #[arg(long, value_parser = value_parser!(u16).range(1..=1_000))]
    nodes: Option<u16>,
    /// How long an exchange between a node and the allocator takes.
    #[arg(long, value_name = "DURATION", default_value = "2ms", requires = "nodes", value_parser = humantime::parse_duration)]
    pub(crate) rtt: Duration,
    /// Seed of the nodes' random numbers. The same seed makes the same answers.
    #[arg(long, default_value_t = 1, requires = "nodes")]
    pub(crate) seed: u64,
    /// Draw the permits asked for and admitted over time, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Print the outcome for each limit and key, in place of the answers.
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print the summary as one JSON object.
    #[arg(long, requires = "summary")]
    pub(crate) json: bool,
    /// Requests: a file, or - for stdin. JSON Lines, CSV with the columns offset_s and client, or an access log of nginx or
    /// Apache.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) requests: PathBuf,
}

/// `lessor serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The configuration: limits and their rules.
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG")]
    pub(crate) config: PathBuf,
    /// The address to listen on, in place of the configuration's (or 127.0.0.1:7400). Port 0 takes a free port, which
    /// the printed line names. A Unix socket is unix: and its path.
    #[arg(long, value_name = "ADDR", env = "LESSOR_LISTEN")]
    pub(crate) listen: Option<Listen>,
    /// Lend at once. Use it only if nothing that this allocator lent before can be outstanding. Without it an allocator
    /// without records waits until all that it may have lent has ended. Ignored if the allocator's own store has
    /// records, or is damaged.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The format of log lines. They go to stderr.
    #[arg(long, value_name = "FORMAT", env = "LESSOR_LOG_FORMAT", default_value = "text")]
    pub(crate) log: Format,
    /// The log level, or levels by module such as `warn,lessor_allocator=debug`.
    #[arg(long, value_name = "FILTER", env = "LESSOR_LOG", default_value = logging::LEVEL, value_parser = logging::parse_filter)]
    pub(crate) log_level: String,
    /// Export spans to the OpenTelemetry collector at this address (OTLP over HTTP, such as http://127.0.0.1:4318).
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", env = "LESSOR_OTLP", hide_env_values = true)]
    pub(crate) otlp: Option<String>,
}

/// `lessor check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration.
    pub(crate) file: PathBuf,
    /// The address that `serve` is told to listen on, in place of the configuration's.
    #[arg(long, value_name = "ADDR", env = "LESSOR_LISTEN")]
    pub(crate) listen: Option<Listen>,
}

/// Where an allocator of a demo listens if no argument says where.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// `lessor demo`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("played").args(["trace", "scenario"])), args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    /// One part of the demo by itself.
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    /// Node processes. Default: 8, and 2 in a scenario.
    #[arg(long, value_parser = value_parser!(u8).range(1..=64))]
    nodes: Option<u8>,
    /// How long it runs. Utilisation is measured after the first window of 30 s, if another one follows.
    #[arg(long, default_value_t = 60, conflicts_with = "played", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Seed of all random numbers. The same seed makes the same calls.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object and nothing else on stdout.
    #[arg(long)]
    pub(crate) json: bool,
    /// After this many seconds the vendor halves the contract for all calls, and answers 429 above it. Nodes learn of it only
    /// from the headers of its answers. The report then says how soon the fleet followed and resumed.
    #[arg(long, value_name = "SECONDS", conflicts_with = "played", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) vendor_halves_at: Option<u64>,
    /// Kill the allocator with SIGKILL at this interval, and start it again at once. It is then a process of its own, and keeps
    /// its address. The report has the number of kills (`kills`), and the longest time in which the vendor admitted no call,
    /// from the first one on (`longest_gap_ms`).
    #[arg(long, value_name = "SECONDS", conflicts_with = "played", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) kill_every: Option<u64>,
    /// Renew the certificates and the token of the fleet at this interval, at least 500ms. The allocator speaks TLS
    /// then, nodes show a certificate of a throw-away authority and a token, and each old token is revoked. The report
    /// counts the failures that this caused (`rotated`).
    #[arg(long, value_name = "DURATION", value_parser = parse_rotation,
        conflicts_with_all = ["played", "kill_every", "allocators", "store", "listen", "watch", "targets"])]
    pub(crate) rotate_every: Option<Duration>,
    /// Number of allocators. Each node knows all of them, and asks any. They share a store, if that is redis, postgres or etcd.
    /// Otherwise they lease the contract from one more allocator and lend it on. --kill-every kills all of them in turn.
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "played", value_parser = value_parser!(u8).range(1..=8))]
    pub(crate) allocators: u8,
    /// Where allocators keep their books. Each allocator is then a separate process. With --kill-every, --allocators or
    /// --scenario the default is embedded. For redis, postgres and etcd the demo starts a server on a free port.
    #[arg(long, value_name = "KIND", conflicts_with = "trace")]
    pub(crate) store: Option<Store>,
    /// The server to use as --store: redis://…, postgres://… or etcd://…. All names that the demo writes there begin with demo-.
    #[arg(long, value_name = "URL", requires = "store")]
    pub(crate) store_url: Option<String>,
    /// After this many seconds, later than --vendor-halves-at, the vendor restores the contract and announces that in headers.
    /// The report then says how soon the fleet used the whole of it.
    #[arg(long, value_name = "SECONDS", requires = "vendor_halves_at", value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) vendor_restores_at: Option<u64>,
    /// Replay the requests of a CSV file with the columns offset_s and client. Each client may make 30 calls in any 60 s.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Run a named scenario: rising load, with a minimum and a maximum of grants for each user. Exit code 1 if a user gets
    /// fewer or more.
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<Scenario>,
    /// Number of users of a scenario. Each makes all calls of the scenario.
    #[arg(long, default_value_t = 2, requires = "scenario", value_parser = value_parser!(u8).range(1..=32))]
    users: u8,
    /// Seconds of the trace or scenario that pass in one second. Default: 60 for a trace, 1 for a scenario. A trace's windows
    /// shrink with it. In a scenario the load rises that many times as fast, and limits stay the same.
    #[arg(long, requires = "played", value_parser = parse_speed)]
    speed: Option<f64>,
    /// Where the demo's allocator listens; stderr then names the address. `lessor limits` can list and change its limits
    /// meanwhile. Default: any free port of loopback.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Print the address of the allocator's page on stderr, to watch the demo in a browser. Opens no browser.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Write the metrics addresses of nodes and allocators to this file, in the format of `file_sd_configs` of Prometheus. Each
    /// node serves its metrics on a free port of loopback.
    #[arg(long, value_name = "FILE")]
    pub(crate) targets: Option<PathBuf>,
    /// Show progress on stderr even if it is not a terminal.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Print the configuration of this demo's allocator, and end.
    #[arg(long)]
    pub(crate) print_config: bool,
}

lessor_protocol::words! {
    /// Where an allocator keeps its books.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
    pub(crate) enum Store {
        /// In memory only: a restart lends nothing until all that was lent before has ended and left every window.
        Memory = "memory",
        /// In a file beside its configuration: a restart continues from it.
        #[default]
        Embedded = "embedded",
        /// In Redis, which all allocators share: a restart continues at once.
        Redis = "redis",
        /// In PostgreSQL, which all allocators share: a restart continues at once.
        Postgres = "postgres",
        /// In etcd, which all allocators share: a restart continues at once.
        Etcd = "etcd",
    }
}

impl Store {
    /// Whether several allocators share it.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Store::Redis | Store::Postgres | Store::Etcd)
    }
}

/// The scenarios that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// One call per 2 s for each user, on two instances for 10 min, under rising load: 297 to 300 grants.
    ExportPerUser,
}

impl ReplayArgs {
    /// Returns the number of nodes that lease, unless one central limiter decides.
    pub(crate) fn nodes(&self) -> Option<usize> {
        self.nodes.map(usize::from)
    }
}

impl DemoArgs {
    /// Returns the number of node processes.
    pub(crate) fn nodes(&self) -> usize {
        let nodes = self.nodes.unwrap_or(if self.scenario.is_some() { 2 } else { 8 });
        nodes.into()
    }

    /// Returns where the allocator of the demo listens, if an operator wants to find it there.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.listen.or(self.watch.then_some(ANY_PORT))
    }

    /// Returns the number of users of a scenario.
    pub(crate) fn users(&self) -> usize {
        self.users.into()
    }

    /// Returns how many seconds of a trace or scenario pass in one second.
    pub(crate) fn speed(&self) -> f64 {
        self.speed.unwrap_or(if self.scenario.is_some() { 1.0 } else { 60.0 })
    }

    /// Refuses options that are valid alone but not together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let (Some(store), Some(_)) = (self.store.filter(|store| !store.is_shared()), &self.store_url) {
            return Err(Failure::Input(format!(
                "--store-url is the server of another kind of store than --store {}: leave one of them out",
                store.name()
            )));
        }
        match self.vendor_halves_at.zip(self.vendor_restores_at) {
            Some((halves, restores)) if restores <= halves => Err(Failure::Input(format!(
                "--vendor-restores-at {restores} is not after --vendor-halves-at {halves}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Speeds of a trace or scenario. A slower one would take days; a faster one would shrink a window of 60 s below 100
/// ms, where delays of the machine decide and not the limiter.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=600.0;

/// Parses an interval of at most a day, which is longer than any demo.
fn parse_rotation(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_fit = (rotation::EVERY_MIN..=Duration::from_secs(86_400)).contains(&every);
    if is_fit { Ok(every) } else { Err("not between 500ms and 1day".to_owned()) }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !SPEEDS.contains(&speed) {
        return Err(format!("not between {} and {}", SPEEDS.start(), SPEEDS.end()));
    }
    Ok(speed)
}

#[cfg(test)]
mod tests;
