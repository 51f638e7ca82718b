//! One exchange with roots. An allocator that leases asks each root as it would ask an allocator. It believes an answer
//! only once the store says that the new value took the place of the one that was read. If another allocator was
//! faster, the root is asked anew.
//!
//! It does no IO: a shell carries cells and swaps to the store and back.

use super::root::{self, Beside, Reply, RootError, RootSpec};
use super::{Head, RootClock, limit_of};
use crate::cells::{Cell, Swap, Swapped, VALUE_MAX};
use crate::pool::{AskError, GroupAsk, Holder, SafeAsk};
use lessor_protocol::{Answer, Ask, Grant, Moment};
use std::time::Duration;

/// Shortest wait in an answer: zero would say that there is enough.
const AT_ONCE: Duration = Duration::from_millis(1);

/// An ask of a root.
#[derive(Clone, Debug)]
pub struct RootAsk {
    /// Name of its cell.
    pub name: String,
    /// How the root is made.
    pub spec: RootSpec,
    /// The ask itself.
    pub ask: Ask,
    /// The ask for safe shares, if the limit has any.
    pub safe: Option<SafeAsk>,
    /// The ask for each group that the limit guarantees something.
    pub groups: Vec<GroupAsk>,
}

/// The outcome of an ask of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootAnswer {
    /// Name of its cell.
    pub name: String,
    /// The cell's content now, as far as this allocator knows.
    pub cell: Option<Cell>,
    /// The root's answer; `None` if other allocators were faster each time.
    pub answer: Option<Result<Reply, RootError>>,
    /// Whether this allocator has other rules than the root goes by, under the same version of the configuration.
    pub is_contested: bool,
}

/// One exchange.
#[derive(Debug)]
pub struct Exchange {
    holder: Holder,
    seq: u64,
    asks: Vec<Asking>,
}

#[derive(Debug)]
struct Asking {
    ask: RootAsk,
    /// The content of its cell, as far as this allocator knows.
    cell: Option<Cell>,
    /// The content of its cell and its answer, if the swap on its way is done.
    hopes: Option<(Option<Cell>, Result<Reply, AskError>)>,
    /// When the root was asked, on the own clock.
    asked: Moment,
    answer: Option<Result<Reply, RootError>>,
    /// Whether the root was not there, and this exchange made it.
    is_created: bool,
    is_contested: bool,
}

impl Exchange {
    /// Creates the `seq`-th exchange of `holder`. Each ask comes with what is thought to be in its cell.
    pub fn new(holder: Holder, seq: u64, asks: Vec<(RootAsk, Option<Cell>)>) -> Self {
        let asked = Moment::ORIGIN;
        let asking = |(ask, cell)| Asking {
            ask,
            cell,
            hopes: None,
            asked,
            answer: None,
            is_created: false,
            is_contested: false,
        };
        Exchange { holder, seq, asks: asks.into_iter().map(asking).collect() }
    }

    /// Returns the swaps to do at `local` on the own clock. Each new cell gets a number that `draw` draws. There are
    /// none if every ask is answered.
    pub fn swaps(
        &mut self,
        head: &Head,
        clock: &RootClock,
        local: Moment,
        mut draw: impl FnMut() -> u64,
    ) -> Vec<Swap> {
        let mut swaps = vec![];
        for asking in self.asks.iter_mut().filter(|asking| asking.answer.is_none()) {
            let Some(now) = clock.now(local).zip(clock.latest(local)) else {
                asking.answer = Some(Err(RootError::NoTime));
                continue;
            };
            let RootAsk { name, spec, ask, safe, groups } = &asking.ask;
            let limit = limit_of(name).unwrap_or_default();
            if let Some(above) = head.families().unknown_to(&spec.parent_ref, limit) {
                asking.answer = Some(Err(RootError::Below(above.to_owned())));
                continue;
            }
            let value = asking.cell.as_ref().map(|cell| cell.value.as_slice());
            let beside = Beside { safe: *safe, groups };
            match root::ask(spec, head, value, now, (self.holder, self.seq, *ask), beside) {
                Ok(asked) if asked.value.as_ref().is_some_and(|value| value.len() > VALUE_MAX) => {
                    let bytes = asked.value.map_or(0, |value| value.len());
                    asking.answer = Some(Err(RootError::TooLarge(bytes)));
                }
                Ok(asked) => {
                    (asking.asked, asking.is_contested) = (local, asked.is_contested);
                    let next = asked.value.map(|value| Cell { version: draw(), value });
                    let expected = asking.cell.as_ref().map(|cell| cell.version);
                    asking.hopes = Some((next.clone(), asked.answer));
                    swaps.push(Swap { name: name.clone(), expected, next });
                }
                Err(error) => asking.answer = Some(Err(error)),
            }
        }
        swaps
    }

    /// Returns the number of swaps whose outcome is not known.
    pub fn waiting(&self) -> usize {
        self.asks.iter().filter(|asking| asking.hopes.is_some()).count()
    }

    /// Whether the exchange has made a root that was not there. Another allocator may have made it before, and lost it
    /// with the rest of the store. So no such root is believed before another look at the head.
    pub fn has_created_roots(&self) -> bool {
        self.asks.iter().any(|asking| asking.is_created)
    }

    /// Drops the roots that were made: the head is gone, or is another one, since it was first looked at.
    pub fn discard_made(&mut self) {
        for asking in self.asks.iter_mut().filter(|asking| asking.is_created) {
            (asking.cell, asking.answer) = (None, Some(Err(RootError::Gone)));
        }
    }

    /// Takes the outcomes of the swaps, in their order. Returns how many were too late.
    pub fn swapped(&mut self, swapped: Vec<Swapped>) -> usize {
        let mut late = 0;
        let waiting = self.asks.iter_mut().filter(|asking| asking.answer.is_none());
        for (asking, swapped) in waiting.zip(swapped) {
            let Some((next, answer)) = asking.hopes.take() else { continue };
            match swapped {
                Swapped::Done => {
                    asking.is_created = asking.cell.is_none() && next.is_some();
                    asking.cell = next;
                    asking.answer = Some(answer.map_err(RootError::Ask));
                }
                // The store may have been emptied: without another look at the head the root is not made anew.
                Swapped::Other(None) if asking.cell.is_some() => {
                    asking.cell = None;
                    asking.answer = Some(Err(RootError::Gone));
                }
                Swapped::Other(cell) => {
                    late += 1;
                    asking.cell = cell;
                }
            }
        }
        late
    }

    /// Returns the outcome of each ask, in their order, at `local` on the own clock.
    pub fn finish(self, local: Moment) -> Vec<RootAnswer> {
        let answer = |Asking { ask, cell, asked, answer, is_contested, .. }| {
            let (name, ago) = (ask.name, local.since(asked));
            let sooner = |reply: Reply| Reply { answer: sooner(reply.answer, ago), ..reply };
            let answer = answer.map(|answer| answer.map(sooner));
            RootAnswer { name, cell, answer, is_contested }
        };
        self.asks.into_iter().map(answer).collect()
    }
}

/// Shortens the waits in `answer`, which was written that long `ago`. The term stays: a lease counts from when it was
/// asked for.
fn sooner(answer: Answer, ago: Duration) -> Answer {
    match answer {
        Answer::Grant(grant) if !grant.ask_after.is_zero() => {
            let left = |wait: Duration| wait.saturating_sub(ago).max(AT_ONCE);
            let (ask_after, retry_after) = (left(grant.ask_after), grant.retry_after.map(left));
            Answer::Grant(Grant { ask_after, retry_after, ..grant })
        }
        answer @ (Answer::Grant(_) | Answer::Refusal(_)) => answer,
    }
}
