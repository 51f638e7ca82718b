//! An exchange with roots. Roots that are not known are read, and all are asked. Their new values are written until no
//! other allocator was faster.

use super::{Call, Host, Job, Member, MemberError, Next, Notice, Step, TRIES};
use crate::cells::{Cell, Swapped};
use crate::pool::{Holder, SessionId};
use crate::roots::{Exchange, HEAD, RootAnswer, RootAsk, RootError};
use crate::share::Share;
use lessor_protocol::Moment;
use std::time::Duration;

impl Member {
    /// Asks roots, now that the head is known. Roots that are not known are loaded first.
    pub(super) fn ask_roots(&mut self, now: Moment, host: &mut impl Host) -> Next {
        let asks = host.asks();
        let unknown = asks.iter().flatten().map(|ask| &ask.name).filter(|name| !self.known.has(name));
        let mut names: Vec<String> = unknown.cloned().collect();
        if names.is_empty() {
            return self.begin_exchange(asks, now, host);
        }
        // The head is read after the roots: a root that is not there is new only where the head is what it was.
        names.push(HEAD.to_owned());
        let call = Call::Load(names.clone());
        self.call(Step::LoadRoots { names, asks }, call)
    }

    /// Takes the content of the cells of `names`, and begins the exchange.
    pub(super) fn roots_loaded(
        &mut self,
        names: Vec<String>,
        asks: Vec<Option<RootAsk>>,
        mut cells: Vec<Option<Cell>>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        if let Err(error) = self.goes_on(cells.pop().flatten()) {
            return self.fail(error, now);
        }
        let cells = names.into_iter().zip(cells).filter_map(|(name, cell)| Some((name, cell?)));
        cells.for_each(|(name, cell)| self.known.add(name, cell));
        self.begin_exchange(asks, now, host)
    }

    fn begin_exchange(&mut self, asks: Vec<Option<RootAsk>>, now: Moment, host: &mut impl Host) -> Next {
        let Job::Ask { rtt, seq } = self.job else { return self.fail(MemberError::Mismatch, now) };
        let places = asks.iter().map(Option::is_some).collect();
        self.idle.used(asks.iter().flatten(), now);
        if self.idle.has_overflowed() {
            host.tell(Notice::ManyIdle);
        }
        let asks = asks.into_iter().flatten();
        let asks: Vec<_> =
            asks.map(|ask| (self.known.take(&ask.name), ask)).map(|(cell, ask)| (ask, cell)).collect();
        let rtt = self.contention.begins(now, rtt);
        let holder = Holder { id: SessionId(self.signer.session), share: Share::EVEN, rtt };
        self.tries = 0;
        self.try_swaps(Box::new(Exchange::new(holder, seq, asks)), places, now, host)
    }

    /// Writes what the roots are after the asks, unless that was tried often enough.
    fn try_swaps(
        &mut self,
        mut exchange: Box<Exchange>,
        places: Vec<bool>,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        if !self.head_holds(now) {
            return self.fail(MemberError::NotSigned, now);
        }
        let Some((_, head)) = &self.head else { return self.fail(MemberError::OtherHead, now) };
        if self.tries < TRIES {
            self.tries += 1;
            let swaps = exchange.swaps(head, &self.clock, now, || host.draw());
            if !swaps.is_empty() {
                let timeline = head.timeline();
                let step = Step::SwapRoots { exchange, places, began: now };
                return self.call(step, Call::Swap(timeline, swaps));
            }
        }
        match exchange.has_created_roots() {
            true => {
                let step = Step::CheckHead { exchange, places };
                self.call(step, Call::Load(vec![HEAD.to_owned()]))
            }
            false => self.finish_asks(*exchange, &places, now, host),
        }
    }

    /// Takes the outcomes of the swaps, and how long their call `took`.
    pub(super) fn roots_swapped(
        &mut self,
        mut exchange: Box<Exchange>,
        places: Vec<bool>,
        swapped: Vec<Swapped>,
        took: Duration,
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let all = swapped.len();
        let late = exchange.swapped(swapped);
        host.tell(Notice::Swapped { done: all - late, late, took });
        self.try_swaps(exchange, places, now, host)
    }

    /// Ends the exchange, and remembers the cells.
    pub(super) fn finish_asks(
        &mut self,
        exchange: Exchange,
        places: &[bool],
        now: Moment,
        host: &mut impl Host,
    ) -> Next {
        let mut answers = vec![];
        for RootAnswer { name, cell, answer, is_contested } in exchange.finish(now) {
            if is_contested {
                host.tell(Notice::Contested(name.clone()));
            }
            if let Some(cell) = cell {
                self.known.add_for_later(name, cell);
            }
            if matches!(answer, Some(Err(RootError::HeadIsOld | RootError::Gone))) {
                self.head = None;
            }
            answers.push(answer);
        }
        self.contention.ends(now, answers.iter().all(Option::is_some));
        let mut answers = answers.into_iter();
        Next::Done(Ok(places
            .iter()
            .map(|is_asked| is_asked.then(|| answers.next()).flatten().flatten())
            .collect()))
    }
}
