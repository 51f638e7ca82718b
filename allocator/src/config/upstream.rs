//! Limits that this allocator leases and lends on: from another allocator, by its address, or from a shared store.
//! Checks the address, and what the rules of such limits may be.

use super::{LimitConfig, Upstream};
use axum::http::Uri;
use lessor_ledger::roots::{TimeSource, stricter};
use lessor_protocol::unix;

/// Checks `text` as the address of an allocator.
pub(super) fn address(text: &str) -> Result<Upstream, String> {
    if let Some(socket) = unix::socket(text) {
        let path = socket.map_err(|problem| format!("upstream is {text:?}: {problem}"))?;
        return Ok(Upstream::Address(format!("{}{}", unix::SCHEME, path.display())));
    }
    if text.contains('@') {
        // Not shown: it may be a secret.
        return Err("upstream has a name or a password in it, before an @: leave that out".to_owned());
    }
    let wrong = || {
        format!(
            "upstream is {text:?}: use the address of an allocator, http://host:port, https://host:port, or unix: and the path of its socket"
        )
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    match (uri.scheme_str(), uri.authority(), uri.query()) {
        (Some("http" | "https"), Some(_), None) => {
            Ok(Upstream::Address(text.trim_end_matches('/').to_owned()))
        }
        _ => Err(wrong()),
    }
}

/// Returns why a shared store cannot keep the rules of `limit`, if so.
pub(super) fn unshared(limit: &LimitConfig, source: TimeSource) -> Option<String> {
    let of_all = || limit.overrides.values().flatten().chain(&limit.rules);
    let unkept = of_all().find_map(|rule| stricter(rule, source).err());
    unkept.map(|problem| format!("rules: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::samples::LIMIT;
    use lessor_ledger::roots::BELOW_MAX;

    const UPSTREAM: &str = "[[limit]]\nname = \"vendor/rest\"\nupstream = \"http://centre:7400/\"\n";

    #[test]
    fn a_leased_limit_has_no_rules_and_is_shown_as_it_was_said() {
        let config = Config::parse(&format!("[server]\nnode = \"east\"\n{UPSTREAM}")).expect("valid");
        let limit = &config.limits[0];
        assert_eq!(limit.upstream.as_ref().map(|upstream| upstream.as_str()), Some("http://centre:7400"));
        assert!(limit.rules.is_empty() && !limit.ease_off);
        assert_eq!(config.server.node.as_ref().map(|node| node.as_str()), Some("east"));
        assert_eq!(Config::parse(&config.to_string()), Ok(config));
    }

    #[test]
    fn a_limit_is_leased_over_a_socket_of_this_machine() {
        let upstream = |text: &str| {
            let config = Config::parse(&format!("[[limit]]\nname = \"a\"\nupstream = {text:?}"));
            config
                .map(|config| config.limits[0].upstream.as_ref().map(|upstream| upstream.as_str().to_owned()))
        };
        for text in ["unix:/run/lessor/centre.sock", "unix:///run/lessor/centre.sock"] {
            assert_eq!(upstream(text), Ok(Some("unix:/run/lessor/centre.sock".to_owned())), "{text}");
        }
        let error = upstream("unix:centre.sock").expect_err("it is relative").problem().to_owned();
        assert!(
            error.contains("upstream is \"unix:centre.sock\": the path of a Unix socket begins with /"),
            "{error}"
        );
    }

    #[test]
    fn what_the_one_above_decides_is_not_said_here() {
        let problem = |more: &str| {
            Config::parse(&format!("{UPSTREAM}{more}")).expect_err("it is wrong").problem().to_owned()
        };
        for (key, more) in [
            ("rules", "rules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]"),
            ("parent", "parent = \"vendor\""),
            ("reserve", "reserve = 3"),
            ("guaranteed", "guaranteed = { a = 1 }"),
            ("ease_off", "ease_off = true"),
        ] {
            let said = problem(more);
            assert!(said.contains(&format!("{key} is set on a limit with upstream")), "{said}");
        }
        let below = problem(&format!("{LIMIT}parent = \"vendor/rest\""));
        assert!(below.contains("which is leased from http://centre:7400"), "{below}");
    }

    #[test]
    fn in_a_shared_store_limits_are_below_others_and_not_too_many() {
        let rules = "rules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]";
        let below = |n: usize| format!("[[limit]]\nname = \"a{n}\"\nparent = \"all\"\n{rules}\n");
        let config = |more: &str, count| {
            let limits: String = (0..count).map(below).collect();
            let store = "[store]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:1\"\n";
            Config::parse(&format!("{store}[[limit]]\nname = \"all\"\n{more}\n{limits}"))
        };
        let all = config(rules, BELOW_MAX).expect("valid");
        assert!(all.limits.iter().all(|limit| limit.upstream.as_ref().is_some_and(Upstream::is_store)));
        let error = config(rules, BELOW_MAX + 1).expect_err("too many");
        let words = format!("limit \"a{BELOW_MAX}\": parent is set on more than {BELOW_MAX} limits");
        assert!(error.problem().contains(&words), "{}", error.problem());
        // A limit that is leased from another allocator is no parent there either.
        let error = config("upstream = \"http://centre:7400\"", 1).expect_err("it is not here");
        assert!(error.problem().contains("is leased from http://centre:7400"), "{}", error.problem());
    }

    #[test]
    fn an_address_that_is_none_is_refused_with_its_value() {
        for address in ["", "centre:7400", "ftp://centre", "http://", "https://a/?b"] {
            let text = format!("[[limit]]\nname = \"a\"\nupstream = {address:?}");
            let error = Config::parse(&text).expect_err("it is wrong");
            let words = format!(
                "upstream is {address:?}: use the address of an allocator, http://host:port, https://host:port, or unix: and the path of its socket"
            );
            assert!(error.problem().contains(&words), "{}", error.problem());
            assert_eq!(error.line(), 3);
        }
        let secret = Config::parse("[[limit]]\nname = \"a\"\nupstream = \"http://me:secret@centre\"");
        let said = secret.expect_err("it is wrong").to_string();
        assert!(said.contains("before an @") && !said.contains("secret"), "{said}");
    }
}
