//! All limits and sessions of one allocator. The HTTP service and `replay --nodes` drive it.
//!
//! In reading order: `config` (the configuration of a limit), [`limit`] (a limit and its pools), `limits` (a lock for
//! each limit), [`sessions`] (which node asks), `ask` (one exchange), `family` (a pool and the pools above it), `live`
//! (limits come and go), `above` (limits leased from an upstream), `decisions` (of operators), `rows`, `gather` and
//! `written` (what is written down).

mod above;
mod by_node;
mod config;
mod decisions;
mod departed;
mod family;
#[cfg(test)]
mod fixtures;
mod gather;
mod handover;
pub mod limit;
mod limits;
mod live;
mod parents;
mod rows;
pub mod sessions;
mod sweep;
#[cfg(test)]
mod tests;
mod written;

pub use above::{Asker, DueAbove, ExchangeOutcome, Granted};
pub use by_node::ByNode;
pub(crate) use by_node::check_pattern;
pub use config::{KEYS_MAX, Keyed, LESSEES_MAX, LimitConfig, Upstream};
pub use decisions::{BlockedFull, by_name};
pub use gather::Gathering;
pub use limit::Exchanged;
pub use live::{LimitsFull, Put, Unfit};
pub(crate) use parents::too_short_for_flow;
pub use parents::{DEPTH_MAX, check_parents, key_above, wrong_parent};
pub use rows::{Batch, DecisionRow, LimitRow, PoolPlace, PoolRow, PutRow, Written};

use crate::pool::{Above, Goodbye, Past, Pool, SessionId};
use crate::rejection::{AskRejection, Reason, quoted};
use crate::share::Owner;
use above::BatchSize;
use decisions::LocalOverrides;
use departed::Departed;
use family::Family;
use lessor_protocol::names::{KEY_MAX, NAME_MAX};
use lessor_protocol::wire::{AskBody, ErrorBody, GrantBody, LeaveResponse, SpentBody, Text};
use lessor_protocol::{ClockBounds, Moment, NodeName, PERMITS_MAX};
use limit::{Figures, Limit};
use limits::Limits;
use sessions::{Keep, Sessions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use written::Journaled;

/// The node and session of an exchange, and its place in their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node.
    pub node: NodeName,
    /// The number of its session, at most 2^53 − 1.
    pub session: u64,
    /// The epoch of the registry that has answered in this session; 0 if that is not known.
    pub epoch: u64,
    /// The number of the exchange, at most 2^53 − 1.
    pub seq: u64,
    /// The round-trip time of the node, as it reports.
    pub rtt: Duration,
    /// The identity that the session belongs to.
    pub owner: Owner,
}

/// One entry of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<N = String> {
    /// An ask.
    Ask(AskBody<N>),
    /// The answer to an entry that cannot be read.
    Unread(GrantBody),
}

/// All limits and sessions of one allocator, as one state machine. Several threads may hand in what nodes say at once
/// ([`Registry::leases`], [`Registry::leave`]). Methods that take `&mut self` have the registry alone.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    /// Limits that were removed, as long as what they lent counts.
    retired: Limits,
    /// What an earlier run left of limits that were not configured when this run began.
    departed: BTreeMap<String, Departed>,
    /// When the first of these counts no more. The origin if that is not known.
    departed_count_until: Moment,
    /// For each departed limit, the pattern to which its names fell, and the moment until which the pattern waits for
    /// what was lent by these names.
    heirs: BTreeMap<String, (String, Moment)>,
    /// Entries of `heirs` whose pattern was removed since.
    lost_heirs: BTreeMap<String, (String, Moment)>,
    clocks: ClockBounds,
    /// What new limits have to wait for, because an earlier run may have lent it.
    past: Past,
    sessions: Sessions,
    epoch: u64,
    /// Number of the session with the first upstream that is asked, if that disputes none.
    session_above: u64,
    /// Number of the session with each upstream that was asked.
    sessions_above: BTreeMap<Upstream, u64>,
    store_batch: BatchSize,
    is_stopping: bool,
    wrong: Mutex<WrongCounts>,
    /// State of what is written down.
    journaled: Journaled,
    overrides: LocalOverrides,
}

/// Rejected asks, by reason.
pub type WrongCounts = BTreeMap<Reason, u64>;

impl Registry {
    /// Makes a registry with the limits `configured`. Its `epoch`, which is not 0, tells this run from others. Unless
    /// `past` is [`Past::None`], every pool is in quarantine until nothing counts any more that an earlier run may have
    /// lent.
    pub fn new(configured: &[LimitConfig], clocks: ClockBounds, past: Past, now: Moment, epoch: u64) -> Self {
        let mut limits = Limits::default();
        for limit in configured {
            limits.insert(limit.name.to_string(), Limit::new(limit.clone(), clocks, past, now));
        }
        Registry {
            sessions: Sessions::new(keep(clocks, &mut limits)),
            limits,
            retired: Limits::default(),
            departed: BTreeMap::new(),
            departed_count_until: Moment::ORIGIN,
            heirs: BTreeMap::new(),
            lost_heirs: BTreeMap::new(),
            clocks,
            past,
            epoch,
            session_above: epoch.clamp(1, PERMITS_MAX),
            sessions_above: BTreeMap::new(),
            store_batch: BatchSize::default(),
            is_stopping: false,
            journaled: Journaled::default(),
            overrides: LocalOverrides::new(configured),
            wrong: Mutex::new(Reason::ALL.into_iter().map(|reason| (reason, 0)).collect()),
        }
    }

    /// Returns the number that tells this run of the allocator from others.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends a session. Returns its unspent permits to the pools that it names.
    pub fn leave(&self, now: Moment, caller: &Caller, spent: &[SpentBody]) -> LeaveResponse {
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

    /// Looks at the next sessions and pools, see [`Registry::look_round`], and forgets removed limits that no longer
    /// matter.
    pub fn sweep(&mut self, now: Moment, steps: usize) {
        self.look_round(now, steps);
        self.sweep_retired(now, steps);
    }

    /// Looks at the next `steps` sessions of each part, and at as many pools of each limit, one limit after the other.
    /// Forgets sessions and pools that no longer matter.
    pub fn look_round(&self, now: Moment, steps: usize) {
        self.sessions.sweep(now, steps);
        for (_, mut limit) in self.limits.locked() {
            let now = limit.not_before(now);
            limit.sweep(now, steps);
            if limit.is_unwritten() {
                self.journaled.has_more();
            }
        }
    }

    /// Lets no limit have more pools than now while memory is short. Existing pools go on.
    pub fn hold_pools(&self, memory: limit::Memory) {
        self.limits.locked().for_each(|(_, mut limit)| limit.hold_pools(memory));
    }

    /// Returns the limits that lend nothing yet, here or upstream, and for how long.
    pub fn quarantined(&self, now: Moment) -> Vec<(&str, Duration)> {
        self.waiting_limits(|limit| limit.quarantine(now).max(limit.quarantine_above(now)))
    }

    /// Returns the limits that lend nothing yet because of this allocator, and for how long. At another allocator they
    /// need not wait.
    pub fn quarantined_here(&self, now: Moment) -> Vec<(&str, Duration)> {
        self.waiting_limits(|limit| limit.quarantine(now))
    }

    fn waiting_limits(&self, wait: impl Fn(&Limit) -> Duration) -> Vec<(&str, Duration)> {
        let waits = self.limits.locked().map(|(name, limit)| (name, wait(&limit)));
        waits.filter(|(_, wait)| !wait.is_zero()).collect()
    }

    /// Returns every limit with its figures, by name.
    pub fn limits(&mut self, now: Moment) -> Vec<(&LimitConfig, Figures)> {
        let limits = self.limits.values_mut().map(|limit| {
            let figures = limit.figures(now);
            (limit.config(), figures)
        });
        limits.collect()
    }

    /// Returns every limit with its figures, by name, to be read without the registry.
    pub fn snapshots(&mut self, now: Moment) -> Vec<(Arc<LimitConfig>, Figures)> {
        let limits = self.limits.values_mut().map(|limit| (limit.shared_config(), limit.figures(now)));
        limits.collect()
    }

    /// Returns the limit that was configured as `name`, which may be a pattern.
    pub fn limit(&mut self, name: &str) -> Option<&mut Limit> {
        self.limits.get_mut(name)
    }

    /// Returns the limit that was configured as `name`, or a removed one of that name that still counts.
    pub fn limit_or_retired(&mut self, name: &str) -> Option<&mut Limit> {
        self.limits.get_mut(name).or_else(|| self.retired.get_mut(name))
    }

    /// Returns the limit of an ask for `name`: the one of that name, or else of the longest pattern that `name` fits.
    pub fn limit_for(&mut self, name: &str) -> Option<&mut Limit> {
        self.limits.get_mut_for(name)
    }

    /// Returns the name or pattern of the limit of an ask for `name`, as it is configured.
    pub fn configured_for(&self, name: &str) -> Option<String> {
        self.limits.named_for(name)
    }

    /// Returns the longest pattern, other than `name` itself, that fits `name`. If `name` is a pattern, it fits all names
    /// of it.
    pub fn pattern_for(&self, name: &str) -> Option<String> {
        let stem = name.strip_suffix('*').unwrap_or(name);
        self.limits.all_named_for(stem).find(|found| found.ends_with('*') && found != name)
    }

    /// Whether the session of `caller` belongs to another owner. Such a caller gets no answer, and cannot end the
    /// session.
    pub fn is_of_another(&self, caller: &Caller) -> bool {
        self.sessions.is_of_another(&caller.node, caller.session, caller.owner)
    }

    /// Returns the number of known sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Returns the node of each session in `ids`, as far as it is known. The number of a session is its secret, and not
    /// returned.
    pub fn nodes_of(&self, ids: &BTreeSet<SessionId>) -> BTreeMap<SessionId, NodeName> {
        self.sessions.nodes(ids)
    }

    /// Returns up to `count` sessions that follow the session `after`, and none only if none follows. Sessions of a node
    /// stand beside each other.
    pub fn sessions_after(
        &self,
        after: Option<&(NodeName, u64)>,
        count: usize,
    ) -> Vec<((NodeName, u64), SessionId)> {
        self.sessions.after(after, count)
    }

    /// Returns the counts of rejected asks, by reason. Every reason is there.
    pub fn wrong(&mut self) -> &WrongCounts {
        self.wrong.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave_pool(&self, now: Moment, caller: &Caller, spent: &SpentBody) -> Result<u64, AskRejection> {
        let retired = self.went_lately(&spent.limit);
        let went = retired.is_some();
        let limit = retired.or_else(|| self.limits.lock_for(&spent.limit));
        let mut limit = limit.ok_or_else(|| unknown(&spent.limit))?;
        let (pool, now) = (limit.pool_id(&spent.limit, spent.key.as_deref())?, limit.not_before(now));
        let said = [
            ("spent_total", spent.spent_total),
            ("running", spent.running.unwrap_or(0)),
            ("held", spent.held.unwrap_or(0)),
            ("shadow_refused", spent.shadow_refused),
        ];
        for (field, value) in said {
            if value > PERMITS_MAX {
                return Err(too_large(field, value));
            }
        }
        let Some(id) = self.sessions.find(&caller.node, caller.session, caller.owner) else {
            return Ok(0);
        };
        let SpentBody { spent_total, running, held, shadow_refused, .. } = *spent;
        let shadow_refused = if limit.config().shadow { shadow_refused } else { 0 };
        let goodbye = Goodbye { spent_total, running, held, shadow_refused };
        if limit.config().parent.is_none() || !limit.has(&pool) {
            return Ok(limit.leave(now, &pool, id, caller.seq, goodbye)?);
        }
        let name = limit.config().name.to_string();
        let mut family = match went {
            true => Family::of_removed(&self.limits, limit, now, pool, caller.owner)?,
            false => {
                drop(limit);
                Family::open(&self.limits, now, &name, pool, caller.owner)?
            }
        };
        let leave = |pool: &mut Pool, above: &mut [Above<'_>], now| {
            pool.leave_below(above, now, id, caller.seq, goodbye)
        };
        Ok(family.with(caller, leave)?)
    }

    fn count_wrong(&self, reason: Reason) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        *wrong.entry(reason).or_default() += 1;
    }
}

/// Returns how long idle sessions are remembered, by the rules of all `limits`.
fn keep(clocks: ClockBounds, limits: &mut Limits) -> Keep {
    let longest = limits.values_mut().map(|limit| limit.memory()).max().unwrap_or_default();
    Keep { roomy: longest + clocks.quarantine(), full: clocks.quarantine() }
}

fn unknown(name: &str) -> AskRejection {
    AskRejection::new(Reason::LimitUnknown, "limit", format!("there is no limit {}", quoted(name)))
}

/// The caller tells what its ask reports once more, because no limit has read it.
fn unread(name: &str) -> AskRejection {
    let detail =
        format!("there is no limit {}, and the limits above it cannot take in the report", quoted(name));
    AskRejection::new(Reason::Invalid, "limit", detail)
}

fn too_large(field: &str, value: u64) -> AskRejection {
    let detail = format!("{field} is {value}: use at most {PERMITS_MAX} (2^53 - 1)");
    AskRejection::new(Reason::Invalid, field, detail)
}

/// Returns the answer to an entry that was `wrong`. Names that are longer than any real one are not sent back.
pub fn unanswered<'a>(limit: &'a str, key: Option<&'a str>, wrong: AskRejection) -> GrantBody<Text<'a>> {
    let echo = |text: &'a str, max| if text.len() <= max { text.into() } else { quoted(text).into() };
    GrantBody::rejecting(echo(limit, NAME_MAX), key.map(|key| echo(key, KEY_MAX)), wrong.body())
}

/// Returns the body of `wrong`, with the entry of a leave that it is about.
fn at_index(wrong: AskRejection, index: usize) -> ErrorBody {
    let place = format!("spent[{index}]");
    let field = match &wrong.field {
        Some(field) => format!("{place}.{field}"),
        None => place,
    };
    AskRejection { field: Some(field), ..wrong }.body()
}
