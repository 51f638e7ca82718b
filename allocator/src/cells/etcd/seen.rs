//! The timeline of an etcd, and the revisions seen on it. A timeline is a cluster and a mark, which is a key that is
//! made once. The id of a cluster alone is not enough: a cluster that begins anew at the same addresses has the same
//! id.

use crate::cells::{CellsError, Timeline};
use lessor_protocol::entropy;

/// Characters of a mark.
const MARK: usize = 16;

/// The greatest revision of a timeline. A store with a lower revision later was put back from a copy, with the mark in
/// it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    known: Option<(Timeline, u64)>,
    /// A timeline that has to end, because its store has lost something.
    lost: Option<Timeline>,
}

impl Seen {
    /// Returns the timeline and revision known before a call is sent.
    pub(super) fn known(&self) -> Option<(Timeline, u64)> {
        self.known.clone()
    }

    /// Records the timeline and revision of an answer. `before` was known when its call was sent.
    pub(super) fn saw(
        &mut self,
        before: Option<(Timeline, u64)>,
        timeline: &Timeline,
        revision: u64,
    ) -> Result<(), CellsError> {
        if let Some((known, least)) = before
            && known == *timeline
            && revision < least
        {
            self.lost = Some(known);
            return Err(CellsError::Unreachable(format!(
                "the revision is {revision} and was {least}: etcd was restored from a copy, and a new timeline begins"
            )));
        }
        match &mut self.known {
            Some((known, greatest)) if *known == *timeline => *greatest = revision.max(*greatest),
            known => *known = Some((timeline.clone(), revision)),
        }
        Ok(())
    }

    /// Returns a timeline that has to end.
    pub(super) fn lost(&self) -> Option<Timeline> {
        self.lost.clone()
    }

    /// Records that the timeline `lost` has ended.
    pub(super) fn began_anew(&mut self, lost: &Timeline) {
        if self.lost.as_ref() == Some(lost) {
            (self.known, self.lost) = (None, None);
        }
    }
}

/// Returns the timeline of a cluster with this mark; `None` if it is no mark.
pub(super) fn timeline(cluster: u64, mark: &[u8]) -> Option<Timeline> {
    let mark = str::from_utf8(mark).ok()?;
    let is_mark = mark.len() == MARK && mark.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_mark.then(|| Timeline::new(format!("{cluster:016x}-{mark}")))
}

/// Returns the mark of a timeline; `None` if the timeline is of another cluster.
pub(super) fn mark_of(timeline: &Timeline, cluster: u64) -> Option<&str> {
    let (of, mark) = timeline.as_str().split_once('-')?;
    (of == format!("{cluster:016x}")).then_some(mark)
}

/// Draws a random mark.
pub(super) fn draw_mark() -> String {
    format!("{:016x}", entropy::number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_goes_back_ends_the_timeline_it_was_of() {
        let (one, other) = (Timeline::new("1-a"), Timeline::new("1-b"));
        let mut seen = Seen::default();
        assert_eq!(seen.saw(seen.known(), &one, 7), Ok(()));
        // The answer to an earlier call may arrive later.
        let before = seen.known();
        assert_eq!(seen.saw(before.clone(), &one, 9), Ok(()));
        assert_eq!(seen.saw(before, &one, 8), Ok(()));
        assert_eq!(seen.known(), Some((one.clone(), 9)));
        let error = seen.saw(seen.known(), &one, 8).expect_err("it went back").to_string();
        assert!(error.contains("is 8 and was 9"), "{error}");
        assert_eq!(seen.lost(), Some(one.clone()));
        seen.began_anew(&other);
        assert_eq!(seen.lost(), Some(one.clone()));
        seen.began_anew(&one);
        assert_eq!((seen.lost(), seen.known()), (None, None));
        // Another timeline may have any revision.
        assert_eq!(seen.saw(Some((one, 9)), &other, 1), Ok(()));
        assert_eq!(seen.known(), Some((other, 1)));
    }

    #[test]
    fn a_timeline_is_a_cluster_and_a_mark() {
        let on = timeline(7, b"0123456789abcdef").expect("a mark");
        assert_eq!(on.as_str(), "0000000000000007-0123456789abcdef");
        assert_eq!(mark_of(&on, 7), Some("0123456789abcdef"));
        assert_eq!(mark_of(&on, 8), None);
        assert_eq!(mark_of(&Timeline::new("7"), 7), None);
        for no_mark in [&b""[..], b"0123456789abcde", b"0123456789abcdefg", b"0123456789abcde ", &[0xff; 16]]
        {
            assert_eq!(timeline(7, no_mark), None);
        }
        assert!(timeline(7, draw_mark().as_bytes()).is_some());
    }
}
