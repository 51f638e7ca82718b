//! Cells in a cluster: each on the master that has the slot of its key. A batch goes to all masters that it concerns at once.
//!
//! A swap tells its master the replication id that is known of it, and the script does nothing on another one. So a master that was
//! started again or replaced, and may have lost what it had, is noticed by the first call that touches it. A call that touches other
//! masters alone is done meanwhile on the timeline of before, and loses nothing there. `docs/design/shared-roots.md` says what
//! allocators do about that.

mod lines;
mod look;
mod slots;
mod topology;

use self::lines::{Answered, Lines, Question};
use self::topology::Topology;
use super::answer::Answer;
use super::script::{self, Told};
use super::{Shared, at};
use crate::cells::url::{Address, RedisPlace};
use crate::cells::{Cell, CellsConfig, CellsError, Swap, Swapped, Timeline, outcome};
use lessor_protocol::{Clock, Moment};
use redis::Pipeline;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const CLOCK: Clock = Clock::since_boot();

/// How often one call follows what moved, or looks again at what changed meanwhile.
const ROUNDS_MAX: usize = 6;

/// When a call is over.
#[derive(Clone, Copy)]
struct Deadline(Moment);

impl Deadline {
    fn left(self) -> Duration {
        self.0.since(CLOCK.now())
    }
}

/// A cluster. See [`Cells`](crate::cells::Cells).
pub struct Cluster {
    shared: Arc<Shared>,
    lines: Lines,
    known: Option<Arc<Topology>>,
    /// The timeline that the caller heard of last. The time of another one is not told before that was.
    told: Option<Timeline>,
    /// Whether something says that what is known is out of date.
    is_stale: bool,
    /// Servers that did not answer, and since when they are not asked without need.
    silent: BTreeMap<Address, Moment>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.shared.config.url)
    }
}

/// Cells of a batch, by their place in it, that one server is asked for. Whether each key is on its way there.
type Parts = BTreeMap<Address, Vec<(usize, bool)>>;

/// A key that is not where it was looked for.
enum Elsewhere {
    /// This server says that another one has its slot.
    Moved(Address),
    /// The server to which it is on its way.
    Asked(Address),
}

impl Cluster {
    pub(in crate::cells) fn new(place: &RedisPlace, config: &CellsConfig) -> Result<Self, CellsError> {
        Ok(Cluster::of(Shared::new(place, config)?, None))
    }

    pub(in crate::cells) fn another(&self) -> Self {
        Cluster::of(Arc::clone(&self.shared), self.known.clone())
    }

    fn of(shared: Arc<Shared>, known: Option<Arc<Topology>>) -> Self {
        let (lines, silent) = (Lines::default(), BTreeMap::new());
        Cluster { shared, lines, known, told: None, is_stale: false, silent }
    }

    pub(in crate::cells) async fn timeline(&mut self) -> Result<Timeline, CellsError> {
        Ok(self.load(&[]).await?.0)
    }

    /// The last cell is read last. All masters are asked for their ids first, so that the timeline is the one of now: two
    /// allocators that look at the same time see the same.
    pub(in crate::cells) async fn load(
        &mut self,
        names: &[String],
    ) -> Result<(Timeline, Vec<Option<Cell>>), CellsError> {
        let deadline = self.deadline();
        let mut first = None;
        for _ in 0..ROUNDS_MAX {
            let known = self.look(first.as_ref(), deadline).await?;
            let before_last = 0..names.len().saturating_sub(1);
            let last = before_last.end..names.len();
            let mut cells = vec![None; names.len()];
            let mut elsewhere = None;
            for places in [before_last, last] {
                if elsewhere.is_none() {
                    elsewhere = self.read(&known, names, places.collect(), &mut cells, deadline).await?;
                }
            }
            match elsewhere {
                Some(server) => first = Some(server),
                None => {
                    self.told = Some(known.timeline.clone());
                    return Ok((known.timeline.clone(), cells));
                }
            }
        }
        Err(restless())
    }

    /// Reads the cells at these places, between two looks at each server that agree. The server that says that they are elsewhere
    /// now, or that is another one, if there is one.
    async fn read(
        &mut self,
        known: &Topology,
        names: &[String],
        places: Vec<usize>,
        cells: &mut [Option<Cell>],
        deadline: Deadline,
    ) -> Result<Option<Address>, CellsError> {
        let key = |place: usize| names.get(place).map_or_else(String::new, |name| self.shared.key(name));
        let keys: BTreeMap<usize, String> = places.iter().map(|&place| (place, key(place))).collect();
        let mut parts = parts(known, &keys)?;
        for _ in 0..ROUNDS_MAX {
            if parts.is_empty() {
                return Ok(None);
            }
            let questions = parts.iter().map(|(server, part)| {
                let mut pipeline = Pipeline::with_capacity(part.len() + 2);
                pipeline.cmd("INFO").arg("replication");
                for (place, is_asking) in part {
                    if *is_asking {
                        pipeline.cmd("ASKING");
                    }
                    script::read(&mut pipeline, &keys[place]);
                }
                pipeline.cmd("INFO").arg("replication");
                (server.clone(), Question::Look(pipeline))
            });
            let answered = self.ask(questions.collect(), deadline.left()).await;
            let mut next = Parts::new();
            for (server, answers) in answered {
                let mut answers = answers.map_err(|error| self.stale(error))?;
                let last = answers.pop().unwrap_or(Answer::Strange);
                let mut answers = answers.into_iter();
                let first = answers.next().unwrap_or(Answer::Strange);
                let ids = [look::id(first, &server), look::id(last, &server)];
                if ids.iter().any(|id| id.as_ref().ok().map(String::as_str) != known.id(&server)) {
                    return match known.id(&server) {
                        Some(_) => Ok(Some(server)),
                        None => Err(self.stale(no_slot_yet(&server))),
                    };
                }
                for (place, is_asking) in parts.remove(&server).unwrap_or_default() {
                    if is_asking {
                        answers.next();
                    }
                    let answer = answers.next().unwrap_or(Answer::Strange);
                    match elsewhere(&answer, &server)? {
                        Some(Elsewhere::Moved(server)) => return Ok(Some(server)),
                        Some(Elsewhere::Asked(to)) => next.entry(to).or_default().push((place, true)),
                        None => {
                            let cell = script::cell(&names[place], answer);
                            cells[place] = cell.map_err(|error| self.stale(at(error, &server)))?;
                        }
                    }
                }
            }
            parts = next;
        }
        Err(restless())
    }

    pub(in crate::cells) async fn swap(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
    ) -> Result<Vec<Swapped>, CellsError> {
        let mut outcomes = vec![None; swaps.len()];
        let outcome = self.swap_all(timeline, swaps, &mut outcomes).await.and_then(|()| {
            let outcome = outcome::of_batch(outcomes.iter().flatten().cloned());
            outcome.map_err(|error| self.stale(error))
        });
        outcome.map_err(|error| error.of_batch(outcomes.contains(&Some(Ok(Swapped::Done)))))
    }

    /// Finds out what comes of each swap, wherever its key is by then.
    async fn swap_all(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
        outcomes: &mut [Option<Result<Swapped, CellsError>>],
    ) -> Result<(), CellsError> {
        let deadline = self.deadline();
        let mut known = self.known(deadline).await?;
        if known.timeline != *timeline {
            known = self.look(None, deadline).await?;
        }
        let keys = swaps.iter().map(|swap| self.shared.key(&swap.name)).enumerate();
        let mut left: BTreeMap<usize, String> = keys.collect();
        let mut asked: BTreeMap<usize, Address> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            if known.timeline != *timeline {
                self.told = Some(known.timeline.clone());
                return Err(CellsError::Moved { found: known.timeline.clone() });
            }
            let (mut moved, mut has_changed) = (None, false);
            for (server, places, answers) in self.swap_some(&known, swaps, &left, &asked, deadline).await? {
                for (place, answer) in places.into_iter().zip(answers) {
                    asked.remove(&place);
                    match (elsewhere(&answer, &server)?, &answer) {
                        (Some(Elsewhere::Moved(server)), _) => moved = Some(server),
                        // That it has the key no more is true of the master that it was, if it is that.
                        (Some(Elsewhere::Asked(to)), _) => {
                            asked.insert(place, to);
                            has_changed = true;
                        }
                        (None, Answer::List(_)) => has_changed = true,
                        (None, _) => {
                            let swapped = script::swapped(&swaps[place].name, answer);
                            outcomes[place] = Some(swapped.map_err(|error| at(error, &server)));
                            left.remove(&place);
                        }
                    }
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if has_changed || moved.is_some() {
                known = self.look(moved.as_ref(), deadline).await?;
            }
        }
        Err(self.stale(restless()))
    }

    /// Sends the swaps in `left` to their masters, or to those that they are on their way to, as `asked` says. What each answered.
    async fn swap_some(
        &mut self,
        known: &Topology,
        swaps: &[Swap],
        left: &BTreeMap<usize, String>,
        asked: &BTreeMap<usize, Address>,
        deadline: Deadline,
    ) -> Result<Vec<(Address, Vec<usize>, Vec<Answer>)>, CellsError> {
        let mut parts = Parts::new();
        for (place, key) in left {
            let server = match asked.get(place) {
                Some(server) => server,
                None => known.slots.owner(key).map_err(|error| self.stale(error))?,
            };
            parts.entry(server.clone()).or_default().push((*place, asked.contains_key(place)));
        }
        let mut questions = vec![];
        for (server, part) in &parts {
            let Some(id) = known.id(server) else { return Err(self.stale(no_slot_yet(server))) };
            let told =
                part.iter().map(|(place, is_asking)| Told::new(&self.shared, id, &swaps[*place], *is_asking));
            questions.push((server.clone(), Question::Swap(told.collect())));
        }
        let mut all = vec![];
        let mut worst: Option<CellsError> = None;
        for (server, answers) in self.ask(questions, deadline.left()).await {
            match answers {
                Ok(answers) => {
                    let places = parts.remove(&server).unwrap_or_default();
                    all.push((server, places.into_iter().map(|(place, _)| place).collect(), answers));
                }
                Err(error) => {
                    let error = self.stale(error);
                    // What is known least says what is known of the batch.
                    let is_worse = worst.is_none() || matches!(error, CellsError::Unreachable(_));
                    worst = if is_worse { Some(error) } else { worst };
                }
            }
        }
        match worst {
            None => Ok(all),
            // Of what others were asked meanwhile something may be done.
            Some(error) => Err(error.of_batch(!all.is_empty() || left.len() < swaps.len())),
        }
    }

    /// What the clock of the timeline shows, in microseconds since the epoch. It fails as a swap does if the timeline is another one
    /// than the caller heard of: that has another clock.
    pub(in crate::cells) async fn time(&mut self) -> Result<u64, CellsError> {
        let deadline = self.deadline();
        let mut known = self.known(deadline).await?;
        for _ in 0..ROUNDS_MAX {
            if self.told.as_ref().is_some_and(|told| *told != known.timeline) {
                self.told = Some(known.timeline.clone());
                return Err(CellsError::Moved { found: known.timeline.clone() });
            }
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("INFO").arg("replication").cmd("TIME");
            let question = vec![(known.clock.clone(), Question::Look(pipeline))];
            let Some((server, answers)) = self.ask(question, deadline.left()).await.pop() else {
                break;
            };
            let mut answers = answers.map_err(|error| self.stale(error))?;
            let time = answers.pop().unwrap_or(Answer::Strange);
            let id = look::id(answers.pop().unwrap_or(Answer::Strange), &server);
            if id.ok().as_deref() == known.id(&server) {
                return time.micros().map_err(|error| at(error, &server));
            }
            known = self.look(None, deadline).await?;
        }
        Err(self.stale(restless()))
    }

    fn deadline(&self) -> Deadline {
        Deadline(CLOCK.now() + self.shared.config.timeout)
    }

    /// Asks these servers, each once, and remembers which of them did not answer.
    async fn ask(&mut self, questions: Vec<(Address, Question)>, span: Duration) -> Vec<Answered> {
        let answered = self.lines.ask(&self.shared, questions, span).await;
        for (server, answers) in &answered {
            // Of servers that it knows, so that there are no more than those.
            let is_known = self.known.as_ref().is_some_and(|known| known.id(server).is_some());
            match answers {
                Err(CellsError::Unreachable(_)) if is_known => {
                    _ = self.silent.insert(server.clone(), CLOCK.now());
                }
                Ok(_) | Err(_) => _ = self.silent.remove(server),
            }
        }
        answered
    }

    /// After that error what is known may be out of date.
    fn stale(&mut self, error: CellsError) -> CellsError {
        self.is_stale = true;
        error
    }

    /// Whether it did not answer a short while ago.
    fn is_silent(&self, server: &Address) -> bool {
        let since = self.silent.get(server);
        since.is_some_and(|since| CLOCK.now().since(*since) < self.shared.config.timeout)
    }
}

/// Which master has which of these keys.
fn parts(known: &Topology, keys: &BTreeMap<usize, String>) -> Result<Parts, CellsError> {
    let mut parts = Parts::new();
    for (place, key) in keys {
        parts.entry(known.slots.owner(key)?.clone()).or_default().push((*place, false));
    }
    Ok(parts)
}

/// Where `server` says that a key is, if not there.
fn elsewhere(answer: &Answer, server: &Address) -> Result<Option<Elsewhere>, CellsError> {
    let Some((is_asking, named)) = answer.elsewhere() else { return Ok(None) };
    let named = slots::named(named, server).map_err(|error| at(error, server))?;
    // Which other slots went with it, the server says that has it now.
    Ok(Some(if is_asking { Elsewhere::Asked(named) } else { Elsewhere::Moved(named) }))
}

/// A key is on its way to a master that has no slot yet, and so no part in the timeline.
fn no_slot_yet(server: &Address) -> CellsError {
    CellsError::Unreachable(format!("a slot is on its way to {server}, which has none yet"))
}

fn restless() -> CellsError {
    CellsError::Unreachable("the servers of the cluster change all the time".to_owned())
}
