//! Why an ask is rejected, and how that is said on the wire. Limits, sessions and the decoder make rejections. None
//! ever shows more than a short, escaped piece of what was sent.

use crate::pool::AskError;
use lessor_protocol::wire::{ErrorBody, code};

/// Characters of a sent text that are shown. They are enough to find it by; a longer piece would only fill logs.
const SHOWN_MAX: usize = 40;

/// The rejection of one ask. The books are untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRejection {
    /// The cause.
    pub reason: Reason,
    /// The wrong field, if it is one.
    pub field: Option<String>,
    /// A sentence for people.
    pub detail: String,
}

/// Declares the causes of rejections, each with its word.
macro_rules! reasons {
    ($($reason:ident $code:ident,)*) => {
        /// The causes of rejections, each with a stable word on the wire and in metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = concat!("See [`code::", stringify!($code), "`].")] $reason,)*
        }

        impl Reason {
            /// All causes.
            pub const ALL: [Reason; [$(Reason::$reason),*].len()] = [$(Reason::$reason),*];

            /// Returns its stable word.
            pub fn code(self) -> &'static str {
                match self {
                    $(Reason::$reason => code::$code,)*
                }
            }
        }
    };
}

reasons! {
    Invalid INVALID,
    LimitUnknown LIMIT_UNKNOWN,
    KeyMismatch KEY_MISMATCH,
    KeysFull KEYS_FULL,
    NamesFull NAMES_FULL,
    LesseesFull LESSEES_FULL,
    StaleSequence STALE_SEQUENCE,
    Duplicate DUPLICATE,
    TotalsWrong TOTALS_WRONG,
    LeaseUnknown LEASE_UNKNOWN,
    SessionOfAnother SESSION_OF_ANOTHER,
    Forbidden FORBIDDEN,
}

impl Reason {
    /// Returns the cause with the word `code`.
    pub fn named(code: &str) -> Option<Self> {
        Reason::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl AskRejection {
    /// Makes a rejection for `reason` of `field`.
    pub fn new(reason: Reason, field: &str, detail: impl Into<String>) -> Self {
        AskRejection { reason, field: Some(field.to_owned()), detail: detail.into() }
    }

    /// Returns the rejection as it is on the wire.
    pub fn body(self) -> ErrorBody {
        ErrorBody { code: self.reason.code().to_owned(), field: self.field, detail: self.detail }
    }
}

impl From<AskError> for AskRejection {
    fn from(error: AskError) -> Self {
        let detail = error.to_string();
        match error {
            AskError::Stale { .. } | AskError::Left => {
                AskRejection::new(Reason::StaleSequence, "seq", detail)
            }
            AskError::Totals { .. } => AskRejection::new(Reason::TotalsWrong, "spent_total", detail),
            AskError::LeaseUnknown { .. } => AskRejection::new(Reason::LeaseUnknown, "spent_total", detail),
            AskError::Full { .. } => AskRejection { reason: Reason::LesseesFull, field: None, detail },
        }
    }
}

/// Quotes a short, escaped piece of `text`, which is safe to show anywhere, whatever was sent.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_escaped() {
        assert_eq!(quoted("vendor/rest"), "\"vendor/rest\"");
        assert_eq!(quoted("a\n\u{1b}[31m\""), r#""a\n\u{1b}[31m\"""#);
        let long = "\u{fc}".repeat(500_000);
        assert_eq!(quoted(&long), format!("\"{}\"… (1000000 bytes)", "\u{fc}".repeat(40)));
    }
}
