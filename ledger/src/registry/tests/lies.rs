//! Tests of numbers that nodes make up, and of asks that want nothing. Neither stops the allocator, or takes room from
//! others.

use super::*;
use lessor_protocol::PERMITS_MAX;

const CONFIG: &str = r#"
[[limit]]
name = "plain"
rules = [{ kind = "sliding_window", limit = 1000, per = "30s", margin = "0s" }]

[[limit]]
name = "shadow"
shadow = true
rules = [{ kind = "sliding_window", limit = 1000, per = "30s", margin = "0s" }]

[[limit]]
name = "monthly"
keyed = true
keys_max = 100
rules = [{ kind = "fixed_window", limit = 1000, calendar = "month" }]
"#;

fn registry() -> Registry {
    config(CONFIG).registry(Past::None, millis(0), 7)
}

fn of(session: u64, seq: u64) -> Caller {
    Caller { session, ..caller(seq) }
}

/// Returns an ask for `limit` in which every number that cannot be checked is as large as it may be.
fn exaggerated(limit: &str, shadow_refused: u64) -> Entry {
    Entry::Ask(AskBody {
        limit: limit.to_owned(),
        want: PERMITS_MAX,
        waiting: PERMITS_MAX,
        demand: PERMITS_MAX,
        largest: PERMITS_MAX,
        busy: PERMITS_MAX,
        shadow_refused,
        ..AskBody::default()
    })
}

/// Returns a moment that is not a whole millisecond, at which the books would be audited. That takes long with
/// thousands of sessions.
fn soon(millis_on: u64) -> Moment {
    millis(millis_on) + Duration::from_nanos(1)
}

fn shadow_refused(registry: &mut Registry, now: Moment, limit: &str) -> u64 {
    registry.limit(limit).expect("it is there").figures(now).sums.shadow_refused
}

/// The bug: some thousand sessions that reported 2^53 - 1 stopped the allocator with an overflow. A report for a limit
/// that was never in shadow mode was counted.
#[test]
fn totals_that_are_made_up_stop_nothing_and_count_only_where_they_can_be() {
    let mut registry = registry();
    for session in 1..=2_100 {
        for (seq, refused) in [(1, 0), (2, PERMITS_MAX)] {
            let asks = [exaggerated("plain", refused), exaggerated("shadow", refused)];
            let grants = registry.leases(soon(session), &of(session, seq), &asks).grants;
            assert!(grants.iter().all(|grant| grant.error.is_none()), "{grants:?}");
        }
    }
    let now = millis(3_000);
    assert_eq!(shadow_refused(&mut registry, now, "plain"), 0);
    assert_eq!(shadow_refused(&mut registry, now, "shadow"), PERMITS_MAX);
}

fn asks(registry: &Registry, now: Moment, session: u64, seq: u64, ask: AskBody) -> GrantBody {
    let node = NodeName::try_new(&format!("node-{session}")).expect("valid");
    let caller = Caller { node, ..of(session, seq) };
    registry.leases(now, &caller, &[Entry::Ask(ask)]).grants.pop().expect("one each")
}

fn of_key(key: u64, want: u64) -> AskBody {
    let key = Some(format!("tenant-{key}"));
    AskBody { limit: "monthly".to_owned(), key, want, waiting: want, ..AskBody::default() }
}

/// The bug: an ask that wanted nothing made a pool and a session, too, and new tenants were refused until the month was
/// over.
#[test]
fn an_ask_that_wants_nothing_is_answered_and_takes_no_room() {
    let mut registry = registry();
    for tenant in 0..1_000 {
        let grant = asks(&registry, millis(1), tenant, 1, of_key(tenant, 0));
        assert!(grant.error.is_none() && grant.permits == 0 && grant.left == Some(1_000), "{grant:?}");
    }
    let pools = registry.limit("monthly").expect("it is there").figures(millis(1)).pools;
    assert_eq!((pools, registry.sessions()), (0, 0));
    // A session that later wants something is served, by its next number.
    assert_eq!(asks(&registry, millis(2), 7, 2, of_key(7, 5)).permits, 5);
    // After that it may also ask for nothing.
    let ask = AskBody { held: 5, ..of_key(7, 0) };
    assert!(asks(&registry, millis(3), 7, 3, ask).error.is_none());
}

/// The bug: the answer granted a lease that was recorded nowhere. The session's next lease ended here before the node
/// stopped spending it: the node went by the later end.
#[test]
fn an_ask_that_wants_nothing_of_an_unused_key_is_granted_no_lease() {
    let registry = registry();
    let far = |seq| Caller { rtt: Duration::from_millis(500), ..of(7, seq) };
    let ask = |now, caller, want| {
        registry.leases(millis(now), &caller, &[Entry::Ask(of_key(7, want))]).grants.pop().expect("one each")
    };
    let nothing = ask(1, far(1), 0);
    assert_eq!((nothing.permits, nothing.term_ms, nothing.horizon_ms), (0, 0, Some(0)), "{nothing:?}");
    let lent = ask(100, of(7, 2), 5);
    assert!(lent.permits == 5 && lent.term_ms > 0, "{lent:?}");
}
