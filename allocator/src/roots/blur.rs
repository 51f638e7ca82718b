//! Rules that hold by the time of the store when they are kept by allocators that are up to [`BLUR`] behind it: windows let a
//! permit go that much later. A bucket needs no more than to begin to refill late enough, each time that it was full.

use super::BLUR;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::{RefillStyle, SlidingLog, SlidingWindow};
use lessor_protocol::{Answer, Grant, Rule};

/// `rule`, as a root keeps it.
///
/// # Errors
/// If none does; the problem begins with the key.
pub fn stricter(rule: &Rule) -> Result<Rule, String> {
    if mutant::is(Mutant::BlurIgnored) {
        return Ok(*rule);
    }
    let of_store = "in a store that several allocators share";
    let wrong = |problem: &dyn std::fmt::Display| format!("limit: {problem} {of_store}");
    match rule {
        Rule::SlidingWindow(rule) => {
            let stricter = SlidingWindow::try_new(rule.limit(), rule.per(), rule.margin() + BLUR);
            stricter.map(Rule::SlidingWindow).map_err(|error| wrong(&error))
        }
        Rule::SlidingLog(rule) => {
            let stricter = SlidingLog::try_new(rule.limit(), rule.per(), rule.margin() + BLUR);
            stricter.map(Rule::SlidingLog).map_err(|error| wrong(&error))
        }
        Rule::FixedWindow(_) => Ok(*rule),
        // It begins to refill when that has begun for sure, see `Ledger::doubt`.
        Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Greedy => Ok(Rule::TokenBucket(*rule)),
        Rule::TokenBucket(_) => Err(format!("refill_style is \"interval\": none is kept {of_store}")),
        Rule::LeakyBucket(_) | Rule::Concurrency(_) => {
            Err(format!("kind is {:?}: none is kept {of_store}", rule.kind()))
        }
    }
}

/// What a root that goes by an early time tells whoever asked: its lease ends that much sooner than the root takes it to.
pub(super) fn shorter(answer: Answer) -> Answer {
    match answer {
        Answer::Grant(grant) if !mutant::is(Mutant::BlurIgnored) => {
            Answer::Grant(Grant { term: whole_millis(grant.term.saturating_sub(BLUR)), ..grant })
        }
        answer @ (Answer::Grant(_) | Answer::Refusal(_)) => answer,
    }
}
