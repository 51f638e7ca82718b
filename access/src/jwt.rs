//! Tokens of an identity provider: JSON Web Tokens (RFC 7519), signed with a key of a file (JWKS, RFC 7517). Nothing is
//! asked over the network. Three signatures are known: RS256, ES256 and EdDSA. A token with another signature, or with
//! none, proves nothing.

use crate::tokens::Unproven;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest token, in bytes.
const TOKEN_MAX: usize = 8_192;

/// Most keys of one file.
const KEYS_MAX: usize = 64;

/// Longest name, in bytes.
const NAME_MAX: usize = 256;

/// Largest difference between the provider's calendar and this one.
const LEEWAY: Duration = Duration::from_secs(30);

/// The issuer whose tokens are accepted, and the audience that they must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Required `iss` of a token.
    pub issuer: String,
    /// Required among the `aud` of a token.
    pub audience: String,
}

/// The keys of an identity provider.
#[derive(Clone, Debug)]
pub struct Jwks(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    public: Public,
}

#[derive(Clone, Debug)]
enum Public {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A name that a token proves, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// `sub` of the token.
    pub name: String,
    /// When the proof expires.
    pub expires: SystemTime,
}

/// Why a file of keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JwksError(String);

#[derive(Deserialize)]
struct RawJwks {
    keys: Vec<RawKey>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Jwks {
    /// Parses the keys in `text`. Keys for other purposes, and of unknown kinds, are skipped.
    ///
    /// # Errors
    /// If `text` is no JWKS, has no key of a known kind, or has a malformed key.
    pub fn parse(text: &str) -> Result<Self, JwksError> {
        let raw: RawJwks = serde_json::from_str(text).map_err(|error| {
            JwksError(format!("this is no JWKS: line {} column {}", error.line(), error.column()))
        })?;
        if raw.keys.len() > KEYS_MAX {
            return Err(JwksError(format!("there are more than {KEYS_MAX} keys")));
        }
        let mut keys = vec![];
        for (index, raw) in raw.keys.into_iter().enumerate() {
            let wrong = |problem: String| JwksError(format!("keys[{index}]{problem}"));
            if let Some(key) = Key::of(&raw).map_err(wrong)? {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Err(JwksError("there is no key for RS256, ES256 or EdDSA in it".to_owned()));
        }
        Ok(Jwks(keys))
    }

    /// Verifies `token`, and returns the name that it proves, by `issuer` at `now`.
    ///
    /// # Errors
    /// If no key here has signed it, it is for another audience, or it is not valid now.
    pub fn subject(&self, token: &str, issuer: &Issuer, now: SystemTime) -> Result<Subject, Unproven> {
        if token.len() > TOKEN_MAX {
            return Err(Unproven::Unknown);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Unproven::Unknown)?;
        let (header, claims) = signed.split_once('.').ok_or(Unproven::Unknown)?;
        let header: Header = part(header)?;
        if header.crit.is_some() {
            return Err(Unproven::Unknown);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Unproven::Unknown)?;
        let may_sign = |key: &&Key| {
            key.public.algorithm() == header.alg && (header.kid.is_none() || key.id == header.kid)
        };
        let mut keys = self.0.iter().filter(may_sign);
        if !keys.any(|key| key.public.has_signed(signed.as_bytes(), &signature)) {
            return Err(Unproven::Unknown);
        }
        // The claims are used only after the signature was verified.
        let claims: Claims = part(claims)?;
        let is_for_us = match &claims.aud {
            Audience::One(audience) => *audience == issuer.audience,
            Audience::Many(audiences) => audiences.contains(&issuer.audience),
        };
        let is_name = !claims.sub.is_empty()
            && claims.sub.len() <= NAME_MAX
            && claims.sub.bytes().all(|byte| byte.is_ascii_graphic());
        if claims.iss != issuer.issuer || !is_for_us || !is_name {
            return Err(Unproven::Unknown);
        }
        let begins = claims.nbf.map(instant).transpose()?;
        if begins.is_some_and(|begins| now + LEEWAY < begins) {
            return Err(Unproven::Unknown);
        }
        let expires = instant(claims.exp)? + LEEWAY;
        if now >= expires {
            return Err(Unproven::Expired);
        }
        Ok(Subject { name: claims.sub, expires })
    }
}

impl Key {
    /// Parses `raw`; `None` if the key is for another purpose, or of an unknown kind.
    fn of(raw: &RawKey) -> Result<Option<Self>, String> {
        if raw.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Ok(None);
        }
        let bytes = |name: &str, text: &Option<String>| {
            let text = text.as_deref().ok_or_else(|| format!(".{name} is missing"))?;
            URL_SAFE_NO_PAD.decode(text).map_err(|_| format!(".{name} is not base64url"))
        };
        let sized = |name: &str, text: &Option<String>| {
            let bytes = bytes(name, text)?;
            if bytes.len() == 32 { Ok(bytes) } else { Err(format!(".{name} is not 32 bytes")) }
        };
        let public = match (raw.kty.as_str(), raw.crv.as_deref()) {
            ("RSA", _) => Public::Rsa { modulus: bytes("n", &raw.n)?, exponent: bytes("e", &raw.e)? },
            ("EC", Some("P-256")) => {
                Public::P256([vec![4], sized("x", &raw.x)?, sized("y", &raw.y)?].concat())
            }
            ("OKP", Some("Ed25519")) => Public::Ed25519(sized("x", &raw.x)?),
            _ => return Ok(None),
        };
        let is_known = raw.alg.as_deref().is_none_or(|alg| alg == public.algorithm());
        Ok(is_known.then(|| Key { id: raw.kid.clone(), public }))
    }
}

impl Public {
    /// The only algorithm of this key: a token cannot choose another one.
    fn algorithm(&self) -> &'static str {
        match self {
            Public::Rsa { .. } => "RS256",
            Public::P256(_) => "ES256",
            Public::Ed25519(_) => "EdDSA",
        }
    }

    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Public::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, text, signature)
            }
            Public::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text, signature)
            }
            Public::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(text, signature),
        };
        verified.is_ok()
    }
}

fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Unproven> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Unproven::Unknown)?;
    serde_json::from_slice(&bytes).map_err(|_| Unproven::Unknown)
}

/// Returns the instant `seconds` after the epoch.
fn instant(seconds: f64) -> Result<SystemTime, Unproven> {
    let since = Duration::try_from_secs_f64(seconds).map_err(|_| Unproven::Unknown)?;
    // Beyond any calendar.
    if since > Duration::from_secs(1 << 40) { Err(Unproven::Unknown) } else { Ok(UNIX_EPOCH + since) }
}

#[cfg(test)]
mod tests;
