//! The page for operators at `/`: files of `page/`, embedded in the binary as they are. The page asks the same routes
//! as every other client, and nothing outside.

use super::problem::Problem;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS};
use axum::response::{IntoResponse as _, Response};

/// The content security policy: nothing from elsewhere, nothing inline, in no frame. No script can turn text into
/// markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The files: the end of the path, the media type, the content.
const FILES: [(&str, &str, &str); 18] = [
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("page.css", STYLE, include_str!("page/page.css")),
    ("table.css", STYLE, include_str!("page/table.css")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("allocator.js", SCRIPT, include_str!("page/allocator.js")),
    ("actions.js", SCRIPT, include_str!("page/actions.js")),
    ("change.js", SCRIPT, include_str!("page/change.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("events.js", SCRIPT, include_str!("page/events.js")),
    ("figures.js", SCRIPT, include_str!("page/figures.js")),
    ("limit.js", SCRIPT, include_str!("page/limit.js")),
    ("list.js", SCRIPT, include_str!("page/list.js")),
    ("plot.js", SCRIPT, include_str!("page/plot.js")),
    ("sign.js", SCRIPT, include_str!("page/sign.js")),
    ("words.js", SCRIPT, include_str!("page/words.js")),
    ("uplot.min.js", SCRIPT, include_str!("page/uplot/uplot.min.js")),
    ("uplot.min.css", STYLE, include_str!("page/uplot/uplot.min.css")),
    ("uplot.LICENSE", PLAIN, include_str!("page/uplot/LICENSE")),
];

/// `GET /`
pub(super) async fn index() -> Response {
    of("text/html; charset=utf-8", include_str!("page/index.html"))
}

/// `GET /page/{file}`
pub(super) async fn file(path: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let name = path.map(|Path(name)| name).unwrap_or_default();
    let file = FILES.iter().find(|(known, ..)| *known == name);
    let (_, media, text) = file.ok_or_else(|| Problem::not_found("the page has no such file"))?;
    Ok(of(media, text))
}

fn of(media: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, media),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}
