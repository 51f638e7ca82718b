//! Where a store is, as an operator writes it. Nothing shows the password that may be in it.

use std::fmt;
use std::str::FromStr;

/// The URL of a store.
#[derive(Clone)]
pub enum StoreUrl {
    /// `memory:`, for tests: cells that nobody else sees and that end with the process.
    Memory,
}

/// Why a text is no URL of a store. It does not show the text, which may have a password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

const SCHEMES: &str = "redis://, rediss://, postgres://, postgresql:// or memory:";

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        match text {
            "memory:" => Ok(StoreUrl::Memory),
            _ => Err(UrlError(format!("a store is {SCHEMES}"))),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}
