//! Headers that vendors send, and what is read from them.

use super::*;
use http::HeaderValue;
use lessor_protocol::Observed;
use lessor_protocol::wire::ObservedBody;

const SECOND: Duration = Duration::from_secs(1);

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    headers
}

fn read(status: u16, lines: &[(&str, &str)]) -> RateLimitHeaders {
    let status = StatusCode::from_u16(status).expect("a status");
    RateLimitHeaders::read(status, &headers(lines), &HeaderNames::default())
}

fn left(permits: u64, seconds: u64) -> Option<Left> {
    Some(Left { permits, lasts: Some(Duration::from_secs(seconds)).filter(|_| seconds > 0) })
}

fn policies(all: &[(u64, u64)]) -> [Option<Announced>; ANNOUNCED_MAX] {
    let mut announced = [None; ANNOUNCED_MAX];
    for (place, (limit, per)) in announced.iter_mut().zip(all) {
        *place = Some(Announced { limit: *limit, per: Some(Duration::from_secs(*per)).filter(|_| *per > 0) });
    }
    announced
}

#[test]
fn an_answer_like_any_other_says_nothing() {
    assert!(read(200, &[]).is_empty());
    assert!(read(200, &[("content-type", "text/plain"), ("retry-after", "9")]).is_empty());
    assert!(read(503, &[("content-type", "text/plain")]).is_empty(), "any server may be down");
}

#[test]
fn the_fields_of_the_draft_are_read() {
    let headers =
        read(200, &[("ratelimit", "\"default\";r=50;t=30"), ("ratelimit-policy", "\"default\";q=100;w=60")]);
    assert_eq!((headers.left, headers.announced), (left(50, 30), policies(&[(100, 60)])));
    assert!(!headers.refused);
    // Several policies in two fields, one of which counts something else: the tightest counts.
    let headers = read(
        200,
        &[
            ("ratelimit", "\"perhr\";r=999, \"permin\" ;r=4;t=7".replace(" ;", ";").as_str()),
            ("ratelimit", "\"bytes\";r=1;qu=\"content-bytes\";t=1"),
            ("ratelimit-policy", "\"permin\";q=50;w=60,\"perhr\";q=1000;w=3600"),
            ("ratelimit-policy", "\"peruser\";q=65535;qu=\"content-bytes\";w=10;pk=:sdfjLJUOUH==:"),
            ("ratelimit-policy", "token;q=7;acme-burst=?1;w=0"),
        ],
    );
    assert_eq!(headers.left, left(4, 7));
    assert_eq!(headers.announced, policies(&[(50, 60), (1_000, 3_600), (7, 0)]));
}

#[test]
fn what_is_malformed_is_passed_over_whole() {
    for wrong in [
        "",
        ",",
        "\"a\";r=5,",
        "\"a",
        "\"a\";r=5 \"b\";r=1",
        "\"a\";R=5",
        "\"a\";r=",
        "5;;r=1",
        "\"a\";r=1,é",
        "\"a\";r=1;t=\"x",
    ] {
        assert_eq!(read(200, &[("ratelimit", wrong)]).left, None, "{wrong}");
    }
    for wrong in [
        "\"a\"",
        "\"a\";r=-5",
        "\"a\";r=1.5",
        "\"a\";r=\"5\"",
        "\"a\";r=9007199254740992",
        "\"a\";r=99999999999999999999",
    ] {
        assert_eq!(read(200, &[("ratelimit", wrong)]).left, None, "{wrong}");
    }
    // One malformed line invalidates the whole field.
    assert_eq!(read(200, &[("ratelimit", "\"a\";r=5"), ("ratelimit", "\"b\";r=")]).left, None);
}

#[test]
fn the_older_headers_are_read_wherever_they_are() {
    for stem in ["ratelimit", "x-ratelimit", "X-Rate-Limit"] {
        let [limit, remaining, reset] = ["limit", "remaining", "reset"].map(|part| format!("{stem}-{part}"));
        let headers = read(200, &[(&limit, "100, 100;w=60"), (&remaining, "0"), (&reset, "12")]);
        assert_eq!((headers.left, headers.announced), (left(0, 12), policies(&[(100, 0)])), "{stem}");
    }
    let names = HeaderNames::default().with(
        HeaderName::from_static("acme-limit"),
        HeaderName::from_static("acme-left"),
        HeaderName::from_static("acme-until"),
    );
    let said = headers(&[("acme-left", "3"), ("acme-until", "6m0.5s"), ("x-ratelimit-remaining", "9")]);
    let headers = RateLimitHeaders::read(StatusCode::OK, &said, &names);
    assert_eq!(headers.left, Some(Left { permits: 3, lasts: Some(Duration::from_millis(360_500)) }));
    assert_eq!(
        RateLimitHeaders::read(StatusCode::OK, &said, &HeaderNames::none()),
        RateLimitHeaders::default()
    );
    // The fields of the draft come first.
    let both = [("ratelimit", "\"a\";r=5"), ("x-ratelimit-remaining", "9")];
    assert_eq!(read(200, &both).left, left(5, 0));
}

#[test]
fn an_instant_is_believed_by_the_clock_of_the_vendor_that_says_it() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let said = [("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "784111807"), date];
    assert_eq!(read(200, &said).left, left(7, 30));
    assert_eq!(read(200, &said[..2]).left, left(7, 0), "without a date the instant is unknown");
    let said = [("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "784111807000"), date];
    assert_eq!(read(200, &said).left, left(7, 30));
    let retry = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
    assert_eq!(read(429, &[retry, date]).wait, Some(30 * SECOND));
    assert_eq!(read(429, &[retry]).wait, None);
    let past = [("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), date];
    assert_eq!(read(429, &past).wait, Some(Duration::ZERO));
}

#[test]
fn a_refusal_says_how_long_if_anything_does() {
    let check = |status, lines: &[(&str, &str)], refused, wait: Option<u64>| {
        let headers = read(status, lines);
        assert_eq!((headers.refused, headers.wait), (refused, wait.map(Duration::from_secs)), "{lines:?}");
    };
    check(429, &[], true, None);
    check(429, &[("retry-after", "7")], true, Some(7));
    check(503, &[("retry-after", "7")], true, Some(7));
    check(429, &[("retry-after", "soon")], true, None);
    check(429, &[("retry-after", "-1")], true, None);
    check(429, &[("ratelimit", "\"a\";r=0;t=9")], true, Some(9));
    check(429, &[("ratelimit", "\"a\";r=0;t=9"), ("retry-after", "3")], true, Some(3));
    check(429, &[("ratelimit", "\"a\";r=5;t=9")], true, None);
    check(500, &[("retry-after", "7")], false, None);
}

#[test]
fn an_answer_out_of_a_cache_says_nothing() {
    assert!(read(200, &[("ratelimit", "\"a\";r=0;t=9"), ("age", "3")]).is_empty());
    assert!(!read(200, &[("ratelimit", "\"a\";r=0;t=9"), ("age", "0")]).is_empty());
}

proptest::proptest! {
    /// For any text, nothing panics and no number exceeds what the wire carries.
    #[test]
    fn no_header_does_any_harm(
        status in 100u16..600,
        value in "[ -~\t]{0,60}|\"a\";[qr]=[0-9]{1,15};[wt]=[0-9]{1,15}",
        name in 0usize..7,
    ) {
        let name = ["ratelimit", "ratelimit-policy", "retry-after", "x-ratelimit-reset", "x-ratelimit-remaining",
            "x-ratelimit-limit", "date"][name];
        let headers = read(status, &[(name, &value), ("x-ratelimit-remaining", "1")]);
        let permits = headers.left.map_or(0, |left| left.permits);
        let limits = headers.announced.iter().flatten().map(|it| it.limit);
        proptest::prop_assert!(limits.chain([permits]).all(|number| number <= PERMITS_MAX));
        let observed = Observed { left: headers.left, announced: headers.announced, ..Observed::default() };
        let told = ObservedBody::of(&observed);
        let windows = told.announced.iter().filter_map(|it| it.per_ms);
        proptest::prop_assert!(windows.chain(told.left_lasts_ms).all(|millis| millis <= PERMITS_MAX));
    }

    #[test]
    fn what_looks_like_a_list_is_one_or_none(value in "(\"[a-z ]{0,3}\"|[a-z*]{1,3}|5)(;[a-z]{1,2}(=(-?[0-9.]{1,4}|\"[ -~]{0,3}\"|:[a-z]*:|\\?[0-2]))?){0,3}[, ;\"]{0,2}") {
        let all: Vec<_> = fields::items(&value).take(100).collect();
        proptest::prop_assert!(!all.is_empty() && all.len() < 100);
    }
}
