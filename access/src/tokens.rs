//! The file of tokens, which has enough of each token to recognise it, but not to show it. A token is made of 256
//! random bits, so its plain hash can be neither inverted nor guessed.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq as _;

/// Most tokens of one file.
const TOKENS_MAX: usize = 10_000;

/// Random bytes of a token: 4 for its id, and 32 that prove it.
pub const SECRET_BYTES: usize = 36;

/// Prefix of each token, by which scanners find tokens that were left in sources.
const PREFIX: &str = "lessor_";

/// Whether `text` looks like a token of Lessor, valid or not.
pub fn is_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Longest name, in bytes.
const NAME_MAX: usize = 128;

/// First line of the file.
const HEAD: &str = "# Tokens that `lessor token new` made. Their texts are not here: each was shown once.\n";

/// The id of a token: eight hexadecimal digits, which are no secret.
pub type TokenId = String;

/// A token as its bearer shows it. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

impl TokenText {
    /// Returns the text: a secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(…)")
    }
}

/// The record of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The identity that the token proves. Several tokens may prove the same one.
    pub name: String,
    /// When it was made.
    pub created: SystemTime,
    /// When it expires; `None` if it never does.
    pub expires: Option<SystemTime>,
    hash: [u8; 32],
}

/// A token that was just made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its id in the file.
    pub id: TokenId,
    /// Its text.
    pub text: TokenText,
}

/// Why a text proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It is no token of this file, or no longer one.
    Unknown,
    /// It has expired.
    Expired,
}

/// Why a file of tokens, or a change to it, is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokensError(String);

/// The tokens of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(BTreeMap<TokenId, Token>);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawTokens {
    #[serde(default)]
    token: Vec<RawToken>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    id: String,
    name: String,
    sha256: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

impl Tokens {
    /// Parses a file of tokens.
    ///
    /// # Errors
    /// If `text` is wrong. The error is the first problem, in one line.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let raw: RawTokens = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            TokensError(format!("line {line}: {}", error.message()))
        })?;
        if raw.token.len() > TOKENS_MAX {
            return Err(full());
        }
        let mut tokens = Tokens::default();
        for (index, raw) in raw.token.into_iter().enumerate() {
            let wrong = |field: &str, problem: &str| TokensError(format!("token[{index}].{field} {problem}"));
            let time = |field: &str, text: &str| {
                humantime::parse_rfc3339(text).map_err(|_| {
                    wrong(field, &format!("is {:?}: use a time like 2026-01-31T12:00:00Z", shown(text)))
                })
            };
            if !is_token_name(&raw.name) {
                return Err(wrong("name", &format!("is {:?}: {NAME_RULE}", shown(&raw.name))));
            }
            let (id, hash) = (unhex::<4>(&raw.id), unhex::<32>(&raw.sha256));
            id.ok_or_else(|| wrong("id", "is not eight hexadecimal digits"))?;
            let token = Token {
                hash: hash.ok_or_else(|| wrong("sha256", "is not 64 hexadecimal digits"))?,
                created: time("created", &raw.created)?,
                expires: raw.expires.as_deref().map(|text| time("expires", text)).transpose()?,
                name: raw.name,
            };
            if tokens.0.insert(raw.id, token).is_some() {
                return Err(wrong("id", "is there twice"));
            }
        }
        Ok(tokens)
    }

    /// Adds a token for `name`. It is valid from `now`, for as long as `valid`, or for ever. The bytes in `random` must
    /// be unknown to all others.
    ///
    /// # Errors
    /// If `name` is malformed, or there are too many tokens.
    pub fn add(
        &mut self,
        name: &str,
        valid: Option<Duration>,
        now: SystemTime,
        random: &[u8; SECRET_BYTES],
    ) -> Result<NewToken, TokensError> {
        if !is_token_name(name) {
            return Err(TokensError(format!("{:?} is no name for a token: {NAME_RULE}", shown(name))));
        }
        if self.0.len() >= TOKENS_MAX {
            return Err(full());
        }
        let (id, secret) = random.split_at(4);
        let id = hex(id);
        let text = format!("{PREFIX}{id}_{}", hex(secret));
        let expires = valid.map(|valid| now.checked_add(valid));
        let expires = expires.map(|end| {
            end.ok_or_else(|| {
                TokensError("the token would expire too far in the future: leave the time out".to_owned())
            })
        });
        let token =
            Token { name: name.to_owned(), created: now, expires: expires.transpose()?, hash: hash(&text) };
        if self.0.contains_key(&id) {
            return Err(TokensError(format!("there is a token {id}: try again")));
        }
        self.0.insert(id.clone(), token);
        Ok(NewToken { id, text: TokenText(text) })
    }

    /// Removes the token with the id `which`, or all tokens of the name `which`. Returns their ids.
    pub fn revoke(&mut self, which: &str) -> Vec<TokenId> {
        let gone = |(id, token): (&TokenId, &Token)| (id == which || token.name == which).then(|| id.clone());
        let gone: Vec<_> = self.0.iter().filter_map(gone).collect();
        self.0.retain(|id, _| !gone.contains(id));
        gone
    }

    /// Finds the token with this text, at `now`. The comparison of the secret takes constant time.
    ///
    /// # Errors
    /// If it is none of these tokens, or has expired.
    pub fn find(&self, text: &str, now: SystemTime) -> Result<(&TokenId, &Token), Unproven> {
        let id = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).map(|(id, _)| id);
        let (id, token) = id.and_then(|id| self.0.get_key_value(id)).ok_or(Unproven::Unknown)?;
        if !bool::from(token.hash.ct_eq(&hash(text))) {
            return Err(Unproven::Unknown);
        }
        match token.expires {
            Some(end) if now >= end => Err(Unproven::Expired),
            Some(_) | None => Ok((id, token)),
        }
    }

    /// Returns the token with this id.
    pub fn get(&self, id: &TokenId) -> Option<&Token> {
        self.0.get(id)
    }

    /// All tokens, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&TokenId, &Token)> {
        self.0.iter()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The file in full.
impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: SystemTime| humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string();
        let raw = self.0.iter().map(|(id, token)| RawToken {
            id: id.clone(),
            name: token.name.clone(),
            sha256: hex(&token.hash),
            created: time(token.created),
            expires: token.expires.map(time),
        });
        f.write_str(HEAD)?;
        let text = toml::to_string(&RawTokens { token: raw.collect() }).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

/// The rule for names, as errors state it.
const NAME_RULE: &str = "use 1 to 128 letters, digits and . _ - / : @";

/// Whether `name` can be the name of a token.
fn is_token_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_good)
}

fn full() -> TokensError {
    TokensError(format!("there are more than {TOKENS_MAX} tokens: revoke some"))
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses `N` bytes in lower-case hexadecimal digits.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    fn random(seed: u8) -> [u8; SECRET_BYTES] {
        std::array::from_fn(|index| seed.wrapping_mul(31).wrapping_add(index as u8))
    }

    #[test]
    fn a_token_proves_its_name_until_it_expires_or_is_revoked() {
        let mut tokens = Tokens::default();
        let first = tokens.add("billing", None, at(0), &random(1)).expect("room");
        let second = tokens.add("billing", Some(Duration::from_secs(60)), at(0), &random(2)).expect("room");
        let name = |tokens: &Tokens, token: &NewToken, now| {
            tokens.find(token.text.reveal(), now).map(|(_, token)| token.name.clone())
        };
        for token in [&first, &second] {
            assert_eq!(name(&tokens, token, at(59)), Ok("billing".to_owned()), "both are good at once");
        }
        assert_eq!(name(&tokens, &second, at(60)), Err(Unproven::Expired));
        assert_eq!(tokens.revoke(&first.id), std::slice::from_ref(&first.id));
        assert_eq!(name(&tokens, &first, at(1)), Err(Unproven::Unknown));
        assert_eq!(tokens.revoke("billing"), [second.id]);
        assert!(tokens.is_empty() && tokens.revoke("billing").is_empty());
    }

    #[test]
    fn neither_the_file_nor_debug_shows_a_token() {
        let mut tokens = Tokens::default();
        let made = tokens.add("a/b:c@d", Some(Duration::from_secs(90)), at(0), &random(3)).expect("room");
        let secret = made.text.reveal().rsplit_once('_').expect("two parts").1.to_owned();
        let text = tokens.to_string();
        assert!(!text.contains(&secret) && !format!("{made:?} {tokens:?}").contains(&secret), "{text}");
        assert_eq!(Tokens::parse(&text), Ok(tokens));
    }

    #[test]
    fn what_is_no_file_of_tokens_says_where() {
        let good = |field: &str, value: &str| {
            let mut token = BTreeMap::from([
                ("id", "00000001".to_owned()),
                ("name", "a".to_owned()),
                ("sha256", "0".repeat(64)),
                ("created", "2026-01-01T00:00:00Z".to_owned()),
            ]);
            token.insert(field, value.to_owned());
            let lines: String = token.iter().map(|(key, value)| format!("{key} = \"{value}\"\n")).collect();
            format!("[[token]]\n{lines}")
        };
        assert!(Tokens::parse(&good("name", "b")).is_ok());
        for (field, value) in [
            ("id", "1"),
            ("id", "0000000G"),
            ("name", ""),
            ("name", "a b"),
            ("sha256", "00"),
            ("created", "yesterday"),
            ("expires", "2026"),
        ] {
            let error = Tokens::parse(&good(field, value)).expect_err(value).to_string();
            assert!(error.contains(&format!("token[0].{field}")), "{error}");
        }
        assert!(Tokens::parse(&good("secret", "x")).is_err());
        let twice = good("name", "b") + &good("name", "c");
        assert!(Tokens::parse(&twice).expect_err("twice").to_string().contains("token[1].id is there twice"));
        assert!(Tokens::parse("token = 7").is_err_and(|error| error.to_string().starts_with("line 1")));
    }

    proptest! {
        #[test]
        fn no_other_text_is_taken_for_a_token(change in 0..80_usize, byte in any::<u8>(), text in ".{0,100}") {
            let mut tokens = Tokens::default();
            let made = tokens.add("a", None, at(0), &random(5)).expect("room");
            let mut bytes = made.text.reveal().as_bytes().to_vec();
            let place = change % bytes.len();
            bytes[place] = byte;
            if let Ok(other) = String::from_utf8(bytes) && other != made.text.reveal() {
                prop_assert_eq!(tokens.find(&other, at(0)), Err(Unproven::Unknown));
            }
            prop_assert_eq!(tokens.find(&text, at(0)), Err(Unproven::Unknown));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(?s).{0,200}") {
            let _ = Tokens::parse(&text);
        }
    }
}
