//! What all allocators of a store know together: which time its roots are on, whether anything of it was lost, and who is
//! there. It is one cell, which each of them looks at and signs a few times a second.

use super::{Families, TimeSource};
use crate::cells::Timeline;
use crate::overrides::{Suspensions, Version};
use crate::rule::{At, Gap};
use lessor_protocol::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What cells of another version say is not guessed at.
const FORMAT: u32 = 1;

/// How often each allocator signs.
pub const SIGN_EVERY: Duration = Duration::from_millis(250);

/// Who has not signed for so long is not here.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// Who has not signed for so long is taken to be gone for good, and is not shown any more.
const GONE_AFTER: Duration = Duration::from_secs(60);

/// An allocator that signs all along notices if the clock of the store is set. For so long after the last signature the clock is
/// taken not to have been set, if it agrees with another clock.
const WATCHED: Duration = Duration::from_secs(1);

/// How far those two may be apart.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Allocators that are remembered at once; more than a store can serve.
const SIGNED_MAX: usize = 1_000;

/// The cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    format: u32,
    /// Tells it from another one that was made since, in a store that was emptied.
    id: u64,
    /// Counts how often the time began anew. How long ago something was written in an earlier era is unknown.
    era: u64,
    /// Of what was written before this era something may have been lost.
    whole_since: u64,
    /// When it was written last.
    now: At,
    /// When that was found; `None` where no allocator can have lent anything before.
    lost: Option<At>,
    /// The timeline of the store on which that is so.
    timeline: String,
    /// Who is there, by the session.
    signed: BTreeMap<u64, Signed>,
    /// What operators have suspended.
    #[serde(rename = "gates", default, skip_serializing_if = "Suspensions::is_new")]
    suspensions: Suspensions,
    /// The newest file, and the newest of what was put over the API, that any allocator that signed knew. Heads that were written
    /// before this was, do not say so.
    #[serde(default = "first_file", skip_serializing_if = "is_first_file")]
    newest: Version,
    /// Which limits are below which.
    #[serde(default, skip_serializing_if = "Families::is_empty")]
    families: Families,
    /// In which life of the time this era began, where allocators keep that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
}

/// What files are that say no version.
const fn first_file() -> Version {
    Version::of_file(1)
}

fn is_first_file(version: &Version) -> bool {
    *version == first_file()
}

/// That an allocator is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// What it is called.
    pub node: String,
    /// When it signed last, by the time of the roots.
    pub at: At,
}

/// Who signs.
#[derive(Clone, Debug)]
pub struct Signer {
    /// The session that it asks in.
    pub session: u64,
    /// What it is called.
    pub node: String,
}

impl Head {
    /// That of a store in which nothing is, called `id` and begun when it is `now`. Unless it is `fresh`, an earlier one may have been lost.
    pub fn begin(id: u64, timeline: &Timeline, now: Moment, fresh: bool) -> Self {
        // Later than all eras of a head that is gone: a root that was made by that one meanwhile is taken for lost. An era lasts a second
        // on average, at least.
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

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it. Nothing may be lent then.
    pub fn read(value: &[u8]) -> Result<Self, String> {
        let head: Head = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        match head.format {
            FORMAT => Ok(head),
            other => Err(format!("it has format {other}, and this version knows {FORMAT}")),
        }
    }

    /// As it is written.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text")
    }

    /// Whether what is known by `other` goes on by this one.
    pub fn goes_on_from(&self, other: &Head) -> bool {
        self.life() == other.life()
    }

    /// While it is the same, the store has lost nothing.
    pub fn life(&self) -> (u64, u64) {
        (self.id, self.era)
    }

    /// What operators have suspended.
    pub fn suspensions(&self) -> &Suspensions {
        &self.suspensions
    }

    /// The same, for a decision.
    pub fn suspensions_mut(&mut self) -> &mut Suspensions {
        &mut self.suspensions
    }

    /// Takes over what an allocator knows, if that is newer. So a store that lost it has it again.
    pub fn keep_suspensions(&mut self, known: &Suspensions) {
        self.suspensions.merge(known);
    }

    /// The newest file and decision that are known.
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// An allocator knows these.
    pub fn keep_newest(&mut self, known: Version) {
        self.newest = self.newest.or_newer(known);
    }

    /// Which limits are below which.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// An allocator knows of these.
    pub fn keep_families(&mut self, known: &Families) {
        self.families.keep(known);
    }

    /// The life of the time in which its era began, where allocators keep that.
    pub fn time(&self) -> Option<u64> {
        self.time
    }

    /// Its era begins in that life of the time.
    pub(super) fn goes_by_time(&mut self, life: Option<u64>) {
        self.time = life;
    }

    /// The time that it is of.
    pub fn era(&self) -> u64 {
        self.era
    }

    /// The timeline of the store on which nothing is lost since.
    pub fn timeline(&self) -> Timeline {
        Timeline::new(self.timeline.clone())
    }

    /// The names of those who have signed lately.
    pub fn here(&self, now: Moment) -> impl Iterator<Item = &str> {
        let here = self.signed.values().filter(move |signed| now.since(signed.at.as_calendar()) < AWAY_AFTER);
        here.map(|signed| signed.node.as_str())
    }

    /// Who is there.
    pub fn signed(&self) -> impl Iterator<Item = &Signed> {
        self.signed.values()
    }

    /// The sessions of those who watch its time.
    pub(super) fn watchers(&self, now: Moment) -> impl Iterator<Item = u64> {
        let signs = move |at: Moment| now.since(at) < WATCHED;
        self.signatures().filter(move |(_, at)| signs(*at)).map(|(session, _)| session)
    }

    /// Who has signed it, by the session, and when.
    pub(super) fn signatures(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.signed.iter().map(|(session, signed)| (*session, signed.at.as_calendar()))
    }

    /// When it was found that something may have been lost, on the time of now.
    pub(super) fn lost(&self) -> Option<Moment> {
        self.lost.map(At::as_calendar)
    }

    /// How to read what was written in `era`.
    pub(super) fn age(&self, era: u64) -> Age {
        match era {
            era if era > self.era => Age::Newer,
            era if era < self.whole_since => Age::Lost,
            era if era < self.era => Age::Known(Gap::Unknown),
            _ => Age::Known(Gap::Counted),
        }
    }

    /// `signer` is there.
    pub fn sign(&mut self, signer: &Signer, now: Moment) {
        self.writes(now);
        self.signed.retain(|_, signed| now.since(signed.at.as_calendar()) < GONE_AFTER);
        if self.signed.len() >= SIGNED_MAX && !self.signed.contains_key(&signer.session) {
            return;
        }
        self.signed.insert(signer.session, Signed { node: signer.node.clone(), at: now.into() });
    }

    /// The allocator that asks in `session` is not there any more. Whether it was.
    pub fn leave(&mut self, session: u64) -> bool {
        self.signed.remove(&session).is_some()
    }

    /// Whether the clock of the store may have been set while no allocator watched. It is `now` by that clock, and `calendar` by
    /// the clock of a machine.
    pub fn may_have_stepped(&self, now: Moment, calendar: Moment) -> bool {
        !self.was_just_signed(now) || now.since(calendar).max(calendar.since(now)) > STEP_MAX
    }

    /// Whether an allocator that knew nothing of this era yet can go by its time, when it is `now` by the clock of the store.
    /// That clock may have been set once more since the era began, and only an allocator that heard it before can tell.
    pub fn is_watched(&self, now: Moment) -> bool {
        self.was_just_signed(now)
    }

    /// An allocator that watched does not know whether the time went on, when it is `now` by the clock of the store. One that comes
    /// before another signature cannot go by that time.
    pub(super) fn doubt(&mut self, now: Moment) {
        self.now = self.now.as_calendar().min(now).before(WATCHED).into();
    }

    /// When it was written last, or in doubt a while before that.
    pub(crate) fn written(&self) -> Moment {
        self.now.as_calendar()
    }

    /// Whether one that watched has written it within a second of `now`, and none is in doubt.
    pub(super) fn is_vouched_for(&self, now: Moment) -> bool {
        self.was_just_signed(now)
    }

    fn was_just_signed(&self, now: Moment) -> bool {
        let signed = self.now.as_calendar();
        signed <= now + TimeSource::Store.uncertainty() && now.since(signed) < WATCHED
    }

    /// Another time begins, at `now`. How long ago something was written before that is unknown.
    pub fn begin_era(&mut self, now: Moment) {
        let before = self.now.as_calendar();
        self.era += 1;
        self.signed.clear();
        self.lost = self.lost.map(|lost| now.before(before.since(lost.as_calendar())).into());
        self.now = now.into();
    }

    /// The store is on another `timeline`, and may have lost what was last done on the one before.
    pub fn lose(&mut self, timeline: &Timeline, source: TimeSource, now: Moment) {
        if now + source.uncertainty() < self.now.as_calendar() {
            // Another server shows an earlier time. Nothing that was written before counts by it, so the loss was not later than now.
            self.signed.clear();
            self.now = now.into();
        }
        self.writes(now);
        self.era += 1;
        (self.whole_since, self.lost) = (self.era, Some(self.now));
        self.timeline = timeline.as_str().to_owned();
    }

    /// The loss counts as one that came so much later: until then allocators that did not find it may lend by the head of before.
    pub(super) fn date_loss_later(&mut self, by: Duration) {
        self.lost = self.lost.map(|lost| (lost.as_calendar() + by).into());
    }

    fn writes(&mut self, now: Moment) {
        self.now = self.now.max(now.into());
    }
}

/// How to read what an allocator wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// So long ago.
    Known(Gap),
    /// It may not be the last that was written.
    Lost,
    /// The head that is known is out of date.
    Newer,
}
