//! The client: where handles come from and the background task is owned.

use crate::limit::Limit;
use crate::local_pool::{Condition, LocalPool, PoolName};
use crate::refiller::Refiller;
use crate::transport::{ExchangeError, Transport};
use arc_swap::ArcSwap;
use lessor_protocol::{Key, LimitName, NodeName, Terms};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Longest that one exchange may take. A lease lasts two seconds at most: an answer that comes later than half of
/// that is hardly worth waiting for.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Leases quota from an allocator and spends it locally.
///
/// Make one per process and keep it: every limit of the process shares its exchanges. Clones are handles to the
/// same client. [`Client::shutdown`] gives everything back; a client that is just dropped stops refilling, and
/// what it held ends with its leases, within two seconds.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    task: Arc<Task>,
}

/// The background task's leash: dropped with the last client, it ends the task.
#[derive(Debug)]
struct Task {
    stop: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
}

/// Options of a [`Client`], from [`Client::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    url: String,
    node: Option<String>,
    terms: Terms,
    timeout: Duration,
    seed: Option<u64>,
}

/// What a client has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Exchanges with the allocator that were tried.
    pub exchanges: u64,
    /// Of those, the ones that failed.
    pub failed_exchanges: u64,
}

impl Client {
    /// A client of the allocator at `url` (`http://host:port`) that has answered once.
    ///
    /// # Errors
    /// If the address is no good, nobody answers there, or no tokio runtime is running. Use [`Builder::build`]
    /// to start without an allocator: calls are refused until there is one.
    pub async fn connect(url: &str) -> Result<Client, ExchangeError> {
        Client::builder(url).connect().await
    }

    /// Options for a client of the allocator at `url`.
    pub fn builder(url: &str) -> Builder {
        Builder {
            url: url.to_owned(),
            node: None,
            terms: Terms::default(),
            timeout: EXCHANGE_TIMEOUT,
            seed: None,
        }
    }

    /// A handle to a limit. The first lease is asked for at once.
    ///
    /// A name that no limit can have gives a handle that refuses everything as [`crate::Refusal::Unavailable`],
    /// as does a limit that the allocator does not know.
    pub fn limit(&self, name: &str) -> Limit {
        self.shared.limit(name, None)
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            exchanges: self.shared.exchanges.load(Ordering::Relaxed),
            failed_exchanges: self.shared.failed_exchanges.load(Ordering::Relaxed),
        }
    }

    /// Refuses every call from now on, reports what was spent and gives back the rest. Waits for the allocator to
    /// hear of it for up to a second.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo it: the goodbye is said in the background.
    pub async fn shutdown(&self) {
        let stop = self.task.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stop) = stop else { return };
        let (done, said) = oneshot::channel();
        if stop.send(done).is_ok() {
            // An error means that the runtime is gone, and the task with it.
            let _ = said.await;
        }
    }
}

impl Builder {
    /// The name that the allocator shows for this process. Default: `node-` and the process id.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        self.node = Some(name.to_owned());
        self
    }

    /// The bound on clock drift, the same as the allocator's.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Longest that one exchange may take. Default: one second.
    #[must_use]
    pub fn exchange_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Seeds every die of this client: its session number and its jitter. For tests that must repeat; two clients
    /// of one seed and node name are one session to the allocator.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client without waiting for an answer.
    ///
    /// # Errors
    /// If the address or the node's name is no good, or no tokio runtime is running.
    pub fn build(self) -> Result<Client, ExchangeError> {
        let (refiller, shared) = self.prepare()?;
        Ok(start(refiller, shared))
    }

    /// Starts the client once the allocator has answered.
    ///
    /// # Errors
    /// As [`Builder::build`], and if there is no good answer.
    pub async fn connect(self) -> Result<Client, ExchangeError> {
        let (mut refiller, shared) = self.prepare()?;
        refiller.greet().await?;
        Ok(start(refiller, shared))
    }

    fn prepare(self) -> Result<(Refiller, Arc<Shared>), ExchangeError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ExchangeError::NoRuntime);
        }
        let node = self.node.unwrap_or_else(|| format!("node-{}", std::process::id()));
        if let Err(error) = NodeName::try_new(&node) {
            let reason = format!("the node's name {error}");
            return Err(ExchangeError::Address { url: self.url, reason });
        }
        let transport = Transport::try_new(&self.url, self.timeout)?;
        let dice = match self.seed {
            Some(seed) => fastrand::Rng::with_seed(seed),
            None => unseeded(),
        };
        let shared = Arc::new(Shared::new());
        Ok((Refiller::new(shared.clone(), transport, node, self.terms, dice), shared))
    }
}

fn start(refiller: Refiller, shared: Arc<Shared>) -> Client {
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(refiller.run(stopped));
    Client { shared, task: Arc::new(Task { stop: Mutex::new(Some(stop)) }) }
}

#[expect(clippy::disallowed_methods, reason = "the one place where a client's dice come from")]
fn unseeded() -> fastrand::Rng {
    fastrand::Rng::new()
}

/// What handles and the background task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wake: Arc<Notify>,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed_exchanges: AtomicU64,
    unreachable: AtomicBool,
    /// The limits without a key: few, never forgotten, and looked up by whoever keeps no handle.
    limits: ArcSwap<HashMap<String, Arc<LocalPool>>>,
    /// All pools. Changes to `limits` are made under this lock too.
    pools: Mutex<Pools>,
}

#[derive(Debug, Default)]
struct Pools {
    by_name: HashMap<PoolName, Arc<LocalPool>>,
    closed: bool,
}

impl Shared {
    fn new() -> Self {
        Shared {
            wake: Arc::new(Notify::new()),
            exchanges: AtomicU64::new(0),
            failed_exchanges: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            limits: ArcSwap::default(),
            pools: Mutex::new(Pools::default()),
        }
    }

    /// The handle to a limit and key, made on first use.
    pub(crate) fn limit(self: &Arc<Self>, limit: &str, key: Option<&str>) -> Limit {
        let known = if key.is_none() { self.limits.load().get(limit).cloned() } else { None };
        let pool = known.unwrap_or_else(|| {
            self.find_or_make(PoolName { limit: limit.to_owned(), key: key.map(str::to_owned) })
        });
        Limit::new(pool, self.clone())
    }

    fn find_or_make(&self, name: PoolName) -> Arc<LocalPool> {
        let mut pools = self.lock();
        if let Some(pool) = pools.by_name.get(&name) {
            return pool.clone();
        }
        let (pool, known) = self.make(name.clone(), pools.closed);
        if known {
            if name.key.is_none() {
                let mut limits = HashMap::clone(&self.limits.load());
                limits.insert(name.limit.clone(), pool.clone());
                self.limits.store(Arc::new(limits));
            }
            pools.by_name.insert(name, pool.clone());
        }
        pool
    }

    /// A pool, and whether the background task is to know it: a name that cannot be is never sent.
    fn make(&self, name: PoolName, closed: bool) -> (Arc<LocalPool>, bool) {
        let wrong = LimitName::try_new(&name.limit).err().or_else(|| Key::try_new(name.key.as_ref()?).err());
        let eager = name.key.is_none() && wrong.is_none();
        let pool = Arc::new(LocalPool::new(name, eager, self.wake.clone()));
        let condition = match &wrong {
            _ if closed => Condition::Closed,
            Some(error) => {
                tracing::error!(%error, "no limit or key can have this name: every call on it is refused");
                Condition::Unknown
            }
            None => Condition::Good,
        };
        pool.set_condition(condition);
        if eager {
            pool.nudge();
        }
        (pool, wrong.is_none() && !closed)
    }

    /// All pools that somebody holds a handle to or something is leased for; the others are forgotten.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = self.lock();
        // Handles are cloned under this lock or from a handle: with one owner left, nobody else can come by one.
        pools.by_name.retain(|name, pool| {
            name.key.is_none() || Arc::strong_count(pool) > 1 || !pool.refill().is_idle()
        });
        pools.by_name.values().cloned().collect()
    }

    /// Notes whether the allocator answers. True if that is news.
    pub(crate) fn reachable(&self, reachable: bool) -> bool {
        self.unreachable.swap(!reachable, Ordering::Relaxed) == reachable
    }

    /// Every call is refused from now on.
    pub(crate) fn close(&self) {
        let mut pools = self.lock();
        pools.closed = true;
        for pool in pools.by_name.values() {
            pool.set_condition(Condition::Closed);
            pool.refill().close(pool.slot());
            pool.call_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        // A map of pools: no panic elsewhere can have left it half changed.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
