//! The root pool of one limit and key, as it is in a cell: read, asked once, and written anew. Whether what is written takes
//! the place of what was read, the store decides.

use super::clock_uncertainty;
use super::head::Age;
use super::{CompiledPlan, Head, ParentRef};
use crate::cells::VALUE_MAX;
use crate::overrides::Version;
use crate::pool::Fixtures;
use crate::pool::{AskError, GroupAsk, Holder, Plan, Pool, SafeAsk, Snapshot};
use crate::rule::{At, Gap, RefillStyle, Since};
use crate::share::Sharing;
use crate::{CarryOver, Rule};
use lessor_protocol::{Answer, Ask, Moment, Refusal, RefusalReason, SafeShare};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Of a root that goes by a file.
const FORMAT: u32 = 1;

/// Of one that goes by what was put over the API: who knows only files leaves it alone.
const FORMAT_DECIDED: u32 = 2;

/// Of one with calls in flight, or that refills at intervals: who knows neither leaves it alone.
const FORMAT_IN_FLIGHT: u32 = 3;

/// Of one with safe shares.
const FORMAT_SAFE: u32 = 4;

/// Of one that guarantees something to groups. What cells of yet another version say is not guessed at.
const FORMAT_GROUPS: u32 = 5;

/// What a root is made of, by the configuration of the allocator that asks it.
#[derive(Clone, Debug)]
pub struct RootSpec {
    /// What must hold, and how it is shared.
    pub compiled: CompiledPlan,
    /// Which configuration says so: the highest that ever asked a root is the one that it goes by. `None` where the limit was removed.
    /// Then this says the last of it, a root goes by what others say, and none is made.
    pub version: Option<Version>,
    /// What is known of what is above it: an allocator that lends of this one charges that one too.
    pub parent_ref: ParentRef,
}

/// The cell of a root.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root<'a> {
    format: u32,
    /// On the time of which era.
    era: u64,
    /// By which configuration it goes, and what that says: all others follow.
    version: Version,
    #[serde(borrow)]
    rules: &'a RawValue,
    pool: Snapshot,
    /// Until then calls may go on that were let begin by other rules, of how long they take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls_end: Option<At>,
}

/// Why a root lends nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// What was asked cannot be.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// What time it is in the store cannot be told well enough.
    #[error("the store is too far away, or too slow, to tell the time by")]
    NoTime,
    /// It was there, and is not any more: perhaps no allocator needed it, perhaps the store was emptied.
    #[error("it is gone from the store")]
    Gone,
    /// It is gone from the store, and so is its limit from the configuration.
    #[error("it is gone from the store, and its limit was removed")]
    Removed,
    /// The head that is known is out of date.
    #[error("the store has begun another time")]
    HeadIsOld,
    /// Another version wrote it.
    #[error("another version wrote it, in a format or by rules that this one does not know")]
    Format,
    /// The allocator that asks would not charge the one above.
    #[error(
        "the store knows that it is below {0:?}, and this configuration does not say so: if it is not any more, raise store.version"
    )]
    Below(String),
    /// It has become more than a store keeps.
    #[error("it has {0} bytes, of at most {VALUE_MAX}")]
    TooLarge(usize),
}

/// The root of a key of which nothing matters any more that was lent is taken away though a new one has less: its bucket begins with less
/// than it holds. Not before it was asked for nothing for so long.
const UNUSED_FOR: Duration = Duration::from_secs(2 * 86_400);

/// When to ask again after other allocators were faster all the time.
const LOST_RETRY: Duration = Duration::from_millis(20);

/// When to ask again while what is in the store is of no use.
const USELESS_RETRY: Duration = Duration::from_secs(1);

/// What an allocator says beside what it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    /// Of safe shares, where the limit has any.
    pub safe: Option<SafeAsk>,
    /// Of each group for which the limit guarantees something.
    pub groups: &'a [GroupAsk],
}

/// What a root answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// To what was asked.
    pub answer: Answer,
    /// What the allocator may hand out of safe shares in all, if its limit has any.
    pub safe: Option<SafeShare>,
    /// What of the grant is for each group.
    pub groups: Vec<u64>,
}

impl Reply {
    /// `answer`, and nothing beside it.
    pub fn of(answer: Answer) -> Self {
        Reply { answer, safe: None, groups: vec![] }
    }
}

/// What the pool below hears of what came of its ask: a refusal to come back later where the root could not be asked.
///
/// # Errors
/// What was asked cannot be.
pub fn to_pool(answer: Option<Result<Reply, RootError>>) -> Result<Reply, AskError> {
    let refusal =
        |retry_after| Reply::of(Answer::Refusal(Refusal { reason: RefusalReason::Other, retry_after }));
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(RootError::Ask(error))) => Err(error),
        // What it held there is known to no root.
        Some(Err(RootError::Removed)) => Err(AskError::LeaseUnknown { spent_total: 0, held: 0 }),
        Some(Err(RootError::HeadIsOld | RootError::Gone | RootError::NoTime)) | None => {
            Ok(refusal(LOST_RETRY))
        }
        Some(Err(RootError::Below(_) | RootError::Format | RootError::TooLarge(_))) => {
            Ok(refusal(USELESS_RETRY))
        }
    }
}

/// A root that was asked: what to write, or that nothing need be there, and what it answers once that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// What to write.
    pub value: Option<Vec<u8>>,
    /// What it answers.
    pub answer: Result<Reply, AskError>,
    /// See [`Read::is_contested`].
    pub is_contested: bool,
}

/// A root that was read.
#[derive(Debug)]
pub struct Read {
    /// Its pool.
    pub pool: Pool,
    /// By which configuration it goes.
    pub version: Version,
    /// The time that it is at.
    pub now: Moment,
    /// When it was written.
    written: Moment,
    /// When calls have ended that were let begin by other rules.
    calls_end: Moment,
    /// Whether the configuration of the allocator that reads it says otherwise under the same version. Which is newer cannot be
    /// told.
    pub is_contested: bool,
}

/// The pool in `value` at `now`, or later. Where there is none it is new, or what an earlier store lent may still be out.
///
/// # Errors
/// If this one may not go on with it.
pub fn read(spec: &RootSpec, head: &Head, value: Option<&[u8]>, now: Moment) -> Result<Read, RootError> {
    let plan = || spec.compiled.plan().clone();
    let calls_end = Moment::ORIGIN;
    let version = spec.version.unwrap_or_default();
    let new = |pool| Read { pool, version, now, written: now, calls_end, is_contested: false };
    let begin = || match (head.lost(), spec.version) {
        (_, None) => Err(RootError::Removed),
        (Some(lost), Some(_)) => Ok(new(Pool::after_loss(plan(), lost, now))),
        (None, Some(_)) => Ok(new(Pool::new(plan(), now))),
    };
    let Some(value) = value else { return begin() };
    let root = match serde_json::from_slice::<Root>(value) {
        Ok(root) if root.format <= FORMAT_GROUPS => root,
        // What it was is unknown.
        Err(_) if spec.version.is_none() => return Err(RootError::Removed),
        Err(_) if !is_newer(value) => return Ok(new(Pool::after_loss(plan(), now, now))),
        Ok(_) | Err(_) => return Err(RootError::Format),
    };
    match head.age(root.era) {
        Age::Newer => Err(RootError::HeadIsOld),
        Age::Lost => begin(),
        Age::Known(gap) => {
            let now = if gap == Gap::Counted { now.max(root.pool.written()) } else { now };
            let mut read = root.thaw(spec, gap, now)?;
            if let Some(lost) = head.lost().filter(|_| !root.pool.has_safe_shares()) {
                // An allocator that knows of no safe shares may have made it anew.
                read.pool.forget_safe_shares(lost);
            }
            Ok(read)
        }
    }
}

impl Root<'_> {
    /// `plan`, with the groups of the newer configuration. Of two of the same age those hold that are more.
    fn groups_known_to(&self, spec: &RootSpec, plan: Arc<Plan>) -> Arc<Plan> {
        let Some(guaranteed) = self.pool.guaranteed() else { return plan };
        let own = &plan.sharing.guaranteed;
        let follows = match spec.version.map(|version| version.cmp(&self.version)) {
            Some(Ordering::Greater) => false,
            Some(Ordering::Equal) => own.len() < guaranteed.len(),
            Some(Ordering::Less) | None => *own != guaranteed,
        };
        if !follows {
            return plan;
        }
        Arc::new(Plan { sharing: Sharing { guaranteed, ..plan.sharing.clone() }, ..(*plan).clone() })
    }

    /// It, by the rules of the newer configuration.
    fn thaw(&self, spec: &RootSpec, gap: Gap, now: Moment) -> Result<Read, RootError> {
        let own = spec.compiled.plan();
        let theirs = spec.compiled.by(self.rules).ok_or(RootError::Format)?;
        let theirs = self.groups_known_to(spec, theirs);
        let mut pool = Pool::from_snapshot(theirs.clone(), &self.pool, gap, now)
            .unwrap_or_else(|| Pool::after_loss(theirs.clone(), now, now));
        let since = Since { gap, written: self.pool.written_at(), now, clocks: own.clocks };
        let mut calls_end = self.calls_end.map_or(Moment::ORIGIN, |at| since.moment(at));
        let differs = theirs.rules != own.rules;
        if spec.version.is_some_and(|version| self.version < version) && differs {
            let goes_on = Fixtures::of(&theirs.rules).go_on_as(&Fixtures::of(&own.rules));
            let waits = pool.view(now).quarantine;
            if !goes_on && let Some(longest) = theirs.longest() {
                let lasts = own.clocks.quarantine() + own.clocks.stretched(longest);
                calls_end = calls_end.max(now + if waits.is_zero() { lasts } else { waits });
            }
            match goes_on && waits.is_zero() {
                true => pool.change(own.clone(), CarryOver::AsIs, now),
                // It has lent nothing yet, or by rules from which these cannot carry on: it waits, and refills by the new rules from
                // now on.
                false => {
                    let mut anew = Pool::after_others(own.clone(), now, calls_end, now, now);
                    anew.keep_back_shares_of(&pool);
                    pool = anew;
                }
            }
        }
        let is_contested = spec.version == Some(self.version) && differs;
        let written = since.moment(self.pool.written_at());
        Ok(Read { pool, version: self.version, now, written, calls_end, is_contested })
    }
}

/// Asks the root in `value` at `now`, or later, but no later than `latest`.
///
/// # Errors
/// As [`read`].
pub(super) fn ask(
    spec: &RootSpec,
    head: &Head,
    value: Option<&[u8]>,
    (now, latest): (Moment, Moment),
    (holder, seq, ask): (Holder, u64, Ask),
    Beside { safe, groups }: Beside<'_>,
) -> Result<Asked, RootError> {
    let mut read = read(spec, head, value, now)?;
    let Read { pool, now, is_contested, .. } = &mut read;
    let (now, is_contested) = (*now, *is_contested);
    pool.doubt(latest);
    let answer = pool.renew_for_groups(now, holder, seq, ask, groups).map(|(answer, groups)| {
        // An ask that is not believed, or not yet, says nothing of safe shares either.
        let safe = safe.filter(|_| answer.grant().is_some());
        let safe = safe.and_then(|safe| pool.lend_safe(now, holder.id, safe));
        let uncertainty = spec.compiled.time_source().uncertainty();
        Reply { answer: clock_uncertainty::shorter(answer, uncertainty), safe, groups }
    });
    read.version = read.version.max(spec.version.unwrap_or_default());
    Ok(Asked { value: write(&spec.compiled, head, &mut read), answer, is_contested })
}

/// The cell of what was `read` by `compiled`; `None` if it need not be there.
pub(super) fn write(compiled: &CompiledPlan, head: &Head, read: &mut Read) -> Option<Vec<u8>> {
    if read.is_forgettable() {
        return None;
    }
    let Read { pool, version, now, calls_end, .. } = read;
    let calls_end = (*calls_end > *now).then(|| (*calls_end).into());
    let (era, version, rules) = (head.era(), *version, compiled.written(pool.rules()));
    let is_new = calls_end.is_some() || pool.rules().iter().any(is_new);
    let pool = pool.snapshot(*now)?;
    let format = match (is_new, version.is_of_file()) {
        _ if pool.has_groups() => FORMAT_GROUPS,
        _ if pool.has_safe_shares() => FORMAT_SAFE,
        (true, _) => FORMAT_IN_FLIGHT,
        (false, true) => FORMAT,
        (false, false) => FORMAT_DECIDED,
    };
    let root = Root { format, era, version, rules: &rules, pool, calls_end };
    Some(serde_json::to_vec(&root).expect("numbers and text"))
}

/// Whether only a root of [`FORMAT_IN_FLIGHT`] is kept by `rule`.
fn is_new(rule: &Rule) -> bool {
    match rule {
        Rule::Concurrency(_) => true,
        Rule::TokenBucket(rule) => rule.refill_style() == RefillStyle::Interval,
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::LeakyBucket(_) => false,
    }
}

impl Read {
    /// Whether it cannot be told from a new one.
    fn is_forgettable(&mut self) -> bool {
        self.calls_end <= self.now && self.pool.is_forgettable(self.now)
    }

    /// Whether it was unused for long, and nothing matters that it lent.
    fn is_unused(&mut self) -> bool {
        let is_long_ago = self.written + UNUSED_FOR <= self.now;
        is_long_ago && self.calls_end <= self.now && self.pool.is_replaceable(self.now)
    }
}

/// Whether the pool in `value` cannot be told from a new one `now`, or `is_of_key` and was unused for long: it need not be there. A limit
/// without keys has one cell, and keeps what it has saved up.
pub fn is_forgettable(spec: &RootSpec, head: &Head, value: &[u8], is_of_key: bool, now: Moment) -> bool {
    let is_past = head.lost().is_none_or(|lost| lost < now);
    let may_go = |mut root: Read| root.is_forgettable() || is_of_key && root.is_unused();
    is_past && read(spec, head, Some(value), now).is_ok_and(may_go)
}

/// Whether a version that is newer than this one wrote `value`.
fn is_newer(value: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    serde_json::from_slice::<Versioned>(value).is_ok_and(|versioned| versioned.format > FORMAT_GROUPS)
}
