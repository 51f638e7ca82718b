//! Guards against other web sites in an operator's browser. A request that another site caused changes nothing. A
//! request under a name that is not this allocator's changes and shows nothing. No answer can be embedded elsewhere,
//! and no answer with figures is cached.

use super::problem::Problem;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lessor_ledger::rejection::quoted;
use lessor_protocol::push::{EVENTS_PATH, LISTENER_MARK};
use lessor_protocol::wire::LEASES_PATH;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Prefix of the paths under which a node speaks in its own name.
const NODES_PATH: &str = "/v1/nodes/";

/// Paths of health checks, which orchestrators ask under any name.
const HEALTH_PATHS: [&str; 3] = ["/livez", "/healthz", "/readyz"];

/// The header by which a browser says which site caused a request.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests under a foreign name, and changes that another site asks for.
pub(super) async fn own_site(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match refusal(&shared, request.method(), request.uri(), request.headers()) {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}

/// Returns the reason to refuse a request, if there is one.
pub(super) fn refusal(shared: &Shared, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let config = shared.config();
    misdirected(method, uri, headers, &config.server.hosts, config.auth.is_some())
        .or_else(|| cross_site(method, uri, headers))
}

/// Whether the request has a header that only browsers send.
fn is_of_browser(headers: &HeaderMap) -> bool {
    // Programs send a handful of headers: one walk over them costs less than two lookups.
    headers.keys().any(|name| *name == ORIGIN || *name == SEC_FETCH_SITE)
}

/// Refuses changes on behalf of another site. The allocator has no password that a browser could be tricked into using.
/// But the browser may run at a place from which it reaches the allocator, and the site does not.
fn cross_site(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    if method.is_safe() || !is_of_browser(headers) {
        return None;
    }
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // Browsers send `sec-fetch-site` to addresses that they trust, and pages cannot set it. The header also holds
    // behind a proxy that forwards another host.
    let is_own = match (text(&SEC_FETCH_SITE), text(&ORIGIN)) {
        (Some(site), _) => ["same-origin", "none"].contains(&site),
        (None, origin) => {
            let host = text(&HOST).or(uri.authority().map(|authority| authority.as_str()));
            let from = origin.and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
            from.is_some() && from == host
        }
    };
    if is_own {
        return None;
    }
    let detail = "a page of another site sent this request: nothing is changed";
    Some(Problem::new(StatusCode::FORBIDDEN, "cross_site", detail))
}

/// Refuses a request under a foreign name. A site may point its own name at this allocator. To a browser, that page and
/// the allocator are then one site, and its reads carry no mark that tells them from a program's. No site can own an
/// address or a name without a dot. Where identities are required, such a page has none to show, so its reads and
/// streams of events are refused anyway.
fn misdirected(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &BTreeSet<String>,
    asks_identity: bool,
) -> Option<Problem> {
    let path = uri.path();
    if method.is_safe() && (asks_identity || HEALTH_PATHS.contains(&path)) {
        return None;
    }
    // Nodes are programs, and find the allocator under any name. A browser marks its writes there, but not its reads.
    let (name, value) = LISTENER_MARK;
    let listens = || path == EVENTS_PATH && headers.get(name).is_some_and(|said| said == value);
    let is_of_node = path == LEASES_PATH || path.starts_with(NODES_PATH) || listens();
    if is_of_node && !is_of_browser(headers) {
        return None;
    }
    let said = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or_default());
    let stray = said.chain(uri.authority().map(Authority::as_str)).find(|host| !is_own(host, hosts))?;
    let detail = format!(
        "the request was sent to {}, which is no name of this allocator: use its address, or add the name to hosts \
         in [server]",
        quoted(stray)
    );
    Some(Problem::of_field(StatusCode::MISDIRECTED_REQUEST, "wrong_host", "host", detail))
}

fn is_own(said: &str, hosts: &BTreeSet<String>) -> bool {
    let Ok(authority) = said.parse::<Authority>() else { return false };
    let host = authority.host().to_ascii_lowercase();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_single = !host.contains('.') && !host.is_empty();
    address.parse::<IpAddr>().is_ok() || is_single || host.ends_with(".localhost") || hosts.contains(&host)
}

/// Marks answers as not to be cached, embedded or sniffed: figures are of this moment, and only for the client that
/// asked.
pub(super) async fn private(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_very_site_asks_for_is_done() {
        let ask = |method: &Method, headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            cross_site(method, &Uri::from_static("/v1/limits/a/pause"), &headers.collect()).is_none()
        };
        let host = ("host", "box:7400");
        assert!(ask(&Method::POST, &[host]), "no browser");
        for site in ["same-origin", "none"] {
            assert!(ask(&Method::POST, &[host, ("sec-fetch-site", site), ("origin", "http://proxy")]));
        }
        for site in ["cross-site", "same-site", "", "what"] {
            let headers = [host, ("sec-fetch-site", site), ("origin", "http://box:7400")];
            assert!(!ask(&Method::POST, &headers), "{site}");
            assert!(!ask(&Method::DELETE, &headers) && !ask(&Method::PUT, &headers), "{site}");
            assert!(ask(&Method::GET, &headers), "a GET changes nothing");
        }
        for (origin, is_own) in [
            ("http://box:7400", true),
            ("https://box:7400", true),
            ("http://box", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(ask(&Method::POST, &[host, ("origin", origin)]), is_own, "{origin}");
        }
        assert!(!ask(&Method::POST, &[("origin", "http://box:7400")]), "no header says where it went");
    }

    /// The bug: a site whose name leads to this allocator was taken for the allocator's own page.
    #[test]
    fn only_what_is_sent_to_a_name_of_this_allocator_is_done() {
        let hosts = BTreeSet::from(["lessor.example.com".to_owned()]);
        let ask = |path: &'static str, headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            misdirected(&Method::POST, &Uri::from_static(path), &headers.collect(), &hosts, false).is_none()
        };
        let pause = "/v1/limits/a/pause";
        for host in [
            "127.0.0.1:7400",
            "[::1]:7400",
            "10.1.2.3",
            "localhost:7400",
            "a.localhost",
            "allocator:7400",
            "LESSOR.example.com:80",
        ] {
            assert!(ask(pause, &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "example.com",
            "lessor.example.com.evil.example:7400",
            "",
            "a b",
            "127.0.0.1.evil.example",
        ] {
            assert!(!ask(pause, &[("host", host)]), "{host}");
            let of_browser =
                [("host", host), ("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")];
            assert!(!ask("/v1/leases", &of_browser) && !ask("/v1/nodes/a/leave", &of_browser), "{host}");
            assert!(ask("/v1/leases", &[("host", host)]), "a node finds it by any name: {host}");
        }
        assert!(!ask(pause, &[("host", "127.0.0.1"), ("host", "evil.example")]), "both are said");
        assert!(!ask("http://evil.example/v1/limits/a/pause", &[]), "as HTTP/2 says it");
        assert!(ask(pause, &[]), "a program may leave it out, a browser never does");
    }

    /// The bug: such a site could not change limits, but read all of them.
    #[test]
    fn only_what_is_sent_to_a_name_of_this_allocator_is_shown() {
        let hosts = BTreeSet::from(["lessor.example.com".to_owned()]);
        let look = |path: &'static str, host: &'static str, marks: &[&'static str], asks_identity| {
            let marks = marks.iter().map(|name| {
                let value = if *name == LISTENER_MARK.0 { LISTENER_MARK.1 } else { "same-origin" };
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let headers = marks.chain([(HOST, HeaderValue::from_static(host))]).collect();
            misdirected(&Method::GET, &Uri::from_static(path), &headers, &hosts, asks_identity).is_none()
        };
        let marks = ["sec-fetch-site"];
        let paths = ["/", "/page/main.js", "/v1/limits", "/v1/status", "/metrics", "/v1/events"];
        for path in paths.into_iter().chain(["/v1/events/recent", "/v1/whoami", "/v1/limits/a"]) {
            for host in ["127.0.0.1:7400", "[::1]", "localhost", "allocator:7400", "lessor.example.com"] {
                assert!(look(path, host, &[], false) && look(path, host, &marks, false), "{path} {host}");
            }
            // A browser adds no mark to plain-text requests to another machine.
            for marks in [&[][..], &marks] {
                assert!(!look(path, "evil.example:7400", marks, false), "{path}");
                assert!(look(path, "evil.example:7400", marks, true), "{path}: it has no identity to show");
            }
        }
        for path in HEALTH_PATHS {
            assert!(look(path, "evil.example", &[], false) && look(path, "evil.example", &marks, false));
        }
        let node = [LISTENER_MARK.0];
        assert!(look("/v1/events", "lessor.internal:7400", &node, false), "a node listens by any name");
        assert!(
            !look("/v1/events", "evil.example", &[node[0], marks[0]], false),
            "a browser says that it asks"
        );
        assert!(!look("/v1/limits", "evil.example", &node, false), "it is for events alone");
    }
}
