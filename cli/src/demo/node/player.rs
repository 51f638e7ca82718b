//! Plays a node's part of a trace. Each request is made when it comes due, and waits for a permit up to its patience.
//! The instant at which it was admitted is recorded.

use super::orders::Orders;
use super::{PROGRESS_EVERY, say_progress, ticks};
use crate::demo::line::{Count, DealtCall, Found, Report, Tally};
use lessor::{Client, Limit};
use lessor_protocol::{Clock, Moment};
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// Most requests that wait for a permit at the same time. Further ones are turned away, as a server would.
const WAITING_MAX: usize = 10_000;

/// Most handles that are kept, one for each client. Beyond that all are dropped and looked up again as needed.
const HANDLES_MAX: usize = 100_000;

/// Why the task of a request always ends by itself.
const UNHARMED: &str = "a request neither panics nor is aborted while it is played";

/// Plays one node's part.
#[derive(Debug)]
pub(crate) struct Player<'a> {
    client: &'a Client,
    limit: Limit,
    handles: HashMap<String, Limit>,
    calls: Vec<DealtCall>,
    patience: Duration,
    clock: Clock,
    waiting: JoinSet<Ended>,
    admitted: Vec<(u32, u64)>,
    refused: u64,
}

/// How one request ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Admitted { call: u32, at: Moment },
    Refused,
}

impl<'a> Player<'a> {
    /// Creates the player of `calls` on the keys of `limit`; each call waits at most `patience`.
    pub(crate) fn new(client: &'a Client, limit: &str, calls: Vec<DealtCall>, patience: Duration) -> Self {
        Player {
            client,
            limit: client.limit(limit),
            handles: HashMap::new(),
            calls,
            patience,
            clock: Clock::since_boot(),
            waiting: JoinSet::new(),
            admitted: Vec::new(),
            refused: 0,
        }
    }

    /// Plays from `start` on, until all calls have ended or the next order comes, which can only be to stop.
    pub(crate) async fn run(mut self, start: Moment, orders: &mut Orders) -> Report {
        let mut progress = ticks(PROGRESS_EVERY);
        let mut next = 0;
        while next < self.calls.len() || !self.waiting.is_empty() {
            let until_due = self.until_due(next, start);
            tokio::select! {
                _ = orders.next() => break,
                () = tokio::time::sleep(until_due), if next < self.calls.len() => {
                    next = self.make_due(next, start);
                }
                Some(ended) = self.waiting.join_next() => {
                    self.note(ended.expect(UNHARMED));
                }
                _ = progress.tick() => say_progress(self.tally()),
            }
        }
        // Told to stop: calls that have ended count as they ended, and calls that still wait never got a permit.
        while let Some(ended) = self.waiting.try_join_next() {
            self.note(ended.expect(UNHARMED));
        }
        self.refused += self.waiting.len() as u64;
        self.waiting.shutdown().await;
        Report { tally: self.tally(), found: Found::Replay(self.admitted) }
    }

    fn until_due(&self, next: usize, start: Moment) -> Duration {
        let Some(call) = self.calls.get(next) else {
            return Duration::ZERO;
        };
        (start + Duration::from_nanos(call.due_ns)).since(self.clock.now())
    }

    /// Makes the calls from `next` on that are due, and returns the index of the first that is not.
    fn make_due(&mut self, mut next: usize, start: Moment) -> usize {
        let elapsed = self.clock.now().since(start);
        while self.calls.get(next).is_some_and(|call| Duration::from_nanos(call.due_ns) <= elapsed) {
            self.make(next);
            next += 1;
        }
        next
    }

    fn make(&mut self, call: usize) {
        if self.waiting.len() >= WAITING_MAX {
            self.refused += 1;
            return;
        }
        let limit = self.handle(call);
        let call = u32::try_from(call).expect("a trace is bounded far below 2^32 requests");
        let (patience, clock) = (self.patience, self.clock);
        self.waiting.spawn(async move {
            match limit.acquire_within(1, patience).await {
                Ok(()) => Ended::Admitted { call, at: clock.now() },
                Err(_) => Ended::Refused,
            }
        });
    }

    fn handle(&mut self, call: usize) -> Limit {
        let client = &self.calls[call].client;
        if let Some(limit) = self.handles.get(client) {
            return limit.clone();
        }
        if self.handles.len() >= HANDLES_MAX {
            self.handles.clear();
        }
        let limit = self.limit.key(client);
        self.handles.insert(client.clone(), limit.clone());
        limit
    }

    fn note(&mut self, ended: Ended) {
        match ended {
            Ended::Admitted { call, at } => self.admitted.push((call, at.as_nanos())),
            Ended::Refused => self.refused += 1,
        }
    }

    fn tally(&self) -> Tally {
        let count = Count { admitted: self.admitted.len() as u64, refused: self.refused };
        Tally { counts: vec![count], exchanges: self.client.stats().exchanges, ..Tally::default() }
    }
}
