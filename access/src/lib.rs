//! Who may do what at an allocator. An [`Identity`] is proven by a token, of its own or of an identity provider, or by a certificate; a [`Role`] gives rights to identities;
//! [`Rights`] are those of one identity. No IO: texts and random bytes are handed in, and so is the time, which [`calendar`] reads.
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
    NewToken, SECRET_BYTES, TOKENS_MAX, Token, TokenId, TokenText, Tokens, TokensError, Unproven, is_token,
    is_token_name,
};

use std::time::SystemTime;

/// The calendar of this machine, by which tokens end.
#[expect(clippy::disallowed_methods, reason = "a token ends by the calendar, as a certificate does")]
pub fn calendar() -> SystemTime {
    SystemTime::now()
}
