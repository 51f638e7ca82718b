//! The task that leases from an upstream. It finds the asks that are due there, sends them in one exchange, and hands
//! the answer to the allocator. There is one task for each upstream, with one exchange at a time. It decides nothing
//! about permits.

mod contested;
mod failures;
mod publish;
mod rooted;
mod transport;

pub(crate) use publish::{LastHost, Unpublished, change, decide};

use crate::config::{StoreConfig, Upstream};
use crate::metrics::UpstreamMetrics;
use crate::shared::Shared;
use crate::shared_store_status::Work;
use failures::{Failures, is_over, is_silent};
use lessor_files::Token;
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_ledger::registry::{DueAbove, Granted};
use lessor_protocol::foreign::excerpt;
use lessor_protocol::recovery::{Recovery, recovery};
use lessor_protocol::wire::{GrantBody, LeasesRequest};
use lessor_protocol::{Moment, TERM_MAX, entropy, trace};
use rooted::Rooted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;
use tracing::field::Empty;
use transport::{Transport, TransportError};

/// Shortest interval of looks, whatever nodes ask. With many keys in use, looks that find nothing take at most a tenth of
/// the time, because no node is served during a look. Looks before exchanges take at most half of it: a longer rest would
/// keep loans from being renewed.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOKS_REST: u32 = 9;

/// Longest interval of looks, for asks that become due without a node.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a stopping allocator tries to return permits that it has not lent on: as long as connections may take to
/// end. A store elects another leader in that time.
const FAREWELL_MAX: Duration = Duration::from_secs(4);

/// Pause before a task that ended in a panic, or could not be started, is started again, so that one that always fails
/// is no burden and no flood of errors.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The tasks of all upstreams. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Uplinks {
    /// The upstreams that have a task.
    known: BTreeSet<Upstream>,
    /// The upstreams whose task could not be started: when that was last attempted, and why it failed.
    failing: BTreeMap<Upstream, (Moment, String)>,
    tasks: JoinSet<()>,
    /// The upstream of each task.
    upstreams: HashMap<Id, Upstream>,
}

impl Uplinks {
    /// Starts a task for each upstream that has none yet, and for each whose task ended in a panic. A task that cannot
    /// be started, because a file is missing for a moment for example, is started by a later call.
    pub(crate) fn keep_up(&mut self, shared: &Arc<Shared>) {
        for upstream in self.lost() {
            // The new task counts its exchanges from one.
            shared.with(|registry, now| registry.begin_session_above(now));
            if upstream.is_store() {
                shared.shared_store_status().member_was_lost();
            }
            self.known.remove(&upstream);
            self.start(shared, upstream, AGAIN_AFTER);
        }
        let mut upstreams = shared.beside(|registry, _| registry.upstreams());
        if let StoreConfig::Shared(store) = &shared.config().server.store {
            // The store always has one: another allocator may put a limit that is leased from there.
            upstreams.insert(Upstream::Store(store.time_source()));
        }
        self.failing.retain(|upstream, _| {
            let is_named = upstreams.contains(upstream);
            if !is_named {
                shared.silent_upstreams().note(upstream, false);
            }
            is_named
        });
        for upstream in upstreams {
            let was_tried = |(at, _): &(Moment, String)| shared.now().since(*at) < AGAIN_AFTER;
            if self.known.contains(&upstream) || self.failing.get(&upstream).is_some_and(was_tried) {
                continue;
            }
            self.start(shared, upstream, Duration::ZERO);
        }
    }

    /// Starts the task of `upstream`, which begins after `pause`.
    fn start(&mut self, shared: &Arc<Shared>, upstream: Upstream, pause: Duration) {
        match Uplink::try_new(shared.clone(), upstream.clone()) {
            Ok(uplink) => {
                let run = async move {
                    sleep(pause).await;
                    uplink.run().await;
                };
                self.upstreams.insert(self.tasks.spawn(run).id(), upstream.clone());
                if self.failing.remove(&upstream).is_some() {
                    shared.silent_upstreams().note(&upstream, false);
                    tracing::info!(%upstream, "leases from this upstream begin");
                }
                self.known.insert(upstream);
            }
            Err(error) => {
                let problem = error.to_string();
                // Counted each time: the alert goes by what fails at present.
                shared.metrics().upstream(&upstream).failed();
                if !upstream.is_store() {
                    shared.silent_upstreams().note(&upstream, true);
                }
                // Said once, and not with each attempt.
                if self.failing.get(&upstream).is_none_or(|(_, last)| *last != problem) {
                    tracing::error!(%upstream, %error, "nothing can be leased from this upstream until that is mended");
                }
                self.failing.insert(upstream, (shared.now(), problem));
            }
        }
    }

    /// Returns the upstreams whose tasks have ended in a panic.
    fn lost(&mut self) -> BTreeSet<Upstream> {
        let mut lost = BTreeSet::new();
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            let (id, error) = match ended {
                // The allocator stops.
                Ok((id, ())) => (id, None),
                Err(error) => (error.id(), Some(error)),
            };
            if let (Some(upstream), Some(error)) = (self.upstreams.remove(&id), error) {
                tracing::error!(%upstream, %error, "the task of this upstream ended, and begins again: this is a bug");
                lost.insert(upstream);
            }
        }
        lost
    }

    /// Waits until all have returned what is not lent on, after the allocator was stopped.
    pub(crate) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One upstream and the connection to it.
struct Uplink {
    shared: Arc<Shared>,
    upstream: Upstream,
    way: Way,
    metrics: UpstreamMetrics,
    /// Changes with every exchange of a node.
    asked: watch::Receiver<u64>,
    node: String,
    connection: Connection,
    /// The last exchanges, if they failed.
    failures: Option<Failures>,
}

/// How an upstream is reached.
enum Way {
    /// Another allocator.
    Http(Transport),
    /// Roots in a store.
    Store(Box<Rooted>),
}

impl Uplink {
    fn try_new(shared: Arc<Shared>, upstream: Upstream) -> Result<Self, TransportError> {
        let epoch = shared.beside(|registry, _| registry.epoch());
        let node = shared.config().server.node.as_ref();
        let node = node.map_or_else(|| format!("allocator-{epoch:x}"), |node| node.as_str().to_owned());
        let way = match &upstream {
            Upstream::Address(address) => {
                let tls = shared.config().upstream_tls.clone().unwrap_or_default();
                let token = shared.config().upstream_token.as_ref().map(Token::file);
                Way::Http(Transport::try_new(address, EXCHANGE_TIMEOUT, tls, token)?)
            }
            Upstream::Store(_) => Way::Store(Box::new(Rooted::try_new(&shared, &node)?)),
        };
        Ok(Uplink {
            node,
            way,
            metrics: shared.metrics().upstream(&upstream),
            asked: shared.asked(),
            shared,
            upstream,
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, 0),
            failures: None,
        })
    }

    /// Leases until the allocator stops, then returns what it can.
    async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            () = shared.stopped() => {}
            () = self.lease() => {}
        }
        if timeout(FAREWELL_MAX, self.farewell()).await.is_err() {
            tracing::warn!(
                upstream = %self.upstream,
                "the upstream does not answer: permits held from it are not returned"
            );
        }
    }

    /// Returns permits that are not lent on, and reports spent ones, until that is answered. Permits that the upstream
    /// does not hear of count as spent there, in a long window for long.
    async fn farewell(&mut self) {
        loop {
            let rtt = self.connection.rtt();
            let due = self.shared.with(|registry, now| registry.asks_above(now, &self.upstream, rtt));
            if due.asks.is_empty() {
                let Some(next) = due.next else { break };
                sleep(next.since(self.shared.now()).max(LOOK_EVERY)).await;
                continue;
            }
            if let Err(error) = self.exchange(&due).await {
                self.failed(&due, &error).await;
            }
        }
        if let Way::Store(rooted) = &mut self.way {
            rooted.leave(&self.shared).await;
        }
    }

    /// Leases until the future is dropped.
    async fn lease(&mut self) {
        loop {
            let (upstream, rtt) = (&self.upstream, self.connection.rtt());
            let (due, took) = self.shared.with(|registry, now| {
                let due = registry.asks_above(now, upstream, rtt);
                (due, self.shared.now().since(now))
            });
            let looked = self.shared.now();
            if let Way::Store(rooted) = &mut self.way {
                rooted.sign(&self.shared, due.session).await;
            }
            if due.asks.is_empty() {
                let now = self.shared.now();
                // No exchange would show that the upstream is of use again.
                if due.next.is_none() && is_over(self.failures, now) {
                    self.note_silence(None);
                    self.failures = None;
                }
                let again = match &self.way {
                    Way::Http(_) => LOOK_AGAIN,
                    // Signing is also how it hears of the decisions of others.
                    Way::Store(rooted) => rooted.signs_next().since(now),
                };
                let wait = due.next.map_or(again, |next| next.since(now)).min(again);
                // An error says that no node asked meanwhile.
                let _ = timeout(wait, self.asked.changed()).await;
                sleep(LOOK_EVERY.max(took * LOOKS_REST)).await;
                continue;
            }
            let span = tracing::debug_span!(
                target: trace::TARGET, parent: None, "refill", otel.kind = "client", otel.status_code = Empty,
                upstream = %self.upstream, asks = due.asks.len(),
            );
            self.shared.cause().lead(&span);
            let exchanged = self.exchange(&due).instrument(span.clone()).await;
            if exchanged.is_err() {
                span.record("otel.status_code", "ERROR");
            }
            drop(span);
            if let Err(error) = exchanged {
                self.failed(&due, &error).await;
            }
            // Mostly the exchange took longer than the look.
            if let Some(rest) = rest_after(took, self.shared.now().since(looked)) {
                sleep(rest).await;
            }
        }
    }

    async fn exchange(&mut self, due: &DueAbove) -> Result<(), TransportError> {
        if self.connection.session() != due.session {
            // The allocator began another session.
            self.connection.begin_session(due.session - 1);
        }
        let Exchange { session, epoch, seq, first_sent, patience, .. } =
            self.connection.begin(self.shared.now());
        let request = LeasesRequest {
            node: self.node.clone(),
            session,
            epoch,
            seq,
            rtt_ms: lessor_protocol::lease::millis_up(due.distance),
            asks: due.asks.clone(),
        };
        let response = match &mut self.way {
            Way::Http(transport) => {
                let response = timeout(patience, transport.leases(&request)).await;
                response.map(|response| response.map(|response| (response, vec![])))
            }
            Way::Store(rooted) => timeout(patience, rooted.leases(&self.shared, due, &request)).await,
        };
        let (response, groups) = response.map_err(|_| TransportError::TimedOut)??;
        let of_another = || TransportError::Invalid("an answer to another exchange".to_owned());
        let ended = self.connection.on_answer(response.session, response.seq, self.shared.now());
        let (_, took) = ended.ok_or_else(of_another)?;
        // Roots in a store have no epoch, and always say 0. An allocator of another epoch grants nothing to any ask.
        if self.connection.meets_another(response.epoch, self.shared.now(), || due.session) {
            self.shared.with(|registry, now| registry.begin_session_with(now, &self.upstream));
            let problem =
                "another allocator answers at this address, or it was restarted; a new session begins";
            return Err(TransportError::Invalid(problem.to_owned()));
        }
        let names = |grant: &GrantBody| (grant.limit.clone(), grant.key.clone());
        let asked = due.asks.iter().map(|ask| (ask.limit.clone(), ask.key.clone()));
        if !response.grants.iter().map(names).eq(asked) {
            return Err(of_another());
        }
        self.connection.on_success();
        self.answered(took);
        self.believe(first_sent, due, Granted { bodies: &response.grants, groups: &groups });
        Ok(())
    }

    fn answered(&mut self, took: Duration) {
        self.metrics.exchanged(took);
        if self.failures.is_some() {
            tracing::info!(upstream = %self.upstream, "the upstream answers again");
        }
        self.note_silence(None);
        self.failures = None;
    }

    /// Records why exchanges fail; `None` if the upstream may be of use.
    fn note_silence(&self, why: Option<String>) {
        match self.way {
            Way::Http(_) => self.shared.silent_upstreams().note(&self.upstream, why.is_some()),
            Way::Store(_) => self.shared.shared_store_status().fell_silent(Work::Exchanging, why),
        }
    }

    /// Returns how long exchanges have failed for before the upstream counts as silent. A restart of an allocator takes less,
    /// and for as long the leases that it granted may last: nodes that moved on would lose them.
    fn silence(&self) -> Duration {
        match self.way {
            Way::Http(_) => TERM_MAX,
            Way::Store(_) => Duration::ZERO,
        }
    }

    fn believe(&self, first_sent: Moment, due: &DueAbove, granted: Granted<'_>) {
        let upstream = &self.upstream;
        let outcome = self.shared.with(|registry, now| {
            registry.on_grant_above(now, upstream, due.session, first_sent, &due.askers, granted)
        });
        if outcome.unfit > 0 {
            self.metrics.unfit(outcome.unfit);
            let grants = || due.asks.iter().zip(granted.bodies);
            // No answer says so: it grants more than was wanted, or for longer than a lease may last.
            let is_impossible = outcome.unfit == due.asks.len();
            let impossible =
                is_impossible.then_some("the answer is impossible: its version may be another one");
            for (ask, grant) in grants() {
                let Some(detail) = unfit(grant).or(impossible).map(excerpt) else { continue };
                let (limit, now) = (&ask.limit, self.shared.now());
                if self.shared.standing().unfit.note(upstream.as_str(), limit, now, &detail) {
                    tracing::warn!(%upstream, limit, detail, "no usable grant");
                }
            }
        }
        if outcome.begins_session {
            tracing::warn!(%upstream, "the upstream rejects our totals; a new session begins");
        }
    }

    async fn failed(&mut self, due: &DueAbove, error: &TransportError) {
        self.metrics.failed();
        self.shared.with(|registry, _| registry.on_failure_above(&due.askers));
        let now = self.shared.now();
        if is_silent(self.failures, self.silence(), now) {
            self.note_silence(Some(error.to_string()));
        }
        if self.failures.is_none() {
            let upstream = &self.upstream;
            tracing::warn!(
                %upstream,
                %error,
                "the exchange with the upstream failed; its leases are lent on until they end"
            );
        }
        let first = self.failures.map_or(now, |failures| failures.first);
        self.failures = Some(Failures { first, last: now });
        self.connection.on_failure(now, 0, entropy::number());
        self.rest(due.session).await;
    }

    /// Asks nothing for as long as the connection's backoff lasts, but goes on signing. An allocator that reads the
    /// clock of a store less than once a second cannot tell how long no other one has kept the time, and would not
    /// begin to keep it.
    async fn rest(&mut self, session: u64) {
        let until = self.connection.quiet_until();
        loop {
            let now = self.shared.now();
            if now >= until {
                return;
            }
            let next = match &mut self.way {
                Way::Http(_) => until,
                Way::Store(rooted) => {
                    rooted.sign(&self.shared, session).await;
                    rooted.signs_next().min(until)
                }
            };
            sleep(next.since(now).max(LOOK_EVERY)).await;
        }
    }
}

/// Returns why nothing can be lent on of a limit that got `grant`, as far as the answer shows that.
fn unfit(grant: &GrantBody) -> Option<&str> {
    match grant.answer() {
        Err(error) if recovery(&error.code) == Recovery::Unrecognised => None,
        Err(error) => Some(error.detail.as_str()),
        Ok(_) if grant.rate.is_some() => {
            Some("its rule is a leaky_bucket, which cannot be lent on: use a token_bucket there")
        }
        Ok(_) => None,
    }
}

/// Returns how long to rest after an exchange that ended `since` after a look, which took `look`.
fn rest_after(look: Duration, since: Duration) -> Option<Duration> {
    let rest = look.saturating_sub(since);
    (!rest.is_zero()).then(|| rest.max(LOOK_EVERY))
}

#[cfg(test)]
mod tests;
