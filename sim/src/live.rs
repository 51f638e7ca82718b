//! What operators do to the limit while the fleet runs (changes, top-ups, pauses, blocks), and what a caller outside
//! the fleet does to the vendor's count, each at its moment. The setup draws these acts, the world performs them, and
//! the oracle knows how each changes the promise.

use crate::setup::{Setup, parse_rules};
use crate::text::{rules_text, safe, safe_text};
use lessor_ledger::share::Safe;
use lessor_ledger::{CarryOver, Rule};
use std::fmt;
use std::time::Duration;

/// An act of an operator, and its moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Real time of the act in nanoseconds.
    pub at: u64,
    /// The act.
    pub act: Act,
}

/// What an operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The limit goes on by other rules; a limit that was removed comes back with them.
    Change(CarryOver, Vec<Rule>),
    /// The limit is put over the API with other rules. In a shared store, the operator tells one allocator, and all
    /// follow.
    Put(Vec<Rule>),
    /// The safe shares change: how many nodes may go on with the reserve, and for how long. In a shared store, one allocator has
    /// read the new file.
    Safe(Option<Safe>),
    /// The reserve has this many permits from now on. In a shared store, one allocator has read the new file.
    Reserve(u64),
    /// The limit is removed. In a shared store, the operator tells one allocator, and all follow.
    Remove,
    /// The limit has this many permits more, once.
    TopUp(u64),
    /// No node is lent anything for this many nanoseconds.
    Pause(u64),
    /// All nodes may be lent permits again.
    Resume,
    /// Nothing is lent to this node any more.
    Block(usize),
    /// The node is lent permits again.
    Unblock(usize),
    /// A caller outside the fleet uses this many of the vendor's permits from now on; 0 means none. The vendor tells
    /// its callers what is left, and refuses them.
    Outside(u64),
}

impl fmt::Display for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.at)?;
        match &self.act {
            Act::Change(carry, rules) => write!(out, "change:{}:{}", carry.name(), rules_text(rules)),
            Act::Put(rules) => write!(out, "put:{}", rules_text(rules)),
            Act::Safe(None) => write!(out, "safe:none"),
            Act::Safe(Some(safe)) => write!(out, "safe:{}", safe_text(*safe)),
            Act::Reserve(permits) => write!(out, "reserve:{permits}"),
            Act::Remove => write!(out, "remove:"),
            Act::TopUp(permits) => write!(out, "top_up:{permits}"),
            Act::Pause(nanos) => write!(out, "pause:{nanos}"),
            Act::Resume => write!(out, "resume:"),
            Act::Block(node) => write!(out, "block:{node}"),
            Act::Unblock(node) => write!(out, "unblock:{node}"),
            Act::Outside(permits) => write!(out, "outside:{permits}"),
        }
    }
}

impl Setup {
    /// Returns the longest that a safe share lasts by any configuration of the run, if nodes have any.
    pub(crate) fn safe_lasts(&self) -> Option<Duration> {
        let said = |live: &Live| if let Act::Safe(safe) = live.act { safe } else { None };
        let changed = self.live.iter().filter_map(said);
        self.plan.sharing.safe.into_iter().chain(changed).map(|safe| safe.lasts).max()
    }

    /// Returns the largest reserve of the run.
    pub(crate) fn reserve_most(&self) -> u64 {
        let said = |live: &Live| if let Act::Reserve(permits) = live.act { Some(permits) } else { None };
        self.live.iter().filter_map(said).fold(self.plan.sharing.reserve, u64::max)
    }

    /// Whether an act changes the reserve.
    pub(crate) fn changes_reserve(&self) -> bool {
        self.live.iter().any(|live| matches!(live.act, Act::Reserve(_)))
    }
}

/// Reads an act as [`Live`] displays it.
///
/// # Errors
/// Says in words what could not be read.
pub fn parse(text: &str) -> Result<Live, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} cannot be read"));
    let wrong = || format!("{text:?}: say for example 1000000000:top_up:5");
    let (at, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (word, value) = rest.split_once(':').ok_or_else(wrong)?;
    let act = match word {
        "change" => {
            let (carry, rules) = value.split_once(':').ok_or_else(wrong)?;
            let carry = CarryOver::named(carry).ok_or(format!("{carry:?} is not known"))?;
            Act::Change(carry, parse_rules(&rules.replace(',', " "))?)
        }
        "put" => Act::Put(parse_rules(&value.replace(',', " "))?),
        "safe" if value == "none" => Act::Safe(None),
        "safe" => Act::Safe(Some(safe(value)?)),
        "reserve" => Act::Reserve(number(value)?),
        "remove" => Act::Remove,
        "top_up" => Act::TopUp(number(value)?),
        "pause" => Act::Pause(number(value)?),
        "resume" => Act::Resume,
        "block" => Act::Block(number(value)? as usize),
        "unblock" => Act::Unblock(number(value)? as usize),
        "outside" => Act::Outside(number(value)?),
        _ => return Err(format!("{word:?} is not known")),
    };
    Ok(Live { at: number(at)?, act })
}
