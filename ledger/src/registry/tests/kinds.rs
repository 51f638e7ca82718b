//! Tests of limits with more than a name: patterns, shadow mode, and families.

use super::*;

/// An exact name goes before `api/*`, and so does a longer pattern. Each name that fits a pattern has a pool of its
/// own.
#[test]
fn a_pattern_serves_each_name_that_fits_it_apart() {
    let limit = |name: &str, limit: u64| {
        format!(
            "[[limit]]\nname = {name:?}\nrules = [{{ kind = \"fixed_window\", limit = {limit}, per = \"1m\" }}]\n"
        )
    };
    let text = [limit("api/*", 10), limit("api/slow/*", 20), limit("api/slow/one", 30)].concat();
    let config = config(&text);
    let mut registry = config.registry(Past::None, millis(0), 7);
    let names = ["api/a", "api/b", "api/slow/x", "api/slow/one", "api/", "api/*", "api", "other"];
    let asks = names.map(|name| ask(name, None, 0, 0, 2));
    let grants = registry.leases(millis(0), &caller(1), &asks).grants;
    let ceilings: Vec<Option<u64>> = grants.iter().map(|grant| grant.ceiling).collect();
    let some = |ceilings: &[u64]| ceilings.iter().copied().map(Some).collect::<Vec<_>>();
    assert_eq!(ceilings[..5], some(&[10, 10, 20, 30, 10]));
    assert!(grants[..5].iter().zip(names).all(|(grant, name)| grant.permits == 2 && grant.limit == name));
    for grant in &grants[5..] {
        assert_eq!(error(grant).0, code::LIMIT_UNKNOWN, "{}", grant.limit);
    }
    let figures: Vec<(u64, u64)> =
        registry.limits(millis(0)).iter().map(|(_, figures)| (figures.names, figures.pools)).collect();
    assert_eq!(figures, [(3, 3), (1, 1), (0, 1)]);
    let spent = SpentBody {
        limit: "api/b".to_owned(),
        key: None,
        spent_total: 1,
        running: None,
        held: Some(PERMITS_MAX),
        shadow_refused: 0,
    };
    assert_eq!(registry.leave(millis(1), &caller(2), &[spent]).returned, 1);
    let wrong = registry.leases(millis(2), &caller(3), &[ask("api/a b", None, 0, 0, 1)]).grants;
    assert_eq!(error(&wrong[0]).0, code::INVALID);
}

/// The totals of a session count once, however often they come. Another session counts anew. Every answer says that the
/// limit is in shadow mode, even an answer that lends nothing.
#[test]
fn what_was_let_pass_in_shadow_mode_is_counted_once() {
    let text = "[[limit]]\nname = \"a\"\nshadow = true\nkeyed = true\nkeys_max = 1\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1m\" }]";
    let mut registry = config(text).registry(Past::None, millis(0), 7);
    let mut reported = |session, seq, key: &str, shadow_refused| {
        let body = AskBody {
            limit: "a".to_owned(),
            key: Some(key.to_owned()),
            shadow_refused,
            ..AskBody::default()
        };
        let grants =
            registry.leases(millis(seq), &Caller { session, ..caller(seq) }, &[Entry::Ask(body)]).grants;
        assert!(grants[0].shadow, "{:?}", grants[0]);
        let code = grants[0].error.as_ref().map(|error| error.code.clone());
        (registry.limits(millis(seq))[0].1.sums.shadow_refused, code)
    };
    assert_eq!(reported(1, 1, "k", 0), (0, None));
    assert_eq!(reported(1, 2, "k", 5), (5, None));
    assert_eq!(reported(1, 2, "k", 5), (5, None), "the same ask again");
    assert_eq!(reported(1, 3, "k", 7), (7, None));
    assert_eq!(
        reported(2, 4, "k", 3),
        (7, Some(code::LEASE_UNKNOWN.to_owned())),
        "it does not start at zero"
    );
    assert_eq!(reported(3, 5, "k", 0), (7, None));
    assert_eq!(reported(3, 6, "k", 2), (9, None));
    assert_eq!(reported(3, 7, "l", 0), (9, Some(code::KEYS_FULL.to_owned())));
    registry.stop();
    let body = AskBody { limit: "a".to_owned(), key: Some("k".to_owned()), ..AskBody::default() };
    assert!(registry.leases(millis(8), &caller(8), &[Entry::Ask(body)]).grants[0].shadow);
}

const FAMILY: &str = r#"
[[limit]]
name = "user"
keyed = true
parent = "tenant"
rules = [{ kind = "fixed_window", limit = 50, per = "1m" }]

[[limit]]
name = "tenant"
keyed = true
keys_max = 2
parent = "vendor"
rules = [{ kind = "fixed_window", limit = 30, per = "1m" }]

[[limit]]
name = "vendor"
rules = [{ kind = "fixed_window", limit = 40, per = "1m" }]
"#;

/// What is lent to users is charged to their tenant and to the vendor, and comes back in all three. A tenant and the
/// vendor may also be asked by themselves.
#[test]
fn a_permit_is_charged_to_all_of_a_family_or_to_none() {
    let mut registry = config(FAMILY).registry(Past::None, millis(0), 7);
    let available = |registry: &mut Registry, limit: &str, key: Option<&str>| {
        let limit = registry.limit(limit).expect("it is there");
        let id = limit.pool_id("", key).expect("a good key");
        limit.view(millis(0), &id).map(|view| view.available)
    };
    let asks = [
        ask("user", Some("acme/bob"), 0, 0, 8),
        ask("user", Some("acme/ann"), 0, 0, 4),
        ask("vendor", None, 0, 0, 2),
    ];
    let grants = registry.leases(millis(0), &caller(1), &asks).grants;
    let permits: Vec<u64> = grants.iter().map(|grant| grant.permits).collect();
    assert_eq!(permits, [8, 4, 2]);
    assert_eq!(grants[0].ceiling, Some(30), "no tenant can hold more");
    assert_eq!(available(&mut registry, "user", Some("acme/bob")), Some(42));
    assert_eq!(available(&mut registry, "tenant", Some("acme")), Some(18));
    assert_eq!(available(&mut registry, "vendor", None), Some(26));
    let spent = SpentBody {
        limit: "user".to_owned(),
        key: Some("acme/bob".to_owned()),
        spent_total: 3,
        running: None,
        held: Some(PERMITS_MAX),
        shadow_refused: 0,
    };
    assert_eq!(registry.leave(millis(0), &caller(2), &[spent]).returned, 5);
    assert_eq!(available(&mut registry, "tenant", Some("acme")), Some(23));
    assert_eq!(available(&mut registry, "vendor", None), Some(31));
    // Two keys without the key of a tenant, and a tenant too many.
    let asks = ["bob", "/bob", "b/x", "c/x"].map(|key| ask("user", Some(key), 0, 0, 1));
    let grants = registry.leases(millis(0), &caller(3), &asks).grants;
    let wrong = [(code::INVALID, "key"), (code::INVALID, "key")];
    for (grant, wrong) in grants.iter().zip(wrong) {
        assert_eq!((error(grant).0, error(grant).1), wrong, "{grant:?}");
        assert!(error(grant).2.contains("\"tenant\""), "{grant:?}");
    }
    assert_eq!(grants[2].permits, 1);
    assert_eq!(
        error(&grants[3]),
        (code::KEYS_FULL, "key", "\"tenant\" has 2 keys in use, as many as it may; those go on")
    );
    let figures = registry.limits(millis(0)).iter().map(|(_, figures)| figures.sums).collect::<Vec<_>>();
    assert!(figures.iter().all(|sums| sums.balance()), "{figures:?}");
    // After the minute everything has burned in all pools, and the pools of keys are forgotten.
    for _ in 0..10 {
        registry.sweep(millis(200_000), 100);
    }
    let pools: Vec<u64> = registry.limits(millis(200_000)).iter().map(|(_, figures)| figures.pools).collect();
    assert_eq!(pools, [0, 0, 1]);
    assert_eq!(available(&mut registry, "vendor", None), Some(40));
}

/// A limit that lent by a name is remembered when it is removed, even if another limit answers for that name then.
#[test]
fn a_name_that_falls_to_a_pattern_waits_for_what_the_limit_of_that_name_lent() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 10, per = \"10s\", margin = \"0s\" }]";
    let limit = |name: &str| format!("[[limit]]\nname = {name:?}\n{rule}\n");
    let all = [limit("a/*"), limit("a/x"), limit("b/*")].concat();
    let mut registry = config(&all).registry(Past::None, millis(0), 7);
    let mut seq = 0;
    let mut lent = |registry: &mut Registry, at: u64, name: &str| {
        seq += 1;
        let grant = registry.leases(millis(at), &caller(seq), &[ask(name, None, 0, 0, 10)]).grants.remove(0);
        grant.error.as_ref().map_or(Ok(grant.permits > 0), |error| Err(error.code.clone()))
    };
    assert_eq!(lent(&mut registry, 0, "a/x"), Ok(true));
    assert_eq!(lent(&mut registry, 0, "b/x"), Ok(true));
    assert!(registry.remove("a/x") && registry.remove("b/*"));
    assert_eq!(lent(&mut registry, 100, "a/x"), Err(code::LIMIT_UNKNOWN.to_owned()), "not twice");
    assert_eq!(lent(&mut registry, 100, "a/y"), Ok(true), "that is another name");
    // A limit of that name is put where a pattern has just been removed.
    let exact = config(&limit("b/x")).limits.remove(0);
    registry.put(millis(200), &exact, crate::CarryOver::AsIs, false).expect("there is room");
    assert_eq!(lent(&mut registry, 200, "b/x"), Ok(false), "not twice");
    registry.sweep(millis(60_000), 100);
    assert_eq!(lent(&mut registry, 60_000, "a/x"), Ok(true), "all of that has left the window");
    assert_eq!(lent(&mut registry, 60_000, "b/x"), Ok(true));
}

/// The bug: only the longest pattern that a name fits was asked what it had lent. `u/*` lent by `u/a/1`, then `u/a/*`
/// was put, and a limit called `u/a/1` lent all of it once more.
#[test]
fn a_name_waits_for_what_a_shorter_pattern_lent_before_there_was_a_longer_one() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 10, per = \"10s\", margin = \"0s\" }]";
    let limit = |name: &str| format!("[[limit]]\nname = {name:?}\n{rule}\n");
    let put = |registry: &mut Registry, name: &str, now| {
        let config = config(&limit(name)).limits.remove(0);
        registry.put(millis(now), &config, crate::CarryOver::AsIs, false).expect("there is room");
    };
    for name_is_put in [true, false] {
        let config = config(&[limit("*"), limit("u/*")].concat());
        let mut registry = config.registry(Past::None, millis(0), 7);
        let lent = |registry: &Registry, now: u64| -> u64 {
            let lent = |session| {
                let node = Caller { session, ..caller(now) };
                registry.leases(millis(now), &node, &[ask("u/a/1", None, 0, 0, 10)]).grants.remove(0).permits
            };
            (1..30).map(lent).sum()
        };
        assert_eq!(lent(&registry, 10), 10);
        put(&mut registry, "u/a/*", 20);
        match name_is_put {
            true => put(&mut registry, "u/a/1", 30),
            // The name falls to `*`, which lent nothing by it.
            false => assert!(registry.remove("u/*") && registry.remove("u/a/*")),
        }
        assert_eq!(lent(&registry, 40), 0, "{name_is_put}");
        registry.sweep(millis(60_000), 100);
        assert_eq!(lent(&registry, 60_000), 10, "all of that has left the window");
    }
}

/// The bug: `fresh`, which states that no earlier run lent by a name, made the allocator forget what it had lent
/// itself. `u/*` lent 10 by `u/7`, and then a limit called `u/7` lent 10 more. A longer pattern did so even without
/// `fresh`.
#[test]
fn what_this_life_lent_to_a_name_is_known_to_a_limit_that_is_put_as_fresh() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 10, per = \"10s\", margin = \"0s\" }]";
    let limit = |name: &str| format!("[[limit]]\nname = {name:?}\n{rule}\n");
    let pattern = config(&limit("u/*"));
    for (put, fresh) in [("u/7", true), ("u/7*", true), ("u/7*", false), ("u/7", false)] {
        let mut registry = pattern.registry(Past::None, millis(0), 7);
        let mut seq = 0;
        let mut lent = |registry: &mut Registry, at: u64, name: &str| {
            seq += 1;
            let node = Caller { session: seq, ..caller(seq) };
            registry.leases(millis(at), &node, &[ask(name, None, 0, 0, 10)]).grants.remove(0).permits
        };
        let first: u64 = (0..30).map(|_| lent(&mut registry, 0, "u/7")).sum();
        assert_eq!(first, 10);
        let named = config(&limit(put)).limits.remove(0);
        registry.put(millis(200), &named, crate::CarryOver::AsIs, fresh).expect("there is room");
        let second = (0..30).map(|_| lent(&mut registry, 300, "u/7")).sum::<u64>();
        println!("{first} of the pattern, and {second} of {put} with fresh={fresh}");
        assert_eq!(second, 0, "{put} with fresh={fresh}");
        assert!(lent(&mut registry, 60_000, "u/7") > 0, "all of that has left the window");
        // `fresh` is believed for a name by which nothing was lent.
        let other = config(&limit("v/1")).limits.remove(0);
        registry.put(millis(60_000), &other, crate::CarryOver::AsIs, true).expect("there is room");
        assert!(lent(&mut registry, 60_000, "v/1") > 0);
    }
}
