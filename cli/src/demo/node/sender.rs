//! Sends admitted calls to the vendor: real HTTP requests, several in flight, never more than a bound. The caller hands
//! them over and goes on. A call that would arrive too late to be safe is not sent at all.

use crate::demo::contract::schedule::Call;
use crate::demo::contract::vendor::{CALLS_PATH, MESSAGES_PATH};
use crate::failure::Failure;
use lessor::Limit;
use lessor::http::StatusCode;
use lessor_protocol::{Clock, Moment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests at the same time, each on its own connection. Loopback answers within a millisecond, so four carry thousands of
/// calls a second. A larger number would all be refused together when the vendor refuses.
const IN_FLIGHT_MAX: usize = 4;

/// Most calls in hand, in flight or waiting for a connection: half a second of the busiest node's share.
const IN_HAND_MAX: u32 = 512;

/// Age beyond which an admitted call is not sent. The contract's margin is 250 ms: the rest of it is for the wire and
/// for the vendor to take the call in.
const SEND_WITHIN: Duration = Duration::from_millis(150);

/// Longest time that the vendor may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Sends calls to one vendor.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    http: reqwest::Client,
    calls_url: String,
    messages_url: String,
    clock: Clock,
    in_hand: Arc<Semaphore>,
    in_flight: Arc<Semaphore>,
    unsent: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    /// All calls, and messages: an answer of the vendor is reported to the limit that it is about.
    limits: [Limit; 2],
}

impl Sender {
    /// Creates a sender to the vendor at `url`.
    pub(crate) fn new(url: &str, limits: [Limit; 2]) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(IN_FLIGHT_MAX)
            .timeout(ANSWER_WITHIN)
            .no_proxy()
            .build()
            .map_err(|error| Failure::Run(format!("cannot make an HTTP client: {error}")))?;
        Ok(Sender {
            http,
            calls_url: format!("{url}{CALLS_PATH}"),
            messages_url: format!("{url}{MESSAGES_PATH}"),
            clock: Clock::since_boot(),
            in_hand: Arc::new(Semaphore::new(IN_HAND_MAX as usize)),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            unsent: Arc::default(),
            refused: Arc::default(),
            limits,
        })
    }

    /// Sends `call`, which was admitted at `admitted`, in the background.
    pub(crate) fn send(&self, call: Call, admitted: Moment) {
        let Ok(in_hand) = Arc::clone(&self.in_hand).try_acquire_owned() else {
            self.count_unsent();
            return;
        };
        let sender = self.clone();
        tokio::spawn(async move {
            if !sender.deliver(call, admitted).await {
                sender.count_unsent();
            }
            drop(in_hand);
        });
    }

    /// Returns the admitted calls that did not reach the vendor so far. Their permits are spent all the same.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Returns the calls that the vendor refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Waits until no call is in hand.
    pub(crate) async fn finish(&self) {
        // The semaphore is never closed, and each call releases its place within the time an answer may take.
        let _ = self.in_hand.acquire_many(IN_HAND_MAX).await;
    }

    /// Sends a call, and reports the vendor's answer to the fleet. Returns false if the call did not reach the vendor.
    async fn deliver(&self, call: Call, admitted: Moment) -> bool {
        let Ok(_connection) = self.in_flight.acquire().await else {
            return false;
        };
        // The vendor may have asked for a pause after the permit was taken: then it would not answer the call.
        if self.clock.now().since(admitted) > SEND_WITHIN || self.limits[0].paused().is_some() {
            return false;
        }
        let url = match call {
            Call::Plain => &self.calls_url,
            Call::Push => &self.messages_url,
        };
        let Ok(answer) = self.http.post(url).send().await else { return false };
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        let policy = answer.headers().get("ratelimit-policy").and_then(|value| value.to_str().ok());
        let is_of_messages = policy.is_some_and(|policy| policy.starts_with("\"messages\""));
        self.limits[usize::from(is_of_messages)].observe(answer.status(), answer.headers());
        true
    }

    fn count_unsent(&self) {
        // Relaxed: a counter on which no other read depends.
        self.unsent.fetch_add(1, Ordering::Relaxed);
    }
}
