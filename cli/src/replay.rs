//! `lessor replay`: requests in, answers out, in virtual time and without a server, so that a contract can be tried on
//! real traffic before it is live.
//!
//! In reading order: [`request`] and [`answer`] (the lines), [`lines`] (their source) and [`log`] (the access log of a
//! web server), [`lineage`] (which limit is above which), [`contract`] (one exact limiter decides), [`fleet`] (or nodes
//! that lease), [`out`] (where answers go), [`summary`] and [`plot`] (the results).

mod answer;
mod contract;
mod fleet;
mod lineage;
mod lines;
mod log;
mod out;
mod plot;
mod request;
mod summary;
#[cfg(test)]
mod tests;

use crate::args::ReplayArgs;
use crate::configuration;
use crate::failure::Failure;
use crate::print;
use answer::Answer;
use contract::{Contract, PoolId};
use fleet::{Fleet, Shape};
use lessor_allocator::Config;
use lessor_allocator::config::{Keyed, LimitConfig, named_for};
use lessor_ledger::rule::SlidingWindow;
use lines::{Csv, Lines};
use out::Out;
use request::Request;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write, stdout};
use std::time::Duration;
use summary::Summary;

/// Margin of windows if the configuration sets none: this limiter is in one place, and waits for no vendor's count.
const MARGIN: Duration = Duration::ZERO;

/// Answers all requests, or summarises the results.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let (config, mut keeper) = match args.nodes() {
        None => {
            let config = configuration::read_whole(&args.config, |text, folder| {
                Config::parse_with_margin(text, folder, MARGIN)
            })?;
            let contract = Contract::new(&config);
            (config, Keeper::Central(contract))
        }
        Some(nodes) => {
            let config = configuration::read_whole(&args.config, Config::parse_in)?;
            let shape = Shape { nodes, rtt: args.rtt, seed: args.seed };
            let fleet = Fleet::new(&config, shape);
            (config, Keeper::Leased(Box::new(fleet)))
        }
    };
    let margin = if args.nodes().is_some() { SlidingWindow::MARGIN } else { MARGIN };
    let mut lines = Lines::open(&args.requests, csv(args, &config), margin)?;
    let mut summary = (args.summary || args.plot.is_some()).then(|| Summary::new(&config));
    let mut out = Out::new(BufWriter::new(stdout()), !args.summary);
    let mut written = replay(&mut keeper, &mut lines, summary.as_mut(), &mut out)?;
    if let (Some(summary), true) = (&summary, args.summary && written.is_ok()) {
        written = out.print(&if args.json { summary.json() } else { summary.to_string() });
    }
    print::done(written)?;
    match (&args.plot, summary) {
        (Some(file), Some(summary)) => plot::draw(file, &summary.flows()),
        _ => Ok(()),
    }
}

/// The decider of requests.
enum Keeper {
    /// One exact limiter for each pool.
    Central(Contract),
    /// Nodes that lease.
    Leased(Box<Fleet>),
}

/// Answers `lines` on `out`, and reports to `summary` if there is one. The inner result is the one of writing.
fn replay(
    keeper: &mut Keeper,
    lines: &mut Lines,
    mut summary: Option<&mut Summary>,
    out: &mut Out<impl Write>,
) -> Result<io::Result<()>, Failure> {
    let (mut ticket, mut first_problem) = (0, None);
    let mut are_all_wrong = true;
    while let Some(line) = lines.next()? {
        let answered = match (&line.request, &mut *keeper) {
            (Ok(request), Keeper::Central(contract)) => central(contract, request, ticket, &mut summary, out),
            (Ok(request), Keeper::Leased(fleet)) => {
                let asked = fleet.request(request, ticket);
                collect(fleet, &mut summary, out);
                asked
            }
            (Err(problem), _) => Err(problem.clone()),
        };
        are_all_wrong &= line.request.is_err();
        if let Err(problem) = answered {
            first_problem.get_or_insert_with(|| format!("line {}: {problem}", line.number));
            out.put(ticket, Answer::wrong(format!("line {}: {problem}", line.number)));
            if let Some(summary) = summary.as_deref_mut() {
                summary.misread();
            }
        }
        if let Err(error) = out.write(lines.is_ready()) {
            return Ok(Err(error));
        }
        ticket += 1;
    }
    if let (true, Some(problem)) = (are_all_wrong, first_problem) {
        return Err(Failure::Input(format!("none of {ticket} lines is a request; {problem}")));
    }
    if ticket == 0 {
        return Err(Failure::Input("there are no requests: the input is empty".to_owned()));
    }
    match keeper {
        Keeper::Central(contract) => {
            if let Some(summary) = summary {
                contract.run_out(&mut |id, admission| summary.admitted(id, admission));
            }
        }
        Keeper::Leased(fleet) => {
            fleet.run_out();
            collect(fleet, &mut summary, out);
        }
    }
    Ok(out.write(false))
}

/// Answers a request by the exact limiter, which knows every answer at once.
fn central(
    contract: &mut Contract,
    request: &Request,
    ticket: u64,
    summary: &mut Option<&mut Summary>,
    out: &mut Out<impl Write>,
) -> Result<(), String> {
    let answer = contract.answer(request, &mut |id: &PoolId, admission| {
        if let Some(summary) = summary {
            summary.admitted(id, admission);
        }
    })?;
    if let Some(summary) = summary {
        summary.answered(request, &answer);
    }
    out.put(ticket, answer);
    Ok(())
}

/// Passes on the answers and admissions of the nodes since the last call.
fn collect(fleet: &mut Fleet, summary: &mut Option<&mut Summary>, out: &mut Out<impl Write>) {
    for (id, admission) in fleet.admissions() {
        if let Some(summary) = summary {
            summary.admitted(&id, admission);
        }
    }
    for (request, ticket, answer) in fleet.answers() {
        if let Some(summary) = summary {
            summary.answered(&request, &answer);
        }
        out.put(ticket, answer);
    }
}

/// Returns what the requests of a CSV file ask for.
fn csv(args: &ReplayArgs, config: &Config) -> Csv {
    let limits: BTreeMap<String, &LimitConfig> =
        config.limits.iter().map(|limit| (limit.name.to_string(), limit)).collect();
    let name = match (&args.limit, &config.limits[..]) {
        (Some(name), _) => name.clone(),
        (None, [only]) => only.name.to_string(),
        (None, _) => String::new(),
    };
    let found = named_for(&limits, &name).and_then(|named| limits.get(&named));
    Csv {
        keyed: found.is_some_and(|limit| limit.keyed != Keyed::No),
        limit: match (&args.limit, found) {
            (_, Some(_)) => Ok(name),
            (Some(_), None) => Err(format!("--limit is {name:?}, which is not in the configuration")),
            (None, None) => {
                Err("a CSV file or access log names no limit: say which one with --limit".to_owned())
            }
        },
        patience: args.patience,
    }
}
