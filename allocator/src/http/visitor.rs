//! The sender of a request: each handler that shows or changes something takes a [`Visitor`]. A request without an
//! identity is answered 401, and one without the right 403. Neither tells whether the thing it asked for exists. A token
//! that cannot be checked yet is answered 503: a client takes a 401 as said by an allocator that lends to others.

use super::decider::was_refused;
use super::problem::Problem;
use crate::access::{Shown, Unidentified, Visitor};
use crate::audit::{NO_IDENTITY, Origin};
use crate::server::Proven;
use crate::shared::Shared;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use lessor_access::Rights;
use lessor_protocol::names::NAME_MAX;
use lessor_protocol::wire::code;
use lessor_tls::PeerName;
use serde_json::Map;
use std::convert::Infallible;
use std::sync::Arc;

/// The cookie in which a browser keeps its token.
pub(super) const COOKIE_NAME: &str = "lessor_token";

impl FromRequestParts<Arc<Shared>> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        of(shared, &parts.headers, &parts.extensions)
    }
}

/// For requests that are answered without an identity, too: none is refused or counted.
impl OptionalFromRequestParts<Arc<Shared>> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Option<Self>, Infallible> {
        let origin = || parts.extensions.get::<Origin>().cloned().unwrap_or_default();
        Ok(identified(shared, &parts.headers, &parts.extensions, origin).ok())
    }
}

/// Identifies the sender of a request with these headers.
pub(super) fn of(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<Visitor, Problem> {
    of_exchange(shared, headers, extensions, || extensions.get::<Origin>().cloned().unwrap_or_default())
}

/// Identifies the sender of a request that came from `origin`. A request without an identity is counted as refused,
/// one with a token that cannot be checked yet is not.
pub(super) fn of_exchange(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    extensions: &Extensions,
    origin: impl Fn() -> Origin,
) -> Result<Visitor, Problem> {
    identified(shared, headers, extensions, &origin).inspect_err(|problem| {
        if !problem.is_ours() {
            shared.metrics().refused("unauthenticated");
            was_refused(shared, NO_IDENTITY.to_owned(), origin(), None, Map::new());
        }
    })
}

fn identified(
    shared: &Shared,
    headers: &HeaderMap,
    extensions: &Extensions,
    origin: impl Fn() -> Origin,
) -> Result<Visitor, Problem> {
    if shared.config().auth.is_none() {
        return Ok(Visitor::Any);
    }
    let shown = Shown { token: token(headers)?, peer: extensions.get::<PeerName>() };
    // Without loaded identities every request is refused.
    let visitor = shared.access().ok_or(Unidentified::Unproven)?.visitor(shown, origin())?;
    extensions.get::<Proven>().into_iter().for_each(Proven::set);
    Ok(visitor)
}

/// Returns the token of the request: from `authorization`, or else from the cookie of the page.
fn token(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut said = headers.get_all(AUTHORIZATION).iter();
    if let Some(first) = said.next() {
        let first = first.to_str().ok().filter(|_| said.next().is_none());
        let bearer = first.and_then(|text| text.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        return bearer.map(|(_, token)| Some(token.trim())).ok_or_else(unauthenticated);
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    Ok(pairs.find(|(name, value)| *name == COOKIE_NAME && !value.is_empty()).map(|(_, value)| value))
}

/// The answer to a request that proves no identity. It is the same for a missing, wrong, expired or revoked token.
fn unauthenticated() -> Problem {
    let detail = "no identity is proven: show a token (authorization: Bearer …) or a valid certificate";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
}

impl From<Unidentified> for Problem {
    fn from(unidentified: Unidentified) -> Self {
        match unidentified {
            Unidentified::Unproven => unauthenticated(),
            Unidentified::Unread => {
                let detail = "the tokens in the store are not read yet: no token can be checked";
                Problem::unavailable("store_failing", detail)
            }
        }
    }
}

impl Visitor {
    /// # Errors
    /// If `may` is false of the visitor's rights: the answer names the missing `right`.
    pub(super) fn needs(
        &self,
        shared: &Arc<Shared>,
        right: &str,
        may: impl FnOnce(&Rights) -> bool,
    ) -> Result<(), Problem> {
        self.check(shared, right, None, may)
    }

    /// Checks a right to `limit`, which a refusal names in the audit log.
    ///
    /// # Errors
    /// As [`Visitor::needs`].
    pub(super) fn needs_of(
        &self,
        shared: &Arc<Shared>,
        right: &str,
        limit: &str,
        may: impl FnOnce(&Rights) -> bool,
    ) -> Result<(), Problem> {
        self.check(shared, right, Some(limit), may)
    }

    fn check(
        &self,
        shared: &Arc<Shared>,
        right: &str,
        limit: Option<&str>,
        may: impl FnOnce(&Rights) -> bool,
    ) -> Result<(), Problem> {
        if self.may(may) {
            return Ok(());
        }
        shared.metrics().refused("forbidden");
        let detail = format!("{self} has no right to {right} here");
        if let Visitor::Known(known) = self {
            let more = Map::from_iter([("right".to_owned(), right.into())]);
            // The name comes from the path, and may be as long as that and belong to no limit.
            let limit = limit.map(|limit| limit.chars().take(NAME_MAX).collect());
            was_refused(shared, self.to_string(), known.origin.clone(), limit, more);
        }
        Err(Problem::new(StatusCode::FORBIDDEN, code::FORBIDDEN, detail).with("right", right.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn shown(headers: &[(HeaderName, &'static str)]) -> Result<Option<String>, ()> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
        token(&headers).map(|token| token.map(str::to_owned)).map_err(|_| ())
    }

    #[test]
    fn a_token_is_shown_in_one_place() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(shown(&[]), Ok(None));
        assert_eq!(shown(&[(AUTHORIZATION, "Bearer abc")]), some("abc"));
        assert_eq!(shown(&[(AUTHORIZATION, "bearer  abc ")]), some("abc"));
        for wrong in ["Basic abc", "abc", "", "Bearer"] {
            assert_eq!(shown(&[(AUTHORIZATION, wrong), (COOKIE, "lessor_token=abc")]), Err(()), "{wrong}");
        }
        assert_eq!(
            shown(&[(AUTHORIZATION, "Bearer a"), (AUTHORIZATION, "Bearer b")]),
            Err(()),
            "which is meant?"
        );
        assert_eq!(shown(&[(COOKIE, "a=b; lessor_token=abc; c=d")]), some("abc"));
        assert_eq!(shown(&[(COOKIE, "a=b"), (COOKIE, "lessor_token=abc")]), some("abc"));
        assert_eq!(shown(&[(COOKIE, "xlessor_token=abc")]), Ok(None));
        assert_eq!(shown(&[(AUTHORIZATION, "Bearer a"), (COOKIE, "lessor_token=b")]), some("a"));
    }
}
