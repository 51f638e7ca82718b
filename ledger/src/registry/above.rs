//! Asks of all limits that are leased from one upstream, in one exchange, and the answers to them.

mod batch_size;

use super::limits::Limits;
use super::{Registry, Upstream};
use crate::overrides::{News, Suspended, Suspensions, Version};
use crate::pool::{GrantOutcome, GroupAsk, SafeAsk};
use crate::registry::limit::{AnswerAbove, AskAbove, Due, Limit, PoolId};
use crate::roots::{RootAsk, cell_of};
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::recovery::{Recovery, recovery};
use lessor_protocol::wire::{ASKS_MAX, AskBody, GrantBody, SafeShareBody, code};
use lessor_protocol::{Moment, PERMITS_MAX};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) use batch_size::BatchSize;

/// Asks that become due within this span go along with asks that are due now.
const TOGETHER: Duration = Duration::from_millis(1);

/// Part of an exchange that asks of removed limits may take (a tenth), so that loans of the other limits are renewed in
/// time.
const LEAVES_PART: usize = 10;

/// Numbers between the sessions of two upstreams. An upstream has one more at each session that begins.
const SESSIONS_OF_UPSTREAM: u64 = 1 << 32;

/// The pool of an ask, and what the pool says beside the ask.
#[derive(Clone, Debug)]
pub struct Asker {
    limit: String,
    pool: PoolId,
    safe: Option<SafeAsk>,
    groups: Vec<GroupAsk>,
}

impl Asker {
    /// Returns the name or pattern of its limit, as it is configured.
    pub fn limit(&self) -> &str {
        &self.limit
    }
}

/// The asks that are due to an upstream.
#[derive(Debug, Default)]
pub struct DueAbove {
    /// The pools of the asks, in their order.
    pub askers: Vec<Asker>,
    /// The asks.
    pub asks: Vec<AskBody>,
    /// When the next ask is due; `None` if none is due before a node asks here.
    pub next: Option<Moment>,
    /// The round-trip time to report.
    pub distance: Duration,
    /// The session to report.
    pub session: u64,
}

/// Returns the `limits` that are leased from `upstream`, with their names.
fn leased<'a>(
    limits: &'a mut Limits,
    upstream: &'a Upstream,
) -> impl Iterator<Item = (&'a String, &'a mut Limit)> {
    limits.iter_mut().filter(|(_, limit)| limit.upstream() == Some(upstream))
}

/// Returns the number of the session after the session `number`.
fn after(number: u64) -> u64 {
    1 + number % PERMITS_MAX
}

impl DueAbove {
    /// Notes that an ask is due `at` that moment.
    fn is_next(&mut self, at: Option<Moment>) {
        self.next = self.next.into_iter().chain(at).min();
    }

    /// Adds an ask of a pool of the limit called `name`.
    fn push(&mut self, name: &str, pool: PoolId, AskAbove { ask, safe, groups }: AskAbove) {
        let limit = pool.name.as_ref().map_or(name, |name| name.as_str());
        self.asks.push(AskBody::of(limit, pool.key.as_ref().map(|key| key.as_str()), ask));
        self.askers.push(Asker { limit: name.to_owned(), pool, safe, groups });
    }
}

/// Returns how many asks of each limit go with one exchange, at most `most` in all. Limits with too many asks get even
/// parts. The remainder goes to the asks that are to be answered first.
fn parts(due: &[Due], most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = due.iter().map(|due| due.pools.len()).collect();
    counts.sort_unstable();
    let (mut left, mut level) = (most, 0);
    for (at, &count) in counts.iter().enumerate() {
        level = count.min(left / (counts.len() - at));
        left -= level;
    }
    let mut parts: Vec<usize> = due.iter().map(|due| due.pools.len().min(level)).collect();
    let mut left = most - parts.iter().sum::<usize>();
    let more = parts.iter().zip(due).enumerate();
    let mut more: Vec<_> =
        more.filter_map(|(place, (part, due))| Some((due.pools.get(*part)?.0, place))).collect();
    more.sort_unstable();
    for (_, place) in more {
        parts[place] += usize::from(left > 0);
        left = left.saturating_sub(1);
    }
    parts
}

/// The answers of an upstream, in the order of the asks.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// The answers.
    pub bodies: &'a [GrantBody],
    /// For each grant, the permits for each guaranteed group. Only roots say that.
    pub groups: &'a [Vec<u64>],
}

impl<'a> Granted<'a> {
    /// Wraps the answers of an allocator.
    pub fn of(bodies: &'a [GrantBody]) -> Self {
        Granted { bodies, groups: &[] }
    }
}

/// The outcome of an exchange with an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeOutcome {
    /// Whether another session begins, because the upstream rejects this one.
    pub begins_session: bool,
    /// Number of asks that were answered with an error, or with a grant that is of no use here.
    pub unfit: usize,
}

impl Registry {
    /// Returns the asks that are `due`, as they are asked of roots. `version` returns the configuration that a limit
    /// goes by for the name that is asked for; the newest is `known`. The root of a removed limit goes by what other allocators say. `None` stands for
    /// a limit that is forgotten.
    pub fn root_asks(
        &self,
        due: &DueAbove,
        version: impl Fn(&str, &str) -> Version,
        known: Version,
    ) -> Vec<Option<RootAsk>> {
        let root_ask = |(asker, ask): (&Asker, &AskBody)| {
            let (limit, version) = match self.limits.lock(&asker.limit) {
                Some(limit) => (limit, Some(version(&asker.limit, &ask.limit))),
                None => (self.retired.lock(&asker.limit)?, None),
            };
            let spec = limit.spec(&asker.pool, version, known)?;
            let name = cell_of(&ask.limit, ask.key.as_deref());
            Some(RootAsk { name, spec, ask: ask.ask(), safe: asker.safe, groups: asker.groups.clone() })
        };
        due.askers.iter().zip(&due.asks).map(root_ask).collect()
    }

    /// Suspends limits as the `suspensions` of a shared store say, when the clock of the store shows `there`. They hold
    /// for limits that are leased from elsewhere, too. Returns an event for each change.
    pub fn follow_suspensions(
        &mut self,
        suspensions: &Suspensions,
        there: Moment,
        now: Moment,
    ) -> Vec<Event> {
        let (mut events, none) = (vec![], Suspended::default());
        for (name, limit) in self.limits.iter_mut() {
            for news in limit.suspension().follow(suspensions.of(name).unwrap_or(&none), there, now) {
                let event = |kind| Event::of(kind, name);
                events.push(match news {
                    News::Paused => event(Kind::Paused),
                    News::Resumed => event(Kind::Resumed),
                    News::Blocked(node) => Event { node: Some(node.to_string()), ..event(Kind::Blocked) },
                    News::Unblocked(node) => Event { node: Some(node.to_string()), ..event(Kind::Resumed) },
                });
            }
        }
        events
    }

    /// Returns the upstreams of all limits.
    pub fn upstreams(&self) -> BTreeSet<Upstream> {
        self.limits.locked().filter_map(|(_, limit)| limit.upstream().cloned()).collect()
    }

    /// Writes the asks that are due to `upstream`, where an exchange takes `rtt`. Removed limits give back everything
    /// until the upstream has answered that, and so do all limits of a registry that stops.
    pub fn asks_above(&mut self, now: Moment, upstream: &Upstream, rtt: Duration) -> DueAbove {
        self.restart_session_if_loans_lost(now);
        let session = self.session_with(upstream);
        let mut all = DueAbove { distance: rtt, session, ..DueAbove::default() };
        let of_all = self.is_stopping.then_some(&mut self.limits);
        let room = if upstream.is_store() { self.store_batch.most() } else { ASKS_MAX };
        let most = if self.is_stopping { room } else { room / LEAVES_PART };
        for limits in std::iter::once(&mut self.retired).chain(of_all) {
            for (name, limit) in leased(limits, upstream) {
                let (asks, next) = limit.leaves_above(now, most - all.asks.len());
                asks.into_iter().for_each(|(pool, said)| all.push(name, pool, said));
                all.is_next(next);
            }
        }
        if self.is_stopping {
            return all;
        }
        let due: Vec<Due> = leased(&mut self.limits, upstream)
            .map(|(_, limit)| limit.due_above(now, now + TOGETHER, rtt, ASKS_MAX))
            .collect();
        due.iter().for_each(|due| all.is_next(due.next));
        let parts = parts(&due, room - all.asks.len());
        for (((name, limit), due), part) in leased(&mut self.limits, upstream).zip(due).zip(parts) {
            for (_, pool) in due.pools.into_iter().take(part) {
                if let Some((said, distance)) = limit.ask_above(now, &pool, rtt) {
                    all.distance = all.distance.max(distance);
                    all.push(name, pool, said);
                }
            }
        }
        all
    }

    /// Asks upstreams as the session `number` from now on. No other run of an allocator may have that number, and no
    /// stranger may foresee it: an upstream takes permits that a session does not claim any more for given back.
    pub fn ask_above_as(&mut self, number: u64) {
        self.session_above = after(number);
        self.sessions_above.clear();
    }

    /// Returns the number of the session with `upstream`. No other upstream has it: two addresses may lead to one
    /// allocator, which knows a session by its number.
    fn session_with(&mut self, upstream: &Upstream) -> u64 {
        if let Some(session) = self.sessions_above.get(upstream) {
            return *session;
        }
        let before = u64::try_from(self.sessions_above.len()).unwrap_or(u64::MAX);
        let before = before.saturating_mul(SESSIONS_OF_UPSTREAM);
        let session = after((self.session_above - 1).saturating_add(before));
        self.sessions_above.insert(upstream.clone(), session);
        session
    }

    /// Begins another session if the books of a leased pool were dropped.
    fn restart_session_if_loans_lost(&mut self, now: Moment) {
        // `count` asks all limits; `any` would stop at the first.
        let limits = self.limits.values_mut().chain(self.retired.values_mut());
        let lost = limits.filter_map(|limit| limit.takes_lost_loans().then_some(())).count();
        if lost > 0 {
            self.begin_session_above(now);
        }
    }

    /// Begins another session with all upstreams. Loans go on until they end, and then pools count from zero. A caller
    /// that lost count of its exchanges needs one, too: in a known session an upstream ignores early numbers.
    pub fn begin_session_above(&mut self, now: Moment) {
        self.session_above = after(self.session_above);
        self.sessions_above.values_mut().for_each(|session| *session = after(*session));
        let limits = self.limits.values_mut().chain(self.retired.values_mut());
        let leased = limits.filter(|limit| limit.upstream().is_some());
        leased.for_each(|limit| limit.all_unrecognised_above(now));
    }

    /// Begins another session with `upstream`, which disputes this one, or is another allocator than before. Loans of
    /// other upstreams are renewed as before.
    pub fn begin_session_with(&mut self, now: Moment, upstream: &Upstream) {
        let session = self.session_with(upstream);
        self.sessions_above.insert(upstream.clone(), after(session));
        for limits in [&mut self.limits, &mut self.retired] {
            leased(limits, upstream).for_each(|(_, limit)| limit.all_unrecognised_above(now));
        }
    }

    /// Takes in what `upstream` answered to `askers`, which asked in `session` at `first_sent`. Answers to an earlier session are
    /// ignored.
    pub fn on_grant_above(
        &mut self,
        now: Moment,
        upstream: &Upstream,
        session: u64,
        first_sent: Moment,
        askers: &[Asker],
        Granted { bodies, groups }: Granted<'_>,
    ) -> ExchangeOutcome {
        let (mut outcome, mut disputed) = (ExchangeOutcome::default(), vec![]);
        if upstream.is_store() {
            self.store_batch.on_answer(askers.len());
        }
        self.restart_session_if_loans_lost(now);
        if session != self.session_with(upstream) {
            return outcome;
        }
        for (place, (asker, body)) in askers.iter().zip(bodies).enumerate() {
            let Asker { limit, pool, .. } = asker;
            let groups = groups.get(place).map_or(&[][..], Vec::as_slice);
            let limit = self.limits.get_mut(limit).or_else(|| self.retired.get_mut(limit));
            let Some(limit) = limit.filter(|limit| limit.upstream() == Some(upstream)) else { continue };
            let is_fit = match body.answer() {
                Ok(answer) => {
                    let told = AnswerAbove { answer, safe: body.safe.map(SafeShareBody::share), groups };
                    limit.on_grant_above(now, pool, first_sent, told) == GrantOutcome::Believed
                }
                Err(error) => {
                    let recovery = recovery(&error.code);
                    match recovery {
                        Recovery::Unrecognised => limit.on_unrecognised_above(now, pool),
                        Recovery::BeginSession => limit.on_rejection_above(now, pool, true),
                        // A limit that is gone has taken in the report, if its permits count.
                        Recovery::LookAgain => {
                            limit.on_rejection_above(now, pool, error.code == code::LIMIT_UNKNOWN);
                        }
                    }
                    if recovery == Recovery::BeginSession {
                        disputed.push(asker);
                    }
                    recovery == Recovery::Unrecognised
                }
            };
            outcome.unfit += usize::from(!is_fit);
        }
        if !disputed.is_empty() {
            outcome.begins_session = true;
            self.begin_session_with(now, upstream);
        }
        // The new session ended their pause. A dispute that lasts begins no more than a session a second.
        for Asker { limit, pool, .. } in disputed {
            let limit = self.limits.get_mut(limit).or_else(|| self.retired.get_mut(limit));
            limit.into_iter().for_each(|limit| limit.on_rejection_above(now, pool, true));
        }
        outcome
    }

    /// Stops lending on what a shared store has lent, because the clock may have stood still.
    pub fn hold_back_store(&mut self, now: Moment) {
        let leased =
            self.limits.values_mut().filter(|limit| limit.upstream().is_some_and(Upstream::is_store));
        leased.for_each(|limit| limit.hold_back_above(now));
    }

    /// Notes that no answer came to the asks of `askers`.
    pub fn on_failure_above(&mut self, askers: &[Asker]) {
        let mut is_store = false;
        for Asker { limit, pool, .. } in askers {
            let limit = self.limits.get_mut(limit).or_else(|| self.retired.get_mut(limit));
            let Some(limit) = limit else { continue };
            is_store |= limit.upstream().is_some_and(Upstream::is_store);
            limit.on_failure_above(pool);
        }
        if is_store {
            self.store_batch.on_failure(askers.len());
        }
    }
}
