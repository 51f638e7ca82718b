//! One exchange: each of its entries goes to its limit and is answered. What the node read off a vendor's answers goes
//! to the pool first, and an event tells listeners of a change.

use super::{Left, Limit, PoolId};
use crate::named::Names;
use crate::pool::{Holder, ObservationEffect, SessionId};
use crate::registry::family::Family;
use crate::registry::{Caller, Entry, Keyed, Registry, too_large, unanswered, unknown, unread};
use crate::rejection::{AskRejection, Reason};
use lessor_protocol::lease::millis_up;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::wire::{AskBody, GrantBody, SafeShareBody, Text};
use lessor_protocol::{
    Answer, Ask, Fallback, Key, LimitName, Moment, Observed, Refusal, RefusalReason, SafeShare,
};
use std::collections::HashSet;
use std::sync::MutexGuard;
use std::time::Duration;

/// Retry delay of a refusal because the allocator is stopping. A successor takes about a second to start.
const STOPPING_RETRY: Duration = Duration::from_secs(1);

pub(super) const STOPPING: Answer =
    Answer::Refusal(Refusal { reason: RefusalReason::Stopping, retry_after: STOPPING_RETRY });

/// The refusal with which a removed limit settles an ask.
const GONE: Refusal = Refusal { reason: RefusalReason::Other, retry_after: Duration::ZERO };

/// The outcome of one exchange. The names in its answers are strings, or borrowed from the asks.
#[derive(Debug)]
pub struct Exchanged<N = String> {
    /// One answer for each entry, in order; none if the session is of another epoch.
    pub grants: Vec<GrantBody<N>>,
    /// Events for listeners, at most one for each ask.
    pub events: Vec<Event>,
    /// Number of the batch that has to be durable before the answers may leave; `None` if they may leave at once.
    pub waits_for: Option<u64>,
}

/// State that the entries of one exchange share.
struct Exchange<'c, 'a> {
    now: Moment,
    caller: &'c Caller,
    /// Pools of the entries before; `None` if there is just one entry.
    before: Option<AskedBefore<'a>>,
    /// The session of the caller, once an entry was asked of a pool.
    session: Option<SessionId>,
    events: Vec<Event>,
    /// Whether one of the answers may not leave before its permits are written down.
    is_uncovered: bool,
}

/// The pools that an exchange has asked so far.
struct AskedBefore<'a> {
    /// Asks of the exchange: no more pools than that come together.
    asks: usize,
    /// The first limits that have a single pool, by their addresses: a search among few of them costs less than a hash.
    limits: Vec<usize>,
    /// All other pools, by name and key.
    pools: HashSet<(&'a str, Option<&'a str>)>,
}

impl<'a> AskedBefore<'a> {
    fn of(asks: usize) -> Self {
        AskedBefore { asks, limits: vec![], pools: HashSet::new() }
    }

    /// Adds the pool of `limit` for `name` and `key`. Returns false if it is there already.
    fn add(&mut self, limit: &Limit, name: &'a str, key: Option<&'a str>) -> bool {
        const FEW: usize = 64;
        let is_single = matches!((limit.config.keyed, limit.config.name.names()), (Keyed::No, Names::One));
        // No limit moves while exchanges go on.
        let address = std::ptr::from_ref(limit).addr();
        if is_single && self.limits.contains(&address) {
            return false;
        }
        if is_single && self.limits.len() < FEW {
            self.limits.push(address);
            return true;
        }
        self.pools.reserve(if self.pools.is_empty() { self.asks } else { 1 });
        self.pools.insert((name, key))
    }
}

/// The answer to an ask, and what the node is told beside it.
struct Answered {
    answer: Answer,
    safe: Option<SafeShare>,
    /// Permits that the pool has left, if it knows, and its window.
    left: Left,
    /// Options of the limit that tell the node how to refuse, and what to do while it reaches no allocator.
    shadow: bool,
    fallback: Fallback,
}

/// The outcome of an ask at its own limit.
enum Asked {
    Answered(Answered),
    /// The limit has a parent: the pools above are to be asked with this one.
    Below(Holder, PoolId),
}

impl Registry {
    /// Answers one exchange as [`Registry::answers`] does, with owned names.
    ///
    /// # Panics
    /// As [`Registry::answers`].
    pub fn leases(&self, now: Moment, caller: &Caller, asks: &[Entry]) -> Exchanged {
        let Exchanged { grants, events, waits_for } = self.answers(now, caller, asks.iter());
        let grants = grants.into_iter().map(|grant| grant.renamed(Text::into_string)).collect();
        Exchanged { grants, events, waits_for }
    }

    /// Answers one exchange, with names borrowed from `asks`. A wrong entry changes nothing, and fails no other entry.
    /// Exchanges of several threads go on side by side. Each locks the limit of an ask, and the limits above, while it
    /// answers that ask. A session of another epoch is answered nothing: its node does not use the answer.
    ///
    /// # Panics
    /// If a thread panicked in the middle of an exchange with one of the limits.
    pub fn answers<'a, N: AsRef<str> + 'a>(
        &self,
        now: Moment,
        caller: &Caller,
        asks: impl ExactSizeIterator<Item = &'a Entry<N>>,
    ) -> Exchanged<Text<'a>> {
        if ![0, self.epoch].contains(&caller.epoch) {
            return Exchanged { grants: vec![], events: vec![], waits_for: None };
        }
        let before = (asks.len() > 1).then(|| AskedBefore::of(asks.len()));
        let mut exchange =
            Exchange { now, caller, before, session: None, events: vec![], is_uncovered: false };
        let mut grants = Vec::with_capacity(asks.len());
        for entry in asks {
            grants.push(match entry {
                Entry::Ask(ask) => self.answer(&mut exchange, ask),
                Entry::Unread(answer) => {
                    let code = answer.error.as_ref().map(|error| error.code.as_str());
                    self.count_wrong(code.and_then(Reason::named).unwrap_or(Reason::Invalid));
                    answer.clone().renamed(Text::from)
                }
            });
        }
        let Exchange { events, is_uncovered, .. } = exchange;
        Exchanged { grants, events, waits_for: is_uncovered.then(|| self.journaled.next()) }
    }

    fn answer<'a, N: AsRef<str>>(
        &self,
        exchange: &mut Exchange<'_, 'a>,
        ask: &'a AskBody<N>,
    ) -> GrantBody<Text<'a>> {
        let (name, key) = (ask.limit.as_ref(), ask.key.as_ref().map(N::as_ref));
        match self.ask(exchange, ask) {
            Ok(Answered { answer, safe, left, shadow, fallback }) => {
                let (left, window) = left;
                let mut body = GrantBody::answering(Text::from(name), key.map(Text::from), answer);
                body.safe = safe.map(SafeShareBody::of);
                body.left = left;
                body.window_ms = window.map(millis_up);
                (body.shadow, body.fallback) = (shadow, fallback);
                body
            }
            Err(wrong) => {
                self.count_wrong(wrong.reason);
                let mut body = unanswered(name, key, wrong);
                // An error carries these options too: a node needs them most then.
                if let Some(limit) = self.limits.lock_for(name) {
                    (body.shadow, body.fallback) = (limit.config().shadow, limit.config().fallback);
                }
                body
            }
        }
    }

    fn ask<'a, N: AsRef<str>>(
        &self,
        exchange: &mut Exchange<'_, 'a>,
        ask: &'a AskBody<N>,
    ) -> Result<Answered, AskRejection> {
        let name = ask.limit.as_ref();
        if let Some(went) = self.went_lately(name) {
            let is_heard = self.settle_last(exchange, went, ask);
            return Err(if is_heard { unknown(name) } else { unread(name) });
        }
        if self.has_lost_heir(exchange.now, name) {
            return Err(unknown(name));
        }
        let mut limit = self.limits.lock_for(name).ok_or_else(|| unknown(name))?;
        let asked = self.ask_limit(exchange, &mut limit, ask);
        exchange.is_uncovered |= self.journaled.sees(&mut limit);
        match asked? {
            Asked::Answered(answered) => Ok(answered),
            Asked::Below(holder, pool) => {
                let (name, said) = (limit.config().name.to_string(), said(&limit, ask));
                drop(limit);
                self.ask_below(exchange, &name, holder, pool, said)
            }
        }
    }

    /// Lets a removed limit take in what `ask` reports and gives back. The caller is told that there is no such limit,
    /// and so reports no more. If the limit comes back, permits that this ask reports as spent must not count as
    /// unspent. Returns whether nothing is left to take in: the limits above may be gone.
    fn settle_last<N: AsRef<str>>(
        &self,
        exchange: &mut Exchange<'_, '_>,
        mut limit: MutexGuard<'_, Limit>,
        ask: &AskBody<N>,
    ) -> bool {
        let caller = exchange.caller;
        let (name, key) = (ask.limit.as_ref(), ask.key.as_ref().map(N::as_ref));
        let Some(id) = self.sessions.find(&caller.node, caller.session, caller.owner) else { return true };
        let Ok(pool) = limit.pool_id(name, key) else { return true };
        if ask.out_of_range().is_some() || !limit.has(&pool) {
            return true;
        }
        let (now, said) = (limit.not_before(exchange.now), said(&limit, ask));
        let holder = Holder { id, share: limit.config().share(&caller.node, caller.owner), rtt: caller.rtt };
        if limit.config().parent.is_none() {
            // A wrong ask changes nothing. The caller is told of the unknown limit in any case.
            let _ = limit.refuse(now, &pool, holder, caller.seq, said, GONE);
            return true;
        }
        let family = Family::of_removed(&self.limits, limit, now, pool, caller.owner);
        let Ok(mut family) = family else { return false };
        let settled = family
            .with(caller, |pool, above, now| pool.settle_below(above, now, holder, caller.seq, said, GONE));
        if settled.is_ok() {
            self.awaits(exchange, &mut family);
        }
        true
    }

    fn ask_limit<'a, N: AsRef<str>>(
        &self,
        exchange: &mut Exchange<'_, 'a>,
        limit: &mut Limit,
        ask: &'a AskBody<N>,
    ) -> Result<Asked, AskRejection> {
        let (now, caller) = (limit.not_before(exchange.now), exchange.caller);
        let (name, key) = (ask.limit.as_ref(), ask.key.as_ref().map(N::as_ref));
        let pool = limit.pool_id(name, key)?;
        if let Some((field, value)) = ask.out_of_range() {
            return Err(too_large(field, value));
        }
        if exchange.before.as_mut().is_some_and(|before| !before.add(limit, name, key)) {
            let detail = "this pool is in the same exchange twice: the first entry was answered";
            return Err(AskRejection::new(Reason::Duplicate, "limit", detail));
        }
        if self.is_stopping {
            limit.count_stopping();
            limit.look(now, &pool);
            return Ok(Asked::Answered(answered(limit, now, None, &pool, STOPPING)));
        }
        let said = said(limit, ask);
        let share = limit.config().share(&caller.node, caller.owner);
        if said.is_empty()
            && ask.observed.is_none()
            && limit.suspension().refusal(now, &caller.node).is_none()
        {
            let passing = Holder { id: SessionId::UNKNOWN, share, rtt: caller.rtt };
            if let Some((answer, left)) = limit.answer_in_passing(now, &pool, passing, caller.seq, said) {
                let answered = answered(limit, now, None, &pool, answer);
                return Ok(Asked::Answered(Answered { left, ..answered }));
            }
        }
        let id = match exchange.session {
            Some(id) => id,
            None => {
                let entered = self.sessions.enter(now, &caller.node, caller.session, caller.owner);
                entered?
            }
        };
        exchange.session = Some(id);
        let holder = Holder { id, share, rtt: caller.rtt };
        exchange.events.extend(observe(limit, now, id, &pool, ask));
        if limit.config().parent.is_some() {
            return Ok(Asked::Below(holder, pool));
        }
        let answer = match limit.suspension().refusal(now, &caller.node) {
            Some(refusal) => limit.refuse(now, &pool, holder, caller.seq, said, refusal),
            None => limit.renew(now, &pool, holder, caller.seq, said),
        };
        Ok(Asked::Answered(answered(limit, now, Some(id), &pool, answer?)))
    }

    /// Asks a pool of the limit called `name`, and the pools above it.
    fn ask_below(
        &self,
        exchange: &mut Exchange<'_, '_>,
        name: &str,
        holder: Holder,
        pool: PoolId,
        said: Ask,
    ) -> Result<Answered, AskRejection> {
        let caller = exchange.caller;
        let mut family = Family::open(&self.limits, exchange.now, name, pool, caller.owner)?;
        let refusal = family.refusal(caller);
        if refusal.is_none() {
            family.admit(holder)?;
        }
        let answer = family.with(caller, |pool, above, now| match refusal {
            Some(refusal) => pool.settle_below(above, now, holder, caller.seq, said, refusal),
            None => pool.renew_below(above, now, holder, caller.seq, said),
        });
        self.awaits(exchange, &mut family);
        let answer = answer?;
        let (limit, pool, now) = family.lowest();
        limit.count_answer(&said, &answer);
        Ok(answered(limit, now, Some(holder.id), pool, answer))
    }

    /// Notes whether the answer may not leave before what `family` lends is written down.
    fn awaits(&self, exchange: &mut Exchange<'_, '_>, family: &mut Family<'_>) {
        family.limits().for_each(|limit| exchange.is_uncovered |= self.journaled.sees(limit));
    }
}

/// A limit's part of an ask.
impl Limit {
    /// Returns the pool for an ask for `name` and `key`, where `name` is the limit's own or fits its pattern.
    ///
    /// # Errors
    /// If no limit can have that name, or as [`Limit::key`].
    pub fn pool_id(&self, name: &str, key: Option<&str>) -> Result<PoolId, AskRejection> {
        let name = match self.config.name.names() {
            Names::One => None,
            Names::Many { .. } => Some(
                LimitName::try_new(name)
                    .map_err(|error| AskRejection::new(Reason::Invalid, "limit", format!("limit {error}")))?,
            ),
        };
        Ok(PoolId { name, key: self.key(key)? })
    }

    /// Parses the key in `text`, after checking that the limit takes one.
    ///
    /// # Errors
    /// If there is a key and the limit has none, if it is missing, or if it is not valid.
    pub fn key(&self, text: Option<&str>) -> Result<Option<Key>, AskRejection> {
        let name = &self.config.name;
        let mismatch = |problem: &str| {
            let detail = format!("{:?} {problem}", name.as_str());
            Err(AskRejection::new(Reason::KeyMismatch, "key", detail))
        };
        match (self.config.keyed, text) {
            (Keyed::No, None) => Ok(None),
            (Keyed::No, Some(_)) => mismatch("has no keys: ask without one"),
            (Keyed::Yes { .. }, None) => mismatch("is counted by key: send a key"),
            (Keyed::Yes { .. }, Some(text)) => {
                let wrong = |error| AskRejection::new(Reason::Invalid, "key", format!("key {error}"));
                Key::try_new(text).map(Some).map_err(wrong)
            }
        }
    }

    /// Answers one ask of a pool, which is made on first use.
    ///
    /// # Errors
    /// If the ask cannot be true or is out of order, or there is no room for another key or name. Nothing changes then.
    pub fn renew(
        &mut self,
        now: Moment,
        id: &PoolId,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Result<Answer, AskRejection> {
        self.make_on_first_use(now, id, holder.share.owner)?;
        self.make_room_for_session(now, id, holder)?;
        let asked = self.with_pool(now, id, |pool| pool.renew(now, holder, seq, ask));
        let answer = asked.expect("it was there or has been made")?;
        self.tally.sums.answered.count(&ask, &answer);
        Ok(answer)
    }

    /// Takes in what the session `id` read off the vendor's answers about `pool`, if that exists.
    pub fn observe(
        &mut self,
        now: Moment,
        pool: &PoolId,
        id: SessionId,
        observed: &Observed,
    ) -> ObservationEffect {
        let effect = self.with_pool(now, pool, |pool| pool.observe(now, id, observed)).unwrap_or_default();
        self.tally.sums.disagreed.count(effect);
        effect
    }

    /// Returns the safe share of the session `id` in `pool`, to spend while no allocator answers it, if that is
    /// configured.
    pub fn safe_share(&mut self, now: Moment, pool: &PoolId, id: SessionId) -> Option<SafeShare> {
        self.config.sharing.safe?;
        let kept = self.pools.get_mut(pool, &mut self.tally)?.wake();
        let share = kept.pool.safe_share(now, id);
        self.tally.count(&mut kept.counted, kept.pool.view(now));
        share
    }

    /// Returns what callers are told of `pool`: the permits left when it was last used or looked at, and its window.
    pub(crate) fn left(&self, pool: &PoolId) -> Left {
        let entry = self.pools.get(pool);
        entry.map_or((None, None), |entry| (entry.left(), entry.window()))
    }

    /// Lets time pass in `pool`, if it exists.
    pub(crate) fn look(&mut self, now: Moment, pool: &PoolId) {
        self.with_pool(now, pool, |_| ());
    }
}

/// Returns what `ask` says to `limit`. A count of calls that passed is dropped if the limit is not in shadow mode.
fn said<N: AsRef<str>>(limit: &Limit, ask: &AskBody<N>) -> Ask {
    let said = ask.ask();
    if limit.config().shadow { said } else { Ask { shadow_refused: 0, ..said } }
}

/// Adds to `answer` what a session is told beside it about `pool`.
fn answered(
    limit: &mut Limit,
    now: Moment,
    session: Option<SessionId>,
    pool: &PoolId,
    answer: Answer,
) -> Answered {
    let granted = session.filter(|_| answer.grant().is_some());
    let safe = granted.and_then(|session| limit.safe_share(now, pool, session));
    let (left, config) = (limit.left(pool), limit.config());
    Answered { answer, safe, left, shadow: config.shadow, fallback: config.fallback }
}

/// Lets the pool take in what the session `id` read off the vendor's answers, if `ask` says something of that. Returns
/// an event for listeners if it changes what nodes may spend.
fn observe<N: AsRef<str>>(
    limit: &mut Limit,
    now: Moment,
    id: SessionId,
    pool: &PoolId,
    ask: &AskBody<N>,
) -> Option<Event> {
    let effect = limit.observe(now, pool, id, &ask.observed.as_ref()?.observed());
    let kind = match (effect.pauses, effect.is_over) {
        (true, _) => Kind::Paused,
        (false, true) => Kind::Changed,
        (false, false) => return None,
    };
    let key = ask.key.as_ref().map(|key| key.as_ref().to_owned());
    Some(Event { key, ..Event::of(kind, ask.limit.as_ref()) })
}
