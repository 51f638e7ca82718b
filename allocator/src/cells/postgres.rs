//! Cells in a table of PostgreSQL. A whole batch is one statement, which also checks that the server is still on the
//! same timeline and keeps what it commits.

mod line;
mod migrate;
mod sql;

use self::line::Line;
use self::sql::Statements;
use super::tls::MakeTls;
use super::url::PostgresPlace;
use super::{CellsConfig, CellsError, Loaded, Swap, Swapped, Timeline, tls};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

/// Retries of a statement that the server rolled back because of a conflict.
const UNDONE_MAX: usize = 3;

/// Time-out of a migration: making a table waits for transactions that read it. No call on a hot path waits for that.
const MIGRATE_TIMEOUT: Duration = Duration::from_secs(30);

/// The part that all handles on one database share.
struct Shared {
    place: PostgresPlace,
    config: CellsConfig,
    tls: Option<MakeTls>,
    statements: Statements,
}

/// See [`Cells`](super::Cells).
pub struct Postgres {
    shared: Arc<Shared>,
    /// The connection, if it has answered everything that it was asked.
    line: Option<Line>,
    /// The host that is tried first on connecting: the last one that answered, or the one after the last that did not.
    host: usize,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.shared.config.url)
    }
}

impl Postgres {
    pub(super) fn new(place: &PostgresPlace, config: &CellsConfig) -> Result<Self, CellsError> {
        let tls = place.tls.as_ref().map(tls::encryptor).transpose()?.map(MakeTls);
        let statements = Statements::new(&config.prefix);
        let shared = Shared { place: place.clone(), config: config.clone(), tls, statements };
        Ok(Postgres { shared: Arc::new(shared), line: None, host: 0 })
    }

    pub(super) fn another(&self) -> Self {
        Postgres { shared: Arc::clone(&self.shared), line: None, host: self.host }
    }

    pub(super) async fn load(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        self.call(async |line, shared| load(line, shared, names).await).await
    }

    pub(super) async fn swap(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
    ) -> Result<Vec<Swapped>, CellsError> {
        self.call(async |line, shared| {
            let mut undone = 0;
            loop {
                match swap(line, shared, timeline, swaps).await {
                    Err(Broken::Undone(_)) if undone < UNDONE_MAX => undone += 1,
                    outcome => return outcome,
                }
            }
        })
        .await
    }

    /// Returns the time of its clock, in microseconds since the epoch. A standby has another clock, and is unfit.
    pub(super) async fn time(&mut self) -> Result<u64, CellsError> {
        self.call(async |line, _| {
            let row = line.client().query_one(sql::TIME, &[]).await?;
            if row.try_get("is_standby")? {
                return Err(CellsError::Unfit(sql::STANDBY.to_owned()).into());
            }
            let micros: i64 = row.try_get("micros")?;
            Ok(u64::try_from(micros).unwrap_or(0))
        })
        .await
    }

    pub(super) async fn migrate(&mut self) -> Result<Vec<String>, CellsError> {
        let late = |_| CellsError::Unreachable(format!("not done within {MIGRATE_TIMEOUT:?}"));
        timeout(MIGRATE_TIMEOUT, migrate::migrate(&self.shared)).await.map_err(late)?
    }

    /// Calls `what` with a connection, within the time-out. After a failure, a time-out, or a dropped future, the
    /// connection is dropped with any answer that it may still give.
    async fn call<T>(
        &mut self,
        what: impl AsyncFnOnce(&mut Line, &Shared) -> Result<T, Broken>,
    ) -> Result<T, CellsError> {
        // A connection that was closed while unused is no error: nothing was asked over it.
        let line = self.line.take().filter(|line| !line.is_over());
        let (shared, host) = (&self.shared, &mut self.host);
        let (line, answer) = timeout(shared.config.timeout, async {
            let mut line = match line {
                Some(line) => line,
                None => Line::connect(shared, host).await?,
            };
            // If this server does not answer or is not fit, another one is asked next.
            *host = line.host + 1;
            let answer = what(&mut line, shared).await.map_err(CellsError::from);
            if !matches!(answer, Err(CellsError::Unfit(_))) {
                *host = line.host;
            }
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

/// Why a statement was not done, or may not have been.
enum Broken {
    /// The server rolled it back because of a conflict.
    Undone(CellsError),
    /// Another reason.
    Error(CellsError),
}

impl From<CellsError> for Broken {
    fn from(error: CellsError) -> Self {
        Broken::Error(error)
    }
}

impl From<Broken> for CellsError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Undone(error) | Broken::Error(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for Broken {
    fn from(error: tokio_postgres::Error) -> Self {
        let undone = [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE];
        let is_undone = error.code().is_some_and(|code| undone.contains(&code));
        let error = line::failed(&error);
        if is_undone { Broken::Undone(error) } else { Broken::Error(error) }
    }
}

async fn load(line: &Line, shared: &Shared, names: &[String]) -> Result<Loaded, Broken> {
    let replicas = i64::from(shared.config.replicas);
    let rows = line.client().query(line.load(), &[&names, &replicas]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    let mut here = None;
    for row in &rows {
        if here.is_none() {
            here = Some(sql::here(row)?);
        }
        if let Some(name) = row.try_get::<_, Option<&str>>("name")? {
            found.insert(name, sql::cell(row, name)?);
        }
    }
    let Some(timeline) = here else {
        return Err(CellsError::Unreachable("an unexpected answer: no row".to_owned()).into());
    };
    Ok((timeline, names.iter().map(|name| found.get(name.as_str()).cloned()).collect()))
}

async fn swap(
    line: &Line,
    shared: &Shared,
    timeline: &Timeline,
    swaps: &[Swap],
) -> Result<Vec<Swapped>, Broken> {
    let names: Vec<&str> = swaps.iter().map(|swap| swap.name.as_str()).collect();
    let signed = |version: u64| version.cast_signed();
    let expected: Vec<Option<i64>> = swaps.iter().map(|swap| swap.expected.map(signed)).collect();
    let next = || swaps.iter().map(|swap| swap.next.as_ref());
    let versions: Vec<Option<i64>> = next().map(|next| Some(signed(next?.version))).collect();
    let values: Vec<Option<&[u8]>> = next().map(|next| Some(next?.value.as_slice())).collect();
    let replicas = i64::from(shared.config.replicas);
    line.forget_warnings();
    let rows = line
        .client()
        .query(line.swap(), &[&names, &replicas, &timeline.as_str(), &expected, &versions, &values])
        .await?;
    let mut outcomes: HashMap<&str, Swapped> = HashMap::with_capacity(swaps.len());
    let mut broken = None;
    for row in &rows {
        match row.try_get::<_, i32>("outcome")? {
            sql::HERE => {
                let found = sql::here(row)?;
                if found != *timeline {
                    return Err(CellsError::Moved { found }.into());
                }
            }
            sql::OTHER => {
                let name = row.try_get("name")?;
                match sql::cell(row, name) {
                    Ok(cell) => _ = outcomes.insert(name, Swapped::Other(Some(cell))),
                    Err(error) => broken = broken.or(Some(error)),
                }
            }
            _ => _ = outcomes.insert(row.try_get("name")?, Swapped::Done),
        }
    }
    if let Some(error) = broken {
        return Err(error.of_batch(outcomes.values().any(|outcome| *outcome == Swapped::Done)).into());
    }
    if let Some(warning) = line.warning() {
        return Err(CellsError::NotDurable(warning).into());
    }
    // The statement does not see a cell that another connection made after it began.
    let is_unseen = |swap: &&Swap| {
        swap.expected.is_none() && swap.next.is_some() && !outcomes.contains_key(swap.name.as_str())
    };
    let unseen: Vec<&Swap> = swaps.iter().filter(is_unseen).collect();
    if !unseen.is_empty() {
        let names: Vec<String> = unseen.iter().map(|swap| swap.name.clone()).collect();
        let (found, cells) = load(line, shared, &names).await?;
        if found != *timeline {
            return Err(CellsError::Moved { found }.into());
        }
        let others = cells.into_iter().map(Swapped::Other);
        outcomes.extend(unseen.iter().map(|swap| swap.name.as_str()).zip(others));
    }
    let of = |swap: &Swap| match outcomes.remove(swap.name.as_str()) {
        Some(outcome) => outcome,
        None if swap.expected.is_none() => Swapped::Done,
        None => Swapped::Other(None),
    };
    Ok(swaps.iter().map(of).collect())
}
