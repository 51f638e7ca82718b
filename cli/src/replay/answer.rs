//! One answer of a replay, as a line of JSON. It is made from a limiter's decision; it decides nothing.

use lessor_ledger::exact::{Outcome, Verdict};
use lessor_protocol::moment::nanos;
use serde::Serialize;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// Whether the request was served, or could be.
    pub(crate) ok: bool,
    /// Permits that a call could take at that instant, after this one.
    pub(crate) remaining: u64,
    /// Time until the same call would succeed, if no other call comes, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ns: Option<u64>,
    /// Time until an `acquire` is served, or would have been, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_ns: Option<u64>,
    /// The error in the line, or why the call can never succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Whether the call would have been refused, or made to wait, if the limit were not in shadow mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shadow: bool,
}

impl Answer {
    /// Answers a call for `permits` with `outcome`; `waits` if the call might have waited.
    pub(crate) fn of(outcome: Outcome, permits: u64, waits: bool) -> Self {
        let mut answer = Answer { ok: false, ..Answer::yes(outcome.remaining) };
        match outcome.verdict {
            Verdict::Served(wait) => {
                answer.ok = true;
                answer.wait_ns = waits.then_some(nanos(wait));
            }
            Verdict::NotFor(wait) => {
                answer.retry_after_ns = Some(nanos(wait));
                answer.wait_ns = waits.then_some(nanos(wait));
            }
            Verdict::Never => {}
            Verdict::TooLarge(ceiling) => {
                return Answer::too_large(permits, ceiling, outcome.remaining);
            }
        }
        answer
    }

    /// Refuses a call for `permits` that exceeds the `ceiling` of the limit.
    pub(crate) fn too_large(permits: u64, ceiling: u64, remaining: u64) -> Self {
        let problem =
            format!("TooLarge: permits is {permits}, and this limit never holds more than {ceiling}");
        Answer { ok: false, error: Some(problem), ..Answer::yes(remaining) }
    }

    /// Accepts a call that did not wait.
    pub(crate) fn yes(remaining: u64) -> Self {
        Answer { ok: true, remaining, retry_after_ns: None, wait_ns: None, error: None, shadow: false }
    }

    /// Lets a call pass by a limit in shadow mode; `waits` if the call might have waited.
    pub(crate) fn passed(remaining: u64, waits: bool) -> Self {
        Answer { wait_ns: waits.then_some(0), shadow: true, ..Answer::yes(remaining) }
    }

    /// Answers an invalid line with its problem.
    pub(crate) fn wrong(problem: String) -> Self {
        Answer { ok: false, error: Some(problem), ..Answer::yes(0) }
    }
}
