//! One exchange: each of its entries is read, asked of its limit and answered. What its nodes heard of a vendor goes to the pool
//! first, and an event tells listeners of a change.

use super::family::Family;
use super::sessions::SESSIONS_MAX;
use super::{Caller, Entry, Registry, find, too_large, unanswered, unknown};
use crate::pool::{Holder, SessionId};
use crate::registry::limit::{Limit, PoolId};
use crate::rejection::{AskRejection, Reason};
use lessor_protocol::lease::millis_up;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::wire::{AskBody, GrantBody, SafeShareBody};
use lessor_protocol::{Answer, Fallback, Moment, Refusal, RefusalReason, SafeShare};
use std::collections::HashSet;
use std::time::Duration;

/// When to ask again after "stopping". A successor takes about a second to start.
const STOPPING_RETRY: Duration = Duration::from_secs(1);

const STOPPING: Answer =
    Answer::Refusal(Refusal { reason: RefusalReason::Stopping, retry_after: STOPPING_RETRY });

/// One exchange, as far as its entries have to know of each other.
struct Exchange<'a> {
    now: Moment,
    caller: &'a Caller,
    /// The pools of the entries before, where there are several.
    pools: Option<HashSet<(&'a str, Option<&'a str>)>>,
    /// The session of the caller, once an entry was asked of a pool.
    session: Option<SessionId>,
}

/// What an ask is answered, and what the node is told beside it.
struct Answered {
    answer: Answer,
    safe: Option<SafeShare>,
    /// Permits that the pool has left, and its window.
    left: Option<(u64, Option<Duration>)>,
    /// What the limit says of refusals, and of nodes that reach no allocator.
    shadow: bool,
    fallback: Fallback,
}

impl Registry {
    /// Answers one exchange: one answer for each entry, in order. A wrong entry changes nothing, and fails no
    /// other entry.
    pub fn leases(&mut self, now: Moment, caller: &Caller, asks: &[Entry]) -> Vec<GrantBody> {
        let pools = (asks.len() > 1).then(|| HashSet::with_capacity(asks.len()));
        let mut exchange = Exchange { now, caller, pools, session: None };
        let mut grants = Vec::with_capacity(asks.len());
        for entry in asks {
            grants.push(match entry {
                Entry::Ask(ask) => self.answer(&mut exchange, ask),
                Entry::Unread(answer) => {
                    self.count_wrong(Reason::Invalid);
                    answer.clone()
                }
            });
        }
        grants
    }

    /// Returns the events for listeners since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn answer<'a>(&mut self, exchange: &mut Exchange<'a>, ask: &'a AskBody) -> GrantBody {
        let body = match self.ask(exchange, ask) {
            Ok(Answered { answer, safe, left, shadow, fallback }) => {
                let (left, window) = left.unzip();
                let safe = safe.map(SafeShareBody::of);
                let window_ms = window.flatten().map(millis_up);
                let body = GrantBody::of(&ask.limit, ask.key.as_deref(), answer);
                GrantBody { safe, left, window_ms, shadow, fallback, ..body }
            }
            Err(wrong) => {
                self.count_wrong(wrong.reason);
                let body = unanswered(&ask.limit, ask.key.as_deref(), wrong);
                // A refusal says it too: a node needs it most then.
                match self.limit_for(&ask.limit).map(|limit| limit.config()) {
                    Some(config) => GrantBody { shadow: config.shadow, fallback: config.fallback, ..body },
                    None => body,
                }
            }
        };
        self.note_used(&ask.limit);
        body
    }

    fn ask<'a>(&mut self, exchange: &mut Exchange<'a>, ask: &'a AskBody) -> Result<Answered, AskRejection> {
        let (now, caller) = (exchange.now, exchange.caller);
        if self.went_lately(&ask.limit) {
            return Err(unknown(&ask.limit));
        }
        let (limit, pool) = find(&mut self.limits, &ask.limit, ask.key.as_deref())?;
        if let Some((field, value)) = ask.out_of_range() {
            return Err(too_large(field, value));
        }
        let entry = (ask.limit.as_str(), ask.key.as_deref());
        if exchange.pools.as_mut().is_some_and(|pools| !pools.insert(entry)) {
            let detail = "this pool is in the same exchange twice: the first entry was answered";
            return Err(AskRejection::new(Reason::Duplicate, "limit", detail));
        }
        if self.is_stopping {
            limit.count_stopping();
            limit.look(now, &pool);
            return Ok(answered(limit, now, None, &pool, STOPPING));
        }
        let entered = exchange.session.or_else(|| self.sessions.enter(now, &caller.node, caller.session));
        exchange.session = entered;
        let id = entered.ok_or_else(no_room_for_session)?;
        let holder = Holder { id, share: limit.config().share(&caller.node), rtt: caller.rtt };
        self.events.extend(observe(limit, now, id, &pool, ask));
        if limit.config().parent.is_some() {
            return self.ask_below(now, caller, holder, pool, ask);
        }
        let answer = match limit.suspension().refusal(now, &caller.node) {
            Some(refusal) => limit.refuse(now, &pool, holder, caller.seq, ask.ask(), refusal),
            None => limit.renew(now, &pool, holder, caller.seq, ask.ask()),
        };
        Ok(answered(limit, now, Some(id), &pool, answer?))
    }

    /// Asks a pool that has others above it.
    fn ask_below(
        &mut self,
        now: Moment,
        caller: &Caller,
        holder: Holder,
        id: PoolId,
        ask: &AskBody,
    ) -> Result<Answered, AskRejection> {
        let refusal = self.refusal(now, &ask.limit, caller);
        let name = self.limit_for(&ask.limit).ok_or_else(|| unknown(&ask.limit))?.config().name.to_string();
        let mut family = Family::open(&mut self.limits, now, &name, id.clone())?;
        let answer = family.with(&self.limits, caller, |pool, above| match refusal {
            Some(refusal) => pool.settle_below(above, now, holder, caller.seq, ask.ask(), refusal),
            None => pool.renew_below(above, now, holder, caller.seq, ask.ask()),
        });
        family.close(&mut self.limits, now);
        let answer = answer?;
        let limit = self.limits.get_mut(&name).ok_or_else(|| unknown(&ask.limit))?;
        limit.count_answer(&ask.ask(), &answer);
        Ok(answered(limit, now, Some(holder.id), &id, answer))
    }
}

/// What a session is told beside `answer`, of `pool`.
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

/// The pool takes in what the session `id` heard of the vendor, if `ask` says so. Listeners hear of a change.
fn observe(limit: &mut Limit, now: Moment, id: SessionId, pool: &PoolId, ask: &AskBody) -> Option<Event> {
    let effect = limit.observe(now, pool, id, &ask.observed.as_ref()?.observed());
    let kind = match (effect.pauses, effect.is_over) {
        (true, _) => Kind::Paused,
        (false, true) => Kind::Changed,
        (false, false) => return None,
    };
    Some(Event { key: ask.key.clone(), ..Event::of(kind, &ask.limit) })
}

fn no_room_for_session() -> AskRejection {
    let detail = format!("{SESSIONS_MAX} sessions are known, as many as may be; those go on");
    AskRejection { reason: Reason::LesseesFull, field: None, detail }
}
