//! All limits and sessions of one allocator. The HTTP service and `replay --nodes` drive it.
//!
//! In reading order: `config` (what is configured of a limit), [`limit`] (a limit and its pools), [`sessions`] (which node asks),
//! `ask` (one exchange), `family` (the pools above one), `live` (limits come and go), `above` (what is leased from
//! an upstream), `decisions` (of operators), `rows`, `gather` and `written` (what is written down).

mod above;
mod ask;
mod by_node;
mod config;
mod decisions;
mod family;
#[cfg(test)]
mod fixtures;
mod gather;
pub mod limit;
mod live;
mod parents;
mod rows;
pub mod sessions;
mod sweep;
#[cfg(test)]
mod tests;
mod written;

pub use above::{Asker, DueAbove, ExchangeOutcome};
pub use by_node::ByNode;
pub(crate) use by_node::check_pattern;
pub use config::{KEYS_MAX, Keyed, LESSEES_MAX, LimitConfig, Upstream};
pub use decisions::{BlockedFull, by_name};
pub use gather::Gathering;
pub use live::{LimitsFull, Put, Unfit};
pub(crate) use parents::too_short_for_flow;
pub use parents::{DEPTH_MAX, check_parents, key_above, wrong_parent};
pub use rows::{Batch, DecisionRow, LimitRow, PoolPlace, PoolRow, PutRow, Written};

use crate::named::named_for;
use crate::pool::{Goodbye, Past, SessionId};
use crate::rejection::{AskRejection, Reason, quoted};
use decisions::LocalOverrides;
use family::Family;
use lessor_protocol::names::{KEY_MAX, NAME_MAX};
use lessor_protocol::push::Event;
use lessor_protocol::wire::{AskBody, ErrorBody, GrantBody, LeaveResponse, SpentBody};
use lessor_protocol::{ClockBounds, Moment, NodeName, PERMITS_MAX};
use limit::{Figures, Limit, PoolId};
use sessions::{Keep, Sessions};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use written::Journaled;

/// The node and session of an exchange, and its place in their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node.
    pub node: NodeName,
    /// Its session, at most 2^53 − 1.
    pub session: u64,
    /// The exchange, at most 2^53 − 1.
    pub seq: u64,
    /// The round trip of the node, as it says.
    pub rtt: Duration,
}

/// One entry of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An ask.
    Ask(AskBody),
    /// The answer to an entry that cannot be read.
    Unread(GrantBody),
}

/// All limits and sessions of one allocator: one state machine.
#[derive(Debug)]
pub struct Registry {
    limits: BTreeMap<String, Limit>,
    /// Limits that were removed, while what they lent still counts.
    retired: BTreeMap<String, Limit>,
    clocks: ClockBounds,
    /// What an earlier life may have left, for limits that are new.
    past: Past,
    sessions: Sessions,
    epoch: u64,
    /// The session at upstreams.
    session_above: u64,
    is_stopping: bool,
    wrong: WrongCounts,
    /// Events for listeners: at most one for each ask of an exchange.
    events: Vec<Event>,
    /// What is written down.
    journaled: Journaled,
    overrides: LocalOverrides,
}

/// Rejected asks, by reason.
pub type WrongCounts = BTreeMap<Reason, u64>;

impl Registry {
    /// A registry with the limits `configured`. Its `epoch` tells this life from others. Unless `past` is none, every pool is in
    /// quarantine until nothing counts that an earlier life may have lent.
    pub fn new(configured: &[LimitConfig], clocks: ClockBounds, past: Past, now: Moment, epoch: u64) -> Self {
        let limit = |limit: &LimitConfig| {
            let made = Limit::new(limit.clone(), clocks, past, now);
            (limit.name.to_string(), made)
        };
        let limits: BTreeMap<String, Limit> = configured.iter().map(limit).collect();
        Registry {
            sessions: Sessions::new(keep(clocks, &limits)),
            limits,
            retired: BTreeMap::new(),
            clocks,
            past,
            epoch,
            session_above: epoch.clamp(1, PERMITS_MAX),
            is_stopping: false,
            events: vec![],
            journaled: Journaled::default(),
            overrides: LocalOverrides::new(configured),
            wrong: Reason::ALL.into_iter().map(|reason| (reason, 0)).collect(),
        }
    }

    /// Which life of the allocator this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends a session. Returns its unspent permits to the pools that it names.
    pub fn leave(&mut self, now: Moment, caller: &Caller, spent: &[SpentBody]) -> LeaveResponse {
        let mut response = LeaveResponse { returned: 0, errors: vec![] };
        for (index, entry) in spent.iter().enumerate() {
            match self.leave_pool(now, caller, entry) {
                Ok(returned) => response.returned = response.returned.saturating_add(returned),
                Err(wrong) => {
                    self.count_wrong(wrong.reason);
                    response.errors.push(at_index(wrong, index));
                }
            }
        }
        response
    }

    /// Stops lending. Leases that are out hold, and can still be given back.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether lending has stopped.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Looks at the next `steps` sessions, and at as many pools of each limit. Forgets sessions and pools that make no
    /// difference any more.
    pub fn sweep(&mut self, now: Moment, steps: usize) {
        self.sessions.sweep(now, steps);
        for limit in self.limits.values_mut() {
            limit.sweep(now, steps);
            self.journaled.sees(limit);
        }
        self.sweep_retired(now, steps);
    }

    /// Limits that lend nothing yet, and for how long.
    pub fn quarantined(&self, now: Moment) -> Vec<(&str, Duration)> {
        let waits = self.limits.iter().map(|(name, limit)| (name.as_str(), limit.quarantine(now)));
        waits.filter(|(_, wait)| !wait.is_zero()).collect()
    }

    /// Every limit with its figures, by name.
    pub fn limits(&mut self, now: Moment) -> Vec<(&LimitConfig, Figures)> {
        let limits = self.limits.values_mut().map(|limit| {
            let figures = limit.figures(now);
            (limit.config(), figures)
        });
        limits.collect()
    }

    /// The limit that was configured as `name`, which may be a pattern.
    pub fn limit(&mut self, name: &str) -> Option<&mut Limit> {
        self.limits.get_mut(name)
    }

    /// The same, or the one that was removed and still counts.
    pub fn limit_or_retired(&mut self, name: &str) -> Option<&mut Limit> {
        self.limits.get_mut(name).or_else(|| self.retired.get_mut(name))
    }

    /// The limit of an ask for `name`: the one of that name, or else of the longest pattern that `name` fits.
    pub fn limit_for(&mut self, name: &str) -> Option<&mut Limit> {
        limit_for(&mut self.limits, name)
    }

    /// Sessions that are known.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Which node each of `ids` is a session of, as far as it is known. The number of the session is its secret.
    pub fn nodes_of(&self, ids: &BTreeSet<SessionId>) -> BTreeMap<SessionId, NodeName> {
        self.sessions.nodes(ids)
    }

    /// Up to `count` sessions that come after another one, those of a node one after the other.
    pub fn sessions_after(
        &self,
        after: Option<&(NodeName, u64)>,
        count: usize,
    ) -> Vec<((NodeName, u64), SessionId)> {
        self.sessions.after(after, count)
    }

    /// Rejected asks, by reason. Every reason is in it.
    pub fn wrong(&self) -> &WrongCounts {
        &self.wrong
    }

    fn leave_pool(&mut self, now: Moment, caller: &Caller, spent: &SpentBody) -> Result<u64, AskRejection> {
        let went = !self.limits.contains_key(&spent.limit) && self.retired.contains_key(&spent.limit);
        let limits = if went { &mut self.retired } else { &mut self.limits };
        let (limit, pool) = find(limits, &spent.limit, spent.key.as_deref())?;
        let said = [
            ("spent_total", spent.spent_total),
            ("running", spent.running.unwrap_or(0)),
            ("held", spent.held.unwrap_or(0)),
        ];
        for (field, value) in said {
            if value > PERMITS_MAX {
                return Err(too_large(field, value));
            }
        }
        let Some(id) = self.sessions.find(&caller.node, caller.session) else {
            return Ok(0);
        };
        // Leases of a limit that was removed end by themselves, here and above.
        if went && limit.config().parent.is_some() {
            return Ok(0);
        }
        let SpentBody { spent_total, running, held, .. } = *spent;
        let goodbye = Goodbye { spent_total, running, held };
        if limit.config().parent.is_none() || !limit.has(&pool) {
            return Ok(limit.leave(now, &pool, id, caller.seq, goodbye)?);
        }
        let name = limit.config().name.to_string();
        let mut family = Family::open(&mut self.limits, now, &name, pool)?;
        let returned = family
            .with(&self.limits, caller, |pool, above| pool.leave_below(above, now, id, caller.seq, goodbye));
        family.close(&mut self.limits, now);
        Ok(returned?)
    }

    fn count_wrong(&mut self, reason: Reason) {
        *self.wrong.entry(reason).or_default() += 1;
    }
}

/// How long idle sessions are remembered, for the rules of all `limits`.
fn keep(clocks: ClockBounds, limits: &BTreeMap<String, Limit>) -> Keep {
    let longest = limits.values().map(Limit::memory).max().unwrap_or_default();
    Keep { roomy: longest + clocks.quarantine(), full: clocks.quarantine() }
}

fn find<'a>(
    limits: &'a mut BTreeMap<String, Limit>,
    name: &str,
    key: Option<&str>,
) -> Result<(&'a mut Limit, PoolId), AskRejection> {
    let limit = limit_for(limits, name).ok_or_else(|| unknown(name))?;
    let pool = limit.pool_id(name, key)?;
    Ok((limit, pool))
}

fn unknown(name: &str) -> AskRejection {
    AskRejection::new(Reason::LimitUnknown, "limit", format!("there is no limit {}", quoted(name)))
}

/// See [`Registry::limit_for`].
fn limit_for<'a>(limits: &'a mut BTreeMap<String, Limit>, name: &str) -> Option<&'a mut Limit> {
    // The usual one costs no search: it has the name itself.
    if !name.ends_with('*') && limits.contains_key(name) {
        return limits.get_mut(name);
    }
    limits.get_mut(&named_for(limits, name)?)
}

fn too_large(field: &str, value: u64) -> AskRejection {
    let detail = format!("{field} is {value}: use at most {PERMITS_MAX} (2^53 - 1)");
    AskRejection::new(Reason::Invalid, field, detail)
}

/// The answer to an entry that was `wrong`. Names that are longer than any real one are not sent back.
pub fn unanswered(limit: &str, key: Option<&str>, wrong: AskRejection) -> GrantBody {
    let echo = |text: &str, max| if text.len() <= max { text.to_owned() } else { quoted(text) };
    let key = key.map(|key| echo(key, KEY_MAX));
    GrantBody::wrong(&echo(limit, NAME_MAX), key.as_deref(), wrong.body())
}

/// `wrong` with the entry of a leave that it was in.
fn at_index(wrong: AskRejection, index: usize) -> ErrorBody {
    let place = format!("spent[{index}]");
    let field = match &wrong.field {
        Some(field) => format!("{place}.{field}"),
        None => place,
    };
    AskRejection { field: Some(field), ..wrong }.body()
}
