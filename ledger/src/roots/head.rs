//! The head: what all allocators of a store know together. It says which time the roots go by, whether anything was
//! lost, and which allocators are there. It is one cell, which each allocator reads and signs a few times a second.

use super::{Families, TimeSource};
use crate::cells::{Timeline, check_count};
use crate::overrides::{Suspensions, Version};
use crate::rule::{At, Gap};
use lessor_protocol::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Format of a head. A head of another format is not guessed at.
const FORMAT: u32 = 1;

/// How often each allocator signs.
pub const SIGN_EVERY: Duration = Duration::from_millis(250);

/// Time without a signature after which an allocator counts as away.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// Time without a signature after which an allocator counts as gone for good, and is no longer shown.
const GONE_AFTER: Duration = Duration::from_secs(60);

/// Time after the last signature in which the store's clock is taken not to have been set, if it agrees with another
/// clock. An allocator that signs all along would have noticed.
const WATCHED: Duration = Duration::from_secs(1);

/// How far apart those two clocks may be.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Most allocators that are remembered at once: more than a store can serve.
const SIGNED_MAX: usize = 1_000;

/// The content of the cell of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    format: u32,
    /// Tells this head from one that was made since, in a store that was emptied.
    id: u64,
    /// Counts how often the time began anew. How long ago something was written in an earlier era is unknown.
    era: u64,
    /// The first era of which nothing was lost. What was written in earlier eras may have been lost.
    whole_since: u64,
    /// When it was written last.
    now: At,
    /// When the loss was found; `None` if no allocator can have lent anything before.
    lost: Option<At>,
    /// The timeline of the store on which nothing is lost since.
    timeline: String,
    /// The allocators that are there, by session.
    signed: BTreeMap<u64, Signed>,
    /// What operators have suspended.
    #[serde(rename = "gates", default, skip_serializing_if = "Suspensions::is_new")]
    suspensions: Suspensions,
    /// The newest file and the newest decision over the API that any signing allocator knew. Heads of older versions do
    /// not say so.
    #[serde(default = "first_file", skip_serializing_if = "is_first_file")]
    newest: Version,
    /// Which limits are below which.
    #[serde(default, skip_serializing_if = "Families::is_empty")]
    families: Families,
    /// The life of the time in which this era began, if allocators keep the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
}

/// The version of a file that says none.
const fn first_file() -> Version {
    Version::of_file(1)
}

fn is_first_file(version: &Version) -> bool {
    *version == first_file()
}

/// The signature of an allocator that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// Name of the allocator.
    pub node: String,
    /// When it signed last, by the time of the roots.
    pub at: At,
}

/// The allocator that signs.
#[derive(Clone, Debug)]
pub struct Signer {
    /// The session in which it asks.
    pub session: u64,
    /// Name of the allocator.
    pub node: String,
}

impl Head {
    /// Creates the head of an empty store, with the number `id`, at `now`. Unless the store is `fresh`, an earlier head
    /// may have been lost.
    pub fn begin(id: u64, timeline: &Timeline, now: Moment, fresh: bool) -> Self {
        // Later than all eras of a head that is gone, because an era lasts a second on average, at least. So a root
        // that was made under that head meanwhile is taken for lost.
        let era = if fresh { 1 } else { (now.as_nanos() / 1_000_000_000).max(1) };
        Head {
            format: FORMAT,
            id,
            era,
            whole_since: era,
            now: now.into(),
            lost: (!fresh).then(|| now.into()),
            timeline: timeline.as_str().to_owned(),
            signed: BTreeMap::new(),
            suspensions: Suspensions::default(),
            newest: Version::default(),
            families: Families::default(),
            time: None,
        }
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it. Nothing may be lent then.
    pub fn read(value: &[u8]) -> Result<Self, String> {
        let head: Head = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        check_count("era", head.era)?;
        head.suspensions.check()?;
        match head.format {
            FORMAT => Ok(head),
            other => Err(format!("it has format {other}, and this version knows {FORMAT}")),
        }
    }

    /// Returns the head as it is written.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text")
    }

    /// Whether what is known by the head `other` still holds by this one.
    pub fn goes_on_from(&self, other: &Head) -> bool {
        self.life() == other.life()
    }

    /// Returns the id and the era. While they stay the same, the store has lost nothing.
    pub fn life(&self) -> (u64, u64) {
        (self.id, self.era)
    }

    /// Returns what operators have suspended.
    pub fn suspensions(&self) -> &Suspensions {
        &self.suspensions
    }

    /// Mutable version of [`Head::suspensions`], for a decision.
    pub fn suspensions_mut(&mut self) -> &mut Suspensions {
        &mut self.suspensions
    }

    /// Merges what an allocator knows, if that is newer. So a store that lost it has it again.
    pub fn keep_suspensions(&mut self, known: &Suspensions) {
        self.suspensions.merge(known);
    }

    /// Returns the newest file and decision that are known.
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// Takes over the file and the decision that an allocator knows, if they are newer.
    pub fn keep_newest(&mut self, known: Version) {
        self.newest = self.newest.or_newer(known);
    }

    /// Returns which limits are below which.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Takes over the families that an allocator knows, see [`Families::keep`].
    pub fn keep_families(&mut self, known: &Families) {
        self.families.keep(known);
    }

    /// Returns the life of the time in which its era began, if allocators keep the time.
    pub fn time(&self) -> Option<u64> {
        self.time
    }

    /// Sets the life of the time in which its era begins.
    pub(super) fn goes_by_time(&mut self, life: Option<u64>) {
        self.time = life;
    }

    /// Returns the era of its time.
    pub fn era(&self) -> u64 {
        self.era
    }

    /// Returns the timeline of the store on which nothing is lost since.
    pub fn timeline(&self) -> Timeline {
        Timeline::new(self.timeline.clone())
    }

    /// Returns the names of the allocators that have signed lately.
    pub fn here(&self, now: Moment) -> impl Iterator<Item = &str> {
        let here = self.signed.values().filter(move |signed| now.since(signed.at.as_calendar()) < AWAY_AFTER);
        here.map(|signed| signed.node.as_str())
    }

    /// Returns the signatures of all allocators that are remembered.
    pub fn signed(&self) -> impl Iterator<Item = &Signed> {
        self.signed.values()
    }

    /// Returns the sessions of the allocators that signed lately enough to watch the time.
    pub(super) fn watchers(&self, now: Moment) -> impl Iterator<Item = u64> {
        let signs = move |at: Moment| now.since(at) < WATCHED;
        self.signatures().filter(move |(_, at)| signs(*at)).map(|(session, _)| session)
    }

    /// Returns the sessions that have signed, and when.
    pub(super) fn signatures(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.signed.iter().map(|(session, signed)| (*session, signed.at.as_calendar()))
    }

    /// Returns when it was found that something may have been lost, in the time of this era.
    pub(super) fn lost(&self) -> Option<Moment> {
        self.lost.map(At::as_calendar)
    }

    /// Returns how to read what was written in `era`.
    pub(super) fn age(&self, era: u64) -> Age {
        match era {
            era if era > self.era => Age::Newer,
            era if era < self.whole_since => Age::Lost,
            era if era < self.era => Age::Known(Gap::Unknown),
            _ => Age::Known(Gap::Counted),
        }
    }

    /// Signs for `signer` at `now`, and removes allocators that are gone.
    pub fn sign(&mut self, signer: &Signer, now: Moment) {
        self.writes(now);
        self.signed.retain(|_, signed| now.since(signed.at.as_calendar()) < GONE_AFTER);
        if self.signed.len() >= SIGNED_MAX && !self.signed.contains_key(&signer.session) {
            return;
        }
        self.signed.insert(signer.session, Signed { node: signer.node.clone(), at: now.into() });
    }

    /// Removes the allocator that asks in `session`. Returns whether it was there.
    pub fn leave(&mut self, session: u64) -> bool {
        self.signed.remove(&session).is_some()
    }

    /// Whether the clock of the store may have been set while no allocator watched. The store's clock shows `now`, and
    /// a machine's clock shows `calendar`.
    pub fn may_have_stepped(&self, now: Moment, calendar: Moment) -> bool {
        !self.was_just_signed(now) || now.since(calendar).max(calendar.since(now)) > STEP_MAX
    }

    /// Whether an allocator that knew nothing of this era yet can go by its time, when the store's clock shows `now`.
    /// That clock may have been set once more since the era began, and only an allocator that heard it before can tell.
    pub fn is_watched(&self, now: Moment) -> bool {
        self.was_just_signed(now)
    }

    /// Notes that a watching allocator doubts the time, when the store's clock shows `now`. An allocator that starts
    /// before the next signature cannot go by that time.
    pub(super) fn doubt(&mut self, now: Moment) {
        self.now = self.now.as_calendar().min(now).before(WATCHED).into();
    }

    /// Returns when the head was written last, or a while before that if it is in doubt.
    pub(crate) fn written(&self) -> Moment {
        self.now.as_calendar()
    }

    /// Whether an allocator that watched has written the head within a second of `now`, and none is in doubt.
    pub(crate) fn is_vouched_for(&self, now: Moment) -> bool {
        self.was_just_signed(now)
    }

    fn was_just_signed(&self, now: Moment) -> bool {
        let signed = self.now.as_calendar();
        signed <= now + TimeSource::Store.uncertainty() && now.since(signed) < WATCHED
    }

    /// Begins another era at `now`. How long ago something was written before that is unknown.
    pub fn begin_era(&mut self, now: Moment) {
        let before = self.now.as_calendar();
        self.era += 1;
        self.signed.clear();
        self.lost = self.lost.map(|lost| now.before(before.since(lost.as_calendar())).into());
        self.suspensions.date_anew(self.era, before, now);
        self.now = now.into();
    }

    /// Merges what is `known` by an earlier head, which is gone and was written last at `before`, by the clock of the
    /// store then. The clock shows `now`, and may be another one. A pause that another allocator brought here before
    /// keeps the date that it got then.
    pub(super) fn keep_suspensions_of_before(&mut self, known: Suspensions, before: Moment, now: Moment) {
        let mut lost = known.without_pauses_of(&self.suspensions);
        lost.date_anew(self.era, before, now);
        self.keep_suspensions(&lost);
    }

    /// Records that the store is on another `timeline`, and may have lost what was last done on the one before.
    pub fn lose(&mut self, timeline: &Timeline, source: TimeSource, now: Moment) {
        let before = self.now.as_calendar();
        self.era += 1;
        if now + source.uncertainty() < before {
            // The other server shows an earlier time. Nothing that was written before counts by it, so the loss was not
            // later than now.
            self.signed.clear();
            self.now = now.into();
        }
        self.writes(now);
        // The clocks of two servers may be far apart, whichever is ahead.
        self.suspensions.date_anew(self.era, before, self.now.as_calendar());
        (self.whole_since, self.lost) = (self.era, Some(self.now));
        self.timeline = timeline.as_str().to_owned();
    }

    /// Dates the loss later, `by` as much: until then allocators that did not find it may lend by the earlier head.
    pub(super) fn date_loss_later(&mut self, by: Duration) {
        self.lost = self.lost.map(|lost| (lost.as_calendar() + by).into());
    }

    fn writes(&mut self, now: Moment) {
        self.now = self.now.max(now.into());
    }
}

/// How to read what was written in an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It was written before this gap.
    Known(Gap),
    /// It may not be the last value that was written.
    Lost,
    /// The head that is known is out of date.
    Newer,
}
