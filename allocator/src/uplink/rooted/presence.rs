//! Says to the store that this allocator is there, a few times a second, and once more when it stops. What comes of that is
//! what the allocator knows of its store while no node asks it for anything.

use super::Rooted;
use crate::shared::Shared;
use lessor_ledger::roots::SIGN_EVERY;

/// Signatures in a row that come to nothing, until that is no chance: another allocator may be faster, or a call late.
const SILENT_AFTER: u32 = 3;

impl Rooted {
    /// Says that this allocator is there, if it is time to. If that fails again and again the allocator is not reported as
    /// ready, though there may be nothing to exchange.
    pub(in crate::uplink) async fn sign(&mut self, shared: &Shared, session: u64) {
        if shared.now().since(self.signed) < SIGN_EVERY {
            return;
        }
        self.signer.session = session;
        let signed = match self.head {
            None => self.open(shared).await,
            Some(_) => self.sign_head(shared).await,
        };
        if let (Some((_, head)), Some(now)) = (&self.head, self.clock.now(shared.now())) {
            shared.metrics().roots().allocators(shared.commons().are_here(head.here(now)));
        }
        self.failed = if signed.is_ok() { 0 } else { self.failed.saturating_add(1) };
        match &signed {
            Ok(()) => shared.commons().fell_silent(None),
            Err(error) if self.failed >= SILENT_AFTER => {
                if self.failed == SILENT_AFTER {
                    tracing::warn!(%error, "the store does not answer, or not well: this allocator is not ready");
                }
                shared.commons().fell_silent(Some(error.to_string()));
            }
            Err(_) => {}
        }
        let swept = match signed {
            Ok(()) => self.sweep(shared).await,
            Err(error) => Err(error),
        };
        if let Err(error) = swept {
            tracing::debug!(%error, "the store's head is not signed, or no root is taken away");
            self.head = None;
        }
        self.signed = shared.now();
    }

    /// Says that this allocator is not there any more, if that is easily said. Another allocator that does not hear of it sees
    /// that this one does not sign.
    pub(in crate::uplink) async fn leave(&mut self, shared: &Shared) {
        let Some(((cell, mut head), now)) = self.head.take().zip(self.clock.now(shared.now())) else {
            return;
        };
        head.leave(self.signer.session, now);
        let timeline = head.timeline();
        if let Err(error) = self.swap_head(shared, &timeline, Some(cell), head).await {
            tracing::debug!(%error, "the store's head still says that this allocator is there");
        }
    }
}
