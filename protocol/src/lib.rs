//! What a Lessor allocator and its nodes must agree on.
//!
//! A *lease* is a number of permits lent to one node until a deadline. Both sides count that deadline on
//! their own clock, from different instants, and never compare the two: [`ClockBounds`] holds the arithmetic that
//! makes the node stop before the allocator takes the permits back, whatever the network did meanwhile.
//!
//! ```
//! use lessor_protocol::{ClockBounds, Moment};
//! use std::time::Duration;
//!
//! let clocks = ClockBounds::default();
//! let told = Duration::from_secs(1);
//! let (first_sent, decided) = (Moment::ORIGIN, Moment::ORIGIN);
//! // On perfect clocks the node stops a little before a second is over, the allocator waits a little longer.
//! assert!(clocks.holder_end(first_sent, told) < first_sent + told);
//! assert!(clocks.grantor_end(decided, told) > decided + told);
//! ```
//!
//! In reading order: [`moment`] (an instant of one machine), [`clock`] (where instants come from), [`steady`] (how the
//! kernel's clocks combine), [`tick`] (a coarse clock), [`lease`] (how long a lease lasts), [`exchange`] (ask, grant,
//! refusal), [`observed`] (what the vendor says of its own count), [`fallback`] and [`safe_share`] (without an
//! allocator), [`sizing`] (how many permits a demand needs), [`wire`] (all of it as JSON), [`recovery`] (what follows
//! an error), [`push`] (events that an allocator sends), [`trace`] (spans), [`unix`] (addresses of an allocator on the
//! same machine), [`entropy`] (numbers of sessions), [`foreign`] (texts of other programs), [`lock_anyway`] (mutexes after a
//! panic), [`words!`] (enums with words for values). The rules of a contract are the lender's alone: a node never sees
//! one.

pub mod clock;
pub mod entropy;
pub mod exchange;
pub mod fallback;
pub mod foreign;
pub mod lease;
pub mod lock_anyway;
pub mod moment;
pub mod names;
pub mod observed;
pub mod push;
pub mod rare;
pub mod recovery;
pub mod safe_share;
pub mod sizing;
pub mod steady;
pub mod tick;
pub mod trace;
pub mod unix;
pub mod wire;
mod words;

pub use clock::{CLOCK, Clock};
pub use exchange::{Answer, Ask, Grant, InFlight, Rate, RateClaim, RateLease, Refusal, RefusalReason};
pub use fallback::Fallback;
pub use lease::{ClockBounds, TERM_MAX, TERM_MIN};
pub use moment::Moment;
pub use names::{Key, LimitName, NameError, NodeName};
pub use observed::{Announced, Left, Observed};
pub use safe_share::SafeShare;
pub use tick::{CoarseClock, Tick};

/// The largest number of permits in any field: 2^53 − 1, the largest integer that every JSON reader keeps exact.
pub const PERMITS_MAX: u64 = (1 << 53) - 1;
