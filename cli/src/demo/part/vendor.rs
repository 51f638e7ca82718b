//! `lessor demo vendor`: the strict vendor in its own process, until it is told to stop.

use super::VendorArgs;
use crate::demo::contract::{self, vendor::Vendor};
use crate::demo::print;
use crate::failure::Failure;
use crate::runtime;
use crate::stop::Stop;

/// Runs until SIGTERM or SIGINT, and prints its counts.
pub(super) fn run(args: &VendorArgs) -> Result<(), Failure> {
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
