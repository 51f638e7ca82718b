//! `lessor replay`: requests in, answers out, in virtual time and without a server, so that a contract can be tried on
//! real traffic before it is live.
//!
//! In reading order: [`request`] and [`answer`] (what the lines say), [`lines`] (where they come from), [`contract`]
//! (who decides), [`summary`] (what came of it).

mod answer;
mod contract;
mod lines;
mod request;
mod summary;
#[cfg(test)]
mod tests;

use crate::args::ReplayArgs;
use crate::configuration;
use crate::failure::Failure;
use answer::Answer;
use contract::{Contract, PoolId};
use lessor_allocator::Config;
use lessor_allocator::config::{Keyed, LimitConfig, named_for};
use lines::{Csv, Line, Lines};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write, stdout};
use std::time::Duration;
use summary::Summary;

/// What a window waits for a vendor's own count where the configuration says nothing: this limiter is in one place, and
/// counts itself.
const MARGIN: Duration = Duration::ZERO;

/// Answers all requests, or says what came of them.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let config = configuration::read_as(&args.config, |text| Config::parse_with_margin(text, MARGIN))?;
    let mut lines = Lines::open(&args.requests, csv(args, &config), MARGIN)?;
    let mut summary = args.summary.then(|| Summary::new(&config));
    let mut out = BufWriter::new(stdout());
    let written = replay(&config, &mut lines, summary.as_mut(), &mut out)?;
    let written = written.and_then(|()| {
        if let Some(summary) = summary {
            writeln!(out, "{}", if args.json { summary.json() } else { summary.to_string() })?;
        }
        out.flush()
    });
    match written {
        // Whoever has seen enough closes the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::Run(format!("cannot write to stdout: {error}"))),
    }
}

/// Answers `lines` on `out`, or tells `summary` if there is one. The inner result is that of writing.
fn replay(
    config: &Config,
    lines: &mut Lines,
    mut summary: Option<&mut Summary>,
    out: &mut impl Write,
) -> Result<io::Result<()>, Failure> {
    let mut contract = Contract::new(config);
    while let Some(line) = lines.next()? {
        let answer = reply(&mut contract, &line, summary.as_deref_mut());
        if summary.is_none()
            && let Err(error) = write(out, &answer, lines.is_ready())
        {
            return Ok(Err(error));
        }
    }
    if let Some(summary) = summary {
        contract.run_out(&mut |id, admission| summary.admitted(id, admission));
    }
    Ok(Ok(()))
}

/// Writes `answer`, and lets it wait for others only if `more` are sure to come at once.
fn write(out: &mut impl Write, answer: &Answer, more: bool) -> io::Result<()> {
    let line = serde_json::to_string(answer).expect("plain data is always JSON");
    writeln!(out, "{line}")?;
    if more { Ok(()) } else { out.flush() }
}

/// The answer to `line`; a bad one has one too, and changes nothing.
fn reply(contract: &mut Contract, line: &Line, mut summary: Option<&mut Summary>) -> Answer {
    let told = &mut |id: &PoolId, admission| {
        if let Some(summary) = summary.as_deref_mut() {
            summary.admitted(id, admission);
        }
    };
    let answered = match &line.request {
        Ok(request) => contract.answer(request, told),
        Err(problem) => Err(problem.clone()),
    };
    if let Some(summary) = summary {
        match (&line.request, &answered) {
            (Ok(request), Ok(answer)) => summary.answered(request, answer),
            _ => summary.misread(),
        }
    }
    answered.unwrap_or_else(|problem| Answer::wrong(format!("line {}: {problem}", line.number)))
}

/// What the requests of a CSV file ask for.
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
            (None, None) => Err("a CSV file names no limit: say which one with --limit".to_owned()),
        },
        patience: args.patience,
    }
}
