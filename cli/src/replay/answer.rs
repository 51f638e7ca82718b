//! One answer of a replay, as a line of JSON says it. Made from what a limiter decided; it decides nothing.

use lessor_ledger::exact::{Outcome, Verdict};
use lessor_protocol::moment::nanos;
use serde::Serialize;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// Whether it was done, or may be.
    pub(crate) ok: bool,
    /// What a call could take at that instant, after this one.
    pub(crate) remaining: u64,
    /// How long until the same call would succeed, if no other call comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ns: Option<u64>,
    /// How long until an `acquire` is served, or would have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_ns: Option<u64>,
    /// What was wrong, or why it can never succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Whether it would have been refused, or made to wait, if the limit were not in shadow mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shadow: bool,
}

impl Answer {
    /// What `outcome` says to a call for `permits`; `waits` if it might have waited.
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

    /// A call for `permits`, where no more than `ceiling` ever are.
    pub(crate) fn too_large(permits: u64, ceiling: u64, remaining: u64) -> Self {
        let problem =
            format!("TooLarge: permits is {permits}, and this limit never holds more than {ceiling}");
        Answer { ok: false, error: Some(problem), ..Answer::yes(remaining) }
    }

    /// A plain yes.
    pub(crate) fn yes(remaining: u64) -> Self {
        Answer { ok: true, remaining, retry_after_ns: None, wait_ns: None, error: None, shadow: false }
    }

    /// A call that a limit in shadow mode lets pass; `waits` if it might have waited.
    pub(crate) fn passed(remaining: u64, waits: bool) -> Self {
        Answer { wait_ns: waits.then_some(0), shadow: true, ..Answer::yes(remaining) }
    }

    /// A line that means nothing, and why.
    pub(crate) fn wrong(problem: String) -> Self {
        Answer { ok: false, error: Some(problem), ..Answer::yes(0) }
    }
}
