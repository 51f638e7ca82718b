//! One exchange with roots. An allocator that leases asks each root as it would ask an allocator. It believes no answer before
//! the store says that what was written took the place of what was read. Where another allocator was faster, the root is asked
//! anew.
//!
//! It does no IO: a shell carries cells and swaps to the store and back.

use super::root::{self, Beside, Reply, RootError, RootSpec};
use super::{Head, RootClock, limit_of};
use crate::cells::{Cell, Swap, Swapped, VALUE_MAX};
use crate::pool::{AskError, GroupAsk, Holder, SafeAsk};
use lessor_protocol::{Answer, Ask, Grant, Moment};
use std::time::Duration;

/// The shortest wait that is told: zero would say that there is enough.
const AT_ONCE: Duration = Duration::from_millis(1);

/// An ask of a root.
#[derive(Clone, Debug)]
pub struct RootAsk {
    /// Its cell.
    pub name: String,
    /// What it is made of.
    pub spec: RootSpec,
    /// What is asked.
    pub ask: Ask,
    /// What is said of safe shares, where the limit has any.
    pub safe: Option<SafeAsk>,
    /// What is said of each group for which the limit guarantees something.
    pub groups: Vec<GroupAsk>,
}

/// What came of an ask of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootAnswer {
    /// Its cell.
    pub name: String,
    /// What is in there now, as far as this allocator knows.
    pub cell: Option<Cell>,
    /// What it answered; `None` if others were faster all the time.
    pub answer: Option<Result<Reply, RootError>>,
    /// Whether other rules are asked of it than it goes by, under the same version of the configuration.
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
    /// What is in its cell, as far as this allocator knows.
    cell: Option<Cell>,
    /// What it answers if the swap is done that was asked for, and what is in its cell then.
    hopes: Option<(Option<Cell>, Result<Reply, AskError>)>,
    /// When that was asked, on the own clock.
    asked: Moment,
    answer: Option<Result<Reply, RootError>>,
    /// Whether it was not there, and this made it.
    is_made: bool,
    is_contested: bool,
}

impl Exchange {
    /// `holder` asks for the `seq`-th time; each ask comes with what is thought to be in its cell.
    pub fn new(holder: Holder, seq: u64, asks: Vec<(RootAsk, Option<Cell>)>) -> Self {
        let asked = Moment::ORIGIN;
        let asking = |(ask, cell)| Asking {
            ask,
            cell,
            hopes: None,
            asked,
            answer: None,
            is_made: false,
            is_contested: false,
        };
        Exchange { holder, seq, asks: asks.into_iter().map(asking).collect() }
    }

    /// What to swap, at `local` on the own clock; each new cell gets one of the numbers that `draw` draws. None if every ask is
    /// answered.
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

    /// How many swaps have been asked for, of which it is not known what came of them.
    pub fn waiting(&self) -> usize {
        self.asks.iter().filter(|asking| asking.hopes.is_some()).count()
    }

    /// Whether it has made a root that was not there. Another allocator may have made one before, which went with all that is in the
    /// store: no such root is believed before another look at the head.
    pub fn has_made(&self) -> bool {
        self.asks.iter().any(|asking| asking.is_made)
    }

    /// The head went, or is another one, since it was looked at first: what was made is not believed.
    pub fn is_emptied(&mut self) {
        for asking in self.asks.iter_mut().filter(|asking| asking.is_made) {
            (asking.cell, asking.answer) = (None, Some(Err(RootError::Gone)));
        }
    }

    /// What came of those swaps, in their order. How many were too late.
    pub fn swapped(&mut self, swapped: Vec<Swapped>) -> usize {
        let mut late = 0;
        let waiting = self.asks.iter_mut().filter(|asking| asking.answer.is_none());
        for (asking, swapped) in waiting.zip(swapped) {
            let Some((next, answer)) = asking.hopes.take() else { continue };
            match swapped {
                Swapped::Done => {
                    asking.is_made = asking.cell.is_none() && next.is_some();
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

    /// What came of each ask, in their order, at `local` on the own clock.
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

/// `answer`, which was written so long `ago`: what it tells to wait is that much shorter by now. Its lease counts from before.
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
