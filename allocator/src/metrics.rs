//! Metrics for Prometheus. Exchanges are counted as they happen; all figures of limits are read from the books at each
//! scrape. Each server has its own recorder: nothing here is global. Only names from the configuration and from fixed
//! lists become labels.

mod limit;
mod roots;
mod store;
mod upstream;

use crate::config::{Config, LimitConfig, Upstream};
use lessor_ledger::registry::Registry;
use lessor_ledger::registry::limit::Figures;
use lessor_ledger::rejection::Reason;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{Moment, wire};
use limit::{LimitMetrics, Totals};
pub(crate) use limit::{PLACES, Ranks};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
pub(crate) use roots::RootMetrics;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::StoreMetrics;
pub(crate) use upstream::{Stands, UpstreamMetrics};

/// How often samples of histograms are folded into their buckets; until then each takes memory of its own.
pub(crate) const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Buckets in seconds, from a loopback exchange of one ask to more than any node should wait.
const SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];

/// Buckets up to the most asks of one exchange.
const ASKS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, wire::ASKS_MAX as f64];

/// Outcomes of a request: success, or the code of a problem.
const OUTCOMES: [&str; 14] = [
    "ok",
    "malformed",
    "invalid",
    "not_found",
    "too_large",
    "timeout",
    "unsupported_media_type",
    "store_failing",
    "upstream_failing",
    "unauthenticated",
    "forbidden",
    "session_of_another",
    "bodies_full",
    "too_many_exchanges",
];

/// Reasons to refuse a request because of its sender.
const REFUSED: [&str; 3] = ["unauthenticated", "forbidden", "too_many_exchanges"];

/// Most limits with series of their own, besides those of the file at the start. Each limit has 39 series, which are 2
/// to 7 kB of a scrape, depending on the length of its name. All others are added up as one limit, [`OTHERS`].
const NAMED_MAX: usize = 200;

/// The sum of other limits. No limit can have this name.
const OTHERS: &str = "(others)";

/// The metrics of one server.
pub(crate) struct Metrics {
    /// For series of limits that come later.
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    exchanges: Outcomes,
    leaves: Outcomes,
    refused: Outcomes,
    exchange_seconds: Histogram,
    exchange_asks: Histogram,
    connections: Gauge,
    connections_refused: Counter,
    resident: Gauge,
    is_short: Gauge,
    epoch: Gauge,
    ready: Gauge,
    clock_offset: Gauge,
    sessions: Gauge,
    wrong: BTreeMap<Reason, Counter>,
    listeners: Gauge,
    events: Counter,
    reloads: [Counter; 2],
    file_fails: Gauge,
    store: StoreMetrics,
    roots: RootMetrics,
    limits: Mutex<Limits>,
    /// Most limits with series of their own, not counting [`OTHERS`].
    named_max: usize,
    upstreams: Mutex<BTreeMap<String, Arc<Mutex<Stands>>>>,
}

/// The metrics of limits. No panic elsewhere can leave these maps half changed.
#[derive(Default)]
struct Limits {
    /// By name; a removed limit shows zeros.
    named: BTreeMap<String, LimitMetrics>,
    /// The epoch of the registry that was last published. Another one counts from zero, as after a panic.
    epoch: Option<u64>,
    /// The totals that were last published of each limit that there is, or that was removed and still counts. A later
    /// limit of the same name counts from zero.
    published: BTreeMap<String, Totals>,
    /// The same of rejected asks.
    wrong: BTreeMap<Reason, u64>,
}

/// What the books say at a scrape. It is taken from the registry as a whole, and published without it.
#[derive(Debug)]
pub(crate) struct Scraped {
    /// Whether every limit lends, as far as the books know.
    is_ready: bool,
    epoch: u64,
    sessions: usize,
    wrong: BTreeMap<Reason, u64>,
    limits: Vec<(Arc<LimitConfig>, Figures)>,
    /// The names of removed limits that still count.
    retired: BTreeSet<String>,
}

impl Scraped {
    /// Reads the books.
    pub(crate) fn of(registry: &mut Registry, now: Moment) -> Self {
        Scraped {
            is_ready: !registry.is_stopping() && registry.quarantined(now).is_empty(),
            epoch: registry.epoch(),
            sessions: registry.sessions(),
            wrong: registry.wrong().clone(),
            limits: registry.snapshots(now),
            retired: registry.retired_names().map(str::to_owned).collect(),
        }
    }

    /// The limits in force, by name, with their figures.
    pub(crate) fn limits(&self) -> &[(Arc<LimitConfig>, Figures)] {
        &self.limits
    }
}

/// Requests of one kind, by outcome.
pub(crate) struct Outcomes(BTreeMap<&'static str, Counter>);

impl Metrics {
    /// Registers all metrics, at zero, for a server that begins at `now`.
    pub(crate) fn new(config: &Config, now: Moment) -> Self {
        let recorder = recorder().expect("the buckets are not empty");
        let recorder = Arc::new(recorder);
        metrics::with_local_recorder(&*recorder, || Self::registered(recorder.clone(), config, now))
    }

    fn registered(recorder: Arc<PrometheusRecorder>, config: &Config, now: Moment) -> Self {
        describe();
        gauge!("lessor_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        gauge!("lessor_start_time_seconds").set(now.as_nanos() as f64 / 1e9);
        let limits = config.limits.iter().map(|limit| limit.name.to_string());
        for upstream in config.limits.iter().filter_map(|limit| limit.upstream.as_ref()) {
            // The task that leases from there uses the same metrics.
            UpstreamMetrics::new(upstream);
        }
        let wrong = Reason::ALL.into_iter();
        let reloads =
            ["ok", "refused"].map(|result| counter!("lessor_config_reloads_total", "result" => result));
        Metrics {
            handle: recorder.handle(),
            recorder: recorder.clone(),
            exchanges: Outcomes::new("lessor_exchanges_total"),
            leaves: Outcomes::new("lessor_leaves_total"),
            refused: Outcomes(
                REFUSED.map(|reason| (reason, counter!("lessor_refused_total", "reason" => reason))).into(),
            ),
            exchange_seconds: histogram!("lessor_exchange_seconds"),
            exchange_asks: histogram!("lessor_exchange_asks"),
            connections: gauge!("lessor_connections"),
            connections_refused: counter!("lessor_connections_refused_total"),
            resident: gauge!("lessor_resident_bytes"),
            is_short: gauge!("lessor_memory_short"),
            epoch: gauge!("lessor_epoch"),
            ready: gauge!("lessor_ready"),
            clock_offset: gauge!("lessor_clock_offset_seconds"),
            sessions: gauge!("lessor_sessions"),
            wrong: wrong
                .map(|reason| (reason, counter!("lessor_asks_wrong_total", "reason" => reason.code())))
                .collect(),
            listeners: gauge!("lessor_event_listeners"),
            events: counter!("lessor_events_total"),
            reloads,
            file_fails: gauge!("lessor_config_failing"),
            store: StoreMetrics::new(),
            roots: RootMetrics::new(),
            upstreams: Mutex::default(),
            named_max: config.limits.len() + NAMED_MAX,
            limits: Mutex::new(Limits {
                named: limits.map(|name| (name.clone(), LimitMetrics::new(name))).collect(),
                ..Limits::default()
            }),
        }
    }

    /// Registers the metrics of `upstream`.
    pub(crate) fn upstream(&self, upstream: &Upstream) -> UpstreamMetrics {
        let made = metrics::with_local_recorder(&*self.recorder, || UpstreamMetrics::new(upstream));
        self.upstreams.lock_anyway().insert(upstream.as_str().to_owned(), made.stands());
        made
    }

    /// Returns the state of each upstream, present or past.
    pub(crate) fn upstreams_stand(&self) -> Vec<(String, Stands)> {
        let read = |stands: &Mutex<Stands>| *stands.lock_anyway();
        self.upstreams.lock_anyway().iter().map(|(name, stands)| (name.clone(), read(stands))).collect()
    }

    /// Metrics of roots in a shared store.
    pub(crate) fn roots(&self) -> &RootMetrics {
        &self.roots
    }

    /// Exchanges, by outcome.
    pub(crate) fn exchanges(&self) -> &Outcomes {
        &self.exchanges
    }

    /// Goodbyes, by outcome.
    pub(crate) fn leaves(&self) -> &Outcomes {
        &self.leaves
    }

    /// Counts a request that was refused because of its sender: it proved no identity, had no right, or asked too
    /// often.
    pub(crate) fn refused(&self, why: &'static str) {
        self.refused.count(why);
    }

    /// Records an exchange of `asks`, answered within `span` from its last byte in to its first byte out.
    pub(crate) fn answered(&self, asks: usize, span: Duration) {
        self.exchange_asks.record(asks as f64);
        self.exchange_seconds.record(span);
    }

    /// Sets the number of open connections.
    pub(crate) fn connections(&self, open: usize) {
        self.connections.set(open as f64);
    }

    /// Sets the memory of the process in bytes, and whether it `is_short` so that no new key is accepted.
    pub(crate) fn memory(&self, bytes: u64, is_short: bool) {
        self.resident.set(bytes as f64);
        self.is_short.set(f64::from(u8::from(is_short)));
    }

    /// Sets how far the `wall` clock is ahead of the allocator's clock, which shows `own`.
    pub(crate) fn clocks(&self, wall: Moment, own: Moment) {
        self.clock_offset.set((wall.as_nanos() as f64 - own.as_nanos() as f64) / 1e9);
    }

    /// Counts a connection that was closed at once, because its address had too many.
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.increment(1);
    }

    /// Publishes what the books said, whether `store_fails`, and whether an upstream lends, if there are only upstreams. A
    /// store that hangs reports nothing, so each scrape asks.
    pub(crate) fn publish(&self, scraped: Scraped, store_fails: bool, upstream_lends: bool) {
        let is_ready = scraped.is_ready && !store_fails && upstream_lends;
        self.ready.set(f64::from(u8::from(is_ready)));
        self.store.fails(store_fails);
        self.epoch.set(scraped.epoch as f64);
        self.sessions.set(scraped.sessions as f64);
        let mut limits = self.limits.lock_anyway();
        let Limits { named, epoch, published, wrong } = &mut *limits;
        if epoch.replace(scraped.epoch) != Some(scraped.epoch) {
            published.clear();
            wrong.clear();
        }
        for (reason, count) in &scraped.wrong {
            let last = wrong.get(reason).copied().unwrap_or(0);
            self.wrong[reason].increment(count.saturating_sub(last));
        }
        *wrong = scraped.wrong;
        let mut went: BTreeSet<String> = named.keys().cloned().collect();
        let made =
            |name: &str| metrics::with_local_recorder(&*self.recorder, || LimitMetrics::new(name.to_owned()));
        let (mut others, mut counts): (Option<(Figures, Totals)>, _) = (None, scraped.retired);
        for (config, figures) in &scraped.limits {
            let name = config.name.to_string();
            counts.insert(name.clone());
            went.remove(&name);
            let totals = Totals::of(figures);
            let rose = totals.since(published.entry(name.clone()).or_default());
            published.insert(name.clone(), totals);
            let have_names = named.len() - usize::from(named.contains_key(OTHERS));
            if have_names >= self.named_max && !named.contains_key(&name) {
                others = Some(match others {
                    None => (*figures, rose),
                    Some((sums, mut totals)) => {
                        totals.add(&rose);
                        (sums.and(figures), totals)
                    }
                });
                continue;
            }
            named.entry(name).or_insert_with_key(|name| made(name)).publish(figures, &rose);
        }
        published.retain(|name, _| counts.contains(name));
        if let Some((figures, rose)) = others {
            went.remove(OTHERS);
            named.entry(OTHERS.to_owned()).or_insert_with_key(|name| made(name)).publish(&figures, &rose);
        }
        for name in went {
            named[&name].clear();
        }
    }

    /// Publishes the ranks of the limits that were looked at.
    pub(crate) fn rank(&self, ranks: &BTreeMap<String, Ranks>) {
        let limits = self.limits.lock_anyway();
        limits.named.iter().for_each(|(name, limit)| limit.rank(ranks.get(name)));
    }

    /// Publishes the number of `listeners`, and how many events were `sent`.
    pub(crate) fn events(&self, listeners: usize, sent: usize) {
        self.listeners.set(listeners as f64);
        self.events.absolute(sent as u64);
    }

    /// Counts a reload, which was applied or refused. The file counts as wrong until the next reload.
    pub(crate) fn reloaded(&self, is_good: bool) {
        self.file_fails.set(f64::from(u8::from(!is_good)));
        self.reloads[usize::from(!is_good)].increment(1);
    }

    /// Metrics of the store.
    pub(crate) fn store(&self) -> &StoreMetrics {
        &self.store
    }

    /// Renders all metrics as text.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds samples into their buckets; to be called every [`UPKEEP_EVERY`].
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl Outcomes {
    fn new(name: &'static str) -> Self {
        Outcomes(OUTCOMES.map(|outcome| (outcome, counter!(name, "outcome" => outcome))).into())
    }

    /// Counts a request with this `outcome`.
    pub(crate) fn count(&self, outcome: &str) {
        let counter = self.0.get(outcome);
        debug_assert!(counter.is_some(), "{outcome} is not among the outcomes");
        if let Some(counter) = counter {
            counter.increment(1);
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    // Without explicit buckets a histogram would become a summary, which cannot be added up.
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("lessor_exchange_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("lessor_store_commit_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("lessor_upstream_exchange_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("lessor_store_swap_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("lessor_exchange_asks".to_owned()), &ASKS)?;
    Ok(builder.build_recorder())
}

/// Describes all metrics. Each line of the file has the kind of a metric, its name and what it is.
fn describe() {
    for line in include_str!("metrics/help.txt").lines() {
        let (kind, rest) = line.split_once(' ').expect("a kind");
        let (name, help) = rest.split_once(' ').expect("a name");
        match kind {
            "counter" => describe_counter!(name, help),
            "gauge" => describe_gauge!(name, help),
            _ => describe_histogram!(name, help),
        }
    }
}
