//! Errors of whole requests, as RFC 9457 `application/problem+json`. Handlers return a [`Problem`], which becomes a
//! response here, in one place.

use crate::journal::NotDurable;
use crate::shared::TooManyWait;
use crate::uplink::Unpublished;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lessor_ledger::registry::Unfit;
use lessor_ledger::rejection::{AskRejection, Reason, quoted};
use lessor_protocol::wire::code;
use serde_json::{Map, Value, json};

/// Longest piece of a field's path that is shown, in characters.
const PATH_MAX: usize = 100;

/// What went wrong with a request. Nothing has changed, unless the store failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    field: Option<String>,
    detail: String,
    /// Further members of the body, for machines.
    more: Map<String, Value>,
    leaves_open: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, code, field: None, detail: detail.into(), more: Map::new(), leaves_open: false }
    }

    /// The body is not JSON of the expected form.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// The field at `path` is there twice: only the sender knows which one it meant.
    pub(super) fn twice(path: &str) -> Self {
        let detail = format!("{} is there twice: send it once", quoted(path));
        let path = path.chars().take(PATH_MAX).collect();
        Problem { field: Some(path), ..Problem::malformed(detail) }
    }

    /// `field` is missing, of the wrong type, or out of range.
    pub(super) fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Problem::of_field(StatusCode::UNPROCESSABLE_ENTITY, code::INVALID, field, detail)
    }

    /// A problem with one field.
    pub(super) fn of_field(
        status: StatusCode,
        code: &'static str,
        field: &str,
        detail: impl Into<String>,
    ) -> Self {
        Problem { field: Some(field.to_owned()), ..Problem::new(status, code, detail) }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(super) fn wrong_method() -> Self {
        let detail = "this path does not take this method: see the header Allow";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    pub(super) fn timeout(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
    }

    pub(super) fn wrong_media(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    }

    pub(super) fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }

    /// A decision is in force, and the store cannot keep it.
    pub(super) fn not_kept() -> Self {
        let detail = "the change is in force, but the store cannot be written: it is lost if the allocator ends before the \
                      store works again. Do not repeat it";
        Problem::unavailable("store_failing", detail).with("in_force", Value::Bool(true))
    }

    /// Adds a member.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Whether the fault is the server's.
    pub(super) fn is_ours(&self) -> bool {
        self.status.is_server_error()
    }

    /// Whether a change may have been made all the same.
    pub(super) fn leaves_open(&self) -> bool {
        self.leaves_open
    }

    /// Returns the stable code.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }
}

impl From<NotDurable> for Problem {
    fn from(_: NotDurable) -> Self {
        let detail = "the store cannot be written: nothing new is lent until it can";
        Problem::unavailable("store_failing", detail)
    }
}

impl From<TooManyWait> for Problem {
    fn from(full: TooManyWait) -> Self {
        Problem::unavailable("answers_full", full.to_string())
    }
}

impl From<Unfit> for Problem {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Full(full) => Problem::new(StatusCode::CONFLICT, "limits_full", full.to_string()),
            Unfit::Parent(detail) => Problem::invalid("parent", detail),
            Unfit::Keyed(_) => Problem::invalid("keyed", unfit.to_string()),
        }
    }
}

impl From<Unpublished> for Problem {
    fn from(unpublished: Unpublished) -> Self {
        match unpublished {
            Unpublished::SuspensionsFull(full) => {
                Problem::new(StatusCode::CONFLICT, "blocked_full", full.to_string())
            }
            Unpublished::OverridesFull(full) => {
                Problem::new(StatusCode::CONFLICT, "limits_full", full.to_string())
            }
            Unpublished::Crowded => Problem::unavailable("decisions_full", unpublished.to_string()),
            Unpublished::NoTurn => Problem::unavailable("store_failing", unpublished.to_string()),
            Unpublished::Unreachable(_) => {
                let problem = Problem::unavailable("store_failing", unpublished.to_string());
                Problem { leaves_open: true, ..problem }
            }
        }
    }
}

impl From<AskRejection> for Problem {
    fn from(wrong: AskRejection) -> Self {
        Problem {
            status: if wrong.reason == Reason::LimitUnknown {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::UNPROCESSABLE_ENTITY
            },
            code: wrong.reason.code(),
            field: wrong.field,
            detail: wrong.detail,
            more: Map::new(),
            leaves_open: false,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        if let Some(field) = self.field {
            body["field"] = Value::String(field);
        }
        for (name, value) in self.more {
            body[name] = value;
        }
        let media = [(CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, media, body.to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"lessor\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&self.status) {
            // In seconds: a full or failing part may have recovered by then.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
