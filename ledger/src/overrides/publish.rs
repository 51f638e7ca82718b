//! Gets a decision of an operator into a shared store, where all allocators follow it. It is a poll machine like
//! [`Member`](crate::roots::Member): it says which call of the store comes next, and is told the answer. A shell
//! carries the calls, waits where the machine says so, and checks the precondition of the operator.
//!
//! A suspension is one swap of the head. A limit is one swap of the cell of the overrides; another publication then
//! tells the head which version is the newest. A decision is followed here once its swap is done. If another allocator
//! was faster, the machine reads everything again. A publication that is dropped may or may not have been made.

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

/// The next need of a publication.
#[derive(Debug)]
pub enum Next {
    /// This call of the store, and [`Publish::on_answer`] with its answer.
    Call(Call),
    /// A pause of this span, and [`Publish::go_on`].
    Pause(Duration),
    /// The precondition of the operator, now, and [`Publish::go_on`] if it holds. If not, the publication is dropped, and
    /// nothing changed.
    Check,
    /// Nothing: the publication is over.
    Done(Result<Published, PublishError>),
}

/// The outcome of a publication. The store has the decision, and it is followed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whether the pause or block was there before.
    pub was_so: bool,
    /// The newest file and decision that are known now. After [`Publish::limit`] the head does not say so yet.
    pub newest: Version,
}

/// The reason why a publication failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The store has no room for another suspension. Nothing changed.
    #[error(transparent)]
    SuspensionsFull(#[from] SuspensionsFull),
    /// The store has no room for another limit. Nothing changed.
    #[error(transparent)]
    OverridesFull(#[from] OverridesFull),
    /// The store did not answer, or answered with an error. It may or may not have the decision.
    #[error(transparent)]
    Store(#[from] CellsError),
    /// Another version or another program wrote the head or the overrides. Nothing changed.
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

/// The content of a publication.
#[derive(Debug)]
enum Job {
    /// This decision about the suspension of a limit.
    Suspension(String, Decision),
    /// The limit of that name; `None` removes it.
    Limit(String, Option<Value>),
    /// The newest version, for the head.
    Newest(Version),
}

/// The answer or event that is awaited.
#[derive(Debug)]
enum Step {
    Nothing,
    Time,
    /// The cells. The moment is what the clock of the store showed, if it has one.
    Load(Option<Moment>),
    /// The head, to see whether it has the version.
    LoadNewest,
    Pause,
    Check(Box<Found>),
    /// The swap of the head for this one, whether the pause or block was there before, and the time in the store.
    SwapHead(Box<Head>, bool, Moment),
    /// The swap of the overrides for these.
    SwapOverrides(Box<Found>),
    SwapNewest,
}

/// The state of the store and of this allocator before a limit is put or removed.
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

/// The next step, and what it needs.
type Turn = Result<(Step, Next), PublishError>;

impl Publish {
    /// Makes a publication of a decision about the suspension of `limit`.
    pub fn suspension(limit: &str, decision: Decision) -> Self {
        Publish {
            job: Job::Suspension(limit.to_owned(), decision),
            step: Step::Nothing,
            source: TimeSource::Store,
        }
    }

    /// Makes a publication that puts the limit called `name`, or removes it.
    pub fn limit(name: &str, put: Option<Value>) -> Self {
        Publish { job: Job::Limit(name.to_owned(), put), step: Step::Nothing, source: TimeSource::Store }
    }

    /// Makes a publication that tells the head the newest version, after a limit was published. An allocator that does
    /// not see it there reads the overrides itself now and then.
    pub fn newest(version: Version) -> Self {
        Publish { job: Job::Newest(version), step: Step::Nothing, source: TimeSource::Store }
    }

    /// Sets the `source` of the store's time. If allocators keep the time, the machine takes the time of the head,
    /// which each allocator signs four times a second.
    pub fn by_time_of(self, source: TimeSource) -> Self {
        Publish { source, ..self }
    }

    /// Begins, and returns the first need.
    pub fn begin(&mut self) -> Next {
        let turn = match (&self.job, self.source) {
            (Job::Suspension(..) | Job::Limit(..), TimeSource::Store) => (Step::Time, Next::Call(Call::Time)),
            (Job::Suspension(..), TimeSource::Allocators) => load(Step::Load(None), &[HEAD]),
            (Job::Limit(..), TimeSource::Allocators) => load(Step::Load(None), &[HEAD, OVERRIDES]),
            (Job::Newest(_), _) => load(Step::LoadNewest, &[HEAD]),
        };
        self.take(Ok(turn))
    }

    /// Takes in the answer of the store, or its failure.
    pub fn on_answer(&mut self, said: Result<Said, CellsError>, host: &mut impl Host) -> Next {
        let step = mem::replace(&mut self.step, Step::Nothing);
        let turn = match said {
            Ok(said) => self.turn(step, said, host),
            Err(error) => Err(error.into()),
        };
        self.take(turn)
    }

    /// Goes on after a pause, or because the precondition holds.
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
    // If there is no head yet, an allocator is about to make it.
    let Some(cell) = cells.into_iter().next().flatten() else { return Ok(pause()) };
    let mut head = Head::read(&cell.value).map_err(PublishError::Unreadable)?;
    // A store that lost something may know less than this allocator. A decision that follows from less would be
    // overruled here.
    head.keep_suspensions(&host.suspensions());
    let there = there.unwrap_or_else(|| head.written());
    // After a change of its clock an allocator dates all pauses anew, from the clock of the head. Until then a pause by
    // the new clock would be dated wrong.
    if head.timeline() != *timeline || !head.is_vouched_for(there) {
        return Ok(pause());
    }
    let was_so = head.suspensions_mut().decide(limit, decision, there)?;
    let call = swap(timeline, HEAD, Some(cell.version), head.write(), host);
    Ok((Step::SwapHead(Box::new(head), was_so, there), call))
}

/// Follows the overrides of the store, so that the precondition is checked on the newest limits.
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

/// Swaps the overrides for some with the limit, after the precondition was found to hold.
fn swap_overrides(name: &str, put: Option<Value>, mut found: Box<Found>, host: &mut impl Host) -> Turn {
    found.overrides.decide(name, found.newest, put)?;
    let call = swap(&found.timeline, OVERRIDES, found.expected, found.overrides.write(), host);
    Ok((Step::SwapOverrides(found), call))
}

/// Follows the overrides that this publication has written.
fn follow_own(mut found: Found, host: &mut impl Host) -> (Step, Next) {
    host.follow_overrides(&found.overrides);
    // A new limit may have been suspended before it was put.
    found.head.keep_suspensions(&host.suspensions());
    host.follow_suspensions(found.head.suspensions(), found.there);
    done(false, host.configuration().0.or_newer(found.newest))
}

/// Swaps the head for one that says `newest`, unless it does already. A head that is gone or unreadable is left alone.
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
