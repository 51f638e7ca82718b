//! The fake vendor: an HTTP server that answers 429 to calls that break the contract. Nodes call it over real
//! connections. It runs in the parent process of the demo, or in a process of its own, and trusts no caller.

use super::judge::{Judge, Seen, Standing, Verdict};
use super::shift::Shift;
use crate::failure::Failure;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use lessor_protocol::{Clock, Moment};
use lessor_sim::evenness::Even;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Path of plain calls.
pub(crate) const CALLS_PATH: &str = "/calls";

/// Path of messages. A message is a call as well.
pub(crate) const MESSAGES_PATH: &str = "/messages";

/// Path at which the vendor shows its counts.
const SEEN_PATH: &str = "/seen";

/// A running vendor. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Vendor {
    url: String,
    desk: Desk,
    server: JoinHandle<()>,
}

impl Vendor {
    /// Starts a vendor that listens at `listen`.
    pub(crate) async fn open(judge: Judge, listen: SocketAddr) -> Result<Self, Failure> {
        let cannot = |error| Failure::Run(format!("the fake vendor cannot listen on {listen}: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let desk = Desk { clock: Clock::since_boot(), judge: Arc::new(Mutex::new(judge)) };
        let app = router(desk.clone());
        let server = tokio::spawn(async move {
            // Without Nagle's delay: an answer held back would look like a slow vendor.
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            // Ends only with the task: axum retries failed accepts itself.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Vendor { url: format!("http://{address}"), desk, server })
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Admits half as many calls from `at` on, and announces it.
    pub(crate) fn halve_at(&self, at: Moment) {
        self.desk.judge().halve_at(at);
    }

    /// Admits as many calls as at first from `at` on, and announces it.
    pub(crate) fn restore_at(&self, at: Moment) {
        self.desk.judge().restore_at(at);
    }

    /// Returns what followed a change, and the calls admitted in the window that ends now.
    pub(crate) fn shift(&self) -> Option<(Shift, u64)> {
        let (mut judge, now) = (self.desk.judge(), self.desk.clock.now());
        let in_window = judge.in_window(now);
        judge.shift().map(|shift| (*shift, in_window))
    }

    /// Returns the longest time in which no call was admitted, from the first admitted call until now.
    pub(crate) fn longest_gap(&self) -> Duration {
        let judge = self.desk.judge();
        judge.longest_gap(self.desk.clock.now())
    }

    /// Returns how evenly each limit was used, see [`Judge::even`].
    pub(crate) fn even(&self, ran: Duration) -> [Option<Even>; 2] {
        self.desk.judge().even(ran)
    }

    /// Measures from `start` on, see [`Judge::measure_from`].
    pub(crate) fn measure_from(&self, start: Moment) {
        self.desk.judge().measure_from(start);
    }

    /// Returns the counts so far, of all calls and of messages.
    pub(crate) fn seen(&self) -> [Seen; 2] {
        self.desk.judge().seen()
    }

    /// Returns the counts as JSON, for a caller that asks over HTTP.
    pub(crate) fn seen_json(&self) -> Value {
        self.desk.seen_json()
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Clone, Debug)]
struct Desk {
    clock: Clock,
    judge: Arc<Mutex<Judge>>,
}

impl Desk {
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().expect("no thread panics while judging")
    }

    fn seen_json(&self) -> Value {
        let of = |seen: Seen| json!({ "admitted": seen.admitted, "too_many": seen.too_many, "most_in_any_window": seen.most });
        let [calls, messages] = self.judge().seen().map(of);
        json!({ "calls": calls, "messages": messages })
    }

    /// Judges a call. The time is read under the lock, so that arrivals are judged in the order of their instants.
    fn decide(&self, decide: impl FnOnce(&mut Judge, Moment) -> (Verdict, Standing)) -> Response {
        let (verdict, standing) = {
            let mut judge = self.judge();
            decide(&mut judge, self.clock.now())
        };
        let headers = rate_limit_headers(&standing);
        match verdict {
            Verdict::Admitted => (StatusCode::NO_CONTENT, headers).into_response(),
            Verdict::TooMany => {
                let wait = [(RETRY_AFTER, seconds_up(standing.lasts).to_string())];
                (StatusCode::TOO_MANY_REQUESTS, headers, wait).into_response()
            }
        }
    }
}

/// Formats a standing as the headers of the IETF draft.
fn rate_limit_headers(standing: &Standing) -> [(HeaderName, String); 2] {
    let Standing { policy, limit, per, left, lasts } = standing;
    let (per, lasts) = (per.as_secs(), seconds_up(*lasts));
    [
        (HeaderName::from_static("ratelimit-policy"), format!("\"{policy}\";q={limit};w={per}")),
        (HeaderName::from_static("ratelimit"), format!("\"{policy}\";r={left};t={lasts}")),
    ]
}

/// Rounds up to whole seconds.
fn seconds_up(span: Duration) -> u64 {
    span.as_millis().div_ceil(1_000) as u64
}

fn router(desk: Desk) -> Router {
    Router::new()
        .route(CALLS_PATH, post(async |State(desk): State<Desk>| desk.decide(Judge::call)))
        .route(MESSAGES_PATH, post(async |State(desk): State<Desk>| desk.decide(Judge::message)))
        .route(SEEN_PATH, get(async |State(desk): State<Desk>| Json(desk.seen_json())))
        .route("/readyz", get(async || StatusCode::NO_CONTENT))
        .with_state(desk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ANY_PORT;

    #[tokio::test]
    async fn over_the_wire_a_call_too_many_is_answered_429() {
        let hour = Duration::from_secs(3600);
        let vendor =
            Vendor::open(Judge::new((2, hour), (1, hour)), ANY_PORT).await.expect("loopback is there");
        let http = reqwest::Client::new();
        let mut answers = Vec::new();
        for path in [MESSAGES_PATH, MESSAGES_PATH, CALLS_PATH, CALLS_PATH] {
            let sent = http.post(format!("{}{path}", vendor.url())).send().await;
            let answer = sent.expect("the vendor answers");
            let said =
                |name: &str| answer.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
            answers.push((answer.status().as_u16(), said("ratelimit"), said("retry-after")));
        }
        let left = |policy: &str, left: u64| Some(format!("\"{policy}\";r={left};t=3600"));
        let wait = Some("3600".to_owned());
        assert_eq!(
            answers,
            [
                (204, left("messages", 0), None),
                (429, left("messages", 0), wait.clone()),
                (204, left("rest", 0), None),
                (429, left("rest", 0), wait),
            ]
        );
        assert_eq!(vendor.seen().map(|seen| seen.too_many), [1, 1]);
        let seen = http.get(format!("{}{SEEN_PATH}", vendor.url())).send().await.expect("it answers");
        let seen: Value = seen.json().await.expect("JSON");
        assert_eq!(seen["calls"], json!({ "admitted": 2, "too_many": 1, "most_in_any_window": 4 }));
        assert_eq!(seen["messages"], json!({ "admitted": 1, "too_many": 1, "most_in_any_window": 2 }));
    }
}
