//! How far a pool believes its vendor, as the configuration says. The pool acts on it in `pool/feedback.rs`.

use std::time::Duration;

/// How far a vendor's word is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// What is done about the vendor's word. It is counted in any case.
    pub believe: Believe,
    /// Longest time for which one word is believed, and the longest pause. A vendor whose daily quota is used up says
    /// so again after each pause. A longer time would give a node that lies more effect.
    pub longest: Duration,
    /// The part of the limit that is lent however little the vendor says is left, in percent, from 1 to 100.
    pub keep_percent: u64,
    /// Time after a pause or a trim until as much is lent as before.
    pub ease: Duration,
}

lessor_protocol::words! {
    /// What is done about a vendor's word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Believe {
        /// Nothing.
        Off = "off",
        /// Nothing is lent for as long as the vendor asks to be left alone.
        Pause = "pause",
        /// As [`Believe::Pause`], and no more is lent than the vendor has left, or says that the contract is.
        Trim = "trim",
    }
}

impl Trust {
    /// See [`Trust::longest`]: longer than most vendors' windows.
    pub const LONGEST: Duration = Duration::from_secs(60);
    /// See [`Trust::keep_percent`]: less, and a node that lies could all but close a limit; more, and a vendor that cut
    /// the contract to nearly nothing would refuse more often.
    pub const KEEP_PERCENT: u64 = 10;
    /// See [`Trust::ease`]: long against a round trip, so that a vendor which still refuses is heard before much is lent.
    pub const EASE: Duration = Duration::from_secs(5);
}

impl Default for Trust {
    fn default() -> Self {
        Trust {
            believe: Believe::Trim,
            longest: Self::LONGEST,
            keep_percent: Self::KEEP_PERCENT,
            ease: Self::EASE,
        }
    }
}
