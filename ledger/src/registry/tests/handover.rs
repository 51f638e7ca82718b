//! Tests of names that fall from a pattern to another limit, and back.

use super::*;
use crate::CarryOver;

const HOUR: &str =
    "[[limit]]\nname = \"u/*\"\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1h\" }]\n";

/// Asks for `u/7` in `session`. Returns the permits lent, or the word of the error.
fn asked(registry: &Registry, now: u64, session: u64, seq: u64, spent_total: u64) -> Result<u64, String> {
    let caller = Caller { session, ..caller(seq) };
    let grants = registry.leases(millis(now), &caller, &[ask("u/7", None, spent_total, 0, 5)]).grants;
    grants[0].error.as_ref().map_or(Ok(grants[0].permits), |error| Err(error.code.clone()))
}

/// The bug: the pattern still knew the session, which had counted from zero at the limit of that name meanwhile. The
/// pattern took all that it had lent for unspent.
#[test]
fn a_session_that_comes_back_to_a_pattern_does_not_count_from_zero_there() {
    for name in ["u/7", "u/7*"] {
        let mut registry = Config::parse(HOUR).expect("valid").registry(Past::None, millis(0), 7);
        let first = asked(&registry, 0, 1, 1, 0).expect("it is lent");
        assert!(first > 0);
        let rule = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
        let new = Config::parse(&format!("[[limit]]\nname = {name:?}\n{rule}\n")).expect("valid");
        registry.put(millis(200), &new.limits[0], CarryOver::AsIs, false).expect("there is room");
        assert_eq!(asked(&registry, 300, 1, 2, first), Ok(0), "it waits for what the pattern lent");
        let unknown = Err(code::LEASE_UNKNOWN.to_owned());
        assert_eq!(asked(&registry, 4_000, 1, 3, first), unknown, "the node counts from zero from now on");
        assert!(registry.remove(name));
        (4..60).for_each(|second| registry.sweep(millis(second * 1_000), 10));
        assert_eq!(registry.retired(), 0);
        let disputed = Err(code::STALE_SEQUENCE.to_owned());
        assert_eq!(asked(&registry, 60_000, 1, 4, 0), disputed, "{name}");
        let mut more = 0;
        for seq in 1..20 {
            more += asked(&registry, 60_000 + seq * 1_000, 2, seq, more).expect("another session begins");
        }
        assert_eq!(first + more, 10, "{name}: {first} and {more} of 10 in an hour");
    }
}
