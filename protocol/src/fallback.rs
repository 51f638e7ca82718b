//! What a node does about a limit while it cannot reach the allocator. The allocator reads it from its configuration
//! and sends it with each grant; nodes remember it. Nothing is decided here.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a node does once the allocator cannot be reached and its lease is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fallback {
    /// The node spends its part of the limit's reserve, see [`crate::SafeShare`]. The cap holds.
    SafeShare,
    /// The node lets every call pass. Nothing holds the cap until the allocator is back.
    Open,
    /// The node refuses. The cap holds. A name that this version does not know is read as this one.
    #[default]
    #[serde(other)]
    Closed,
}

impl Fallback {
    /// All fallbacks.
    pub const ALL: [Fallback; 3] = [Fallback::Closed, Fallback::SafeShare, Fallback::Open];

    /// Returns the name in configuration, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Fallback::Closed => "closed",
            Fallback::SafeShare => "safe_share",
            Fallback::Open => "open",
        }
    }

    /// Returns the fallback of that name.
    pub fn named(name: &str) -> Option<Fallback> {
        Fallback::ALL.into_iter().find(|fallback| fallback.name() == name)
    }

    /// Whether it is the default, which the wire leaves out.
    pub fn is_closed(&self) -> bool {
        *self == Fallback::Closed
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_and_one_that_is_not_known_is_closed() {
        for fallback in Fallback::ALL {
            assert_eq!(Fallback::named(fallback.name()), Some(fallback));
            let read: Fallback = serde_json::from_value(fallback.name().into()).expect("a name");
            assert_eq!(read, fallback);
        }
        assert_eq!(Fallback::named("ajar"), None);
        let later: Fallback = serde_json::from_str("\"of a later version\"").expect("any word");
        assert_eq!(later, Fallback::Closed);
    }
}
