//! The lender: permits in, grants out. For each pool it decides how much each session is lent and until when, so that
//! all holders together admit at most what the rules allow, in every window. It is pure: synchronous, in integers, and
//! the time is an argument.
//!
//! In reading order: [`rule`] (one promise of a contract, and its books), [`carry_over`] (how a change carries over a
//! balance), [`sizing`], [`share`] and [`pacing`] (how large a lease is), [`pool`] (the books of one limit and key),
//! [`overrides`] (what operators decide over the API), [`cells`] and [`roots`] (a pool in a store that allocators
//! share), [`registry`] (all limits, keys and sessions of an allocator), [`named`] (how a limit is found),
//! [`rule_text`] and [`limit_text`] (a rule and a limit as they are written), [`steering`] (how an allocator's clock is
//! steered), [`rejection`] (why an ask is rejected), `packed` (values in few bytes). Beside them [`exact`] keeps the
//! same promises in one place, to compare.
//!
//! ```
//! use lessor_ledger::pool::{Holder, SessionId, Plan, Pool};
//! use lessor_ledger::share::Share;
//! use lessor_ledger::rule::SlidingWindow;
//! use lessor_protocol::{Answer, Ask, Moment};
//! use lessor_ledger::Rule;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! let window = SlidingWindow::try_new(9_000, Duration::from_secs(30), Duration::ZERO)?;
//! let plan = Plan { ease_off: true, ..Plan::of(vec![Rule::SlidingWindow(window)]) };
//! let mut pool = Pool::new(Arc::new(plan), Moment::ORIGIN);
//! let node = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::from_millis(2) };
//! let answer = pool.renew(Moment::ORIGIN, node, 1, Ask { want: 300, ..Ask::default() })?;
//! assert!(matches!(answer, Answer::Grant(grant) if grant.permits == 300));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod carry_over;
pub mod cells;
pub mod exact;
#[cfg(test)]
mod fixtures;
pub mod limit_text;
pub mod named;
pub mod overrides;
pub mod pacing;
mod packed;
pub mod pool;
pub mod registry;
pub mod rejection;
pub mod roots;
pub mod rule;
pub mod rule_text;
pub mod share;
pub mod sizing;
pub mod steering;

pub use carry_over::CarryOver;
pub use rule::{Rule, RuleError};
