//! Finds out which clock is wrong when the time that a store says does not fit what it said before: the store's clock,
//! or the allocator's own, which stood still or was slewed.
//!
//! An allocator cannot tell by itself, so it holds back until it knows. Others that watched the same store can tell: an
//! allocator that goes on to sign the head of the same era found that the store's time fits.
//!
//! A witness signed the head before the last answer that fitted, so it has watched since before anything was wrong. Its first
//! signature after that may go by what the store said before. For the second one it asked the store again.
//!
//! Meanwhile the head says that an allocator is in doubt. A second allocator in doubt need not wait then, and an
//! allocator that starts does not go by the time.

use super::{Head, SIGN_EVERY};
use crate::cells::Timeline;
use lessor_protocol::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long to wait for a witness, by the time of the store. A witness signs several times in it.
const PATIENCE: Duration = SIGN_EVERY.saturating_mul(4);

/// Signatures of one witness that clear the store.
const SIGNATURES: u32 = 2;

/// What an allocator knows of the others that watch the time of a store with it.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Sessions that watched when all was well.
    witnesses: BTreeSet<u64>,
    doubt: Option<Doubt>,
    /// The time in the head since this allocator wrote that it is in doubt.
    doubted: Option<Moment>,
}

/// State of the doubt since the store said a time that did not fit.
#[derive(Clone, Debug)]
struct Doubt {
    /// When the doubt began, by the time of the store.
    since: Moment,
    /// The last signature of each witness that was seen since then, and how many were new.
    seen: BTreeMap<u64, (Moment, u32)>,
}

/// Which clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Neither.
    None,
    /// Nothing shows it yet: the allocator lends nothing, and signs nothing.
    Unknown,
    /// The allocator's own. It knows the time anew.
    Own,
    /// The store's: another era begins.
    Store,
}

impl Watch {
    /// Records that the store's answer fits. The allocator of session `own` knew `head` before it asked.
    pub fn fits(&mut self, head: Option<&Head>, own: u64, now: Moment) {
        if let (None, Some(head)) = (&self.doubt, head) {
            self.witnesses = head.watchers(now).filter(|session| *session != own).collect();
        }
    }

    /// Records that the store `said` a time that does not fit. What was found out since an earlier misfit is of no use.
    pub fn differs(&mut self, said: Moment) {
        self.doubt = Some(Doubt { since: said, seen: BTreeMap::new() });
    }

    /// Forgets everything: another era began, and nothing is known of it yet.
    pub fn forget(&mut self) {
        *self = Watch::default();
    }

    /// Says in `head` that this allocator is in doubt, when the store's clock shows `now`. Returns whether the head has
    /// to be written.
    pub fn doubts(&mut self, head: &mut Head, now: Moment) -> bool {
        let is_new = head.is_vouched_for(now);
        if is_new {
            head.doubt(now);
            self.doubted = Some(head.written());
        }
        is_new
    }

    /// Returns which clock is wrong. `head` was read from the store of `timeline` after its clock showed `now`.
    pub fn judge(&mut self, head: &Head, timeline: &Timeline, now: Moment) -> Verdict {
        let Some(doubt) = &mut self.doubt else { return Verdict::None };
        let mut is_cleared = false;
        for (session, at) in head.signatures().filter(|(session, _)| self.witnesses.contains(session)) {
            let (last, new) = doubt.seen.entry(session).or_insert((at, 0));
            if *last != at {
                (*last, *new) = (at, *new + 1);
            }
            is_cleared |= *new >= SIGNATURES;
        }
        // Another server has another clock, and no witness signs there.
        let is_other = head.timeline() != *timeline;
        // Two allocators in doubt are right: their clocks do not fail together.
        let is_alone = head.is_vouched_for(now) || self.doubted == Some(head.written());
        let is_over = is_other || !is_alone || self.witnesses.is_empty() || now >= doubt.since + PATIENCE;
        let verdict = match (is_cleared, is_over) {
            (true, _) => Verdict::Own,
            (false, true) => Verdict::Store,
            (false, false) => return Verdict::Unknown,
        };
        self.doubt = None;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Signer;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    fn timeline() -> Timeline {
        Timeline::new("a")
    }

    fn signed(head: &mut Head, session: u64, millis: u64) {
        head.sign(&Signer { session, node: String::new() }, at(millis));
    }

    /// A head that 1 and 2 have signed, and what 1 knows of it.
    fn watched() -> (Head, Watch) {
        let mut head = Head::begin(7, &timeline(), at(0), true);
        signed(&mut head, 1, 0);
        signed(&mut head, 2, 10);
        let mut watch = Watch::default();
        watch.fits(Some(&head), 1, at(250));
        assert_eq!(watch.judge(&head, &timeline(), at(250)), Verdict::None);
        (head, watch)
    }

    #[test]
    fn a_witness_that_goes_on_to_sign_shows_that_the_own_clock_is_wrong() {
        let (mut head, mut watch) = watched();
        signed(&mut head, 2, 260);
        watch.differs(at(700));
        assert_eq!(watch.judge(&head, &timeline(), at(700)), Verdict::Unknown);
        signed(&mut head, 2, 710);
        assert_eq!(
            watch.judge(&head, &timeline(), at(720)),
            Verdict::Unknown,
            "it may have asked the store before"
        );
        assert_eq!(watch.judge(&head, &timeline(), at(730)), Verdict::Unknown, "that is the same signature");
        signed(&mut head, 2, 960);
        assert_eq!(watch.judge(&head, &timeline(), at(970)), Verdict::Own);
        assert_eq!(watch.judge(&head, &timeline(), at(980)), Verdict::None);
    }

    #[test]
    fn where_no_witness_signs_the_store_is_wrong_after_a_while() {
        let (mut head, mut watch) = watched();
        watch.differs(at(700));
        for millis in [700, 950, 1_699] {
            assert_eq!(watch.judge(&head, &timeline(), at(millis)), Verdict::Unknown, "at {millis} ms");
            assert_eq!(watch.doubts(&mut head, at(millis)), millis == 700, "it is written once");
        }
        assert_eq!(watch.judge(&head, &timeline(), at(1_700)), Verdict::Store);
    }

    #[test]
    fn where_another_one_is_in_doubt_or_the_step_is_large_the_store_is_wrong_at_once() {
        let (mut head, mut watch) = watched();
        watch.differs(at(700));
        let mut other = watch.clone();
        assert!(other.doubts(&mut head, at(690)));
        assert_eq!(watch.judge(&head, &timeline(), at(700)), Verdict::Store);
        other.differs(at(710));
        assert_eq!(other.judge(&head, &timeline(), at(710)), Verdict::Unknown, "that is its own");
        let (head, watch) = watched();
        // No allocator has signed at a time like that.
        for millis in [60_000, 0] {
            let mut watch = watch.clone();
            let mut head = head.clone();
            signed(&mut head, 2, 250);
            watch.differs(at(millis));
            assert_eq!(watch.judge(&head, &timeline(), at(millis)), Verdict::Store, "at {millis} ms");
        }
    }

    #[test]
    fn one_that_came_later_is_no_witness_and_without_any_the_store_is_wrong_at_once() {
        let (mut head, mut watch) = watched();
        watch.differs(at(700));
        for (millis, verdict) in [(700, Verdict::Unknown), (950, Verdict::Unknown), (1_700, Verdict::Store)] {
            signed(&mut head, 3, millis);
            assert_eq!(
                watch.judge(&head, &timeline(), at(millis)),
                verdict,
                "it may go by the clock that was set"
            );
        }
        let mut alone = Watch::default();
        alone.fits(Some(&Head::begin(7, &timeline(), at(0), true)), 1, at(0));
        alone.differs(at(700));
        assert_eq!(alone.judge(&head, &timeline(), at(700)), Verdict::Store);
        let (head, mut watch) = watched();
        watch.differs(at(700));
        assert_eq!(
            watch.judge(&head, &Timeline::new("b"), at(700)),
            Verdict::Store,
            "another server has another clock"
        );
    }

    #[test]
    fn what_does_not_fit_again_has_to_be_cleared_again() {
        let (mut head, mut watch) = watched();
        for millis in (700..5_000).step_by(250) {
            watch.differs(at(millis));
            signed(&mut head, 2, millis);
            assert_eq!(watch.judge(&head, &timeline(), at(millis)), Verdict::Unknown, "at {millis} ms");
        }
    }

    #[test]
    fn one_that_was_away_is_not_waited_for() {
        let (mut head, mut watch) = watched();
        signed(&mut head, 1, 2_000);
        watch.fits(Some(&head), 1, at(2_000));
        watch.differs(at(2_200));
        assert_eq!(watch.judge(&head, &timeline(), at(2_200)), Verdict::Store);
    }

    #[test]
    fn one_that_comes_while_it_is_in_doubt_does_not_go_by_the_time() {
        let (mut head, _) = watched();
        let calendar = |millis| at(millis);
        assert!(!head.may_have_stepped(at(300), calendar(300)));
        for now in [300, 20, 900] {
            head.doubt(at(now));
            assert!(head.may_have_stepped(at(now), calendar(now)), "at {now} ms");
            signed(&mut head, 2, 310);
            assert!(!head.may_have_stepped(at(310), calendar(310)), "one that watched has signed");
        }
    }
}
