//! How a decision of an operator gets into a shared store, where all allocators follow it: a machine as
//! [`Member`](crate::roots::Member) is one. It says which call of the store comes next, and is told what came of it. A shell
//! carries the calls, waits where it says so, and asks the precondition of the operator.
//!
//! A suspension is one swap of the head. A limit is one swap of the cell of the overrides; another publication then tells the
//! head which version is the newest. A decision is followed here once its swap is done. Where another allocator was faster, the
//! machine reads all of it again. A publication that is dropped may have been made.

#[cfg(test)]
mod tests;

use super::{Decision, LimitOverrides, OverridesFull, SuspensionsFull, Version};
use crate::cells::{Cell, CellsError, Swap, Swapped, Timeline};
use crate::roots::{Call, HEAD, Head, Host, OVERRIDES, Said, TimeSource};
use lessor_protocol::Moment;
use serde_json::Value;
use std::mem;
use std::time::Duration;

/// Pause before the store is read again: each allocator signs the head four times a second.
const PAUSE: Duration = Duration::from_millis(5);

/// What a publication needs next.
#[derive(Debug)]
pub enum Next {
    /// This call of the store, and [`Publish::on_answer`] with its answer.
    Call(Call),
    /// A pause of so long, and [`Publish::go_on`].
    Pause(Duration),
    /// The precondition of the operator, now, and [`Publish::go_on`] if it holds. If not, the publication is dropped, and
    /// nothing changed.
    Check,
    /// Nothing: it is over.
    Done(Result<Published, PublishError>),
}

/// What was published. The store has it, and it is followed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whether the pause or block was there before.
    pub was_so: bool,
    /// The newest file and decision that are known now. After [`Publish::limit`] the head does not say so yet.
    pub newest: Version,
}

/// Why a publication came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The store has no room for another suspension. Nothing changed.
    #[error(transparent)]
    SuspensionsFull(#[from] SuspensionsFull),
    /// The store has no room for another limit. Nothing changed.
    #[error(transparent)]
    OverridesFull(#[from] OverridesFull),
    /// The store does not answer, or not well. Whether it holds the decision is not known.
    #[error(transparent)]
    Store(#[from] CellsError),
    /// Another version wrote the head or the overrides, or another program. Nothing changed.
    #[error("{0}")]
    Unreadable(String),
    /// The shell answered another call than it was given.
    #[error("an answer to another call")]
    Mismatch,
}

/// One publication.
#[derive(Debug)]
pub struct Publish {
    job: Job,
    step: Step,
    source: TimeSource,
}

/// What is published.
#[derive(Debug)]
enum Job {
    /// This decision about the suspension of a limit.
    Suspension(String, Decision),
    /// The limit of that name; `None` removes it.
    Limit(String, Option<Value>),
    /// The newest version, in the head.
    Newest(Version),
}

/// What is awaited.
#[derive(Debug)]
enum Step {
    Nothing,
    Time,
    /// The cells, when it was that instant on the clock of the store, if that has one.
    Load(Option<Moment>),
    /// The head, to see whether it says the version.
    LoadNewest,
    Pause,
    Check(Box<Found>),
    /// The head becomes this one. The pause or block was there before, or not.
    SwapHead(Box<Head>, bool, Moment),
    /// The overrides become these.
    SwapOverrides(Box<Found>),
    SwapNewest,
}

/// What the store has, and what is known here, before a limit is put or removed.
#[derive(Debug)]
struct Found {
    there: Moment,
    timeline: Timeline,
    head: Head,
    /// The version of the cell of the overrides.
    expected: Option<u64>,
    overrides: LimitOverrides,
    newest: Version,
}

/// What is awaited next, and what that needs.
type Turn = Result<(Step, Next), PublishError>;

impl Publish {
    /// Decides about the suspension of `limit`.
    pub fn suspension(limit: &str, decision: Decision) -> Self {
        Publish {
            job: Job::Suspension(limit.to_owned(), decision),
            step: Step::Nothing,
            source: TimeSource::Store,
        }
    }

    /// Puts the limit called `name`, or removes it.
    pub fn limit(name: &str, put: Option<Value>) -> Self {
        Publish { job: Job::Limit(name.to_owned(), put), step: Step::Nothing, source: TimeSource::Store }
    }

    /// Tells the head the newest version, after a limit was published. An allocator that does not hear it reads the overrides
    /// itself now and then.
    pub fn newest(version: Version) -> Self {
        Publish { job: Job::Newest(version), step: Step::Nothing, source: TimeSource::Store }
    }

    /// The same in a store whose time `source` tells. Where allocators do, it is taken to be that of the head, which each of them
    /// signs four times a second.
    pub fn by_time_of(self, source: TimeSource) -> Self {
        Publish { source, ..self }
    }

    /// Begins.
    pub fn begin(&mut self) -> Next {
        let turn = match (&self.job, self.source) {
            (Job::Suspension(..) | Job::Limit(..), TimeSource::Store) => (Step::Time, Next::Call(Call::Time)),
            (Job::Suspension(..), TimeSource::Allocators) => load(Step::Load(None), &[HEAD]),
            (Job::Limit(..), TimeSource::Allocators) => load(Step::Load(None), &[HEAD, OVERRIDES]),
            (Job::Newest(_), _) => load(Step::LoadNewest, &[HEAD]),
        };
        self.take(Ok(turn))
    }

    /// The store answered, or did not.
    pub fn on_answer(&mut self, said: Result<Said, CellsError>, host: &mut impl Host) -> Next {
        let step = mem::replace(&mut self.step, Step::Nothing);
        let turn = match said {
            Ok(said) => self.turn(step, said, host),
            Err(error) => Err(error.into()),
        };
        self.take(turn)
    }

    /// The pause is over, or the precondition holds.
    pub fn go_on(&mut self, host: &mut impl Host) -> Next {
        match (&self.job, mem::replace(&mut self.step, Step::Nothing)) {
            (_, Step::Pause) => self.begin(),
            (Job::Limit(name, put), Step::Check(found)) => {
                let turn = swap_overrides(name, put.clone(), found, host);
                self.take(turn)
            }
            _ => self.take(Err(PublishError::Mismatch)),
        }
    }

    fn take(&mut self, turn: Turn) -> Next {
        match turn {
            Ok((step, next)) => {
                self.step = step;
                next
            }
            Err(error) => Next::Done(Err(error)),
        }
    }

    fn turn(&self, step: Step, said: Said, host: &mut impl Host) -> Turn {
        match (&self.job, step, said) {
            (Job::Suspension(..), Step::Time, Said::Time(there)) => {
                Ok(load(Step::Load(Some(there)), &[HEAD]))
            }
            (Job::Suspension(limit, decision), Step::Load(there), Said::Loaded(timeline, cells)) => {
                suspend(limit, decision, there, &timeline, cells, host)
            }
            (_, Step::SwapHead(head, was_so, there), Said::Swapped(swapped)) => {
                if !is_done(&swapped) {
                    return Ok(pause());
                }
                host.follow_suspensions(head.suspensions(), there);
                Ok(done(was_so, head.newest()))
            }
            (Job::Limit(..), Step::Time, Said::Time(there)) => {
                Ok(load(Step::Load(Some(there)), &[HEAD, OVERRIDES]))
            }
            (Job::Limit(..), Step::Load(there), Said::Loaded(timeline, cells)) => {
                follow(there, timeline, cells, host)
            }
            (_, Step::SwapOverrides(found), Said::Swapped(swapped)) => match is_done(&swapped) {
                true => Ok(follow_own(*found, host)),
                false => Ok(pause()),
            },
            (Job::Newest(newest), Step::LoadNewest, Said::Loaded(timeline, cells)) => {
                Ok(tell_head(*newest, &timeline, cells, host))
            }
            (Job::Newest(newest), Step::SwapNewest, Said::Swapped(swapped)) => match is_done(&swapped) {
                true => Ok(done(false, *newest)),
                false => Ok(pause()),
            },
            _ => Err(PublishError::Mismatch),
        }
    }
}

/// Swaps the head for one with the decision.
fn suspend(
    limit: &str,
    decision: &Decision,
    there: Option<Moment>,
    timeline: &Timeline,
    cells: Vec<Option<Cell>>,
    host: &mut impl Host,
) -> Turn {
    // Where there is no head yet, an allocator is about to make it.
    let Some(cell) = cells.into_iter().next().flatten() else { return Ok(pause()) };
    let mut head = Head::read(&cell.value).map_err(PublishError::Unreadable)?;
    // A store that lost something may know less than this allocator: a decision upon that would be overruled here.
    head.keep_suspensions(&host.suspensions());
    let there = there.unwrap_or_else(|| head.written());
    let was_so = head.suspensions_mut().decide(limit, decision, there)?;
    let call = swap(timeline, HEAD, Some(cell.version), head.write(), host);
    Ok((Step::SwapHead(Box::new(head), was_so, there), call))
}

/// Follows the overrides of the store, so that the precondition is asked of the newest limits.
fn follow(there: Option<Moment>, timeline: Timeline, cells: Vec<Option<Cell>>, host: &mut impl Host) -> Turn {
    let mut cells = cells.into_iter();
    let (head, cell) = (cells.next().flatten(), cells.next().flatten());
    let Some(head) = head else { return Ok(pause()) };
    let head = Head::read(&head.value).map_err(PublishError::Unreadable)?;
    let known = match &cell {
        Some(cell) => LimitOverrides::read(&cell.value).map_err(PublishError::Unreadable)?,
        None => LimitOverrides::default(),
    };
    host.follow_overrides(&known);
    let overrides = host.overrides();
    let newest = host.configuration().0.or_newer(head.newest());
    let expected = cell.map(|cell| cell.version);
    let there = there.unwrap_or_else(|| head.written());
    let found = Found { there, timeline, head, expected, overrides, newest };
    Ok((Step::Check(Box::new(found)), Next::Check))
}

/// The precondition holds: swaps the overrides for those with the limit.
fn swap_overrides(name: &str, put: Option<Value>, mut found: Box<Found>, host: &mut impl Host) -> Turn {
    found.overrides.decide(name, found.newest, put)?;
    let call = swap(&found.timeline, OVERRIDES, found.expected, found.overrides.write(), host);
    Ok((Step::SwapOverrides(found), call))
}

/// Follows the overrides that this publication has written.
fn follow_own(mut found: Found, host: &mut impl Host) -> (Step, Next) {
    host.follow_overrides(&found.overrides);
    // A limit that is new may have been suspended before it was put.
    found.head.keep_suspensions(&host.suspensions());
    host.follow_suspensions(found.head.suspensions(), found.there);
    done(false, host.configuration().0.or_newer(found.newest))
}

/// Swaps the head for one that says `newest`, unless it does. A head that is gone or unreadable is left alone.
fn tell_head(
    newest: Version,
    timeline: &Timeline,
    cells: Vec<Option<Cell>>,
    host: &mut impl Host,
) -> (Step, Next) {
    let cell = cells.into_iter().next().flatten();
    let found = cell.and_then(|cell| Some((Head::read(&cell.value).ok()?, cell.version)));
    let Some((mut head, version)) = found else { return done(false, newest) };
    if head.newest() == head.newest().or_newer(newest) {
        return done(false, head.newest());
    }
    head.keep_newest(newest);
    (Step::SwapNewest, swap(timeline, HEAD, Some(version), head.write(), host))
}

fn load(step: Step, names: &[&str]) -> (Step, Next) {
    (step, Next::Call(Call::Load(names.iter().map(|name| (*name).to_owned()).collect())))
}

fn swap(
    timeline: &Timeline,
    name: &str,
    expected: Option<u64>,
    value: Vec<u8>,
    host: &mut impl Host,
) -> Next {
    let next = Some(Cell { version: host.draw(), value });
    Next::Call(Call::Swap(timeline.clone(), vec![Swap { name: name.to_owned(), expected, next }]))
}

fn pause() -> (Step, Next) {
    (Step::Pause, Next::Pause(PAUSE))
}

fn done(was_so: bool, newest: Version) -> (Step, Next) {
    (Step::Nothing, Next::Done(Ok(Published { was_so, newest })))
}

fn is_done(swapped: &[Swapped]) -> bool {
    swapped.first() == Some(&Swapped::Done)
}
