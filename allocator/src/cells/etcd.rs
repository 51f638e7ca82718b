//! Cells in etcd, over its JSON gateway: each is a key whose value begins with the version. A batch is one transaction,
//! which also checks that the store is still on the same timeline.

mod endpoints;
mod gateway;
mod line;
mod seen;
mod txn;

use self::gateway::{KeyValue, NestedAnswer, TXN, Txn, TxnAnswer};
use self::line::{Broken, Line};
use self::seen::Seen;
use self::txn::{Keys, LOAD_MAX};
use super::outcome::{self, became_another};
use super::url::EtcdPlace;
use super::{CellsConfig, CellsError, Loaded, Password, Swap, Swapped, Timeline, VALUE_MAX, tls};
use axum::body::Bytes;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_tls::Encryptor;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

/// Attempts to read the mark of the timeline, which is made if there is none. Each time an operator may delete it.
const MARKS_MAX: usize = 3;

/// Largest answer, in bytes: its head, and each cell. A value may have the size that a server accepts by default, 1.5
/// MiB, so that a value that is no cell is reported by name.
const ANSWER_MAX: usize = 64 << 10;
const CELL_ANSWER_MAX: usize = VALUE_MAX * 9 / 4;

/// The part that all handles on one etcd share.
struct Shared {
    place: EtcdPlace,
    config: CellsConfig,
    tls: Option<Encryptor>,
    keys: Keys,
    /// Whether the members that the URL names were found to be of one cluster.
    are_one: AtomicBool,
    seen: Mutex<Seen>,
}

impl Shared {
    fn password(&self) -> Option<&Password> {
        self.place.password.as_ref().or(self.config.password.as_ref())
    }

    fn seen<T>(&self, what: impl FnOnce(&mut Seen) -> T) -> T {
        what(&mut self.seen.lock_anyway())
    }
}

/// See [`Cells`](super::Cells).
pub struct Etcd {
    shared: Arc<Shared>,
    /// The connection, if it has answered everything that it was asked.
    line: Option<Line>,
    /// The host that is tried first on connecting: the last one that answered, or the one after the last that did not.
    endpoint: usize,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.shared.config.url)
    }
}

impl Etcd {
    pub(super) fn new(place: &EtcdPlace, config: &CellsConfig) -> Result<Self, CellsError> {
        if config.replicas > 0 {
            let asked = config.replicas;
            return Err(CellsError::Unfit(format!(
                "store.replicas is {asked}: etcd always writes a change to a majority, leave it out"
            )));
        }
        let shared = Shared {
            place: place.clone(),
            config: config.clone(),
            tls: place.tls.as_ref().map(tls::encryptor).transpose()?,
            keys: Keys::new(&config.prefix),
            are_one: AtomicBool::new(false),
            seen: Mutex::default(),
        };
        Ok(Etcd { shared: Arc::new(shared), line: None, endpoint: 0 })
    }

    pub(super) fn another(&self) -> Self {
        Etcd { shared: Arc::clone(&self.shared), line: None, endpoint: self.endpoint }
    }

    /// Loads cells. The cells of one transaction are of one instant. Of several transactions, the last cell is read
    /// last.
    pub(super) async fn load(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        let (patience, late) = (self.shared.config.timeout, self.shared.config.no_answer());
        timeout(patience, self.load_all(names)).await.map_err(|_| late)?
    }

    pub(super) async fn swap(
        &mut self,
        timeline: &Timeline,
        swaps: &[Swap],
    ) -> Result<Vec<Swapped>, CellsError> {
        let (patience, late) = (self.shared.config.timeout, self.shared.config.no_answer());
        timeout(patience, self.swap_all(timeline, swaps)).await.map_err(|_| late)?
    }

    async fn load_all(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        self.begin_anew().await?;
        let (first, rest) = names.split_at(names.len().min(LOAD_MAX));
        let (timeline, mut cells) = self.load_part(first).await?;
        for part in rest.chunks(LOAD_MAX) {
            let (on, more) = self.load_part(part).await?;
            if on != timeline {
                return Err(became_another());
            }
            cells.extend(more);
        }
        Ok((timeline, cells))
    }

    /// Loads cells in one transaction. Makes the mark of the timeline if there is none.
    async fn load_part(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        let txn = self.shared.keys.load(names);
        for _ in 0..MARKS_MAX {
            let before = self.shared.seen(|seen| seen.known());
            let answer = self.exchange(&txn, names.len()).await?;
            let mut answers = answer.responses.into_iter();
            let Some(mark) = txn::range(answers.next())? else {
                self.exchange(&self.shared.keys.make_mark(&seen::draw_mark()), 0).await?;
                continue;
            };
            let timeline = self.timeline_of(answer.header.cluster_id, mark)?;
            self.shared.seen(|seen| seen.saw(before, &timeline, answer.header.revision))?;
            if answers.len() != names.len() {
                return Err(txn::strange());
            }
            let cells = names.iter().zip(answers);
            let cells = cells.map(|(name, answer)| txn::cell(name, txn::range(Some(answer))?));
            return Ok((timeline, cells.collect::<Result<_, _>>()?));
        }
        Err(became_another())
    }

    async fn swap_all(&mut self, timeline: &Timeline, swaps: &[Swap]) -> Result<Vec<Swapped>, CellsError> {
        self.begin_anew().await?;
        let line = self.connected().await?;
        let cluster = line.cluster;
        self.line = Some(line);
        let Some(mark) = seen::mark_of(timeline, cluster) else { return Err(self.moved(timeline).await) };
        let (shared, mut outcomes) = (Arc::clone(&self.shared), Vec::with_capacity(swaps.len()));
        for part in shared.keys.parts(swaps) {
            let answers = match self.swap_part(timeline, cluster, mark, part).await {
                Ok(answers) => answers,
                Err(error) => {
                    outcomes.push(Err(error));
                    break;
                }
            };
            let each = part.iter().zip(answers);
            outcomes.extend(each.map(|(swap, answer)| txn::swapped(&swap.name, answer)));
        }
        outcome::of_batch(outcomes.into_iter())
    }

    /// Does swaps in one transaction, and returns the answer to each.
    async fn swap_part(
        &mut self,
        timeline: &Timeline,
        cluster: u64,
        mark: &str,
        swaps: &[Swap],
    ) -> Result<Vec<NestedAnswer>, CellsError> {
        let before = self.shared.seen(|seen| seen.known());
        let answer = self.exchange(&self.shared.keys.swap(mark, swaps), swaps.len()).await?;
        if !answer.succeeded {
            return Err(match txn::range(answer.responses.into_iter().next())? {
                Some(mark) => CellsError::Moved { found: self.timeline_of(answer.header.cluster_id, mark)? },
                None => self.moved(timeline).await,
            });
        }
        // A copy of the store has the same mark.
        if answer.header.cluster_id != cluster {
            return Err(became_another());
        }
        self.shared.seen(|seen| seen.saw(before, timeline, answer.header.revision))?;
        txn::of_swaps(answer.responses, swaps.len())
    }

    /// Returns an error with the timeline that the store is on, which is not `timeline`.
    async fn moved(&mut self, timeline: &Timeline) -> CellsError {
        match self.load_all(&[]).await {
            Ok((found, _)) if found != *timeline => CellsError::Moved { found },
            Ok(_) => became_another(),
            Err(error) => error,
        }
    }

    /// Replaces the mark of a store that has lost something. From then on no swap of the old timeline is done.
    async fn begin_anew(&mut self) -> Result<(), CellsError> {
        let Some(lost) = self.shared.seen(|seen| seen.lost()) else { return Ok(()) };
        let line = self.connected().await?;
        let cluster = line.cluster;
        self.line = Some(line);
        // Another cluster may have taken the place of that one, which is another timeline anyway.
        if let Some(mark) = seen::mark_of(&lost, cluster) {
            let txn = self.shared.keys.renew_mark(mark, &seen::draw_mark());
            self.exchange(&txn, 0).await?;
            self.shared.seen(|seen| seen.began_anew(&lost));
        }
        Ok(())
    }

    fn timeline_of(&self, cluster: u64, mark: KeyValue) -> Result<Timeline, CellsError> {
        seen::timeline(cluster, &mark.value.0).ok_or_else(|| {
            CellsError::Invalid(format!(
                "the value at {:?} is no mark of a timeline",
                self.shared.keys.prefix
            ))
        })
    }

    /// Sends a transaction that reads at most `cells` cells, and returns the answer. It is sent again only if certainly
    /// nothing was done.
    async fn exchange(&mut self, txn: &Txn, cells: usize) -> Result<TxnAnswer, CellsError> {
        let body = serde_json::to_vec(txn).map_err(|error| CellsError::Invalid(error.to_string()))?;
        let (body, limit) = (Bytes::from(body), ANSWER_MAX + cells * CELL_ANSWER_MAX);
        let mut is_old = self.line.is_some();
        loop {
            let mut line = self.connected().await?;
            // If this member does not answer, another one is asked next.
            self.endpoint = line.endpoint + 1;
            match line.ask(&self.shared, TXN, body.clone(), limit).await {
                Err(Broken::NotSent(_)) if is_old => {
                    self.endpoint = line.endpoint;
                    is_old = false;
                }
                Err(broken) => {
                    let server = &self.shared.place.hosts[line.endpoint];
                    let is_refused = matches!(broken, Broken::Refused(_));
                    let error = line::at(broken.into(), server);
                    if is_refused {
                        self.keep(line);
                    }
                    return Err(error);
                }
                Ok(answer) => {
                    self.keep(line);
                    return line::parsed(&answer);
                }
            }
        }
    }

    fn keep(&mut self, line: Line) {
        self.endpoint = line.endpoint;
        self.line = Some(line);
    }

    /// Returns the present connection, or a new one. A connection that was closed while unused is no error: nothing was
    /// asked over it.
    async fn connected(&mut self) -> Result<Line, CellsError> {
        match self.line.take().filter(|line| !line.is_over()) {
            Some(line) => Ok(line),
            None => endpoints::connect(&self.shared, &mut self.endpoint).await,
        }
    }
}
