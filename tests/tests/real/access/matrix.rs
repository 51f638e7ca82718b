//! The answer of each route, for each state of an identity and each way to connect. The table is published in
//! docs/access.md and covers every route of the allocator.

use super::desk::{Desk, Way, ask};
use scenarios::fleet::eventually;
use std::collections::BTreeSet;

/// The source that defines the routes.
const ROUTER: &str = include_str!("../../../../allocator/src/http/mod.rs");

const DOCUMENT: &str = include_str!("../../../../docs/access.md");

const LEASES: &str =
    r#"{"node":"a-1","session":7,"seq":1,"asks":[{"limit":"vendor","spent_total":0,"held":0,"want":1}]}"#;
const RULES: &str = r#"{"rules":[{"kind":"sliding_window","limit":600,"per":"60s","margin":"0s"}]}"#;

/// A request of the table.
struct Request {
    method: &'static str,
    path: &'static str,
    /// The route, as the router spells it.
    route: &'static str,
    body: &'static str,
    /// The name of the token that has the right, and the right itself.
    right: Option<(&'static str, &'static str)>,
}

const fn request(
    method: &'static str,
    path: &'static str,
    route: &'static str,
    body: &'static str,
    right: Option<(&'static str, &'static str)>,
) -> Request {
    Request { method, path, route, body, right }
}

const LEASE: Option<(&str, &str)> = Some(("a", "lease"));
const READ: Option<(&str, &str)> = Some(("reader", "read"));
const OPERATE: Option<(&str, &str)> = Some(("operator", "operate"));
const ADMIN: Option<(&str, &str)> = Some(("admin", "admin"));
const LIMIT: &str = "/v1/limits/{*rest}";

/// Requests that change least come first: the last column sends each with the right.
const REQUESTS: [Request; 25] = [
    request("GET", "/livez", "/livez", "", None),
    request("GET", "/healthz", "/healthz", "", None),
    request("GET", "/readyz", "/readyz", "", None),
    request("GET", "/", "/", "", None),
    request("GET", "/page/main.js", "/page/{file}", "", None),
    request("POST", "/v1/sign-out", "/v1/sign-out", "", None),
    request("POST", "/v1/leases", "/v1/leases", LEASES, LEASE),
    request("POST", "/v1/nodes/a-1/leave", "/v1/nodes/{*rest}", r#"{"session":7,"seq":9}"#, LEASE),
    request("GET", "/v1/events", "/v1/events", "", LEASE),
    request("GET", "/v1/whoami", "/v1/whoami", "", Some(("reader", "any identity"))),
    request("GET", "/v1/status", "/v1/status", "", READ),
    request("GET", "/v1/limits", "/v1/limits", "", READ),
    request("GET", "/v1/events/recent", "/v1/events/recent", "", READ),
    request("GET", "/v1/limits/vendor", LIMIT, "", READ),
    request("GET", "/v1/limits/vendor/pools", LIMIT, "", READ),
    request("GET", "/v1/limits/vendor/top", LIMIT, "", READ),
    request("GET", "/metrics", "/metrics", "", Some(("prometheus", "metrics"))),
    request("POST", "/v1/limits/vendor/top-up", LIMIT, r#"{"permits":1}"#, OPERATE),
    request("POST", "/v1/limits/vendor/pause", LIMIT, "{}", OPERATE),
    request("POST", "/v1/limits/vendor/resume", LIMIT, "{}", OPERATE),
    request("POST", "/v1/limits/vendor/nodes/a-1/block", LIMIT, "{}", OPERATE),
    request("DELETE", "/v1/limits/vendor/nodes/a-1/block", LIMIT, "", OPERATE),
    request("PUT", "/v1/limits/vendor", LIMIT, RULES, ADMIN),
    request("DELETE", "/v1/limits/vendor?confirm=true", LIMIT, "", ADMIN),
    request("POST", "/v1/sign-in", "/v1/sign-in", r#"{"token":"TOKEN"}"#, Some(("reader", "any identity"))),
];

/// States of an identity, one a column.
const STATES: [&str; 6] = ["none", "wrong", "expired", "revoked", "no right", "right"];

/// Returns the routes of the router, with the methods of each.
fn routes() -> BTreeSet<(String, String)> {
    let constants = [("LEASES_PATH", "/v1/leases"), ("EVENTS_PATH", "/v1/events")];
    let mut found = BTreeSet::new();
    let compact: String = ROUTER.split_whitespace().collect();
    for part in compact.split(".route(").skip(1) {
        let (path, rest) = part.split_once(',').expect("a path and its methods");
        let path = path.trim_matches('"');
        let path = constants.iter().find(|(name, _)| *name == path).map_or(path, |(_, path)| *path);
        let methods = rest.split(".route(").next().unwrap_or_default();
        for method in ["get", "put", "post", "delete"] {
            if methods.starts_with(&format!("{method}(")) || methods.contains(&format!(").{method}(")) {
                found.insert((path.to_owned(), method.to_uppercase()));
            }
        }
    }
    found
}

#[test]
fn the_table_has_each_route_of_the_router() {
    let asked =
        REQUESTS.iter().map(|request| (request.route.to_owned(), request.method.to_owned())).collect();
    assert_eq!(routes(), asked);
    assert!(routes().len() > 15, "{:?}", routes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_answers_as_the_document_says() {
    let desks = Way::ALL.map(Desk::new);
    let mut served = vec![];
    for desk in &desks {
        let revoked = desk.token("reader");
        let id = revoked.split('_').nth(1).expect("an id").to_owned();
        let expired = desk.expired("reader");
        let rights = ["a", "reader", "operator", "admin", "prometheus"].map(|name| (name, desk.token(name)));
        let none = desk.token("stranger");
        let allocator = desk.serve();
        let shows = desk.http(Some(&revoked));
        let url = format!("{}/v1/whoami", allocator.url);
        assert_eq!(ask(&shows, "GET", &url, "").await.status, 200, "the token is good before it is revoked");
        assert!(desk.token_command(&["revoke", &id]).status.success());
        eventually("the token is revoked", async || {
            (ask(&shows, "GET", &url, "").await.status == 401).then_some(())
        })
        .await;
        served.push((desk, allocator, revoked, expired, rights, none));
    }
    let mut table = format!(
        "| request | right | {} |\n| --- | --- |{}\n",
        STATES.join(" | "),
        " --- |".repeat(STATES.len())
    );
    for Request { method, path, body, right, .. } in REQUESTS {
        let mut row = format!("| `{method} {path}` | {} |", right.map_or("", |(_, right)| right));
        for state in STATES {
            let mut cells = vec![];
            for (desk, allocator, revoked, expired, rights, none) in &served {
                let wrong = format!("{}0", &revoked[..revoked.len() - 1]);
                let of = right.and_then(|(name, _)| rights.iter().find(|(other, _)| *other == name));
                let token = match state {
                    "none" => None,
                    "wrong" => Some(&wrong),
                    "expired" => Some(expired),
                    "revoked" => Some(revoked),
                    "no right" => Some(none),
                    _ => Some(of.map_or(none, |(_, token)| token)),
                };
                // The sign-in request has its token in the body.
                let (shown, body) = match body.contains("TOKEN") {
                    true => (None, body.replace("TOKEN", token.map_or("", String::as_str))),
                    false => (token, body.to_owned()),
                };
                let http = desk.http(shown.map(String::as_str));
                let answer = ask(&http, method, &format!("{}{path}", allocator.url), &body).await;
                assert!(
                    !answer.body.contains(revoked.rsplit_once('_').expect("a secret").1),
                    "{}",
                    answer.body
                );
                if answer.status == 401 {
                    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"lessor\"");
                }
                cells.push(answer.status.to_string());
            }
            let same = cells.iter().all(|cell| *cell == cells[0]);
            row.push_str(&format!(" {} |", if same { cells[0].clone() } else { cells.join(" · ") }));
        }
        table.push_str(&row);
        table.push('\n');
    }
    assert!(DOCUMENT.contains(&table), "docs/access.md should have:\n{table}");
}
