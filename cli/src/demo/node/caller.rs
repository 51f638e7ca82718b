//! Makes a node's calls in the contract demo: decides each locally with `try_acquire`, sends admitted calls, counts
//! refused ones, and measures how long the decision took.

use super::sender::Sender;
use super::{PROGRESS_EVERY, ticks};
use crate::demo::contract::schedule::{Call, Schedule};
use crate::demo::contract::{MESSAGES, REST};
use crate::demo::latency::Timed;
use crate::demo::line::{Count, Found, Report, Tally};
use crate::failure::Failure;
use lessor::{Client, Limit, Refusal};
use lessor_protocol::{Clock, Moment};
use std::pin::pin;
use std::time::Duration;

/// Interval at which a node handles the calls that have come in, like a consumer that polls its queue: some forty at a
/// time. A much shorter one would measure how long a sleeping processor takes to wake up, a microsecond or two. With a
/// much longer one, a batch would be larger than what a node can sensibly be lent.
const TICK: Duration = Duration::from_millis(250);

/// Makes one node's calls.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    client: &'a Client,
    rest: Limit,
    messages: Limit,
    schedule: Schedule,
    sender: Sender,
    clock: Clock,
    timed: Timed,
    /// Whether this batch measures its calls, or the clock alone in their place.
    times_calls: bool,
    /// Time in a tick at which the node handles its batch: independent processes do not do so at the same time.
    phase: Duration,
    /// Counts of [all calls, messages]. A push counts on both.
    counts: [Count; 2],
    /// See [`Tally::unlent`].
    unlent: u64,
}

impl<'a> Caller<'a> {
    /// Creates the caller of node number `node` of `nodes`. It calls the vendor at `vendor` as `schedule` says.
    pub(crate) fn new(
        client: &'a Client,
        vendor: &str,
        schedule: Schedule,
        (node, nodes): (usize, usize),
    ) -> Result<Self, Failure> {
        let (rest, messages) = (client.limit(REST.name), client.limit(MESSAGES.name));
        Ok(Caller {
            client,
            sender: Sender::new(vendor, [rest.clone(), messages.clone()])?,
            rest,
            messages,
            schedule,
            clock: Clock::since_boot(),
            timed: Timed::new(),
            times_calls: false,
            phase: TICK.mul_f64(node as f64 / nodes.max(1) as f64),
            counts: [Count::default(); 2],
            unlent: 0,
        })
    }

    /// Makes calls from `start` on, `until` that is over. Reports its totals five times a second.
    pub(crate) async fn run(
        mut self,
        start: Moment,
        until: impl Future<Output = ()>,
        mut say: impl FnMut(Tally),
    ) -> Report {
        let mut until = pin!(until);
        tokio::time::sleep(self.phase).await;
        let mut tick = ticks(TICK);
        let mut progress = ticks(PROGRESS_EVERY);
        loop {
            tokio::select! {
                () = &mut until => break,
                _ = tick.tick() => self.make_due(start),
                _ = progress.tick() => say(self.tally()),
            }
        }
        self.sender.finish().await;
        Report { tally: self.tally(), found: Found::Contract(self.timed.buckets()) }
    }

    /// Decides the whole batch, then sends the admitted calls.
    fn make_due(&mut self, start: Moment) {
        let mut admitted = Vec::new();
        self.times_calls = !self.times_calls;
        for call in self.schedule.due(self.clock.now().since(start)) {
            let mut began = self.clock.now();
            if !self.times_calls {
                let again = self.clock.now();
                self.timed.clock.record(again.since(began));
                began = again;
            }
            if self.decide(call, began) {
                admitted.push((call, began));
            }
        }
        for (call, at) in admitted {
            self.sender.send(call, at);
        }
    }

    fn decide(&mut self, call: Call, began: Moment) -> bool {
        let answer = match call {
            Call::Plain => self.rest.try_acquire(1),
            Call::Push => lessor::try_all([(&self.rest, 1), (&self.messages, 1)]),
        };
        let ended = self.clock.now();
        if call == Call::Plain && self.times_calls {
            self.timed.calls.record(ended.since(began));
        }
        self.count(call, answer.is_ok());
        self.unlent += u64::from(answer.is_err_and(is_not_of_contract));
        answer.is_ok()
    }

    fn count(&mut self, call: Call, admitted: bool) {
        let limits = match call {
            Call::Plain => 1,
            Call::Push => 2,
        };
        for count in &mut self.counts[..limits] {
            count.admitted += u64::from(admitted);
            count.refused += u64::from(!admitted);
        }
    }

    fn tally(&self) -> Tally {
        let stats = self.client.stats();
        Tally {
            counts: self.counts.to_vec(),
            exchanges: stats.exchanges,
            failed_exchanges: stats.failed_exchanges,
            unlent: self.unlent,
            unsent: self.sender.unsent(),
            vendor_refused: self.sender.refused(),
        }
    }
}

/// Whether a call was refused for another reason than the contract: not because permits were used up, and not by the
/// vendor.
fn is_not_of_contract(refusal: Refusal) -> bool {
    !matches!(refusal, Refusal::Empty { .. } | Refusal::TooLarge { .. } | Refusal::Paused { .. })
}
