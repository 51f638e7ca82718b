//! Golden bodies: nodes and allocators of different versions rely on what these tests pin.

use super::*;
use crate::exchange::{Answer, Ask, Grant, InFlight, Refusal, RefusalReason};
use proptest::prelude::*;

/// Checks that a value is written as `text`, and that `text` is read as the value.
fn golden<T>(value: &T, text: &str)
where
    T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(serde_json::to_string(value).expect("bodies are plain data"), text);
    assert_eq!(&serde_json::from_str::<T>(text).expect("our own text"), value);
}

#[test]
fn the_leases_request_is_pinned() {
    let rate = Ask { demand_milli: 450_000, ..Ask::default() };
    let plain = Ask { spent_total: 4_211, held: 300, want: 900, waiting: 2, ..rate };
    let lease = RateLease { number: 77, cap: 2, interval: Duration::from_millis(5) };
    let rate = RateClaim::Holds(lease);
    let slow = Ask { demand_milli: 1, shadow_refused: 6, largest: 2, lends_on: true, rate, ..Ask::default() };
    golden(
        &LeasesRequest {
            node: "checkout-7".to_owned(),
            session: 9_007_199_254_740_991,
            epoch: 7,
            seq: 12,
            rtt_ms: 3,
            asks: vec![AskBody::of("vendor/rest", None, plain), AskBody::of("export", Some("user-42"), slow)],
        },
        concat!(
            r#"{"node":"checkout-7","session":9007199254740991,"epoch":7,"seq":12,"rtt_ms":3,"asks":["#,
            r#"{"limit":"vendor/rest","spent_total":4211,"held":300,"want":900,"demand":450,"waiting":2},"#,
            r#"{"limit":"export","key":"user-42","spent_total":0,"held":0,"want":0,"demand":1,"waiting":0,"shadow_refused":6,"#,
            r#""largest":2,"lends_on":true,"rate":{"number":77,"cap":2,"interval_ns":5000000}}]}"#
        ),
    );
}

#[test]
fn the_leases_response_is_pinned() {
    let grant = Grant {
        kept: 300,
        permits: 550,
        term: Duration::from_millis(1_000),
        horizon: Duration::from_micros(499_001),
        ceiling: 9_000,
        ask_after: Duration::from_micros(249_001),
        retry_after: Some(Duration::from_nanos(1)),
        rate: Rate::Lent {
            lease: RateLease { number: 77, cap: 2, interval: Duration::from_millis(5) },
            credit: Duration::from_nanos(9),
            turn: true,
        },
        in_flight: None,
    };
    let refusal = Refusal { reason: RefusalReason::Quarantine, retry_after: Duration::from_secs(32) };
    let error = ErrorBody {
        code: code::LIMIT_UNKNOWN.to_owned(),
        field: Some("limit".to_owned()),
        detail: "there is no limit \"nope\"".to_owned(),
    };
    golden(
        &LeasesResponse {
            epoch: 7,
            session: 5,
            seq: 12,
            grants: vec![
                GrantBody::of("vendor/rest", None, Answer::Grant(grant)),
                GrantBody::of("export", Some("user-42"), Answer::Refusal(refusal)),
                GrantBody::wrong("nope", None, error),
            ],
        },
        concat!(
            r#"{"epoch":7,"session":5,"seq":12,"grants":["#,
            r#"{"limit":"vendor/rest","permits":550,"held":300,"term_ms":1000,"horizon_ms":500,"ceiling":9000,"#,
            r#""ask_after_ms":250,"retry_after_ms":1,"#,
            r#""rate":{"number":77,"cap":2,"interval_ns":5000000,"credit_ns":9,"turn":true}},"#,
            r#"{"limit":"export","key":"user-42","permits":0,"held":0,"term_ms":0,"#,
            r#""retry_after_ms":32000,"refused":"quarantine"},"#,
            r#"{"limit":"nope","permits":0,"held":0,"term_ms":0,"#,
            r#""error":{"code":"limit_unknown","field":"limit","detail":"there is no limit \"nope\""}}]}"#
        ),
    );
}

#[test]
fn leaving_is_pinned() {
    let spent = SpentBody {
        limit: "export".to_owned(),
        key: Some("user-42".to_owned()),
        spent_total: 3,
        running: None,
        held: Some(41),
        shadow_refused: 0,
    };
    golden(
        &LeaveRequest { session: 1, seq: 13, spent: vec![spent.clone()] },
        r#"{"session":1,"seq":13,"spent":[{"limit":"export","key":"user-42","spent_total":3,"held":41}]}"#,
    );
    let tried_out = SpentBody { shadow_refused: 7, ..spent };
    golden(&tried_out, r#"{"limit":"export","key":"user-42","spent_total":3,"held":41,"shadow_refused":7}"#);
    golden(&LeaveResponse { returned: 41, errors: vec![] }, r#"{"returned":41}"#);
}

/// Calls in flight are reported only where the limit caps them.
#[test]
fn what_is_in_flight_is_pinned() {
    let ask = Ask { spent_total: 9, held: 5, running: Some(4), unguarded: 3, busy: 2, ..Ask::default() };
    golden(
        &AskBody::of("a", None, ask),
        concat!(
            r#"{"limit":"a","spent_total":9,"held":5,"want":0,"demand":0,"waiting":0,"#,
            r#""running":4,"unguarded":3,"busy":2}"#
        ),
    );
    assert_eq!(AskBody::of("a", None, ask).ask(), ask);
    let left = SpentBody {
        limit: "a".to_owned(),
        key: None,
        spent_total: 9,
        running: Some(6),
        held: None,
        shadow_refused: 0,
    };
    golden(&left, r#"{"limit":"a","spent_total":9,"running":6}"#);
    let body = GrantBody { longest_ms: Some(120_000), hold: Some(7), ..GrantBody::<String>::default() };
    golden(&body, r#"{"limit":"","permits":0,"held":0,"term_ms":0,"longest_ms":120000,"hold":7}"#);
    let huge = AskBody { running: Some(1 << 53), ..AskBody::<String>::default() };
    assert_eq!(huge.out_of_range(), Some(("running", 1 << 53)));
}

#[test]
fn an_answer_survives_the_wire() {
    let grant = Grant {
        kept: 1,
        permits: 2,
        term: Duration::from_millis(33),
        horizon: Duration::from_millis(20),
        ceiling: 30,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: Rate::Nothing,
        in_flight: None,
    };
    let refusal = Refusal { reason: RefusalReason::Stopping, retry_after: Duration::from_millis(5) };
    let cap = |hold| Some(InFlight { longest: Duration::from_secs(120), hold });
    let caps = [None, cap(None), cap(Some(7))].map(|in_flight| Answer::Grant(Grant { in_flight, ..grant }));
    for answer in caps.into_iter().chain([Answer::Refusal(refusal)]) {
        assert_eq!(GrantBody::of("a", None, answer).answer(), Ok(answer));
    }
}

#[test]
fn unknown_fields_of_a_newer_version_are_ignored() {
    let text = r#"{"limit":"a","spent_total":1,"held":0,"want":5,"mood":"good"}"#;
    let body: AskBody = serde_json::from_str(text).expect("ignored");
    assert_eq!(body.ask(), Ask { spent_total: 1, want: 5, ..Ask::default() });
}

#[test]
fn numbers_that_are_no_permits_are_refused() {
    for bad in ["-1", "1.5", "1e400", "18446744073709551616", "\"10\"", "null", "NaN", "Infinity", "true"] {
        let text = format!(r#"{{"limit":"a","spent_total":0,"held":0,"want":{bad}}}"#);
        assert!(serde_json::from_str::<AskBody>(&text).is_err(), "{bad} was taken");
    }
    let huge = AskBody { want: 1 << 53, ..AskBody::<String>::default() };
    assert_eq!(huge.out_of_range(), Some(("want", 1 << 53)));
}

#[test]
fn what_is_said_of_a_rate_survives_the_wire() {
    let lease = RateLease { number: 77, cap: 2, interval: Duration::from_millis(5) };
    let let_go = RateClaim::LetGo { number: 77, credit: Duration::from_nanos(9) };
    for rate in [RateClaim::None, RateClaim::Holds(lease), let_go] {
        let ask = Ask { rate, ..Ask::default() };
        assert_eq!(AskBody::of("a", None, ask).ask(), ask);
    }
}

/// A good request, with an escape in a name.
const REQUEST: &str = concat!(
    r#"{"node":"node-1","session":5,"seq":12,"rtt_ms":3,"asks":[{"limit":"vendor/rest","spent_total":1,"held":2,"want":3},"#,
    r#"{"limit":"export","key":"user\u002d42","spent_total":9,"held":0,"want":1,"rate":{"number":77,"cap":2}}]}"#
);

proptest! {
    /// An allocator reads borrowed names where other readers own them: for any input, both read the same or nothing.
    #[test]
    fn what_lends_its_names_is_read_as_what_owns_them(
        at in 0..REQUEST.len(),
        byte in any::<u8>(),
        end in REQUEST.len() - 8..=REQUEST.len(),
    ) {
        let mut bytes = REQUEST.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.truncate(end);
        let owned = serde_json::from_slice::<LeasesRequest>(&bytes).ok();
        let text = std::str::from_utf8(&bytes).ok();
        let lent = text.and_then(|text| serde_json::from_str::<LeasesRequest<AskBody<Text<'_>>, Text<'_>>>(text).ok());
        let said = |body: serde_json::Result<String>| body.expect("bodies are plain data");
        prop_assert_eq!(
            lent.map(|body| said(serde_json::to_string(&body))),
            owned.map(|body| said(serde_json::to_string(&body)))
        );
    }
}
