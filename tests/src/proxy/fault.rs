//! What a proxy does to requests and answers. Tests choose a fault or have one drawn; the proxy applies it.

use super::dress::Dress;
use super::malformed::Malformed;
use std::time::Duration;

/// How bad the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A good network.
    None,
    /// Every connection is reset at once, and every new one as soon as it is made.
    Cut,
    /// Half-open: all that the client sends is swallowed. Its connection stays open, and is dead for good.
    Deaf,
    /// Half-open the other way: the server receives all requests, and its answers are swallowed. Dead for good, too.
    Mute,
    /// The server has received and done what it was asked, and then the connection is reset.
    AnswerLost,
    /// Each way is delayed. What is under way arrives, whether or not the client still waits.
    Delay {
        /// The delay towards the server.
        there: Duration,
        /// The delay towards the client.
        back: Duration,
    },
    /// The server receives each request again on other connections: once at once, and once more `later`, when newer
    /// requests have overtaken it. No client receives the answers to the copies.
    Repeat {
        /// The delay of the second copy.
        later: Duration,
    },
    /// A byte at a time, both ways, with a pause between two bytes.
    Trickle {
        /// The pause between two bytes.
        pause: Duration,
    },
    /// The server answers, and the client receives a malformed answer.
    Garbled(Malformed),
    /// The server answers, and the client receives the answer in an unusual form.
    Dressed(Dress),
}

impl Fault {
    /// Draws any fault, with delays of up to `longest`.
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
