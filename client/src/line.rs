//! The callers that wait for permits of one pool, first come, first served: a list of wakers behind the pool's lock.

use std::collections::VecDeque;
use std::task::Waker;

/// Most callers in one line. A longer one is memory spent on calls that will hardly be served in time.
const LINE_MAX: usize = 100_000;

/// The callers in line, in order.
#[derive(Debug, Default)]
pub(crate) struct Line {
    places: VecDeque<Caller>,
    next_id: u64,
}

#[derive(Debug)]
struct Caller {
    id: u64,
    waker: Option<Waker>,
}

impl Line {
    pub(crate) fn first_waker(&self) -> Option<Waker> {
        self.places.front().and_then(|caller| caller.waker.clone())
    }

    pub(crate) fn all_wakers(&self) -> Vec<Waker> {
        self.places.iter().filter_map(|caller| caller.waker.clone()).collect()
    }

    /// A new last place, by its number; `None` if the line is as long as it may be.
    pub(crate) fn join(&mut self) -> Option<u64> {
        if self.places.len() >= LINE_MAX {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.places.push_back(Caller { id, waker: None });
        Some(id)
    }

    /// `id` goes, wherever it stands.
    pub(crate) fn leave(&mut self, id: u64) {
        self.places.retain(|caller| caller.id != id);
    }

    /// Notes how to wake `id`, and tells whether it is the first.
    pub(crate) fn wait(&mut self, id: u64, waker: &Waker) -> bool {
        if let Some(caller) = self.places.iter_mut().find(|caller| caller.id == id) {
            match &mut caller.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        self.places.front().is_some_and(|caller| caller.id == id)
    }
}
