//! Answers that a client must not accept, made by a proxy from true ones. Each has one mistake, so a test shows which
//! of them a client falls for. No mistake is such that no client could notice it.

use super::message::Message;
use lessor_protocol::{PERMITS_MAX, TERM_MAX};
use serde_json::{Value, json};

/// Bytes that are more than any answer may have.
const OVERSIZED: usize = 10 << 20;

/// Bytes that are more than a line of a log should have.
const LONG: usize = 1 << 20;

/// Declares what may be wrong with an answer, and lists it in `ALL`.
macro_rules! malformed {
    ($($(#[$doc:meta])* $variant:ident,)*) => {
        /// What is wrong with an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Malformed { $($(#[$doc])* $variant,)* }

        impl Malformed {
            /// All variants.
            pub const ALL: [Malformed; [$(Malformed::$variant),*].len()] = [$(Malformed::$variant),*];
        }
    };
}

malformed! {
    /// Bytes that are no HTTP.
    Noise,
    /// A head without an end.
    EndlessHead,
    /// The answer breaks off in the middle of its body, and the connection is closed.
    BrokenOff,
    /// Half of the JSON, sent as if it were all.
    HalfOfJson,
    /// The true answer after ten megabytes of blanks.
    Oversized,
    /// A hundred thousand open brackets.
    Nested,
    /// An HTML page from an intermediary.
    Page,
    /// The true answer as a 500.
    Failure,
    /// A redirection to a path that does not exist.
    Redirection,
    /// No content.
    Nothing,
    /// A megabyte of text where a number belongs.
    LongText,
    /// A word that contains line breaks and what looks like a line of a log.
    Forgery,
    /// The grants of another limit.
    OtherLimit,
    /// The answer to the ask before.
    OtherAsk,
    /// Each grant twice.
    TwiceTheGrants,
    /// No grant at all.
    NoGrants,
    /// A term below zero.
    NegativeTerm,
    /// More permits than a number can hold.
    Overflow,
    /// One permit more than was wanted.
    MoreThanWanted,
    /// The largest number of permits that the protocol has.
    FarMoreThanWanted,
    /// One permit more counts as held than the client claimed.
    MoreThanHeld,
    /// A term longer than any lease.
    LongTerm,
    /// The client is told not to ask again for thirty thousand years.
    Silence,
    /// An error which says that the client's totals are wrong.
    TotalsWrong,
    /// An error which says that a newer ask was answered already.
    Stale,
}

/// How a client takes a malformed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The exchange failed: this is no answer.
    Failed,
    /// The exchange succeeded and brought nothing, because the answer cannot be true.
    Disbelieved,
    /// The allocator does not believe the client, which begins a new session.
    Disputed,
    /// The client is refused for a reason that it does not know, as from a later version, and waits.
    Refused,
}

impl Malformed {
    /// The verdict that a client should reach.
    pub fn verdict(self) -> Verdict {
        use Malformed::{
            FarMoreThanWanted, LongTerm, MoreThanHeld, MoreThanWanted, Silence, Stale, TotalsWrong,
        };
        if [MoreThanWanted, FarMoreThanWanted, MoreThanHeld, LongTerm, Silence].contains(&self) {
            Verdict::Disbelieved
        } else if [TotalsWrong, Stale].contains(&self) {
            Verdict::Disputed
        } else if self == Malformed::Forgery {
            Verdict::Refused
        } else {
            Verdict::Failed
        }
    }

    /// Returns the bytes that the client receives instead of `answer` to `request`, and whether the connection ends
    /// with them.
    pub fn spoil(self, request: &Message, answer: &Message) -> (Vec<u8>, bool) {
        let body = &answer.body;
        let said = |status: &str, media: &str, body: &[u8]| Message::answer(status, media, body).bytes();
        let ok = |body: &[u8]| said("200 OK", "application/json", body);
        let changed = |change: &dyn Fn(&mut Value, &Value)| ok(&change_grants(request, body, change));
        let bytes = match self {
            Malformed::Noise => (0..=255).cycle().take(LONG / 16).collect(),
            Malformed::EndlessHead => format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(LONG)).into_bytes(),
            Malformed::BrokenOff => answer.bytes()[..answer.head.len() + body.len() / 2].to_vec(),
            Malformed::HalfOfJson => ok(&body[..body.len() / 2]),
            Malformed::Oversized => ok(&[&vec![b' '; OVERSIZED], body.as_slice()].concat()),
            Malformed::Nested => ok(&vec![b'['; 100_000]),
            Malformed::Page => said("200 OK", "text/html", b"<!doctype html>\n<p>Please sign in.\n"),
            Malformed::Failure => said("500 Internal Server Error", "application/json", body),
            Malformed::Redirection => {
                let moved =
                    "HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n";
                moved.into()
            }
            Malformed::Nothing => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            Malformed::LongText => ok(format!("{{\"epoch\":\"{}\"}}", "x".repeat(LONG)).as_bytes()),
            Malformed::Forgery => {
                changed(&|grant, _| grant["refused"] = json!("no\n\u{1b}[31mERROR all is lost"))
            }
            Malformed::OtherLimit => changed(&|grant, _| grant["limit"] = json!("another")),
            Malformed::OtherAsk => ok(&earlier(body)),
            Malformed::TwiceTheGrants => ok(&change(body, |grants| grants.extend(grants.clone()))),
            Malformed::NoGrants => ok(&change(body, Vec::clear)),
            Malformed::NegativeTerm => changed(&|grant, _| grant["term_ms"] = json!(-5)),
            Malformed::Overflow => changed(&|grant, _| grant["permits"] = json!(1e30)),
            Malformed::MoreThanWanted => {
                changed(&|grant, ask| grant["permits"] = json!(number(ask, "want") + 1))
            }
            Malformed::FarMoreThanWanted => changed(&|grant, _| grant["permits"] = json!(PERMITS_MAX)),
            Malformed::MoreThanHeld => changed(&|grant, ask| grant["held"] = json!(number(ask, "held") + 1)),
            Malformed::LongTerm => {
                changed(&|grant, _| grant["term_ms"] = json!(TERM_MAX.as_millis() as u64 + 1))
            }
            Malformed::Silence => {
                changed(&|grant, _| grant["ask_after_ms"] = json!(1_000_000_000_000_000u64))
            }
            Malformed::TotalsWrong => changed(&|grant, _| *grant = wrong(grant, "totals_wrong")),
            Malformed::Stale => changed(&|grant, _| *grant = wrong(grant, "stale_sequence")),
        };
        (bytes, matches!(self, Malformed::BrokenOff | Malformed::Noise))
    }
}

/// Returns `body` with each grant changed, in view of the ask that it answers.
fn change_grants(request: &Message, body: &[u8], change_one: &dyn Fn(&mut Value, &Value)) -> Vec<u8> {
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let asks = asked["asks"].as_array().cloned().unwrap_or_default();
    change(body, |grants| grants.iter_mut().zip(&asks).for_each(|(grant, ask)| change_one(grant, ask)))
}

/// Returns `body` with its list of grants changed. A body without such a list stays as it is.
fn change(body: &[u8], change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(grants) = answer.get_mut("grants").and_then(Value::as_array_mut) {
        change(grants);
    }
    answer.to_string().into_bytes()
}

/// Returns `body` as the answer to the ask before.
fn earlier(body: &[u8]) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(body).unwrap_or_default();
    answer["seq"] = json!(answer["seq"].as_u64().unwrap_or_default().saturating_sub(1));
    answer.to_string().into_bytes()
}

fn number(ask: &Value, field: &str) -> u64 {
    ask[field].as_u64().expect("the client says a number")
}

fn wrong(grant: &Value, code: &str) -> Value {
    let error = json!({ "code": code, "detail": "so they say" });
    json!({ "limit": grant["limit"], "permits": 0, "term_ms": 0, "error": error })
}
