//! Identities and their rights at an allocator. An [`Identity`] is proven by a certificate, or by a token of Lessor or
//! of an identity provider. A [`Role`] gives rights to identities; [`Rights`] are those of one identity. There is no
//! IO: texts, random bytes and the time are passed in. [`calendar`] reads the time.
//!
//! In reading order: `pattern` (names, and beginnings of names), `identity`, `tokens` (the file of tokens), `jwt`
//! (tokens of an identity provider), `role`.

mod identity;
mod jwt;
mod pattern;
mod role;
mod tokens;

pub use identity::{Identity, IdentityPattern, Kind};
pub use jwt::{Issuer, Jwks, JwksError, Subject};
pub use pattern::Patterns;
pub use role::{Rights, Role};
pub use tokens::{
    NewToken, SECRET_BYTES, Token, TokenId, TokenText, Tokens, TokensError, Unproven, is_token,
};

use std::time::SystemTime;

/// Returns the time of this machine's calendar, by which tokens expire.
#[expect(clippy::disallowed_methods, reason = "a token ends by the calendar, as a certificate does")]
pub fn calendar() -> SystemTime {
    SystemTime::now()
}
