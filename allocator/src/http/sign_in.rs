//! Sign-in and sign-out of the page, and the rights of an identity. The page keeps its token in a cookie that no script
//! can read.

use super::decider::was_refused;
use super::explain::{Kind, Shape, read};
use super::problem::Problem;
use super::visitor::COOKIE_NAME;
use super::{body, json};
use crate::access::{Shown, Unidentified, Visitor};
use crate::audit::{NO_IDENTITY, Origin};
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Response};
use lessor_access::{Patterns, Role};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How long a browser stays signed in, in seconds: one shift.
const SIGNED_IN_SECONDS: u64 = 12 * 60 * 60;

const SIGN_IN: Shape = &[("token", Kind::Text)];

#[derive(Deserialize)]
struct SignIn {
    token: String,
}

/// `POST /v1/sign-in` with `{"token": "…"}`: sets the cookie with that token.
pub(super) async fn sign_in(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let origin = request.extensions().get::<Origin>().cloned().unwrap_or_default();
    let body = body::of_stranger(&shared, request).await?;
    let SignIn { token } = read(&body, SIGN_IN)?;
    let Some(access) = shared.access() else {
        let detail = "this allocator requires no identity: there is nothing to sign in to";
        return Err(Problem::new(StatusCode::CONFLICT, "open", detail));
    };
    let token = token.trim();
    // No valid token has a character that would end the cookie.
    let known = access.visitor(Shown { token: Some(token), peer: None }, Origin::default());
    if let Err(unidentified) = known {
        if unidentified == Unidentified::Unproven {
            shared.metrics().refused("unauthenticated");
            was_refused(&shared, NO_IDENTITY.to_owned(), origin, None, Map::new());
        }
        return Err(unidentified.into());
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie(token, SIGNED_IN_SECONDS))]).into_response())
}

/// `POST /v1/sign-out`: removes the cookie.
pub(super) async fn sign_out() -> Response {
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie("", 0))]).into_response()
}

/// Makes the cookie. Browsers send it to this allocator alone, in no request of another site, and in plain text only to
/// their own machine.
fn cookie(token: &str, seconds: u64) -> String {
    format!("{COOKIE_NAME}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict; Secure")
}

/// `GET /v1/whoami`: the identity of a request, and its rights.
pub(super) async fn whoami(visitor: Visitor) -> Response {
    let Visitor::Known(known) = &visitor else {
        return json(json!({ "identity": null, "roles": null }).to_string());
    };
    let roles: Vec<Value> = known.rights.roles().iter().map(|role| shown(role)).collect();
    json(json!({ "identity": known.identity.to_string(), "roles": roles }).to_string())
}

fn shown(role: &Role) -> Value {
    let texts = |patterns: &Patterns| patterns.texts().collect::<Vec<_>>();
    json!({
        "name": role.name,
        "lease": texts(&role.lease),
        "as": texts(&role.nodes),
        "observe": role.observe,
        "read": texts(&role.read),
        "operate": texts(&role.operate),
        "top_up_max": role.top_up_max,
        "admin": texts(&role.admin),
        "metrics": role.metrics,
    })
}
