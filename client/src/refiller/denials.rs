//! Answers by which a live allocator turns this client away. It backs off as after any failure, but limits do not fall
//! back: the allocator lends to others meanwhile, and an open fallback would exceed the cap.

use super::{Refiller, in_parts};
use crate::fallback;
use crate::transport::ExchangeError;

impl Refiller {
    /// Notes that the current allocator failed with `error`, before the client leaves it.
    pub(super) fn notes_denial(&mut self, error: &ExchangeError) {
        let place = self.connection.place();
        match error.is_denial() {
            true => self.denied_by.insert(place),
            false => self.denied_by.remove(&place),
        };
    }

    /// Notes that all allocators have failed, the last one with `error`. Returns whether any of them turned this client
    /// away; all fallbacks end then.
    pub(super) async fn all_failed(&mut self, error: &ExchangeError) -> bool {
        let is_denied = !self.denied_by.is_empty();
        let is_new = self.shared.note_denied(is_denied);
        if is_denied {
            if is_new {
                tracing::error!(%error, "an allocator turns this client away: it lends nothing, and no limit falls back");
            }
            self.end_fallbacks(false).await;
        }
        is_denied
    }

    /// Notes that an allocator has given a good answer. Returns whether it, or another one, turned this client away before.
    pub(super) fn notes_acceptance(&mut self) -> bool {
        self.denied_by.clear();
        self.shared.note_denied(false)
    }

    /// Ends all fallbacks, because an allocator answers. `was_denied` says that pools may be unreachable without one.
    pub(super) async fn end_fallbacks(&self, was_denied: bool) {
        let fallen = fallback::end(&self.shared);
        if was_denied || !fallen.is_empty() {
            in_parts(&self.shared, fallback::leave).await;
            fallback::left(&self.shared, fallen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::refiller;
    use super::*;
    use crate::by_hand;
    use crate::limit::Limit;
    use crate::refusal::Refusal;
    use lessor_protocol::Fallback;

    const NOWHERE: &str = "http://127.0.0.1:1";

    fn answered(status: u16) -> ExchangeError {
        ExchangeError::Status { allocator: NOWHERE.into(), status, excerpt: String::new() }
    }

    fn silent() -> ExchangeError {
        ExchangeError::Unreachable(NOWHERE.to_owned())
    }

    /// Lets an exchange for `limit` fail with `error`. Returns whether the limit and a new key of it are in fallback.
    async fn falls(refiller: &mut Refiller, limit: &Limit, error: ExchangeError) -> bool {
        refiller.failed(&[refiller.shared.pool(limit.name(), None)], &error).await;
        let refused = |limit: &Limit| match limit.try_acquire(1) {
            Ok(()) => false,
            Err(Refusal::Unreachable { .. }) => true,
            Err(other) => panic!("{other:?} after {error}"),
        };
        let new_key = limit.key(&refiller.shared.pools().len().to_string());
        assert_eq!(refused(limit), refused(&new_key), "after {error}");
        !refused(limit)
    }

    /// The bug: an allocator that did not know the token any more, or was asked too often, counted as one that did not
    /// answer. In an open fallback all calls passed, while it lent the whole limit to others.
    #[tokio::test]
    async fn where_an_allocator_turns_the_client_away_no_limit_falls_back() {
        let shared = by_hand::shared();
        let limit = by_hand::limit(&shared, "a");
        limit.pool().standby().on_grant(false, Fallback::Open);
        let mut refiller = refiller(&shared, &[NOWHERE]);
        for status in [401, 403, 429] {
            assert!(!falls(&mut refiller, &limit, answered(status)).await, "after {status}");
            assert!(shared.is_unreachable(), "nothing is lent");
            assert!(falls(&mut refiller, &limit, answered(503)).await, "the store fails");
            assert!(!falls(&mut refiller, &limit, answered(status)).await, "an allocator answers again");
            assert!(falls(&mut refiller, &limit, silent()).await, "no allocator answers any more");
        }
    }

    #[tokio::test]
    async fn of_several_allocators_one_that_turns_the_client_away_is_enough() {
        let shared = by_hand::shared();
        let limit = by_hand::limit(&shared, "a");
        limit.pool().standby().on_grant(false, Fallback::Open);
        let mut refiller = refiller(&shared, &[NOWHERE, "http://127.0.0.2:1"]);
        let pools = [shared.pool("a", None)];
        refiller.failed(&pools, &answered(401)).await;
        for _turn in 0..2 {
            assert!(!falls(&mut refiller, &limit, silent()).await, "the other allocator is silent");
            refiller.failed(&pools, &answered(401)).await;
        }
        assert!(refiller.notes_acceptance());
        refiller.failed(&pools, &silent()).await;
        assert!(falls(&mut refiller, &limit, silent()).await);
    }
}
