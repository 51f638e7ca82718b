//! A peer with another identity that has overheard all that a node says: it says it again, and says goodbye in the node's name. The
//! allocator must refuse both, or the books and what nodes hold differ from then on.

use super::World;
use super::allocator::{entry, last_of};
use super::event::{DeskAsk, Message};
use crate::oracle::{Verdict, must};
use lessor_ledger::registry::{Caller, Entry};
use lessor_ledger::share::Owner;
use lessor_protocol::wire::{GrantBody, SpentBody, code};

/// Of so many exchanges it overhears one.
const OVERHEARS: u64 = 8;

/// Its identity, which no node has.
const THIEF: Owner = Owner(u64::MAX);

impl World {
    /// It repeats `message`, which was just answered, as the next one of its session.
    pub(super) fn is_overheard(&mut self, message: &Message) -> Verdict {
        let owner = self.caller(message);
        let thief = Caller { owner: THIEF, seq: owner.seq + 1, ..owner };
        // A session that no limit was asked for with, or that wants nothing where nothing is, is known to none.
        if !message.seq.is_multiple_of(OVERHEARS) || !self.centre.registry.is_of_another(&thief) {
            return Ok(());
        }
        let now = self.now().allocator;
        let pool = |ask: &DeskAsk| self.limits.pool(self.setup.limit(ask.desk));
        let asks: Vec<Entry> = message.asks.iter().map(|ask| entry(pool(ask), ask)).collect();
        let spent: Vec<SpentBody> = message.asks.iter().map(|ask| last_of(&ask.ask, pool(ask))).collect();
        let answers = self.centre.registry.leases(now, &thief, &asks).grants;
        // What holds and wants nothing may be answered without a session, and a limit that is gone to none.
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
