//! What a proxy does to what goes through it. Tests choose one, or have one drawn; the proxy acts on it.

use super::dress::Dress;
use super::malformed::Malformed;
use std::time::Duration;

/// How bad the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not at all.
    None,
    /// Every connection is reset at once, and every new one as soon as it is made.
    Cut,
    /// Half-open: whatever the client says is swallowed. Its connection stays open, and is dead for good.
    Deaf,
    /// Half-open the other way: the server hears all, and what it answers is swallowed. Dead for good too.
    Mute,
    /// The server has heard and done what it was asked, and then the connection is reset.
    AnswerLost,
    /// Each way takes so long. What is on its way arrives, whether or not the client still waits.
    Delay {
        /// To the server.
        there: Duration,
        /// To the client.
        back: Duration,
    },
    /// The server hears each request again on other connections: once at once, and `later` once more, when newer ones
    /// have overtaken it. No client hears the answers to the copies.
    Repeat {
        /// How much later.
        later: Duration,
    },
    /// A byte at a time, both ways, with so long between two.
    Trickle {
        /// How long.
        pause: Duration,
    },
    /// The server answers, and the client hears something else.
    Garbled(Malformed),
    /// The server answers, and the client hears the same in a way that it does not expect.
    Dressed(Dress),
}

impl Fault {
    /// Any of them, with delays of up to `longest`.
    pub fn draw(dice: &mut fastrand::Rng, longest: Duration) -> Fault {
        let mut span = || longest * dice.u32(0..=100) / 100;
        let (there, back) = (span(), span());
        match dice.u32(..11) {
            0 | 1 => Fault::None,
            2 => Fault::Cut,
            3 => Fault::Deaf,
            4 => Fault::Mute,
            5 => Fault::AnswerLost,
            6 => Fault::Delay { there, back },
            7 => Fault::Repeat { later: there },
            8 => Fault::Trickle { pause: Duration::ZERO },
            9 => Fault::Dressed(Dress::ALL[dice.usize(..Dress::ALL.len())]),
            _ => Fault::Garbled(Malformed::ALL[dice.usize(..Malformed::ALL.len())]),
        }
    }
}
