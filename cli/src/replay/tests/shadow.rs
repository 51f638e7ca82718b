//! `shadow`: no call is refused, and a call that would have been is marked.

use super::check_limits;

const LIMIT: &str = "[[limit]]\nname = \"a\"\nshadow = true\n\
                     rules = [{ kind = \"sliding_window\", limit = 3, per = \"10s\" }]\n";

#[test]
fn what_would_be_refused_passes_and_takes_nothing() {
    check_limits(
        LIMIT,
        &[
            ("0 try_acquire 2", "ok 1"),
            // Two are not there: they pass, and one is left.
            ("1s try_acquire 2", "pass 1"),
            ("1s peek 2", "pass 1"),
            ("1s try_acquire 1", "ok 0"),
            ("1s try_acquire 4", "pass 0"),
            ("1s try_acquire 0", "ok 0"),
            // The two of 0 s are gone, and nothing else was charged.
            ("10s peek 0", "ok 2"),
        ],
    );
}
