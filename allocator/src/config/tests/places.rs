//! Every refusal of a configuration, with one bad example each: it names the line and the key that are wrong, the
//! value, and what would be right. The example marks the line, which is never that of the limit's name.

use crate::config::Config;

/// The words of a refusal besides the line: key, value, and a hint of what is right.
type Says<'a> = (&'a str, &'a str, &'a str);

/// Checks that `text` is refused at the line that ends in `# <-`, with all words of a refusal.
#[track_caller]
fn refused(text: &str, (key, value, hint): Says<'_>) {
    let error = Config::parse(text).expect_err(text);
    let marked: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| line.ends_with("# <-")).map(|(at, _)| at + 1).collect();
    assert_eq!(marked, [error.line()], "{error}\n{text}");
    for word in [key, value, hint] {
        assert!(error.problem().contains(word), "{word:?} is not in: {error}\n{text}");
    }
}

/// A limit `a` with a good rule of 10 permits, and then `options`.
fn limit(options: &str) -> String {
    let rules = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
    format!("# ours\n\n[[limit]]\n\nname = \"a\"\n\n{rules}\n\n{options}\n")
}

/// A limit `a` whose second rule is `rule`, one field a line.
fn rule(rule: &str) -> String {
    let first = "[[limit.rules]]\nkind = \"sliding_window\"\nlimit = 10\nper = \"1s\"";
    format!("[[limit]]\n\nname = \"a\"\n\n{first}\n\n{rule}\n")
}

#[track_caller]
fn limits_refused(cases: &[(&str, Says<'_>)]) {
    cases.iter().for_each(|(options, says)| refused(&limit(options), *says));
}

#[track_caller]
fn rules_refused(cases: &[(&str, Says<'_>)]) {
    cases.iter().for_each(|(text, says)| refused(&rule(&format!("[[limit.rules]]\n\n{text}")), *says));
}

#[test]
fn what_is_wrong_with_the_whole_is_named() {
    let good = limit("");
    for (text, says) in [
        ("\n[[limit]]\nname = a # <-".to_owned(), ("name", "a", "must be quoted")),
        ("\n[[limit]]\nname = \"a\"\nname = \"b\" # <-".to_owned(), ("name", "\"b\"", "duplicate key")),
        ("[server]\n\nlimt = 3 # <-".to_owned(), ("server.limt", "limt", "expected one of `listen`")),
        ("\nlimit = 3 # <-".to_owned(), ("limit", "3", "expected a sequence")),
        (
            "\n[limit] # <-\n\nname = \"a\"".to_owned(),
            ("limit", "one table", "write [[limit]], with two brackets, for each limit"),
        ),
        (
            limit("[limit.override] # <-\nkey = \"k\""),
            ("limit[0].override", "one table", "write [[limit.override]]"),
        ),
        (format!("\nclock_drift_ppm = 200000 # <-\n{good}"), ("clock_drift_ppm", "200000", "at most 100000")),
        (format!("\nclock_drift_ppm = -1 # <-\n{good}"), ("clock_drift_ppm", "-1", "not negative")),
        (
            format!("[server]\n\nlisten = \"7400\" # <-\n{good}"),
            ("server.listen", "\"7400\"", "127.0.0.1:7400"),
        ),
        (
            format!("[server]\n\nconnections_max = 0 # <-\n{good}"),
            ("server.connections_max", "is 0", "from 1 to"),
        ),
        (format!("{good}\n[[limit]]\n\nname = \"a\" # <-\nrules = []"), ("name", "\"a\"", "its own name")),
    ] {
        refused(&text, says);
    }
    let none = Config::parse("\n\n").expect_err("nothing");
    assert_eq!(none.to_string(), "line 1: there is no [[limit]]: add at least one");
}

#[test]
fn what_is_wrong_with_a_limit_is_named() {
    refused("\n\n[[limit]] # <-\n\nrules = []\n", ("limit[0].name", "is missing", "name = \"vendor/rest\""));
    // The bug: the example was the key of an override.
    refused(
        "\n[server]\ntls = { certificate = \"x\" } # <-\n",
        ("server.tls.key", "is missing", "key = \"server.key\""),
    );
    refused("\n\n[[limit]] # <-\n\nname = \"a\"\n", ("rules", "is missing", "rules = [{ kind ="));
    refused("\n[[limit]]\nname = \"a\"\n\nrules = [] # <-\n", ("rules", "is empty", "at least one rule"));
    refused("\n[[limit]]\n\nname = \"a b\" # <-\nrules = []", ("name", "' '", "allowed are A-Z"));
    refused("\n[[limit]]\n\nname = \"a/*/b\" # <-\nrules = []", ("name", "'*'", "one * at the end"));
    limits_refused(&[
        ("keyed = \"yes\" # <-", ("keyed", "\"yes\"", "expected a boolean")),
        ("colour = \"red\" # <-", ("colour", "unknown field", "expected one of `name`")),
        ("priority = 3 # <-", ("priority", "is not available", "leave it out")),
        (
            "fallback = \"ajar\" # <-",
            ("fallback", "\"ajar\"", "use one of \"closed\", \"safe_share\", \"open\""),
        ),
        ("keys_max = 3 # <-", ("keys_max", "is 3", "needs keyed = true")),
        ("keyed = true\nkeys_max = 0 # <-", ("keys_max", "is 0", "from 1 to")),
        ("names_max = 3 # <-", ("names_max", "is 3", "ends in *")),
        ("lessees_max = 0 # <-", ("lessees_max", "is 0", "from 1 to")),
        ("reserve = 10 # <-", ("reserve", "is 10", "at most 9")),
        ("lease_max = 0 # <-", ("lease_max", "is 0", "from 1 to 4294967295")),
        ("[limit.weights]\n\"a-*\" = 0 # <-", ("weights.\"a-*\"", "is 0", "from 1 to 1000000")),
        ("[limit.priorities]\nx = 1\n\"x*y\" = 1 # <-", ("priorities.\"x*y\"", "'*'", "use a node name")),
        ("[limit.priorities]\nx = -1 # <-", ("priorities.x", "-1", "not negative")),
        ("[limit.guaranteed]\nx = 1\ny = 0 # <-", ("guaranteed.\"y\"", "is 0", "from 1 on")),
        ("guaranteed = { x = 4, y = 7 } # <-", ("guaranteed", "11", "at most 10")),
        ("[limit.term]\nmax = \"1s\"\nmin = \"5ms\" # <-", ("term.min", "5ms", "use 20ms to 2s")),
        ("[limit.term]\n\nmax = \"3s\" # <-", ("term.max", "3s", "use 20ms to 2s")),
        ("[limit.term]\nmax = \"500ms\"\nmin = \"1s\" # <-", ("term.min", "1s", "at most 500ms")),
        ("[limit.vendor]\n\nbelieve = \"all\" # <-", ("vendor.believe", "\"all\"", "off, pause, trim")),
        ("[limit.vendor]\nease = \"1s\"\nlongest = \"2d\" # <-", ("vendor.longest", "2d", "1ms to 1d")),
        ("[limit.vendor]\n\nkeep_percent = 0 # <-", ("vendor.keep_percent", "is 0", "from 1 to 100")),
        ("[limit.vendor]\n\nease = \"2d\" # <-", ("vendor.ease", "2d", "at most 1d")),
    ]);
    let pattern = limit("names_max = 0 # <-").replace("\"a\"", "\"a*\"");
    refused(&pattern, ("names_max", "is 0", "from 1 to"));
}

#[test]
fn what_is_wrong_with_a_rule_is_named() {
    rules_refused(&[
        (
            "limit = 1\nkind = \"sliding_widow\" # <-",
            ("rules[1].kind", "\"sliding_widow\"", "use \"sliding_window\""),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\nper = 30 # <-",
            ("rules[1].per", "`30`", "for example \"30s\""),
        ),
        (
            "kind = \"fixed_window\"\nper = \"1s\"\nlimit = 1.5 # <-",
            ("rules[1].limit", "1.5", "a whole number"),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\n\nper = \"0s\" # <-",
            ("rules[1].per", "zero", "for example \"30s\""),
        ),
        ("kind = \"sliding_log\"\nlimit = 1\nper = \"400d\" # <-", ("rules[1].per", "34560000s", "366 days")),
        (
            "kind = \"fixed_window\"\nlimit = 1\nper = \"10ms\" # <-",
            ("rules[1].per", "10ms", "at least 50ms"),
        ),
        (
            "kind = \"sliding_log\"\nper = \"1s\"\nlimit = 9007199254740992 # <-",
            ("rules[1].limit", "9007199254740992", "9007199254740991"),
        ),
        (
            "kind = \"sliding_window\"\nlimit = 1\nper = \"1s\"\nmargin = \"2s\" # <-",
            ("rules[1].margin", "2s", "use a shorter margin"),
        ),
        (
            "kind = \"sliding_window\"\nlimit = 1\nper = \"1s\"\ncapacity = 3 # <-",
            ("rules[1].capacity", "is 3", "it takes limit, per, margin"),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\nper = \"1s\"\nanchor = \"noon\" # <-",
            ("rules[1].anchor", "\"noon\"", "use \"epoch\""),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"year\" # <-",
            ("rules[1].calendar", "\"year\"", "use \"minute\", \"hour\", \"day\", \"week\" or \"month\""),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"day\"\nper = \"24h\" # <-",
            ("rules[1].per", "\"1d\"", "leave it out"),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"day\"\nzone = \"Berlin\" # <-",
            ("rules[1].zone", "\"Berlin\"", "\"Europe/Berlin\""),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"month\"\nanchor_day = 32 # <-",
            ("rules[1].anchor_day", "32", "1 to 31"),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"week\"\nanchor_day = 1 # <-",
            ("rules[1].anchor_day", "1", "\"monday\" to"),
        ),
        (
            "kind = \"fixed_window\"\nlimit = 1\ncalendar = \"day\"\nanchor_day = 1 # <-",
            ("rules[1].anchor_day", "is 1", "leave it out"),
        ),
        ("kind = \"concurrency\"\nlimit = 1\nlongest = \"0s\" # <-", ("rules[1].longest", "zero", "\"2m\"")),
    ]);
    let bucket = "kind = \"token_bucket\"\ncapacity = 5\nrefill = 1\nper = \"1s\"\n\n";
    for (option, says) in [
        ("initial = 6 # <-", ("rules[1].initial", "is 6", "at most 5")),
        ("refill_style = \"slow\" # <-", ("rules[1].refill_style", "\"slow\"", "\"greedy\" or \"interval\"")),
        ("debt = 9007199254740991 # <-", ("rules[1].debt", "9007199254740991", "at most")),
        ("warm_up = { over = \"1s\" }\ndebt = 3 # <-", ("rules[1].debt", "is 3", "leave one of them out")),
        (
            "warm_up = { over = \"1s\" }\nrefill_style = \"interval\" # <-",
            ("rules[1].refill_style", "\"interval\"", "use \"greedy\""),
        ),
        ("warm_up = {\nover = \"0s\" # <-\n}", ("rules[1].warm_up.over", "zero", "for example \"10s\"")),
        (
            "warm_up = {\nover = \"1s\",\ncold_factor = 1 # <-\n}",
            ("rules[1].warm_up.cold_factor", "is 1", "use 2 to 1000"),
        ),
        ("warm_up = {} # <-", ("rules[1].warm_up.over", "is missing", "over = \"10s\"")),
    ] {
        rules_refused(&[(&format!("{bucket}{option}"), says)]);
    }
    rules_refused(&[(
        "kind = \"leaky_bucket\"\nrefill = 1\nper = \"200d\" # <-",
        ("rules[1].per", "17280000s", "104 days"),
    )]);
}

/// A missing key has no line of its own: the error has the line of the table that lacks it.
#[test]
fn what_a_rule_lacks_is_named_with_its_rule() {
    for (fields, says) in [
        ("limit = 1", ("rules[1].kind", "is missing", "kind = \"sliding_window\"")),
        ("kind = \"sliding_window\"\nlimit = 1", ("rules[1].per", "is missing", "per = \"30s\"")),
        ("kind = \"sliding_log\"\nper = \"1s\"", ("rules[1].limit", "is missing", "limit = 100")),
        (
            "kind = \"token_bucket\"\nrefill = 1\nper = \"1s\"",
            ("rules[1].capacity", "is missing", "capacity = 100"),
        ),
        (
            "kind = \"token_bucket\"\ncapacity = 1\nper = \"1s\"",
            ("rules[1].refill", "is missing", "refill = 100"),
        ),
        ("kind = \"leaky_bucket\"\nper = \"1s\"", ("rules[1].refill", "is missing", "refill = 100")),
        ("kind = \"concurrency\"\nlimit = 1", ("rules[1].longest", "is missing", "longest = \"2m\"")),
    ] {
        refused(&rule(&format!("[[limit.rules]] # <-\n\n{fields}")), says);
    }
}

#[test]
fn rules_that_do_not_go_together_are_named() {
    let flow = "kind = \"leaky_bucket\"\nrefill = 1\nper = \"2s\"\n\n[[limit.rules]]\n";
    rules_refused(&[
        (
            &format!("{flow}refill = 1\nper = \"1m\"\nkind = \"leaky_bucket\" # <-"),
            ("rules[2].kind", "\"leaky_bucket\" for the second time", "use a token_bucket"),
        ),
        (
            &format!("{flow}kind = \"fixed_window\"\nlimit = 9\nper = \"15s\" # <-"),
            ("rules[2].per", "15s", "at least 20s"),
        ),
        (
            "kind = \"concurrency\"\nlimit = 9\nlongest = \"1s\"\n[[limit.rules]]\nlimit = 9\nlongest = \"2s\"\nkind = \"concurrency\" # <-",
            ("rules[2].kind", "\"concurrency\" for the second time", "into one rule"),
        ),
    ]);
}

#[test]
fn overrides_that_are_wrong_are_named() {
    let of = |options: &str| limit(&format!("keyed = true\n\n[[limit.override]]\n{options}"));
    let rules = "rules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]";
    refused(
        &limit(&format!("[[limit.override]] # <-\nkey = \"x\"\n{rules}")),
        ("override[0]", "\"x\"", "keyed = true"),
    );
    for (options, says) in [
        (format!("{rules}\nkey = \"\" # <-"), ("override[0].key", "is empty", "")),
        ("key = \"x\"\nrules = [] # <-".to_owned(), ("override[0].rules", "is empty", "at least one rule")),
        (
            format!("key = \"x\"\n{rules}\n[[limit.override]]\n\n{rules}\nkey = \"x\" # <-"),
            ("override[1].key", "\"x\"", "one override"),
        ),
        (
            "key = \"x\"\n[[limit.override.rules]]\nkind = \"fixed_window\"\nlimit = 1\nper = \"10ms\" # <-"
                .to_owned(),
            ("override[0].rules[0].per", "10ms", "at least 50ms"),
        ),
    ] {
        refused(&of(&options), says);
    }
    let text = limit(&format!("keyed = true\n\n[[limit.override]] # <-\n{rules}\n"));
    refused(&text, ("override[0].key", "is missing", "key = \"acme\""));
    let text = limit("keyed = true\n\n[[limit.override]] # <-\nkey = \"x\"\n");
    refused(&text, ("override[0].rules", "is missing", "rules = [{ kind ="));
}

#[test]
fn families_that_are_wrong_are_named() {
    let good = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
    let above = |name: &str, options: &str| format!("[[limit]]\nname = {name:?}\n{options}\n");
    for (options, other, says) in [
        ("parent = \"c\" # <-", good, ("parent", "\"c\"", "the name of another limit")),
        ("parent = \"a\" # <-", good, ("parent", "\"a\"", "no limit may be above itself")),
        ("parent = \"b*\" # <-", good, ("parent", "\"b*\"", "a single limit")),
        (
            "parent = \"b\" # <-",
            "shadow = true\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]",
            ("parent", "\"b\"", "shadow = false"),
        ),
        (
            "parent = \"b\" # <-",
            "keyed = true\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]",
            ("parent", "\"b\"", "keyed = true"),
        ),
        (
            "parent = \"b\" # <-",
            "parent = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]",
            ("parent", "\"b\"", "no limit may be above itself"),
        ),
        (
            "keyed = true\nparent = \"b\"\n[[limit.override]]\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\nkey = \"x\" # <-",
            "keyed = true\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]",
            ("override.\"x\".key", "has no /", "use a key with a /"),
        ),
        (
            "keyed = true\nparent = \"b\"\n[[limit.override]]\nkey = \"x/y\"\n[[limit.override.rules]]\nkind = \"concurrency\"\nlimit = 1\nlongest = \"61s\" # <-",
            "rules = [{ kind = \"concurrency\", limit = 10, longest = \"1m\" }]",
            ("override.\"x/y\".rules[0].longest", "1m 1s", "use the same or less"),
        ),
    ] {
        let name = if options.contains("b*") { "b*" } else { "b" };
        refused(&(limit(options) + &above(name, other)), says);
    }
    let below = |rules: &str| rule(rules).replace("name = \"a\"", "name = \"a\"\nparent = \"b\"");
    let cap = "[[limit.rules]]\nkind = \"concurrency\"\nlimit = 1\nlongest = \"2m\" # <-";
    let longer =
        below(cap) + &above("b", "rules = [{ kind = \"concurrency\", limit = 10, longest = \"1m\" }]");
    refused(&longer, ("rules[1].longest", "2m", "use the same or less"));
    let flow = "rules = [{ kind = \"leaky_bucket\", refill = 1, per = \"2s\" }]";
    let second = below("[[limit.rules]]\nrefill = 1\nper = \"2s\"\nkind = \"leaky_bucket\" # <-");
    refused(&(second + &above("b", flow)), ("rules[1].kind", "\"leaky_bucket\"", "use a token_bucket"));
    let short = below("[[limit.rules]]\nkind = \"fixed_window\"\nlimit = 1\nper = \"15s\" # <-");
    refused(&(short + &above("b", flow)), ("rules[1].per", "15s", "at least 20s"));
    let hour = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1h\" }]\nparent = \"b\" # <-";
    let middle = above("b", &format!("{flow}\nparent = \"c\""));
    let two = format!("[[limit]]\nname = \"a\"\n{hour}\n{middle}") + &above("c", flow);
    refused(&two, ("parent", "\"b\"", "use a token_bucket"));
    let two = format!("[[limit]]\nname = \"a\"\n{hour}\n{middle}") + &above("c", good);
    refused(&two, ("parent", "\"b\"", "at least 20s"));
    let tower: String =
        (0..5).map(|n| above(&n.to_string(), &format!("{good}\nparent = \"{}\"", n + 1))).collect();
    let tower = tower.replacen("parent = \"1\"", "parent = \"1\" # <-", 1) + &above("5", good);
    refused(&tower, ("parent", "\"1\"", "at most 4"));
}

#[test]
fn what_is_wrong_with_a_safe_share_is_named() {
    let share = "fallback = \"safe_share\"";
    let marked = format!("{share} # <-");
    let with = |safe: &str| format!("reserve = 5\n{share}\n\nsafe = {safe} # <-");
    let bucket = limit(&format!("{marked}\nreserve = 5\nsafe = {{ nodes = 2 }}"))
        .replace("fixed_window\", limit = 10,", "token_bucket\", capacity = 10, refill = 10,");
    refused(&bucket, ("fallback", "safe_share", "use sliding_window"));
    let above = "[[limit]]\nname = \"up\"\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
    let below = limit(&format!("parent = \"up\"\n\n{marked}\nreserve = 5\nsafe = {{ nodes = 2 }}"));
    refused(&format!("{above}\n{below}"), ("fallback", "\"up\"", "use \"closed\""));
    for (options, says) in [
        (format!("reserve = 5\n\n{marked}"), ("fallback", "safe is missing", "safe = { nodes = 20 }")),
        ("reserve = 5\nsafe = { nodes = 2 } # <-".to_owned(), ("safe", "needs", "fallback = \"safe_share\"")),
        (with("{ nodes = 0 }"), ("safe.nodes", "is 0", "from 1 to 10000")),
        (with("{ nodes = 6 }"), ("safe.nodes", "is 6", "at least 6")),
        (with("{ nodes = 2, lasts = \"1h\" }"), ("safe.lasts", "1h", "1s to 10m")),
    ] {
        refused(&limit(&options), says);
    }
}

/// The bug: a file with more limits was accepted, and then none of them could be changed.
#[test]
fn the_first_limit_that_is_one_too_many_is_named() {
    let limit = |number: usize| format!("[[limit]]\nname = \"l{number}\"\nrules = []\n");
    let limits: String = (0..10_000).map(limit).collect();
    let text = format!("{limits}[[limit]] # <-\nname = \"more\"\nrules = []\n");
    refused(&text, ("limit[10000]", "there are 10001", "use at most 10000"));
    let error = Config::parse(&limits).expect_err("no limit has a rule");
    assert_eq!(error.key(), Some("rules"), "{error}");
}
