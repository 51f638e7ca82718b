//! Cells in a cluster, each on the master that has the slot of its key. A batch goes to all masters that it concerns at
//! once.
//!
//! A swap names the known replication id of its master, and the script does nothing on another one. So the first call
//! that touches a restarted or replaced master, which may have lost data, notices that. A call that only touches other
//! masters is still done on the old timeline, and loses nothing there. `docs/design/shared-roots.md` says what
//! allocators do about that.

mod lines;
mod look;
mod slots;
mod topology;

use self::lines::{Answered, Lines, Question};
use self::topology::Topology;
use super::answer::Answer;
use super::script::{self, SwapArgs};
use super::{Shared, at};
use crate::cells::url::{Address, RedisPlace};
use crate::cells::{Cell, CellsConfig, CellsError, Loaded, Swap, Swapped, Timeline, outcome};
use lessor_protocol::{CLOCK, Moment};
use redis::Pipeline;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often one call follows moved keys, or looks again at changed masters.
const ROUNDS_MAX: usize = 6;

/// The end of a call's time.
#[derive(Clone, Copy)]
struct Deadline(Moment);

impl Deadline {
    fn left(self) -> Duration {
        self.0.since(CLOCK.now())
    }
}

/// A handle on a cluster. See [`Cells`](crate::cells::Cells).
pub struct Cluster {
    shared: Arc<Shared>,
    lines: Lines,
    known: Option<Arc<Topology>>,
    /// The timeline that the caller was told last. The time of another timeline is not told before that timeline was.
    told: Option<Timeline>,
    /// Whether the known topology may be out of date.
    is_stale: bool,
    /// Servers that did not answer, with the moment of that. For a while they are asked last, or not at all.
    silent: BTreeMap<Address, Moment>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.shared.config.url)
    }
}

/// Cells of a batch by the server to ask, as indices. The flag says whether the key is migrating to that server.
type Parts = BTreeMap<Address, Vec<(usize, bool)>>;

/// A key that is not where it was looked for.
enum Elsewhere {
    /// Its slot has moved to this server.
    Moved(Address),
    /// It is migrating to this server.
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

    /// Loads cells; the last one is read last. All masters are asked for their ids first, so that the timeline is the
    /// present one: two allocators that load at the same time see the same timeline.
    pub(in crate::cells) async fn load(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
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

    /// Reads the cells at these indices, between two readings of each server's id. If a key has moved or an id is
    /// another one, returns the server to ask about that.
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

    /// Does all swaps, wherever their keys move meanwhile.
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
                        // `ASK` can only be trusted if this master still has its known id: look again.
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

    /// Sends the swaps in `left` to their masters, or for those in `asked` to the server that their key migrates to.
    /// Returns all answers.
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
            let told = part
                .iter()
                .map(|(place, is_asking)| SwapArgs::new(&self.shared, id, &swaps[*place], *is_asking));
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
                    // The error that says least stands for the batch.
                    let is_worse = worst.is_none() || matches!(error, CellsError::Unreachable(_));
                    worst = if is_worse { Some(error) } else { worst };
                }
            }
        }
        match worst {
            None => Ok(all),
            // Swaps on other servers may have been done meanwhile.
            Some(error) => Err(error.of_batch(!all.is_empty() || left.len() < swaps.len())),
        }
    }

    /// Returns the time of the timeline's clock, in microseconds since the epoch. If the timeline is not the one that
    /// the caller was told last, it fails as a swap does: another timeline has another clock.
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

    /// Asks these servers, each once, and records which of them did not answer.
    async fn ask(&mut self, questions: Vec<(Address, Question)>, span: Duration) -> Vec<Answered> {
        let answered = self.lines.ask(&self.shared, questions, span).await;
        for (server, answers) in &answered {
            // Only for known servers, so that the map stays bounded.
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

    /// Records that the known topology may be out of date after `error`.
    fn stale(&mut self, error: CellsError) -> CellsError {
        self.is_stale = true;
        error
    }

    /// Whether the server failed to answer a short while ago.
    fn is_silent(&self, server: &Address) -> bool {
        let since = self.silent.get(server);
        since.is_some_and(|since| CLOCK.now().since(*since) < self.shared.config.timeout)
    }
}

/// Groups keys by their masters.
fn parts(known: &Topology, keys: &BTreeMap<usize, String>) -> Result<Parts, CellsError> {
    let mut parts = Parts::new();
    for (place, key) in keys {
        parts.entry(known.slots.owner(key)?.clone()).or_default().push((*place, false));
    }
    Ok(parts)
}

/// Returns where `server` says that a key is, if it does not have it.
fn elsewhere(answer: &Answer, server: &Address) -> Result<Option<Elsewhere>, CellsError> {
    let Some((is_asking, named)) = answer.elsewhere() else { return Ok(None) };
    let named = slots::named(named, server).map_err(|error| at(error, server))?;
    // The new server also tells about other slots that moved with it.
    Ok(Some(if is_asking { Elsewhere::Asked(named) } else { Elsewhere::Moved(named) }))
}

/// A key migrates to a master that has no slot yet, and so no part in the timeline.
fn no_slot_yet(server: &Address) -> CellsError {
    CellsError::Unreachable(format!("a slot migrates to {server}, which owns none yet"))
}

fn restless() -> CellsError {
    CellsError::Unreachable("the servers of the cluster keep changing".to_owned())
}
