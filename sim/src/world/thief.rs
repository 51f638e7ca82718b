//! A peer with another identity that overhears all that a node says, repeats it, and says goodbye in the node's name.
//! The allocator must refuse both, or the books and what nodes hold differ from then on.

use super::World;
use super::allocator::{entry, last_of};
use super::event::{DeskAsk, Message};
use crate::oracle::{Verdict, must};
use lessor_ledger::registry::{Caller, Entry};
use lessor_ledger::share::Owner;
use lessor_protocol::wire::{GrantBody, SpentBody, code};

/// Exchanges of which the thief overhears one.
const OVERHEARS: u64 = 8;

/// The thief's identity, which no node has.
const THIEF: Owner = Owner(u64::MAX);

impl World {
    /// K2: lets the thief repeat `message`, which was just answered, as the next one of its session.
    pub(super) fn is_overheard(&mut self, message: &Message) -> Verdict {
        let owner = self.caller(message);
        let thief = Caller { owner: THIEF, seq: owner.seq + 1, ..owner };
        // A session is not known if it asked for no limit, or wanted nothing where it has no pool.
        if !message.seq.is_multiple_of(OVERHEARS) || !self.centre.registry.is_of_another(&thief) {
            return Ok(());
        }
        let now = self.now().allocator;
        let pool = |ask: &DeskAsk| self.limits.pool(self.setup.limit(ask.desk));
        let asks: Vec<Entry> = message.asks.iter().map(|ask| entry(pool(ask), ask)).collect();
        let spent: Vec<SpentBody> = message.asks.iter().map(|ask| last_of(&ask.ask, pool(ask))).collect();
        let answers = self.centre.registry.leases(now, &thief, &asks).grants;
        // An ask that holds and wants nothing may be answered without a session, and any sender learns that a limit is
        // gone.
        let is_refused = |(body, DeskAsk { ask, .. }): (&GrantBody, &DeskAsk)| {
            let is = |code: &str| body.error.as_ref().is_some_and(|error| error.code == code);
            is(code::SESSION_OF_ANOTHER) || is(code::LIMIT_UNKNOWN) || (ask.held == 0 && ask.want == 0)
        };
        must("K2", answers.iter().zip(&message.asks).all(is_refused), || {
            format!("a thief was answered {answers:?}")
        })?;
        let returned = self.centre.registry.leave(now, &thief, &spent).returned;
        must("K2", returned == 0, || format!("a thief gave back {returned} of another session"))
    }
}
