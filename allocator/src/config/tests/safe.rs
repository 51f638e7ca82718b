//! The options of safe shares.

use crate::config::Config;
use lessor_ledger::share::Safe;
use lessor_protocol::Fallback;
use std::time::Duration;

const WINDOW: &str = r#"{ kind = "sliding_window", limit = 600, per = "30s" }"#;

fn config(said: &str) -> Config {
    Config::parse(&format!("[[limit]]\nname = \"a\"\nrules = [{WINDOW}]\n{said}\n")).expect("valid")
}

#[test]
fn a_reserve_is_shared_by_so_many_for_ten_minutes_unless_it_says_otherwise() {
    let said = "reserve = 60\nfallback = \"safe_share\"\nsafe = { nodes = 20 }";
    let parsed = config(said);
    let safe = Safe { nodes: 20, lasts: Duration::from_secs(600) };
    assert_eq!((parsed.limits[0].fallback, parsed.limits[0].sharing.safe), (Fallback::SafeShare, Some(safe)));
    assert_eq!(Config::parse(&parsed.to_string()), Ok(parsed));
}
