//! Limits from which the allocator lends nothing: whether they are asked for again by the clock. A process that makes
//! names up has many, and most are never called again.

use crate::local_pool::LocalPool;
use lessor_protocol::wire::code;

/// Whether `pool` need not be asked for again before it is called or its limit changes, if the answer was this `error`,
/// by which nothing can be had. A limit without a key is asked for once more, and then as long as it is called. The
/// plain handle of a keyed limit is asked for regularly.
pub(super) fn may_rest(pool: &LocalPool, error: Option<&str>) -> bool {
    let is_refused_again = pool.condition().is_for_good() && error != Some(code::KEY_MISMATCH);
    // Taken with each answer that is an error: a call before the answer says nothing about the time after it.
    let is_wanted = error.is_some() && (pool.takes_wanted() || pool.seen().waiting > 0);
    pool.name().key.is_some() || (is_refused_again && !is_wanted)
}

#[cfg(test)]
mod tests {
    use super::super::Refiller;
    use super::*;
    use crate::by_hand;
    use crate::local_pool::CLOCK;
    use lessor_protocol::wire::ErrorBody;
    use std::sync::Arc;
    use std::time::Duration;

    /// Asks for `pool` and refuses it with `code`. Returns whether the pool is asked for again by the clock.
    fn refused(refiller: &mut Refiller, pool: &Arc<LocalPool>, code: &str) -> bool {
        let now = CLOCK.now();
        pool.refill().write(pool.slot(), pool.seen(), now, Duration::ZERO);
        let error = ErrorBody { code: code.to_owned(), field: None, detail: String::new() };
        refiller.on_answer(pool, &Err(&error), now);
        !pool.refill().is_idle()
    }

    /// The bug: each made-up name was asked for every five seconds for ever. For 20,000 names that was 350 exchanges a
    /// second, each after a look at all of them.
    #[test]
    fn a_limit_of_which_nothing_is_lent_is_asked_for_as_long_as_it_is_called() {
        let shared = by_hand::shared();
        let mut refiller = by_hand::refiller(&shared);
        for code in [code::LIMIT_UNKNOWN, code::NAMES_FULL] {
            let limit = by_hand::limit(&shared, code);
            let pool = shared.pool(code, None);
            assert!(refused(&mut refiller, &pool, code), "asked once more");
            assert!(limit.try_acquire(1).is_err());
            assert!(refused(&mut refiller, &pool, code), "the limit was called");
            assert!(!refused(&mut refiller, &pool, code), "the limit was not called since");
        }
        let keyed = shared.pool("user", None);
        assert!((0..3).all(|_| refused(&mut refiller, &keyed, code::KEY_MISMATCH)), "a keyed limit exists");
    }
}
