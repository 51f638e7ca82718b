//! Takes away roots that cannot be told from new ones, and those of keys that no node has used for days.

use super::{Call, Member, Next, Step};
use crate::cells::{Cell, Swap};
use crate::roots::root::looks_again_in;
use crate::roots::{RootSpec, is_forgettable, is_of_key};
use lessor_protocol::Moment;
use std::time::Duration;

/// Roots that are looked at, and which of them stay.
#[derive(Debug)]
pub(super) struct Sweep {
    due: Vec<(String, RootSpec)>,
    /// For each root of `due` that stays: when to look at it again. Empty while that is unknown.
    kept: Vec<Option<Duration>>,
}

impl Member {
    /// Looks at the roots that were not asked for long enough, now that the head is signed.
    pub(super) fn sweep(&mut self, now: Moment) -> Next {
        let due = self.idle.due(now);
        if due.is_empty() {
            return self.has_swept(now);
        }
        let names = due.iter().map(|(name, _)| name.clone()).collect();
        self.call(Step::LoadIdle(Sweep { due, kept: vec![] }), Call::Load(names))
    }

    /// Takes the content of their cells, and takes away the roots that are of no use.
    pub(super) fn idle_loaded(&mut self, mut sweep: Sweep, cells: Vec<Option<Cell>>, now: Moment) -> Next {
        let (Some((_, head)), Some(there)) = (&self.head, self.clock.now(now)) else {
            self.keep_idle(sweep, now);
            return self.has_swept(now);
        };
        let kept = sweep.due.iter().zip(&cells).map(|((name, spec), cell)| {
            let may_go = |cell: &Cell| is_forgettable(spec, head, &cell.value, is_of_key(name), there);
            let kept = cell.as_ref().filter(|cell| !may_go(cell));
            kept.map(|cell| looks_again_in(spec, head, &cell.value, there))
        });
        sweep.kept = kept.collect();
        let useless = sweep.due.iter().zip(cells).zip(&sweep.kept).filter(|(_, kept)| kept.is_none());
        let swaps = useless.filter_map(|(((name, _), cell), _)| Some((name.clone(), cell?.version)));
        let swaps = swaps.map(|(name, version)| Swap { name, expected: Some(version), next: None });
        let swaps: Vec<Swap> = swaps.collect();
        if swaps.is_empty() {
            return self.idle_swapped(sweep, now);
        }
        // An allocator that asks one of these roots meanwhile is faster, and the root stays.
        swaps.iter().for_each(|swap| _ = self.known.take(&swap.name));
        let timeline = head.timeline();
        self.call(Step::SwapIdle(sweep), Call::Swap(timeline, swaps))
    }

    /// Ends the sweep: the roots are taken away.
    pub(super) fn idle_swapped(&mut self, sweep: Sweep, now: Moment) -> Next {
        self.keep_idle(sweep, now);
        self.has_swept(now)
    }

    /// Schedules another look at all roots of `sweep`: whether they are taken away is unknown.
    pub(super) fn keep_all_idle(&mut self, sweep: Sweep, now: Moment) {
        self.keep_idle(Sweep { kept: vec![], ..sweep }, now);
    }

    /// Schedules another look at the roots that are still of use, or at all roots where that is unknown.
    fn keep_idle(&mut self, sweep: Sweep, now: Moment) {
        for (at, (name, spec)) in sweep.due.into_iter().enumerate() {
            if let Some(wait) = sweep.kept.get(at).copied().unwrap_or(Some(Duration::ZERO)) {
                self.idle.again(name, spec, now, wait);
            }
        }
    }

    fn has_swept(&mut self, now: Moment) -> Next {
        self.signed = now;
        Next::Done(Ok(vec![]))
    }
}
