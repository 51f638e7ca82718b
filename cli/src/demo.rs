//! `lessor demo`: shows the promise of Lessor on one machine with real processes and real connections.
//!
//! In reading order: [`contract`] (the main job), [`replay`] (real traffic), [`scenario`] (rising load), [`node`] (one
//! process of the fleet), [`fleet`] (all of them), [`line`] (the messages between the demo and its nodes),
//! [`allocator`] (in this process), [`served`] (an allocator in a process of its own), [`killer`] (which kills
//! allocators), [`rotation`] (which renews certificates and tokens), [`place`] (where allocators keep their books),
//! [`books`], [`progress`], [`targets`] (where metrics are), [`latency`], [`table`], [`part`] (the vendor or a node by
//! itself).

mod allocator;
mod books;
mod contract;
mod fleet;
mod killer;
mod latency;
mod line;
mod node;
mod part;
mod place;
mod progress;
mod replay;
pub(crate) mod rotation;
mod scenario;
mod served;
mod table;
mod targets;

pub(crate) use part::Part;

use crate::args::{ANY_PORT, DemoArgs, Scenario};
use crate::failure::Failure;
use crate::logging::{self, Format};
use crate::print::print;
use crate::runtime;
use crate::stop::Stop;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

/// The hidden subcommand that makes a process a node.
pub(crate) const NODE_COMMAND: &str = "demo-node";

/// The environment variable with the log filter of an operator.
const LOG: &str = "LESSOR_LOG";

/// Log level if [`LOG`] is not set.
const LOG_LEVEL: &str = "warn";

/// Log level of a part that runs by itself, whose log is all that most operators see of it.
const PART_LOG_LEVEL: &str = "info";

/// Runs a demo and prints its report.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    if let Some(part) = &args.part {
        install_log(PART_LOG_LEVEL);
        return part::run(part);
    }
    args.check()?;
    if args.print_config {
        let (store, url) = (args.store.unwrap_or_default(), args.store_url.as_deref());
        return print(match (&args.trace, args.scenario) {
            (Some(_), _) => replay::config(args.speed()),
            (None, Some(Scenario::ExportPerUser)) => scenario::config(store, Path::new(""), url)?,
            (None, None) if args.rotate_every.is_some() => rotation::asking(contract::CONFIG, Path::new(""))?,
            (None, None) if args.kill_every.is_none() && args.store.is_none() => contract::CONFIG.to_owned(),
            (None, None) => contract::config(store, Path::new(""), url)?,
        });
    }
    install_log(LOG_LEVEL);
    let runtime = runtime::start(&mut Builder::new_multi_thread())?;
    runtime.block_on(async {
        let mut stop = Stop::install_with_hangup()?;
        match (&args.trace, args.scenario) {
            (Some(file), _) => show(&replay::run(args, file, &mut stop).await?, args.json),
            (None, Some(Scenario::ExportPerUser)) => {
                let report = scenario::run(args, &mut stop).await?;
                show(&report, args.json)?;
                report.verdict()
            }
            (None, None) => show(&contract::run(args, &mut stop).await?, args.json),
        }
    })
}

/// Runs one node of a demo.
pub(crate) fn run_node() -> Result<(), Failure> {
    install_log(LOG_LEVEL);
    node::run()
}

/// Logs messages an operator should know, from `level` on. [`LOG`] asks for more, also in the processes that a demo
/// starts.
fn install_log(level: &str) {
    let filter = EnvFilter::try_new(log_or(level).to_string_lossy());
    logging::install(Format::Text, filter.unwrap_or_else(|_| EnvFilter::new(level)));
}

/// Returns the filter in [`LOG`], or else `level`.
fn log_or(level: &str) -> OsString {
    std::env::var_os(LOG).filter(|filter| !filter.is_empty()).unwrap_or_else(|| level.into())
}

fn show(report: &(impl Display + Serialize), json: bool) -> Result<(), Failure> {
    print(match json {
        true => serde_json::to_string(report).expect("plain data is always JSON") + "\n",
        false => format!("{report}\n"),
    })
}
