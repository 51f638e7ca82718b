//! Instructions a call, counted by valgrind's callgrind: a figure that a busy machine does not change. This binary runs
//! itself under valgrind. Only the calls are counted, in one function of the calling thread: the work of the server and
//! the background task differs from run to run.

use crate::rows::{self, lessor::Fleet};
use crate::sample::{COUNTED, WRONG_MAX};
use std::error::Error;
use std::process::Command;

const ROWS: [&str; 6] = [
    "floor/clock",
    "lessor/hit",
    "lessor/refusal",
    "lessor/handle-keyed",
    "lessor/keyed-1k",
    "lessor/try-all-2",
];

/// Calls of a run. So many that neither the few dozen instructions around them nor the call that wakes the background
/// task matter. So few that leases outlast them, although valgrind slows each call a hundredfold.
const CALLS: u64 = 200_000;

/// Prints the instructions a call of some rows, or how to install what is missing.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("valgrind is not installed: install the package `valgrind` of your distribution".into());
    }
    println!(
        "Counts include the loop. Valgrind hides the vDSO: a clock is read by a system call, whose inside is"
    );
    println!("not counted. Subtract floor/clock from a row to see what else it does.\n");
    println!("| row            | instructions per call |");
    println!("|----------------|----------------------:|");
    for row in ROWS {
        println!("| {row:<14} | {:>21.1} |", collected(row)? / CALLS as f64);
    }
    Ok(())
}

/// Makes `calls` calls of `row`, under valgrind.
pub(crate) fn make_calls(row: &str, calls: u64) -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::start()?;
    let mut cases = rows::all(&fleet)?;
    let case = cases.iter_mut().find(|case| case.name == row).ok_or("no row has this name")?;
    let wrong = case.call(calls)?;
    if wrong as f64 > calls as f64 * WRONG_MAX {
        return Err(format!("{wrong} of {calls} calls had an unexpected result").into());
    }
    Ok(())
}

/// Counts the instructions of [`CALLS`] calls of `row`.
fn collected(row: &str) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={COUNTED}*"))
        .arg(std::env::current_exe()?)
        .args(["calls", row, &CALLS.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    match collected {
        Some(count) if output.status.success() && count > 0.0 => Ok(count),
        _ => Err(format!("valgrind did not count {row}: {said}").into()),
    }
}
