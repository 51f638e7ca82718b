//! The source of session numbers. The background task draws one for each session that it begins.

use lessor_protocol::entropy;

/// The source of session numbers.
#[derive(Debug)]
pub(crate) enum SessionNumbers {
    /// The operating system, whose numbers no other process can predict.
    System,
    /// A generator with a seed, for tests that must repeat.
    Seeded(fastrand::Rng),
}

impl SessionNumbers {
    /// Returns a random number.
    pub(crate) fn draw(&mut self) -> u64 {
        match self {
            SessionNumbers::System => entropy::number(),
            SessionNumbers::Seeded(rng) => rng.u64(..),
        }
    }
}
