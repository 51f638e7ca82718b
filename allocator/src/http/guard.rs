//! What keeps other web sites out of an operator's browser: nothing is changed for a request that another site made it
//! send, no answer can be embedded elsewhere, and none that holds figures is kept. Programs that are no browsers send
//! none of these headers, and notice nothing.

use super::problem::Problem;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// Refuses to change anything for another site. There is no password that a browser could be tricked into using, but
/// there is the place it runs in, from which it may reach what the site cannot.
pub(super) async fn same_site(request: Request, next: Next) -> Response {
    match check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // Browsers say it of addresses that they trust, and pages cannot set it. It also holds behind a proxy that sends
    // another host on.
    let is_own = match (text(HeaderName::from_static("sec-fetch-site")), text(ORIGIN)) {
        (Some(site), _) => ["same-origin", "none"].contains(&site),
        (None, None) => true,
        (None, Some(origin)) => {
            let host = text(HOST).or(uri.authority().map(|authority| authority.as_str()));
            let from = origin.split_once("://").map(|(_, host)| host);
            from.is_some() && from == host
        }
    };
    if is_own {
        return Ok(());
    }
    let detail = "a page of another site asked for this: nothing is changed";
    Err(Problem::new(StatusCode::FORBIDDEN, "cross_site", detail))
}

/// Figures are of now, and for whoever asked.
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
            check(method, &Uri::from_static("/v1/limits/a/pause"), &headers.collect()).is_ok()
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
            assert!(ask(&Method::GET, &headers), "whoever looks changes nothing");
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
        assert!(!ask(&Method::POST, &[("origin", "http://box:7400")]), "nobody says where it went");
    }
}
