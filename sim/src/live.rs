//! What operators do to the limit while the fleet runs: changes, top-ups, pauses and blocks, each at its moment. It is also what
//! a caller outside the fleet does to the vendor's count. Drawn with the setup; the world lets them happen, and the oracle knows
//! what each does to the promise.

use crate::setup::{Setup, parse_rules};
use crate::text::{rules_text, safe, safe_text};
use lessor_ledger::share::Safe;
use lessor_ledger::{CarryOver, Rule};
use std::fmt;
use std::time::Duration;

/// Something that an operator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// When, in nanoseconds of real time.
    pub at: u64,
    /// What.
    pub act: Act,
}

/// What an operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The limit goes on by other rules; one that is gone comes back with them.
    Change(CarryOver, Vec<Rule>),
    /// The limit is put over the API with other rules. Of allocators that share a store, an operator tells one, and all follow.
    Put(Vec<Rule>),
    /// So many nodes may go on with the reserve from now on, for so long. Of allocators that share a store, one has read the file that
    /// says so.
    Safe(Option<Safe>),
    /// So many permits are kept back from now on. Of allocators that share a store, one has read the file that says so.
    Reserve(u64),
    /// It goes. Of allocators that share a store, an operator tells one, and all follow.
    Remove,
    /// So many permits more, once.
    TopUp(u64),
    /// No node is lent anything for so long.
    Pause(u64),
    /// All nodes may be lent something again.
    Resume,
    /// Nothing is lent to a node any more.
    Block(usize),
    /// It is lent to again.
    Unblock(usize),
    /// A caller outside the fleet uses so many permits of the vendor's, from now on. The vendor tells its callers what is left,
    /// and refuses them. 0: no such caller does.
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
    /// The longest that a safe share is said to last at some time, if nodes have any.
    pub fn safe_lasts(&self) -> Option<Duration> {
        let said = |live: &Live| if let Act::Safe(safe) = live.act { safe } else { None };
        let changed = self.live.iter().filter_map(said);
        self.plan.sharing.safe.into_iter().chain(changed).map(|safe| safe.lasts).max()
    }

    /// The most that is said to be kept back at some time.
    pub fn reserve_most(&self) -> u64 {
        let said = |live: &Live| if let Act::Reserve(permits) = live.act { Some(permits) } else { None };
        self.live.iter().filter_map(said).fold(self.plan.sharing.reserve, u64::max)
    }

    /// Whether something else is said of how much is kept back.
    pub fn lowers_reserve(&self) -> bool {
        self.live.iter().any(|live| matches!(live.act, Act::Reserve(_)))
    }
}

/// Reads what [`Live`] shows.
///
/// # Errors
/// In words, what could not be read.
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
