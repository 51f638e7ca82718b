//! Cells in one server of Redis or Valkey: each is a string that begins with its version. One script does the swap of
//! one cell, and also checks that the server is still the same master.

mod answer;
mod cluster;
mod line;
mod script;

pub use self::cluster::Cluster;

use self::answer::{Answer, State};
use self::line::Line;
use self::script::SwapArgs;
use super::tls;
use super::url::{Address, RedisPlace};
use super::{CellsConfig, CellsError, Loaded, Swap, Swapped, Timeline, outcome};
use ::redis::Pipeline;
use lessor_tls::Encryptor;
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout;

/// The part that all handles on one store share.
struct Shared {
    place: RedisPlace,
    config: CellsConfig,
    tls: Option<Encryptor>,
}

impl Shared {
    fn new(place: &RedisPlace, config: &CellsConfig) -> Result<Arc<Self>, CellsError> {
        let tls = place.tls.as_ref().map(tls::encryptor).transpose()?;
        Ok(Arc::new(Shared { place: place.clone(), config: config.clone(), tls }))
    }

    /// Returns the key of a cell. Only the part in braces decides about its slot in a cluster: all but the prefix.
    fn key(&self, name: &str) -> String {
        format!("{}:{{{name}}}", self.config.prefix)
    }
}

/// A handle on one server. See [`Cells`](super::Cells).
pub struct Redis {
    shared: Arc<Shared>,
    /// The connection, if it has answered everything that it was asked.
    line: Option<Line>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.shared.config.url)
    }
}

impl Redis {
    pub(super) fn new(place: &RedisPlace, config: &CellsConfig) -> Result<Self, CellsError> {
        Ok(Redis { shared: Shared::new(place, config)?, line: None })
    }

    pub(super) fn another(&self) -> Self {
        Redis { shared: Arc::clone(&self.shared), line: None }
    }

    /// Loads cells. If the timeline is the same before and after, the cells between are on it, because no id comes
    /// back.
    pub(super) async fn load(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        let mut pipeline = Pipeline::with_capacity(names.len() + 2);
        pipeline.cmd("INFO").arg("replication");
        for name in names {
            script::read(&mut pipeline, &self.shared.key(name));
        }
        pipeline.cmd("INFO").arg("replication");
        self.call(async |line| {
            let mut answers = line.ask(&pipeline).await?;
            let last = answers.pop().unwrap_or(Answer::Strange);
            let mut answers = answers.into_iter();
            let timeline = State::of(answers.next().unwrap_or(Answer::Strange))?.master()?;
            if State::of(last)?.master()? != timeline {
                return Err(outcome::became_another());
            }
            let found = names.iter().zip(answers).map(|(name, answer)| script::cell(name, answer));
            Ok((timeline, found.collect::<Result<_, _>>()?))
        })
        .await
    }

    pub(super) async fn swap(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
    ) -> Result<Vec<Swapped>, CellsError> {
        let told = swaps.iter().map(|swap| SwapArgs::new(&self.shared, timeline.as_str(), swap, false));
        let told: Vec<SwapArgs> = told.collect();
        let shared = Arc::clone(&self.shared);
        self.call(async |line| {
            let answers = line.swap(&told).await?;
            let outcomes =
                swaps.iter().zip(answers).map(|(swap, answer)| script::swapped(&swap.name, answer));
            let swapped = outcome::of_batch(outcomes)?;
            if swapped.contains(&Swapped::Done) {
                line.wait(&shared.config).await?;
            }
            Ok(swapped)
        })
        .await
    }

    /// Returns the time of its clock, in microseconds since the epoch.
    pub(super) async fn time(&mut self) -> Result<u64, CellsError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.cmd("TIME");
        self.call(async |line| line.ask(&pipeline).await?.pop().unwrap_or(Answer::Strange).micros()).await
    }

    /// Calls `what` with a connection, within the time-out. After a failure, a time-out, or a dropped future, the
    /// connection is dropped with any answer that it may still give.
    async fn call<T>(
        &mut self,
        what: impl AsyncFnOnce(&mut Line) -> Result<T, CellsError>,
    ) -> Result<T, CellsError> {
        // A connection that was closed while unused is no error: nothing was asked over it.
        let line = self.line.take().filter(|line| !line.is_over());
        let shared = &self.shared;
        let (line, answer) = timeout(shared.config.timeout, async {
            let mut line = match line {
                Some(line) => line,
                None => {
                    let server = shared.place.first();
                    Line::connect(shared, server).await.map_err(|error| at(error, server))?
                }
            };
            let answer = what(&mut line).await;
            Ok::<_, CellsError>((line, answer))
        })
        .await
        .map_err(|_| shared.config.no_answer())??;
        if let Ok(_) | Err(CellsError::Moved { .. } | CellsError::NotDurable(_)) = &answer {
            self.line = Some(line);
        }
        answer
    }
}

/// Adds the server to `error`.
fn at(error: CellsError, server: &Address) -> CellsError {
    match error {
        CellsError::Unreachable(why) => CellsError::Unreachable(format!("{server}: {why}")),
        CellsError::NotDurable(why) => CellsError::NotDurable(format!("{server}: {why}")),
        // The text begins with the setting.
        CellsError::Unfit(why) => CellsError::Unfit(format!("{why} ({server})")),
        CellsError::Moved { .. } | CellsError::Invalid(_) => error,
    }
}
