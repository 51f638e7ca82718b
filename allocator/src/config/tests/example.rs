//! The shipped configuration: it is understood, and its defaults are the real ones.

use super::*;
use lessor_ledger::share::Owner;

/// The shipped configuration.
const EXAMPLE: &str = include_str!("../../../../lessor.toml");

#[test]
fn the_shipped_example_is_understood() {
    let config = Config::parse(EXAMPLE).expect("we ship it");
    assert_eq!(config.clocks, ClockBounds::default());
    assert_eq!(config.server.listen.to_string(), LISTEN);
    let [rest, messages, slow, export, paced, reports, monthly, api, routes] = &config.limits[..] else {
        panic!("{} limits", config.limits.len());
    };
    let sliding =
        |limit, per, margin| Rule::SlidingWindow(SlidingWindow::try_new(limit, per, margin).expect("valid"));
    let quarter = SECOND / 4;
    assert_eq!(rest.rules, [sliding(9_000, 30 * SECOND, quarter)]);
    assert_eq!((rest.ease_off, rest.keyed, rest.lessees_max), (true, Keyed::No, LESSEES_MAX));
    assert_eq!(messages.rules, [sliding(600, 30 * SECOND, quarter)], "the default margin");
    let in_flight = Rule::Concurrency(Concurrency::try_new(25, 120 * SECOND).expect("valid"));
    assert_eq!(slow.rules, [in_flight, sliding(100, 60 * SECOND, quarter)]);
    let share = |name| messages.share(&NodeName::try_new(name).expect("valid"), Owner::NONE);
    assert_eq!(["checkout-7", "batch", "search"].map(|name| share(name).weight), [3, 1, 1]);
    assert_eq!(["checkout-7", "batch"].map(|name| share(name).group), [Some(0), None]);
    assert_eq!(messages.sharing, Sharing { guaranteed: vec![100], ..Sharing::default() });
    let bucket = Rule::TokenBucket(TokenBucket::try_new(1, 1, 2 * SECOND, 1).expect("valid"));
    assert_eq!(export.rules, [bucket]);
    assert_eq!((export.ease_off, export.keyed), (false, Keyed::Yes { keys_max: KEYS_MAX }));
    let tenth = Duration::from_millis(100);
    assert_eq!(paced.rules, [Rule::LeakyBucket(LeakyBucket::try_new(1, 1, tenth).expect("valid"))]);
    let day = Rule::FixedWindow(FixedWindow::try_new(5_000, 86_400 * SECOND).expect("valid"));
    assert_eq!(reports.rules, [day, sliding(100, 60 * SECOND, Duration::ZERO)]);
    let berlin = Calendar::new(Unit::Month, Zone::try_new("Europe/Berlin").expect("a zone"));
    let windows = Windows::Calendar(berlin.with_anchor_day(5).expect("a day"));
    let month = Rule::FixedWindow(FixedWindow::of(1_000_000, windows).expect("valid"));
    let warm_up = WarmUp::try_new(10 * SECOND, 3).expect("valid");
    let fast = TokenBucket::try_new(20, 100, SECOND, 20).expect("valid").with_warm_up(warm_up);
    assert_eq!(monthly.rules, [month, Rule::TokenBucket(fast.expect("valid"))]);
    let ten = Rule::TokenBucket(TokenBucket::try_new(10, 10, 2 * SECOND, 10).expect("valid"));
    assert_eq!(export.overrides[&Key::try_new("acme").expect("valid")], [ten]);
    assert_eq!((api.name.as_str(), api.name.names()), ("api/*", Names::Many { names_max: NAMES_MAX }));
    assert_eq!((api.parent.as_deref(), routes.parent.as_deref()), (Some("routes"), None));
}
/// The output is a configuration that means the same, so every default in it is the one in force.
#[test]
fn what_is_printed_means_the_same() {
    let config = Config::parse(EXAMPLE).expect("we ship it");
    let printed = config.to_string();
    assert_eq!(Config::parse(&printed), Ok(config), "{printed}");
    for default in
        ["clock_drift_ppm = 1000", "connections_max = 4096", "margin = \"250ms\"", "fallback = \"closed\""]
    {
        assert!(printed.contains(default), "{default} is not in\n{printed}");
    }
}

/// An operator who leaves the margin out sees its cost, where that is high.
#[test]
fn what_the_margin_of_a_short_window_costs_is_said() {
    let of = |limit: u64, per: &str, margin: &str| {
        let rule = format!("{{ kind = \"sliding_window\", limit = {limit}, per = \"{per}\"{margin} }}");
        let config =
            Config::parse(&format!("[[limit]]\nname = \"x\"\nrules = [{rule}]")).expect("a good one");
        assert_eq!(Config::parse(&config.to_string()).as_ref(), Ok(&config));
        config.to_string()
    };
    let printed = |per: &str, margin: &str| of(100, per, margin);
    // The bug: "leaves 0" reads as a limit that lends nothing.
    assert!(of(1, "1s", "").contains("# the margin leaves less than 1 per 1s\n"));
    assert!(!of(0, "1s", "").contains("the margin leaves"));
    assert!(printed("1s", "").contains("margin = \"250ms\" }, # the margin leaves 80 per 1s\n"));
    assert!(printed("5s", "").contains("# the margin leaves 95 per 5s"));
    for (per, margin) in [("6s", ""), ("1s", ", margin = \"0s\"")] {
        assert!(!printed(per, margin).contains("the margin leaves"), "{per}");
    }
}

#[test]
fn every_option_of_the_example_is_one_that_exists() {
    let options = EXAMPLE.lines().filter_map(|line| line.strip_prefix("# "));
    // Indented lines have no default: another test tries them.
    let options =
        options.filter(|line| !line.starts_with(' ') && line.contains(" = ") && !line.contains(". "));
    // The path depends on where the allocator is started. `memory_max`, `node` and `upstream` have no default value.
    let without = ["path = ", "memory_max = ", "node = ", "upstream = "];
    let options = options.filter(|line| !without.iter().any(|name| line.starts_with(name)));
    for option in options {
        let name = option.split(" = ").next().unwrap_or_default();
        let printed = Config::parse(EXAMPLE).expect("we ship it").to_string();
        assert!(printed.contains(&format!("{option}\n")), "{name}: {option} is not the default");
    }
}

/// The roles of the example, before its other sections.
#[test]
fn the_roles_of_the_example_are_understood() {
    let lines = EXAMPLE.lines().filter_map(|line| line.strip_prefix("#     "));
    let roles: String = lines.skip_while(|line| *line != "[auth]").map(|line| format!("{line}\n")).collect();
    let config = Config::parse(&format!("{EXAMPLE}\n{roles}")).expect("we ship it");
    assert_eq!(Config::parse(&config.to_string()), Ok(config.clone()));
    let auth = config.auth.expect("it is there");
    assert!(auth.tokens.is_some() && auth.roles.len() == 1 && !auth.roles[0].lease.is_empty());
}
