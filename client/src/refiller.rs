//! The background task, one per client. It finds the pools that are due, asks for all of them in one exchange, and
//! installs the grants. Only one exchange is under way at a time; pools that become due meanwhile go into the next.

mod denials;
mod due;
mod goodbye;
mod moves;
mod rest;
mod sending;
mod tells;
#[cfg(test)]
mod tests;

use crate::events::Event;
use crate::fallback;
use crate::local_pool::{CLOCK, Condition, LocalPool, Standing};
use crate::session_numbers::SessionNumbers;
use crate::shared::{Shared, Sweep};
use crate::transport::{ExchangeError, Transport};
use lessor_holder::answer::{AnswerTiming, DISPUTE_PAUSE, Outcome};
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::refill::Seen;
use lessor_holder::timing::LOOK_AGAIN;
use lessor_protocol::foreign::excerpt;
use lessor_protocol::wire::{
    AskBody, ErrorBody, GrantBody, LeasesResponse, ObservedBody, SafeShareBody, code,
};
use lessor_protocol::{Answer, ClockBounds, Grant, Moment, Rate, Refusal, RefusalReason};
use sending::matching;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tells::Tells;
use tokio::sync::{oneshot, watch};

/// Fewest permits for which a stripe of a slot is worth having: the calls of some microseconds. With fewer, threads
/// would soon search all stripes; with more, threads would contend for one word although there is something to share.
const STRIPE_WORTH: u64 = 256;

/// Interval of log lines about a condition that many keys of a limit may have.
pub(crate) const LOG_EVERY: Duration = Duration::from_secs(60);

/// Tells the background task to stop and say goodbye, as does its end.
pub(crate) type Stop = oneshot::Receiver<()>;

pub(crate) struct Refiller {
    shared: Arc<Shared>,
    /// The connections to the allocators.
    transports: Vec<Transport>,
    connection: Connection,
    /// Indices of the allocators whose last answer turned this client away, since the last good answer.
    denied_by: BTreeSet<usize>,
    /// What was wrong with the allocator that the client left, until another one answers.
    left: Option<String>,
    /// Index of the allocator that answered last, where the listener listens.
    current_allocator: watch::Sender<usize>,
    node: String,
    clocks: ClockBounds,
    /// The pools to look at, and when unneeded pools are forgotten next.
    known: Vec<Arc<LocalPool>>,
    forgets: Moment,
    sweep: Sweep,
    /// When the last exchange began.
    began: Moment,
    /// When a problem with the keys of a limit, or its cap on calls in flight, was last logged.
    logged: HashMap<Arc<str>, Moment>,
    /// When it was last logged that another allocator answers.
    logged_another: Option<Moment>,
    /// Number of stripes for a slot that threads contend for.
    stripes: usize,
    /// The source of jitter.
    rng: fastrand::Rng,
    /// The source of session numbers.
    numbers: SessionNumbers,
    tells: Tells,
}

impl Refiller {
    pub(crate) fn new(
        shared: Arc<Shared>,
        transports: Vec<Transport>,
        timeout: Duration,
        node: String,
        clocks: ClockBounds,
        (mut rng, mut numbers): (fastrand::Rng, SessionNumbers),
    ) -> Self {
        let connection = Connection::new(transports.len(), timeout, rng.u64(..), numbers.draw());
        let current_allocator = watch::Sender::new(connection.place());
        Refiller {
            shared,
            transports,
            connection,
            denied_by: BTreeSet::new(),
            left: None,
            current_allocator,
            node,
            clocks,
            known: vec![],
            forgets: Moment::ORIGIN,
            sweep: Sweep::default(),
            began: Moment::ORIGIN,
            logged: HashMap::new(),
            logged_another: None,
            stripes: std::thread::available_parallelism().map_or(1, usize::from),
            rng,
            numbers,
            tells: Tells::default(),
        }
    }

    /// Runs until the client is shut down or its last handle is gone.
    pub(crate) async fn run(mut self, mut stop: Stop) {
        loop {
            let (due, next) = self.look().await;
            let next = next.min(self.tell_in_time());
            let stopped = if due.is_empty() {
                let sleep = next.since(CLOCK.now()).min(LOOK_AGAIN);
                tokio::select! {
                    _ = &mut stop => true,
                    () = self.shared.wake_list.wake.notified() => false,
                    () = rest(&self.shared, &mut self.sweep, sleep) => false,
                }
            } else {
                tokio::select! {
                    _ = &mut stop => true,
                    () = self.exchange(due) => {
                        // A woken caller takes what came before the next ask reports it as held: while permits are
                        // held, the bucket that lent them does not refill.
                        tokio::task::yield_now().await;
                        false
                    }
                }
            };
            if stopped {
                return self.goodbye().await;
            }
        }
    }

    /// Returns the index of the allocator to listen to, which changes while the task runs.
    pub(crate) fn current_allocator(&self) -> watch::Receiver<usize> {
        self.current_allocator.subscribe()
    }

    /// Makes the first exchange, before any caller relies on the client. Without asks, it only shows that an allocator
    /// answers.
    pub(crate) async fn greet(&mut self) -> Result<(), ExchangeError> {
        loop {
            let exchange = self.connection.begin(CLOCK.now());
            match self.send(&exchange, vec![]).await {
                Ok(LeasesResponse { epoch, .. }) => {
                    self.connection.meets_another(epoch, CLOCK.now(), || self.numbers.draw());
                    break;
                }
                Err(error) if self.leave(&error, false).await => return Err(error),
                Err(_) => {}
            }
        }
        self.arrive();
        Ok(())
    }

    /// Asks for all `pools` in one exchange.
    async fn exchange(&mut self, pools: Vec<Arc<LocalPool>>) {
        let exchange = self.connection.begin(CLOCK.now());
        let first_sent = exchange.first_sent;
        self.began = first_sent;
        let asks = pools
            .iter()
            .map(|pool| {
                pool.listen(false);
                self.notes_ask(pool);
                let ask = pool.refill().write(pool.slot(), pool.seen(), first_sent, exchange.rtt);
                let observed = pool.observed(first_sent).as_ref().map(ObservedBody::of);
                if pool.takes_disagreement() {
                    self.shared.tell(Event::VendorDisagreed { limit: pool.name().limit.clone() });
                }
                AskBody { observed, ..AskBody::of(&pool.name().limit, pool.name().key.as_deref(), ask) }
            })
            .collect();
        let answer = self.send(&exchange, asks).await;
        self.shared.exchanges.fetch_add(1, Ordering::Relaxed);
        if let Ok(LeasesResponse { epoch, .. }) = answer
            && self.connection.meets_another(epoch, CLOCK.now(), || self.numbers.draw())
        {
            return self.meet_another(&pools).await;
        }
        let allocator = &self.transports[exchange.place];
        let answer = answer.and_then(|response| matching(allocator, response, &pools));
        match answer {
            Ok(grants) => self.answered(&pools, &grants, &exchange).await,
            Err(error) => self.failed(&pools, &error).await,
        }
    }

    /// Notes in `pool` that its ask is written, and in the plain pool if this one has a key.
    fn notes_ask(&self, pool: &LocalPool) {
        pool.standby().on_ask();
        if pool.name().key.is_some() {
            self.shared.pool(&pool.name().limit, None).standby().on_ask();
        }
    }

    async fn answered(&mut self, pools: &[Arc<LocalPool>], grants: &[GrantBody], exchange: &Exchange) {
        let was_denied = self.notes_acceptance();
        if self.shared.note_reachable(true) {
            self.shared.tell(Event::Reachable);
            self.end_fallbacks(was_denied).await;
        }
        let (mut renew_session, mut is_stopping) = (false, false);
        for (pool, body) in pools.iter().zip(grants) {
            self.informed(pool, body, exchange.first_sent);
            let answer = body.answer();
            is_stopping |=
                matches!(answer, Ok(Answer::Refusal(Refusal { reason: RefusalReason::Stopping, .. })));
            renew_session |= self.on_answer(pool, &answer, exchange.first_sent) == Outcome::Disputed;
        }
        if is_stopping && !self.connection.is_alone() {
            self.leave(&"it is stopping", true).await;
            return;
        }
        self.arrive();
        if renew_session {
            self.begin_session().await;
        }
    }

    /// Notes what `body` says besides its answer.
    fn informed(&self, pool: &LocalPool, body: &GrantBody, first_sent: Moment) {
        let share = body.safe.map(SafeShareBody::share);
        pool.standby().tell_share(share, first_sent, self.clocks);
        pool.answered(body.left, body.window_ms, body.permits == 0 || body.retry_after_ms.is_some());
        if pool.name().key.is_some() {
            self.shared.pool(&pool.name().limit, None).standby().on_grant_of_limit(body.fallback);
        }
        if pool.standby().on_grant(body.shadow, body.fallback) {
            pool.refresh_passes();
            // No caller has to wait any more. They wake each other one after the other.
            pool.call_first();
        }
    }

    /// Takes in the answer for `pool`, and tells its callers the outcome.
    fn on_answer(
        &mut self,
        pool: &Arc<LocalPool>,
        answer: &Result<Answer, &ErrorBody>,
        first_sent: Moment,
    ) -> Outcome {
        if let Ok(Answer::Grant(grant)) = answer {
            self.expects(pool, grant);
        }
        let mut refill = pool.refill();
        if let Ok(Answer::Grant(grant)) = answer {
            refill.make_way(pool.slot(), grant);
        }
        let (now, deadline) = (CLOCK.now(), pool.slot().deadline());
        let timing = AnswerTiming { first_sent, now, clocks: self.clocks };
        let word = answer.as_ref().map_err(|error| error.code.as_str());
        let may_rest = rest::may_rest(pool, word.err());
        let outcome = refill.on_answer(pool.slot(), word, timing, may_rest, self.rng.u64(..));
        if pool.slot().deadline() > deadline {
            pool.leased(first_sent);
        }
        pool.set_low_water(refill.nudge_below(self.connection.rtt()));
        pool.learn_pace(&refill);
        pool.set_paced(refill.is_paced());
        let not_before = refill.not_before();
        pool.listen(not_before <= now);
        drop(refill);
        match (outcome, answer) {
            (Outcome::Installed, Ok(Answer::Grant(grant))) => {
                let chance = now + grant.retry_after.unwrap_or_default().max(grant.ask_after);
                self.stand(pool, Condition::Good, grant.ceiling, chance);
                self.tell_stopped(pool, false, Duration::ZERO);
                pool.call_first();
            }
            (Outcome::Impossible, Ok(Answer::Grant(grant))) => {
                // Logged once: an allocator that sends such a grant mostly does so again, and is asked again soon.
                if pool.condition() != Condition::Unreachable {
                    tracing::warn!(limit = %excerpt(&pool.name().limit), ?grant, "ignored a grant that does not fit");
                }
                self.stand(pool, Condition::Unreachable, pool.ceiling(), now + DISPUTE_PAUSE);
            }
            (Outcome::Refused, Ok(Answer::Refusal(refusal))) => {
                self.refused(pool, *refusal, (now + refusal.retry_after).max(not_before))
            }
            (Outcome::Unavailable, Err(error)) => self.unavailable(pool, error, now),
            // Callers of the pool hear of the next answer.
            _ => {}
        }
        outcome
    }

    /// Prepares `pool` before the permits of `grant` are there: callers that come from now on count a call in flight, and
    /// look at the pace. A thread that looked before, and stalls until the permits are there, takes once without it:
    /// another look behind the take would wait for the take, in each call.
    fn expects(&mut self, pool: &Arc<LocalPool>, grant: &Grant) {
        if pool.set_counts_flights(grant.in_flight.is_some())
            && let Some(cap) = grant.in_flight
            && self.is_news(pool)
        {
            tracing::info!(
                limit = %excerpt(&pool.name().limit), longest = ?cap.longest,
                "the limit caps calls in flight: use `enter`; acquired permits count as in flight for `longest`"
            );
        }
        pool.set_paced(pool.is_paced() || grant.rate != Rate::Free);
    }

    fn refused(&self, pool: &Arc<LocalPool>, refusal: Refusal, chance: Moment) {
        let stops = refusal.reason.stops();
        self.tell_stopped(pool, stops, refusal.retry_after);
        let condition = match refusal.reason {
            _ if stops => Condition::Paused,
            RefusalReason::Quarantine | RefusalReason::Stopping => Condition::Quarantine,
            RefusalReason::Paused | RefusalReason::Blocked | RefusalReason::Other => Condition::Good,
        };
        self.stand(pool, condition, pool.ceiling(), chance);
        pool.call_first();
    }

    /// Sends an event if `pool` is newly paused, or no longer.
    fn tell_stopped(&self, pool: &LocalPool, stopped: bool, retry_after: Duration) {
        if pool.name().key.is_some() {
            // A new key has heard nothing in an outage: what was told for another key holds for it too.
            self.shared.pool(&pool.name().limit, None).standby().set_stopped(stopped);
        }
        if pool.standby().set_stopped(stopped) {
            let limit = pool.name().limit.clone();
            self.shared.tell(if stopped {
                Event::Paused { limit, retry_after }
            } else {
                Event::Resumed { limit }
            });
        }
    }

    /// Notes that the allocator lends nothing to `pool`, for the reason in `error`.
    fn unavailable(&mut self, pool: &Arc<LocalPool>, error: &ErrorBody, now: Moment) {
        // The plain handle of a keyed limit only serves to make handles to keys, unless it is called.
        let for_keys = error.code == code::KEY_MISMATCH && pool.seen() == Seen::default();
        let is_key = pool.name().key.is_some();
        if !pool.condition().is_for_good() && !for_keys && (!is_key || self.is_news(pool)) {
            tracing::error!(
                limit = %excerpt(&pool.name().limit), code = %excerpt(&error.code),
                detail = %excerpt(&error.detail), "the allocator lends nothing from this limit"
            );
        }
        let condition = match &*error.code {
            code::KEYS_FULL | code::NAMES_FULL | code::LESSEES_FULL => Condition::Full,
            _ => Condition::Unknown,
        };
        self.stand(pool, condition, pool.ceiling(), now + LOOK_AGAIN);
        pool.call_all();
    }

    async fn failed(&mut self, pools: &[Arc<LocalPool>], error: &ExchangeError) {
        self.shared.failed_exchanges.fetch_add(1, Ordering::Relaxed);
        for pool in pools {
            pool.refill().unanswered();
        }
        self.notes_denial(error);
        if !self.leave(error, false).await {
            return;
        }
        let is_denied = self.all_failed(error).await;
        let now = CLOCK.now();
        if self.shared.note_reachable(false) {
            tracing::warn!(%error, "the exchange with the allocator failed; calls spend what is leased");
            self.shared.tell(Event::Unreachable);
        }
        for pool in pools {
            if [Condition::Good, Condition::Paused].contains(&pool.condition()) {
                self.stand(pool, Condition::Unreachable, pool.ceiling(), self.connection.quiet_until());
            }
        }
        if !is_denied {
            in_parts(&self.shared, |pools| fallback::enter(&self.shared, pools, now)).await;
        }
        for pool in pools {
            // Callers that wait for one answer only need not wait any more.
            pool.call_first();
        }
    }

    /// Whether it is time to log a condition that each key of the limit of `pool` may have.
    fn is_news(&mut self, pool: &LocalPool) -> bool {
        let now = CLOCK.now();
        let is_news = self.logged.get(&pool.name().limit).is_none_or(|last| now.since(*last) >= LOG_EVERY);
        if is_news {
            self.logged.insert(pool.name().limit.clone(), now);
        }
        is_news
    }

    fn stand(&self, pool: &LocalPool, condition: Condition, ceiling: u64, chance: Moment) {
        pool.set_standing(Standing { condition, ceiling, chance, rtt: self.connection.rtt() });
    }

    /// Starts a new session, which owns nothing, because the allocator and this client disagree about the old one.
    /// Nothing is sent before all pools have begun it.
    async fn begin_session(&mut self) {
        tracing::warn!("the allocator rejects this session; starting a new one");
        self.connection.begin_session(self.numbers.draw());
        let rng = &mut self.rng;
        let mut begin = |pool: &Arc<LocalPool>| {
            pool.refill().begin_session(pool.slot(), CLOCK.now(), rng.u64(..));
            pool.make_known();
        };
        in_parts(&self.shared, |pools| pools.iter().for_each(&mut begin)).await;
    }
}

/// Applies `act` to all pools, in parts between which other tasks run: for a million keys it takes a good part of a
/// second.
async fn in_parts(shared: &Shared, mut act: impl FnMut(&[Arc<LocalPool>])) {
    for pools in shared.parts() {
        act(&pools);
        tokio::task::yield_now().await;
    }
}

/// Sleeps for `sleep`, or goes on with the `sweep` for that time, in parts between which other tasks run. Looking at
/// all leased pools between two parts would be more work than the sweep.
async fn rest(shared: &Shared, sweep: &mut Sweep, sleep: Duration) {
    let until = CLOCK.now() + sleep;
    while !sweep.is_over() && CLOCK.now() < until {
        shared.forget_idle(sweep);
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(until.since(CLOCK.now())).await;
}
