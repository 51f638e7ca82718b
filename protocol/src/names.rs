//! Names of limits, keys and nodes on the wire. They are checked once where they enter, and trusted afterwards. They
//! are opaque: no file, metric or query is ever built from one without escaping.

use std::fmt;
use std::sync::Arc;

/// Longest name of a limit or a node, in bytes.
pub const NAME_MAX: usize = 128;

/// Longest key, in bytes.
pub const KEY_MAX: usize = 256;

/// Why a name was refused. The text shows at most a short, escaped piece of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("is empty")]
    Empty,
    /// Too many bytes.
    #[error("is {length} bytes long, at most {max} are allowed")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A character outside the allowed set.
    #[error("contains {character:?}, allowed are {allowed}")]
    Character {
        /// The first such character.
        character: char,
        /// The allowed set, in words.
        allowed: &'static str,
    },
}

macro_rules! name {
    ($(#[$docs:meta])* $name:ident, $check:ident) => {
        $(#[$docs])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and keeps `text`.
            ///
            /// # Errors
            /// If it is empty, too long, or has a character that is not allowed.
            pub fn try_new(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok($name(text.into()))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// The name of a limit: 1 to 128 of `A-Z a-z 0-9 . _ : / -`.
    LimitName, check_name
}
name! {
    /// The name of a node: 1 to 128 of `A-Z a-z 0-9 . _ : / -`.
    NodeName, check_name
}
name! {
    /// The part of a keyed limit that is counted apart: 1 to 256 bytes without control characters.
    Key, check_key
}

fn check_name(text: &str) -> Result<(), NameError> {
    const ALLOWED: &str = "A-Z a-z 0-9 . _ : / -";
    check(text, NAME_MAX, ALLOWED, |c| c.is_ascii_alphanumeric() || "._:/-".contains(c))
}

fn check_key(text: &str) -> Result<(), NameError> {
    check(text, KEY_MAX, "all but control characters", |c| !c.is_control())
}

fn check(text: &str, max: usize, allowed: &'static str, ok: impl Fn(char) -> bool) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > max {
        return Err(NameError::TooLong { length: text.len(), max });
    }
    match text.chars().find(|&c| !ok(c)) {
        Some(character) => Err(NameError::Character { character, allowed }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_kept_and_bad_ones_say_why() {
        assert_eq!(LimitName::try_new("vendor/rest").expect("good").as_str(), "vendor/rest");
        assert_eq!(LimitName::try_new(""), Err(NameError::Empty));
        assert_eq!(
            NodeName::try_new(&"x".repeat(129)),
            Err(NameError::TooLong { length: 129, max: NAME_MAX })
        );
        let error = LimitName::try_new("x\"} 1\nfake 9").expect_err("quotes are refused").to_string();
        assert_eq!(error, "contains '\"', allowed are A-Z a-z 0-9 . _ : / -");
        assert!(LimitName::try_new("gr\u{fc}n").is_err(), "no second quota by a look-alike name");
        assert!(Key::try_new("user 42, B\u{fc}ro").is_ok());
        assert!(Key::try_new("a\0b").is_err());
    }
}
