//! Bad inputs of every kind, against the routes and a real allocator: each is answered by the right problem, leaves the
//! books untouched and the allocator alive. There are no sockets: those are in the server's tests.

mod admin;
mod entries;
mod looks;
mod many;
mod page;
mod regions;
mod requests;
mod strict;
mod written;

use super::*;
use crate::samples;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::convert::identity;

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "sliding_window", limit = 1000, per = "30s" }]

[[limit]]
name = "export"
keyed = true
keys_max = 2000
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1h" }]

[[limit]]
name = "route/*"
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1h" }]
"#;

/// The wording of errors about a number.
const NUMBER: &str = "expected a whole number from 0 to 9007199254740991";

/// An allocator and its routes.
struct App {
    shared: Arc<Shared>,
    service: Service,
}

/// An answer.
struct Reply {
    status: StatusCode,
    media: String,
    allow: Option<String>,
    text: String,
}

impl App {
    fn new(fresh: bool) -> Self {
        App::of(CONFIG, fresh)
    }

    fn of(config: &str, fresh: bool) -> Self {
        let shared = Arc::new(Shared::new(samples::config(config), fresh));
        App { service: Service::new(shared.clone(), Part::Whole), shared }
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.service.answer(request, identity).await.expect("routes do not fail");
        let (media, allow) = {
            let header = |name| {
                let value = response.headers().get(name)?;
                Some(value.to_str().expect("our headers are text").to_owned())
            };
            (header("content-type").unwrap_or_default(), header("allow"))
        };
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("our own body");
        let text = String::from_utf8(body.to_vec()).expect("our bodies are text");
        Reply { status, media, allow, text }
    }

    async fn get(&self, path: &str) -> Reply {
        let request = Request::get(path).body(Body::empty());
        self.send(request.expect("a request")).await
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        let request = Request::post(path).header("content-type", "application/json").body(body.into());
        self.send(request.expect("a request")).await
    }

    /// Sends `asks` in an exchange that succeeds, and returns their answers.
    async fn lease(&self, session: u64, seq: u64, asks: Value) -> Vec<Value> {
        let body = json!({ "node": "node-1", "session": session, "seq": seq, "asks": asks });
        let reply = self.post("/v1/leases", body.to_string()).await;
        assert_eq!((reply.status, reply.media.as_str()), (StatusCode::OK, "application/json"));
        reply.json()["grants"].as_array().expect("a list").clone()
    }

    /// Returns all pools in their present state.
    async fn books(&self) -> String {
        let rest = self.get("/v1/limits/vendor/rest/pools").await;
        let export = self.get("/v1/limits/export/pools?count=1000").await;
        assert_eq!((rest.status, export.status), (StatusCode::OK, StatusCode::OK));
        format!("{}\n{}", rest.text, export.text)
    }
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect(&self.text)
    }

    /// Checks that the answer is a problem, and returns its code, field and detail.
    #[track_caller]
    fn problem(&self, status: u16) -> (String, String, String) {
        let body = self.json();
        assert_eq!(
            (self.status.as_u16(), self.media.as_str()),
            (status, "application/problem+json"),
            "{body}"
        );
        assert_eq!((&body["type"], &body["status"]), (&json!("about:blank"), &json!(status)));
        assert_eq!(body["title"], json!(self.status.canonical_reason().expect("a usual status")));
        assert!(self.text.len() < 1_000, "nothing is echoed at length: {} bytes", self.text.len());
        let member = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (member("code"), member("field"), member("detail"))
    }
}

/// One good ask.
fn ask(want: u64) -> Value {
    json!({ "limit": "vendor/rest", "spent_total": 0, "held": 0, "want": want, "waiting": want })
}

/// The bug: an allocator that was restarted lent to a session of its earlier life. The node did not use the answer, so
/// what was lent burned.
#[tokio::test]
async fn a_session_of_another_epoch_is_told_the_epoch_and_lent_nothing() {
    let app = App::new(true);
    let epoch = app.shared.with(|registry, _| registry.epoch());
    let said = async |epoch: u64, seq: u64| {
        let asks =
            json!([ask(10), { "limit": "export", "key": "new", "spent_total": 0, "held": 0, "want": 1 }]);
        let body = json!({ "node": "node-1", "session": 1, "epoch": epoch, "seq": seq, "asks": asks });
        let reply = app.post("/v1/leases", body.to_string()).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        reply.json()
    };
    let before = app.books().await;
    let told = said(epoch ^ 1, 1).await;
    assert_eq!(told, json!({ "epoch": epoch, "session": 1, "seq": 1, "grants": [] }));
    assert_eq!(app.books().await, before, "no book has changed, and no pool was made");
    for (epoch, seq) in [(0, 2), (epoch, 3)] {
        assert_eq!(said(epoch, seq).await["grants"].as_array().map(Vec::len), Some(2), "{epoch}");
    }
}

#[tokio::test]
async fn a_node_leases_renews_and_leaves() {
    let app = App::new(true);
    let grants = app.lease(1, 1, json!([ask(10)])).await;
    assert_eq!((&grants[0]["permits"], &grants[0]["term_ms"]), (&json!(10), &json!(1_000)));
    let renewal = json!([{ "limit": "vendor/rest", "spent_total": 4, "held": 6, "want": 1, "demand": 3 }]);
    let grants = app.lease(1, 2, renewal).await;
    assert_eq!((&grants[0]["permits"], &grants[0]["held"]), (&json!(1), &json!(6)));
    let goodbye =
        json!({ "session": 1, "seq": 3, "spent": [{ "limit": "vendor/rest", "spent_total": 5, "held": 6 }] });
    for node in ["node-1", "node%2D1"] {
        let reply = app.post(&format!("/v1/nodes/{node}/leave"), goodbye.to_string()).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        let returned = if node == "node-1" { 6 } else { 0 };
        assert_eq!(reply.json(), json!({ "returned": returned }));
    }
    let view = &app.get("/v1/limits/vendor%2Frest/pools").await.json()["pools"][0];
    assert_eq!((&view["spent"], &view["returned"], &view["outstanding"]), (&json!(5), &json!(6), &json!(0)));
}

/// The size limit of a body leaves room for as many asks as a node may send.
#[tokio::test]
async fn a_thousand_asks_of_the_longest_kind_fit_in_a_body() {
    let app = App::new(true);
    let largest = lessor_protocol::PERMITS_MAX;
    let asks: Vec<Value> = (0..1_000)
        .map(|n| {
            json!({
                "limit": "l".repeat(128), "key": format!("{n:\"<256}"), "spent_total": largest,
                "held": largest, "want": largest, "demand": largest, "waiting": largest,
            })
        })
        .collect();
    let body = json!({ "node": "n".repeat(128), "session": largest, "seq": largest, "asks": asks });
    let body = body.to_string();
    assert!(body.len() > 700_000, "quotes in keys take two bytes each: {} bytes", body.len());
    let reply = app.post("/v1/leases", body).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.json()["grants"].as_array().map(Vec::len), Some(1_000));
}
