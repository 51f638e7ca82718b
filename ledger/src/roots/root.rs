//! The root pool of one limit and key in its cell: it is read, asked once, and written anew. The store decides whether
//! the new value takes the place of the old one.

use super::clock_uncertainty;
use super::head::Age;
use super::{CompiledPlan, Head, ParentRef};
use crate::cells::VALUE_MAX;
use crate::overrides::Version;
use crate::pool::{AskError, FixedParts, GroupAsk, Holder, Plan, Pool, SafeAsk, Snapshot};
use crate::rule::{At, Gap, RefillStyle, Since};
use crate::share::Sharing;
use crate::{CarryOver, Rule};
use lessor_protocol::{Answer, Ask, Moment, Refusal, RefusalReason, SafeShare};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Format of a root that goes by a file.
const FORMAT: u32 = 1;

/// Format of a root that goes by what was put over the API. An allocator that knows only files leaves it alone.
const FORMAT_DECIDED: u32 = 2;

/// Format of a root with calls in flight, or that refills at intervals. An allocator that knows neither leaves it
/// alone.
const FORMAT_IN_FLIGHT: u32 = 3;

/// Format of a root with safe shares.
const FORMAT_SAFE: u32 = 4;

/// Format of a root that guarantees something to groups. A root of a later format is not guessed at.
const FORMAT_GROUPS: u32 = 5;

/// How a root is made, by the configuration of the allocator that asks it.
#[derive(Clone, Debug)]
pub struct RootSpec {
    /// The rules that must hold, and how permits are shared.
    pub compiled: CompiledPlan,
    /// Version of that configuration. A root goes by the highest version that ever asked it. `None` if the limit was
    /// removed: then this spec is the last that is known of it, a root goes by what other allocators say, and none is
    /// made.
    pub version: Option<Version>,
    /// The limit above, as far as is known. An allocator that lends from this root charges the one above, too.
    pub parent_ref: ParentRef,
}

/// The content of the cell of a root.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root<'a> {
    format: u32,
    /// The era by whose time it was written.
    era: u64,
    /// Version of the configuration that it goes by, and that all allocators follow. `rules` is what that configuration
    /// says.
    version: Version,
    #[serde(borrow)]
    rules: &'a RawValue,
    pool: Snapshot,
    /// Until when calls may go on that began under rules with another longest call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls_end: Option<At>,
}

/// Why a root lends nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// The pool rejects the ask.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The time of the store is not known well enough.
    #[error("the store answers too slowly for its clock to be used")]
    NoTime,
    /// The root is gone: perhaps no allocator needed it, perhaps the store was emptied.
    #[error("the root is gone from the store")]
    Gone,
    /// The root is gone from the store, and its limit from the configuration.
    #[error("the root is gone from the store, and its limit was removed")]
    Removed,
    /// The head that is known is out of date.
    #[error("the known head of the store is out of date")]
    HeadIsOld,
    /// Another version wrote the root.
    #[error("another version of Lessor wrote the root, in a format or by rules that this one does not know")]
    Format,
    /// The allocator that asks would not charge the limit above.
    #[error(
        "the limit has the parent {0:?} in the store, and not in this configuration: if the parent was removed, \
         raise store.version"
    )]
    Below(String),
    /// The root is larger than a store keeps.
    #[error("the root has {0} bytes, of at most {VALUE_MAX}")]
    TooLarge(usize),
}

/// Time without asks after which the root of a key is taken away although a new one has less, because its bucket begins
/// below its capacity. Nothing that it lent may matter any more.
const UNUSED_FOR: Duration = Duration::from_secs(2 * 86_400);

/// Retry delay after other allocators were faster each time, or while the head or the time has to be read again.
const LOST_RETRY: Duration = Duration::from_millis(20);

/// Retry delay while the root in the store is of no use.
const USELESS_RETRY: Duration = Duration::from_secs(1);

/// What an allocator says beside its ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    /// The ask for safe shares, if the limit has any.
    pub safe: Option<SafeAsk>,
    /// The ask for each group that the limit guarantees something.
    pub groups: &'a [GroupAsk],
}

/// The answer of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer to the ask.
    pub answer: Answer,
    /// Safe shares that the allocator may hand out in all, if its limit has any.
    pub safe: Option<SafeShare>,
    /// Permits of the grant that are for each group.
    pub groups: Vec<u64>,
}

impl Reply {
    /// Creates a reply of `answer` and nothing beside it.
    pub fn of(answer: Answer) -> Self {
        Reply { answer, safe: None, groups: vec![] }
    }
}

/// Converts the outcome of an ask for the pool below. It is a refusal with a retry delay where the root could not be
/// asked.
///
/// # Errors
/// If the pool of the root rejected the ask, or the root of a removed limit is gone.
pub fn to_pool(answer: Option<Result<Reply, RootError>>) -> Result<Reply, AskError> {
    let refusal =
        |retry_after| Reply::of(Answer::Refusal(Refusal { reason: RefusalReason::Other, retry_after }));
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(RootError::Ask(error))) => Err(error),
        // No root knows what the pool held there.
        Some(Err(RootError::Removed)) => Err(AskError::LeaseUnknown { spent_total: 0, held: 0 }),
        Some(Err(RootError::HeadIsOld | RootError::Gone | RootError::NoTime)) | None => {
            Ok(refusal(LOST_RETRY))
        }
        Some(Err(RootError::Below(_) | RootError::Format | RootError::TooLarge(_))) => {
            Ok(refusal(USELESS_RETRY))
        }
    }
}

/// A root that was asked. Its answer counts once the new value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The value to write; `None` if no root need be there.
    pub value: Option<Vec<u8>>,
    /// What the root answers.
    pub answer: Result<Reply, AskError>,
    /// See [`Read::is_contested`].
    pub is_contested: bool,
}

/// A root that was read.
#[derive(Debug)]
pub struct Read {
    /// Its pool.
    pub pool: Pool,
    /// Version of the configuration that it goes by.
    pub version: Version,
    /// The time that the root is at.
    pub now: Moment,
    /// When it was written.
    written: Moment,
    /// When calls that began under other rules have ended.
    calls_end: Moment,
    /// Whether the allocator that reads it has other rules under the same version. It cannot be told which are newer.
    pub is_contested: bool,
}

/// Reads the pool in `value` at `now`, or later. Without a value the pool is new, or waits because what an earlier
/// store lent may still be out.
///
/// # Errors
/// If this allocator may not go on with the root.
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
        // What the root was is unknown.
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
                // An allocator that knows of no safe shares may have made the root anew.
                read.pool.forget_safe_shares(lost);
            }
            Ok(read)
        }
    }
}

impl Root<'_> {
    /// Returns `plan` with the groups of the newer configuration. Under the same version, the configuration with more
    /// groups holds.
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

    /// Restores the root by the rules of the newer configuration.
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
            let goes_on = FixedParts::of(&theirs.rules) == FixedParts::of(&own.rules);
            let waits = pool.view(now).quarantine;
            if !goes_on && let Some(longest) = theirs.longest() {
                let lasts = own.clocks.quarantine() + own.clocks.stretched(longest);
                calls_end = calls_end.max(now + if waits.is_zero() { lasts } else { waits });
            }
            match goes_on && waits.is_zero() {
                true => pool.change(own.clone(), CarryOver::AsIs, now),
                // The pool has lent nothing yet, or the new rules cannot carry on from the old ones. It waits, and
                // refills by the new rules from now on.
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

/// Asks the root in `value`. The time is `now` or later, but no later than `latest`.
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

/// Returns the value to write for what was `read`, with rules as `compiled`. `None` if no root need be there.
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

/// Whether `rule` needs a root of [`FORMAT_IN_FLIGHT`].
fn is_new(rule: &Rule) -> bool {
    match rule {
        Rule::Concurrency(_) => true,
        Rule::TokenBucket(rule) => rule.refill_style() == RefillStyle::Interval,
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::LeakyBucket(_) => false,
    }
}

impl Read {
    /// Whether the root cannot be told from a new one.
    fn is_forgettable(&mut self) -> bool {
        self.calls_end <= self.now && self.pool.is_forgettable(self.now)
    }

    /// Whether the root was unused for long, and nothing that it lent matters.
    fn is_unused(&mut self) -> bool {
        let is_long_ago = self.written + UNUSED_FOR <= self.now;
        is_long_ago && self.calls_end <= self.now && self.pool.is_replaceable(self.now)
    }
}

/// Whether the root in `value` may be taken away `now`: it cannot be told from a new one, or it `is_of_key` and was
/// unused for long. A limit without keys has one cell, and keeps what it has saved up.
pub fn is_forgettable(spec: &RootSpec, head: &Head, value: &[u8], is_of_key: bool, now: Moment) -> bool {
    let is_past = head.lost().is_none_or(|lost| lost < now);
    let may_go = |mut root: Read| root.is_forgettable() || is_of_key && root.is_unused();
    is_past && read(spec, head, Some(value), now).is_ok_and(may_go)
}

/// Returns how long to wait `now` before another look at the root in `value`, which is still of use: until its rules count
/// nothing any more, but no longer than it has been unused. So a root that counts for less is looked at soon enough.
pub(super) fn looks_again_in(spec: &RootSpec, head: &Head, value: &[u8], now: Moment) -> Duration {
    let wait = |root: Read| {
        let (unused, counts) = (now.since(root.written), (root.written + root.pool.memory()).since(now));
        if counts.is_zero() { unused } else { counts.min(unused) }
    };
    read(spec, head, Some(value), now).map_or(Duration::ZERO, wait)
}

/// Whether a version that is newer than this one wrote `value`.
fn is_newer(value: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    serde_json::from_slice::<Versioned>(value).is_ok_and(|versioned| versioned.format > FORMAT_GROUPS)
}
