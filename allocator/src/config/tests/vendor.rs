//! How far the vendor's own count is believed: parsing and refusals.

use crate::config::Config;
use lessor_ledger::share::{Believe, Trust};
use std::time::Duration;

fn parsed(vendor: &str) -> Result<Trust, String> {
    let rules = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
    let text = format!("[[limit]]\nname = \"a\"\n{rules}\n{vendor}\n");
    let config = Config::parse(&text).map_err(|error| error.to_string())?;
    let again = Config::parse(&config.to_string()).expect("what is printed can be read");
    assert_eq!(again, config);
    Ok(config.limits[0].sharing.vendor)
}

#[test]
fn what_an_operator_says_of_the_vendor_is_what_holds() {
    assert_eq!(parsed(""), Ok(Trust::default()));
    let said = "vendor = { believe = \"pause\", longest = \"1h\", keep_percent = 50, ease = \"250ms\" }";
    let trust = Trust {
        believe: Believe::Pause,
        longest: Duration::from_secs(3_600),
        keep_percent: 50,
        ease: Duration::from_millis(250),
    };
    assert_eq!(parsed(said), Ok(trust));
}

#[test]
fn what_cannot_be_is_refused_and_named() {
    for (said, word) in [
        ("{ longest = \"0s\" }", "vendor.longest"),
        ("{ keep_percent = 101 }", "vendor.keep_percent"),
        ("{ pause = \"2d\" }", "pause"),
    ] {
        let error = parsed(&format!("vendor = {said}")).expect_err(said);
        assert!(error.contains(word), "{said}: {error}");
    }
}
