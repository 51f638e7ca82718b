//! Memory of a contract: it keeps no pool that equals a new one, however many keys come.

use super::*;
use std::path::Path;
use std::time::Duration;

const CONFIG: &str = "
[[limit]]
name = \"vendor\"
rules = [{ kind = \"sliding_window\", limit = 9, per = \"10s\" }]
[[limit]]
name = \"tenant\"
keyed = true
parent = \"vendor\"
rules = [{ kind = \"sliding_window\", limit = 3, per = \"10s\" }]
[[limit]]
name = \"user\"
keyed = true
parent = \"tenant\"
rules = [{ kind = \"sliding_window\", limit = 2, per = \"10s\" }]
[[limit]]
name = \"alone\"
keyed = true
rules = [{ kind = \"sliding_window\", limit = 2, per = \"10s\" }]
";

/// One call a second, each of another user of another tenant: ten of them count at any time.
#[test]
fn keys_that_cannot_be_told_from_new_ones_are_forgotten() {
    let mut contract =
        Contract::new(&Config::parse_with_margin(CONFIG, Path::new(""), Duration::ZERO).expect("valid"));
    let mut ask = |second: u64, limit: &str, key: String, call: Call| {
        let at = Moment::from_nanos(second * 1_000_000_000);
        let request = Request { at, limit: limit.to_owned(), key: Some(key), node: None, call };
        contract.answer(&request, &mut |_, _| {}).expect("a good request")
    };
    for second in 0..5_000 {
        // No other user of the tenant has called, and nine of ten calls find a permit of the vendor.
        let user = format!("t{second}/u");
        assert_eq!(ask(second, "user", user, Call::TryAcquire(1)).ok, second % 10 != 9, "{second}");
        assert_eq!(ask(second, "alone", format!("k{second}"), Call::TryAcquire(1)).remaining, 1);
        ask(second, "user", format!("t{second}/looked-at"), Call::Peek(1));
        ask(second, "user", format!("t{second}/back"), Call::Refund(0));
    }
    for name in ["user", "tenant", "alone"] {
        let pools = contract.limits[name].pools.len();
        assert!((10..=POOLS_TO_LOOK).contains(&pools), "{pools} of {name}");
    }
    assert!(contract.families.len() <= POOLS_TO_LOOK + 1);
}
