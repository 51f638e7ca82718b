//! The cost of a call, side by side with what a user would pick instead, in one table from one run.
//!
//! ```text
//! cargo run --release -p benches -- check              # every row
//! cargo run --release -p benches -- check lessor       # the rows whose name holds a text
//! cargo run --release -p benches -- check --json
//! cargo run --release -p benches -- ir                 # instructions a call, counted by valgrind
//! cargo run --release -p benches -- memory             # bytes a key takes in a client
//! cargo run --release -p benches -- keys               # bytes a key takes in an allocator
//! cargo run --release -p benches -- store              # what a hot limit costs each store
//! cargo run --release -p benches -- family             # what an ask costs below a parent
//! cargo run --release -p benches -- sessions           # what an ask costs where many sessions share
//! cargo run --release -p benches -- exchange           # what an ask costs an allocator, by the kind of limit
//! cargo run --release -p benches -- threads            # what threads get that ask at once
//! cargo run --release -p benches -- allocator          # what an exchange costs it over HTTP, beside a bare echo
//! cargo run --release -p benches -- tls                # what encryption costs an exchange
//! cargo run --release -p benches -- wire               # what its bodies cost, and what a compact form could
//! cargo run --release -p benches -- rivals             # a lease, Redis, PostgreSQL and nginx on a hot limit
//! ```
//!
//! In reading order: `sample` (how a figure is taken), `quiet` (when a sample is taken again), `rows` (what is
//! measured), `table` (how it is shown), `instructions` (a count that noise cannot reach), `memory` and `keys` (the
//! memory of a key), `store` (the cost of writing down what is lent), `family` (the cost of keys below a parent),
//! `sessions` (the cost of sessions to each other), `exchange` (the cost of finding limit, pool and session), `threads`
//! (the throughput of threads that ask at once), `allocator` (the cost of a whole exchange), `wire` (the part of its
//! bodies), `tls` (the cost of encryption).

mod allocator;
mod batch;
mod exchange;
mod family;
mod instructions;
mod keys;
mod memory;
mod quiet;
mod rivals;
mod rows;
mod sample;
mod sessions;
mod store;
mod table;
mod threads;
mod tls;
mod wire;

use clap::{Parser, Subcommand};
use rows::lessor::Fleet;
use sample::{Case, Figures};
use std::error::Error;
use std::process::ExitCode;

/// Enough for a median that one busy second of a shared machine does not move; the whole table takes seconds.
const ROUNDS: u32 = 9;

#[derive(Parser)]
#[command(about, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the rows in turn, round by round, and prints one table.
    Check {
        /// Only the rows whose name contains this text, and the reference row.
        row: Option<String>,
        /// Samples of each row.
        #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Prints `[{row, ns_median, ns_min, ns_max, allocations}]` instead.
        #[arg(long)]
        json: bool,
    },
    /// Counts the instructions of a call, with valgrind.
    Ir,
    /// Shows how much memory a key takes.
    Memory,
    /// Shows how many bytes a key takes in an allocator.
    Keys {
        /// Number of keys.
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
        keys: u32,
    },
    /// Shows how often each store is written for a limit in full use, and how long that takes.
    Store {
        /// Seconds for which each row is measured.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
    },
    /// Shows what an ask costs below a parent once many keys have come and gone.
    Family,
    /// Shows what an ask costs a pool that many sessions share.
    Sessions,
    /// Shows what an ask costs an allocator, by kind of limit.
    Exchange,
    /// Shows how many asks a second are answered if several threads ask at once.
    Threads,
    /// Shows what an exchange costs an allocator over HTTP, beside a bare axum that answers the same bodies.
    Allocator {
        /// Seconds for which each row is measured, three times.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
        /// Only the rows with this number of nodes.
        #[arg(long)]
        nodes: Option<usize>,
        /// Only the rows with this number of asks an exchange.
        #[arg(long)]
        asks: Option<usize>,
        /// Only the rows of this store: memory, embedded, redis, postgres or etcd.
        #[arg(long, value_parser = allocator::STORES)]
        store: Option<String>,
        /// Prints `[{store, nodes, asks, exchange_us, echo_us, asks_per_second, of_echo}]` instead.
        #[arg(long)]
        json: bool,
    },
    /// Shows what it costs to read asks and to write answers, as JSON and in the most compact form.
    Wire,
    /// Shows what encryption costs an exchange, with kept and with new connections.
    Tls {
        /// Seconds for which each row is measured, in each of three rounds.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
        seconds: u64,
    },
    /// Shows how long exchanges wait while an allocator copies what it writes down.
    Batch,
    /// Shows what callers of a hot limit get from a lease, and from what a user would pick instead: Redis, PostgreSQL
    /// or nginx.
    Rivals {
        /// Seconds for which each row is measured.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
    },
    /// Makes a number of calls of one row: `ir` runs this under valgrind.
    #[command(hide = true)]
    Calls { row: String, calls: u64 },
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Check { row, rounds, json } => check(row.as_deref(), rounds, json),
        Command::Ir => instructions::print(),
        Command::Keys { keys } => keys::print(keys as usize),
        Command::Memory => {
            memory::print();
            Ok(())
        }
        Command::Store { seconds } => store::print(seconds),
        Command::Family => family::print(),
        Command::Sessions => sessions::print(),
        Command::Exchange => exchange::print(),
        Command::Threads => threads::print(),
        Command::Allocator { seconds, nodes, asks, store, json } => {
            allocator::print(&allocator::Chosen { seconds, nodes, asks, store }, json)
        }
        Command::Wire => wire::print(),
        Command::Tls { seconds } => tls::print(seconds),
        Command::Batch => batch::print(),
        Command::Rivals { seconds } => rivals::print(seconds),
        Command::Calls { row, calls } => instructions::make_calls(&row, calls),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(filter: Option<&str>, rounds: u32, json: bool) -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::start()?;
    let mut cases = rows::all(&fleet)?;
    if let Some(text) = filter {
        cases.retain(|case| case.name.contains(text) || case.name == table::UNIT);
    }
    let figures = measure(&mut cases, rounds)?;
    if json {
        println!("{}", table::json(&figures)?);
    } else {
        print!("{}", table::text(&figures, rounds));
    }
    if let Some(warning) = table::warning(&figures) {
        eprintln!("benches: {warning}");
    }
    let broken: Vec<&str> = figures.iter().filter(|row| row.is_broken()).map(|row| row.row).collect();
    if broken.is_empty() { Ok(()) } else { Err(format!("broken rows: {}", broken.join(", ")).into()) }
}

/// Takes a sample of each case in turn, round after round, so that a machine that slows down slows all cases.
fn measure(cases: &mut [Case], rounds: u32) -> Result<Vec<Figures>, Box<dyn Error>> {
    // One-time work (filling caches, calibrating clocks) belongs to no figure.
    for case in &mut *cases {
        case.sample()?;
    }
    let mut samples = vec![vec![]; cases.len()];
    for _ in 0..rounds {
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            samples.push(case.sample()?);
        }
    }
    Ok(cases.iter().zip(&samples).map(|(case, samples)| Figures::of(case.name, samples)).collect())
}
