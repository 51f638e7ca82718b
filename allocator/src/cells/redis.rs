//! Cells in Redis or Valkey: each a string, its version first. One script does the swap of one cell, and looks in the same
//! step whether the server is the master that it was.

mod answer;
mod line;

use self::answer::{Answer, State};
use self::line::Line;
use super::tls;
use super::url::RedisPlace;
use super::{Cell, CellsConfig, CellsError, Swap, Swapped, Timeline, VALUE_MAX, check};
use ::redis::{Arg, Cmd, Pipeline};
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Does one swap. It touches one key alone, so that a cell may be on any server of a cluster.
///
/// A replication id is drawn anew whenever a server starts or becomes a master (and when it has its first replica, which
/// costs a wait and no promise); a replica shows that of its master. So "this id, and a master" is true of one process for
/// one span of time, whatever stands between it and us.
const SCRIPT: &str = "\
local here = redis.call('INFO', 'replication')
if not string.find(here, 'role:master\\r\\n', 1, true)
    or not string.find(here, 'master_replid:' .. ARGV[1] .. '\\r\\n', 1, true) then
  return {here}
end
if redis.call('GETRANGE', KEYS[1], 0, 7) ~= ARGV[2] then
  return redis.call('GETRANGE', KEYS[1], 0, ARGV[4])
end
if ARGV[3] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[3]) end
return 1
";

/// Bytes of a version before the value.
const VERSION: usize = 8;

/// How often a batch is sent again of which a server forgot the script.
const FORGOTTEN_MAX: usize = 3;

/// What all handles on the cells of one server share.
struct Shared {
    place: RedisPlace,
    config: CellsConfig,
    tls: Option<TlsConnector>,
}

/// See [`Cells`](super::Cells).
pub struct Redis {
    shared: Arc<Shared>,
    /// What is connected, and has answered all that it was asked.
    line: Option<Line>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.shared.config.url)
    }
}

impl Redis {
    pub(super) fn new(place: &RedisPlace, config: &CellsConfig) -> Result<Self, CellsError> {
        let tls = place.tls.as_ref().map(tls::connector).transpose()?;
        let shared = Shared { place: place.clone(), config: config.clone(), tls };
        Ok(Redis { shared: Arc::new(shared), line: None })
    }

    pub(super) fn another(&self) -> Self {
        Redis { shared: Arc::clone(&self.shared), line: None }
    }

    pub(super) async fn timeline(&mut self) -> Result<Timeline, CellsError> {
        Ok(self.load(&[]).await?.0)
    }

    /// What is between two looks at the timeline that agree is on it, for no id comes back.
    pub(super) async fn load(
        &mut self,
        names: &[String],
    ) -> Result<(Timeline, Vec<Option<Cell>>), CellsError> {
        let mut pipeline = Pipeline::with_capacity(names.len() + 2);
        pipeline.cmd("INFO").arg("replication");
        for name in names {
            pipeline.cmd("GETRANGE").arg(self.key(name)).arg(0).arg(VALUE_MAX + VERSION);
        }
        pipeline.cmd("INFO").arg("replication");
        self.call(async |line| {
            let mut answers = line.ask(&pipeline).await?;
            let last = answers.pop().unwrap_or(Answer::Strange);
            let mut answers = answers.into_iter();
            let timeline = State::of(answers.next().unwrap_or(Answer::Strange))?.master()?;
            if State::of(last)?.master()? != timeline {
                return Err(CellsError::Unreachable("it became another one meanwhile".to_owned()));
            }
            let found = names.iter().zip(answers).map(|(name, answer)| cell(name, answer));
            Ok((timeline, found.collect::<Result<_, _>>()?))
        })
        .await
    }

    pub(super) async fn swap(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
    ) -> Result<Vec<Swapped>, CellsError> {
        let commands: Vec<Cmd> = swaps.iter().map(|swap| self.command(timeline, swap)).collect();
        let shared = Arc::clone(&self.shared);
        self.call(async |line| {
            let mut answers = line.ask(&pipeline(&commands, 0..swaps.len(), line.sha())).await?;
            for _ in 0..FORGOTTEN_MAX {
                let forgotten = (0..answers.len()).filter(|&at| answers[at].is_forgotten());
                let forgotten: Vec<usize> = forgotten.collect();
                if forgotten.is_empty() {
                    break;
                }
                line.load_script().await?;
                let again = line.ask(&pipeline(&commands, forgotten.iter().copied(), line.sha())).await?;
                forgotten.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
            }
            let swapped = outcome(swaps, answers)?;
            if swapped.contains(&Swapped::Done) {
                line.wait(&shared.config).await?;
            }
            Ok(swapped)
        })
        .await
    }

    /// What its clock shows, in microseconds since the epoch.
    pub(super) async fn time(&mut self) -> Result<u64, CellsError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.cmd("TIME");
        self.call(async |line| {
            let answer = line.ask(&pipeline).await?.pop().unwrap_or(Answer::Strange);
            let parts = match answer {
                Answer::List(parts) => parts.into_iter().map(Answer::bytes).collect::<Result<Vec<_>, _>>()?,
                Answer::Number(_) | Answer::Bytes(_) | Answer::Error(_) | Answer::Strange => {
                    return Err(answer.failed());
                }
            };
            let number = |part: &Vec<u8>| std::str::from_utf8(part).ok()?.parse::<u64>().ok();
            match parts.iter().map(number).collect::<Option<Vec<u64>>>().as_deref() {
                Some(&[seconds, micros]) => Ok(seconds.saturating_mul(1_000_000).saturating_add(micros)),
                Some(_) | None => Err(Answer::Strange.failed()),
            }
        })
        .await
    }

    /// The arguments of the script, and nothing before them.
    fn command(&self, timeline: &Timeline, swap: &Swap) -> Cmd {
        let expected = swap.expected.map(u64::to_be_bytes);
        let next = swap.next.as_ref().map_or_else(Vec::new, |next| {
            let mut bytes = Vec::with_capacity(VERSION + next.value.len());
            bytes.extend_from_slice(&next.version.to_be_bytes());
            bytes.extend_from_slice(&next.value);
            bytes
        });
        let mut command = Cmd::new();
        command.arg(self.key(&swap.name)).arg(timeline.as_str());
        command.arg(expected.as_ref().map_or(&[][..], |version| &version[..]));
        command.arg(next).arg(VALUE_MAX + VERSION);
        command
    }

    /// The braces say which part of a key decides where in a cluster it is: all but the prefix.
    fn key(&self, name: &str) -> String {
        format!("{}:{{{name}}}", self.shared.config.prefix)
    }

    /// Does `what` on a connection, in time. One that failed, that was too late, or whose caller went away is dropped with
    /// whatever it may still answer.
    async fn call<T>(
        &mut self,
        what: impl AsyncFnOnce(&mut Line) -> Result<T, CellsError>,
    ) -> Result<T, CellsError> {
        // A connection that was closed while it was unused is no reason to fail: nothing was asked over it.
        let line = self.line.take().filter(|line| !line.is_over());
        let shared = &self.shared;
        let (line, answer) = timeout(shared.config.timeout, async {
            let mut line = match line {
                Some(line) => line,
                None => Line::connect(shared).await?,
            };
            let answer = what(&mut line).await;
            Ok::<_, CellsError>((line, answer))
        })
        .await
        .map_err(|_| CellsError::Unreachable(format!("no answer within {:?}", shared.config.timeout)))??;
        if let Ok(_) | Err(CellsError::Moved { .. } | CellsError::NotDurable(_)) = &answer {
            self.line = Some(line);
        }
        answer
    }
}

fn pipeline(commands: &[Cmd], which: impl Iterator<Item = usize>, sha: &str) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for at in which {
        pipeline.cmd("EVALSHA").arg(sha).arg(1);
        for arg in commands[at].args_iter() {
            if let Arg::Simple(arg) = arg {
                pipeline.arg(arg);
            }
        }
    }
    pipeline
}

/// What came of a batch: of each swap, or why that is not known of all.
fn outcome(swaps: &[Swap], answers: Vec<Answer>) -> Result<Vec<Swapped>, CellsError> {
    let outcomes = swaps.iter().zip(answers).map(|(swap, answer)| swapped(&swap.name, answer));
    let (mut swapped, mut broken) = (Vec::with_capacity(swaps.len()), None);
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => swapped.push(outcome),
            Err(error) => broken = broken.or(Some(error)),
        }
    }
    match broken {
        None => Ok(swapped),
        Some(error) => Err(error.of_batch(swapped.contains(&Swapped::Done))),
    }
}

fn swapped(name: &str, answer: Answer) -> Result<Swapped, CellsError> {
    match answer {
        Answer::Number(1) => Ok(Swapped::Done),
        Answer::List(mut here) => {
            let found = State::of(here.pop().unwrap_or(Answer::Strange))?.master()?;
            Err(CellsError::Moved { found })
        }
        Answer::Number(_) | Answer::Bytes(_) | Answer::Error(_) | Answer::Strange => {
            Ok(Swapped::Other(cell(name, answer)?))
        }
    }
}

/// The cell that a server answered with: an empty string is what it says of a key that is not there.
fn cell(name: &str, answer: Answer) -> Result<Option<Cell>, CellsError> {
    let mut bytes = answer.bytes()?;
    let Some(version) = bytes.first_chunk::<VERSION>() else {
        let foreign = || CellsError::Invalid(format!("what is at {name:?} is no cell"));
        return if bytes.is_empty() { Ok(None) } else { Err(foreign()) };
    };
    let version = u64::from_be_bytes(*version);
    check::value(name, bytes.len() - VERSION)?;
    bytes.drain(..VERSION);
    Ok(Some(Cell { version, value: bytes }))
}
