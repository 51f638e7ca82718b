//! Rules that hold by the time of the store when they are kept by allocators that are up to [`BLUR`] behind it: a permit is let
//! go that much later, and a bucket holds less, by what it refills in that time, or refills more slowly.

use super::BLUR;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::nanos;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::rule::{RefillStyle, SlidingLog, SlidingWindow, TokenBucket};
use lessor_protocol::{Answer, Grant, Rule};

/// A bucket that refills less than one in so many of what it holds in a blur, holds that much less.
const SMALL_PART: u64 = 50;

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
        Rule::TokenBucket(rule) => bucket(rule),
        Rule::LeakyBucket(_) | Rule::Concurrency(_) => {
            Err(format!("kind is {:?}: none is kept {of_store}", rule.kind()))
        }
    }
}

fn bucket(rule: &TokenBucket) -> Result<Rule, String> {
    if rule.refill_style() != RefillStyle::Greedy {
        return Err("refill_style is \"interval\": no store keeps that for several allocators".to_owned());
    }
    // Either it holds less, by what it refills in that time; or, if that is much of it, each permit takes longer by that time.
    let refills =
        (u128::from(rule.refill()) * BLUR.as_nanos()).div_ceil(u128::from(nanos(rule.per()).max(1)));
    let refills = u64::try_from(refills).unwrap_or(u64::MAX);
    let (capacity, per) = match refills < rule.capacity() / SMALL_PART {
        true => (rule.capacity() - refills, rule.per()),
        false => {
            let permits = u32::try_from(rule.refill()).unwrap_or(u32::MAX);
            (rule.capacity(), rule.per() + BLUR.saturating_mul(permits))
        }
    };
    let debt = rule.debt();
    let made = TokenBucket::try_new(capacity, rule.refill(), per, rule.initial().min(capacity));
    let made = made.and_then(|made| if debt > 0 { made.with_debt(debt) } else { Ok(made) });
    let made = made.and_then(|made| match rule.warm_up() {
        Some(warm_up) => made.with_warm_up(warm_up),
        None => Ok(made),
    });
    made.map(Rule::TokenBucket).map_err(|error| format!("capacity: {error}"))
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
