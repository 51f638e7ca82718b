//! The identity of a peer: the name that it has proven, and how.

use crate::pattern::Patterns;
use ring::digest::{Context, SHA256};
use std::fmt;

/// How a name was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// By a certificate, in the TLS handshake.
    Certificate,
    /// By a token that `lessor token new` made.
    Token,
    /// By a token that an identity provider signed.
    Jwt,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Certificate, Kind::Token, Kind::Jwt];

    /// Returns the word for it in configurations, logs and answers.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Certificate => "certificate",
            Kind::Token => "token",
            Kind::Jwt => "jwt",
        }
    }
}

/// A proven name. Its `Display` is `token:NAME`, `certificate:NAME` or `jwt:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    kind: Kind,
    name: String,
}

impl Identity {
    /// Makes an identity that has proven `name` in the way of `kind`.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Identity { kind, name: name.into() }
    }

    /// How the name was proven.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name alone.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a number of this identity, the same in each process: the first eight bytes of the SHA-256 of its
    /// `Display`.
    pub fn number(&self) -> u64 {
        let mut hash = Context::new(&SHA256);
        [self.kind.word(), ":", &self.name].iter().for_each(|part| hash.update(part.as_bytes()));
        hash.finish().as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.word(), self.name)
    }
}

/// A pattern of identities: `KIND:NAME`, or `KIND:BEGINNING*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityPattern {
    kind: Kind,
    names: Patterns,
}

impl IdentityPattern {
    /// Parses `text`.
    ///
    /// # Errors
    /// If it is no pattern. The error says why.
    pub fn try_new(text: &str) -> Result<Self, String> {
        let split = text.split_once(':');
        let kind = split.and_then(|(word, _)| Kind::ALL.into_iter().find(|kind| kind.word() == word));
        let (Some((_, name)), Some(kind)) = (split, kind) else {
            let shown: String = text.chars().take(80).collect();
            return Err(format!("{shown:?} is no identity: use token:NAME, certificate:NAME or jwt:NAME"));
        };
        Ok(IdentityPattern { kind, names: Patterns::try_new([name])? })
    }

    /// Whether the pattern matches `identity`.
    pub fn fits(&self, identity: &Identity) -> bool {
        self.kind == identity.kind && self.names.fit(&identity.name)
    }
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.word(), self.names.texts().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep this number with keys.
    #[test]
    fn an_identity_has_the_same_number_in_each_process() {
        assert_eq!(Identity::new(Kind::Token, "billing").number(), 0xb004_e119_d77c_3b6d);
        assert_ne!(
            Identity::new(Kind::Token, "billing").number(),
            Identity::new(Kind::Certificate, "billing").number()
        );
    }

    #[test]
    fn a_name_that_was_proven_one_way_is_not_the_same_proven_another_way() {
        let pattern = IdentityPattern::try_new("certificate:spiffe://prod/billing/*").expect("good");
        assert!(pattern.fits(&Identity::new(Kind::Certificate, "spiffe://prod/billing/api")));
        assert!(!pattern.fits(&Identity::new(Kind::Token, "spiffe://prod/billing/api")));
        assert!(!pattern.fits(&Identity::new(Kind::Certificate, "spiffe://prod/search")));
        assert_eq!(pattern.to_string(), "certificate:spiffe://prod/billing/*");
        for text in ["", "billing", "cert:a", "token:", "token:a*b", "Token:a"] {
            assert!(IdentityPattern::try_new(text).is_err(), "{text}");
        }
    }
}
