//! Parts of the demo, each as a process by itself: the vendor, and a node. An operator or another program starts them,
//! in any order. The same holds for the allocator, an ordinary `lessor serve`.

mod node;
mod page;

use super::contract::{self, vendor::Vendor};
use super::print;
use crate::failure::Failure;
use crate::limits::{TlsArgs, TokenArgs};
use crate::runtime;
use crate::stop::Stop;
use clap::{Args, Subcommand, value_parser};
use std::net::SocketAddr;

/// The part of the demo.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Run the vendor alone. It admits 9,000 calls in any 30 s, of which 600 messages, and answers 429 above that.
    #[command(after_help = VENDOR_EXAMPLE)]
    Vendor(VendorArgs),
    /// Run a node alone. It leases permits from an allocator, and spends them on calls to the vendor.
    #[command(after_help = NODE_EXAMPLE)]
    Node(NodeArgs),
}

const VENDOR_EXAMPLE: &str = "\
Example:
  lessor demo vendor --listen 127.0.0.1:7401
  curl http://127.0.0.1:7401/seen

POST /calls and POST /messages are calls. GET /seen returns the numbers of calls that were admitted and refused. The vendor
prints the same as one line when it stops. SIGTERM and SIGINT stop it.
Exit codes: 0 stopped, 1 the address cannot be used, 2 bad command line.";

const NODE_EXAMPLE: &str = "\
Example:
  lessor demo --print-config > demo.toml
  lessor serve --config demo.toml --fresh
  lessor demo vendor
  lessor demo node --number 1 --of 2 --listen 127.0.0.1:7402
  lessor demo node --number 2 --of 2

A node starts without an allocator or a vendor, and makes calls as soon as both answer. All nodes together want five times as
many calls as the contract allows. On SIGTERM or SIGINT a node returns its permits and prints one line.
Exit codes: 0 stopped, 1 broken, 2 bad command line.";

/// `lessor demo vendor`.
#[derive(Debug, Args)]
pub(crate) struct VendorArgs {
    /// The address to listen on. Port 0 takes a free port, which the printed line names.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7401")]
    listen: SocketAddr,
}

/// `lessor demo node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Address of an allocator. Can be given more than once.
    #[arg(
        long = "allocator",
        value_name = "URL",
        env = "LESSOR_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7400"
    )]
    allocators: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    token: TokenArgs,
    /// Address of the vendor.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7401")]
    vendor: String,
    /// Number of this node, from 1.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=64))]
    number: u8,
    /// Number of all nodes. Each node wants a share of the calls that changes every four seconds.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=64))]
    of: u8,
    /// Seed of the random calls. All nodes must have the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The address of /metrics, for Prometheus, and of /readyz, which says whether an allocator has answered.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

/// Runs a part until it is told to stop.
pub(crate) fn run(part: &Part) -> Result<(), Failure> {
    match part {
        Part::Vendor(args) => run_vendor(args),
        Part::Node(args) => node::run(args),
    }
}

/// Runs the strict vendor until SIGTERM or SIGINT, and prints its counts.
fn run_vendor(args: &VendorArgs) -> Result<(), Failure> {
    let runtime = runtime::on_this_thread()?;
    runtime.block_on(async {
        let mut stop = Stop::install()?;
        let vendor = Vendor::open(contract::judge(), args.listen).await?;
        // The line needs no reader: a closed stdout is no reason not to serve.
        let _ = print(format!("listening on {}\n", vendor.url()));
        stop.asked().await;
        print(format!("{}\n", vendor.seen_json()))
    })
}
